package ruletest

import (
	"bytes"
	"flag"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/template"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// FuzzLimit is how long one input may keep the processor, with the race detector on a
// slow machine. Without it, it is hundredths of that.
const FuzzLimit = 2 * time.Second

// Watch ends the process when an input takes for ever, until it is called off: the
// fuzzer alone would wait, and call it a pass. It counts CPU time, because other work may
// come first.
func Watch() (off func()) {
	begun, done := mustCPUTime(), make(chan struct{})
	go func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				if mustCPUTime()-begun > 15*FuzzLimit {
					panic("this input takes for ever")
				}
			}
		}
	}()
	return func() { close(done) }
}

// CPUTime returns what the process has used: other processes have no part in it.
func CPUTime(t *testing.T) time.Duration {
	t.Helper()
	return mustCPUTime()
}

func mustCPUTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

var update = flag.Bool("update", false, "write the golden files under testdata")

// HubID is the id of the tests' hub.
const HubID = "hub-1"

// Rule returns a valid AlertRule that is placed everywhere.
func Rule(edit ...func(*v1alpha1.AlertRule)) *v1alpha1.AlertRule {
	r := &v1alpha1.AlertRule{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-down", Generation: 1},
		Spec: v1alpha1.AlertRuleSpec{
			AlertSpec: v1alpha1.AlertSpec{Alert: "WebDown", Expr: "up == 0"},
			Placement: v1alpha1.ClusterSelection{Selector: &metav1.LabelSelector{}},
		},
	}
	for _, f := range edit {
		f(r)
	}
	return r
}

// Template returns a valid AlertRuleTemplate for every Deployment.
func Template(edit ...func(*v1alpha1.AlertRuleTemplate)) *v1alpha1.AlertRuleTemplate {
	t := &v1alpha1.AlertRuleTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: "down"},
		Spec: v1alpha1.AlertRuleTemplateSpec{
			AlertSpec: v1alpha1.AlertSpec{Alert: "Down", Expr: `up{namespace="$(workload.namespace)"} == 0`},
		},
	}
	for _, f := range edit {
		f(t)
	}
	return t
}

// Random returns a generator that is the same in every run, so that a failure is too.
func Random() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

// Shards are pieces that mean something to one of the grammars that a value passes.
var Shards = []string{
	`"`, `'`, "`", `\`, `\"`, `\n`, "\n", "\r", "\t", "\x00", "\x7f", "\u0085", "\u2028", "\ufffd", "é", "🚀", "\U000e0001",
	"$", "$$", "$(", "$$(", "(", ")", "$(cluster.name)", "cluster.name)", "$(workload.name)", "$1", "${1}",
	"{", "{{", "}", "}}", "{{.}}", "{{-", "/*", "*/", `{{"{"}}`,
	".", ".*", "+", "?", "|", "[", "]", "^", "-", `\E`, `\Q`, "#", "=~", ",", " ", "a", "B", "7", "eu-1",
}

// Nasty returns a random text of Shards.
func Nasty(r *rand.Rand) string {
	var b strings.Builder
	for range r.IntN(6) {
		b.WriteString(Shards[r.IntN(len(Shards))])
	}
	return b.String()
}

// Golden compares an object with testdata/<name>.yaml.
func Golden(t *testing.T, name string, object any) {
	t.Helper()
	got, err := yaml.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", name+".yaml")
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (go test -update writes it)", err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs (go test -update writes it); got:\n%s", path, got)
	}
}

var (
	// BadSelector is not valid.
	BadSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Like", Values: []string{"b"}}}}
	// ProdSelector selects clusters of production.
	ProdSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"env": "prod"}}
)

// Where returns the phase and the reason of a row.
func Where(r v1alpha1.ClusterStatus) string { return string(r.Phase) + "/" + r.Reason }

// Loads checks that Prometheus would load a rule as it stands.
func Loads(t *testing.T, p *monitoringv1.PrometheusRule) {
	t.Helper()
	file, err := yaml.Marshal(p.Spec)
	if err != nil {
		t.Fatal(err)
	}
	_, errs := rulefmt.Parse(file, false, model.LegacyValidation, parser.NewParser(parser.Options{}), slog.New(slog.NewTextHandler(io.Discard, nil)))
	for _, err := range errs {
		t.Errorf("Prometheus would not load it: %v\n%s", err, file)
	}
}

// Pick returns one of a list.
func Pick[T any](rnd *rand.Rand, of []T) T { return of[rnd.IntN(len(of))] }

// Long repeats a text.
func Long(s string, n int) string { return strings.Repeat(s, n) }

// Expander is Prometheus' own for a label's or an annotation's text, after the text that Prometheus puts before it.
func Expander(t *testing.T, text string) *template.Expander {
	t.Helper()
	const before = "{{$labels := .Labels}}{{$externalLabels := .ExternalLabels}}{{$externalURL := .ExternalURL}}{{$value := .Value}}"
	data := template.AlertTemplateData(map[string]string{"job": "j"}, nil, "", promql.Sample{F: 7})
	return template.NewTemplateExpander(t.Context(), before+text, "text", data, model.Time(0), nil, &url.URL{}, nil)
}

// PrometheusText is what Prometheus makes of a label's or an annotation's text.
func PrometheusText(t *testing.T, text string) (string, error) {
	t.Helper()
	return Expander(t, text).Expand()
}

// Clusters selects clusters by name.
func Clusters(names ...v1alpha1.ClusterName) v1alpha1.ClusterSelection {
	return v1alpha1.ClusterSelection{Names: names}
}

// EveryCluster selects every cluster.
func EveryCluster() v1alpha1.ClusterSelection {
	return v1alpha1.ClusterSelection{Selector: &metav1.LabelSelector{}}
}

// Texts are the labels or the annotations of an alert.
type Texts = map[string]v1alpha1.LabelText

// GeneratedRule makes a rule what templates make.
func GeneratedRule(r *v1alpha1.AlertRule) {
	r.Namespace = "rulefleet-generated"
	r.Spec.WorkloadRef = &v1alpha1.WorkloadReference{Cluster: "eu-1", Kind: "Deployment", Namespace: "kube-system", Name: "dns"}
	r.Spec.Placement = v1alpha1.ClusterSelection{Names: []v1alpha1.ClusterName{"eu-1"}}
}
