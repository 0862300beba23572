package rule

import (
	"bytes"
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

var update = flag.Bool("update", false, "write the golden files under testdata")

const hubID = "hub-1"

// options are those of the tests' hub.
var options = RenderOptions{HubID: hubID, AdminNamespace: "rulefleet-system", RuleNamespace: "monitoring", ClusterLabel: "cluster"}

// newRule returns a valid AlertRule that is placed everywhere.
func newRule(edit ...func(*v1alpha1.AlertRule)) *v1alpha1.AlertRule {
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

// newTemplate returns a valid AlertRuleTemplate for every Deployment.
func newTemplate(edit ...func(*v1alpha1.AlertRuleTemplate)) *v1alpha1.AlertRuleTemplate {
	t := &v1alpha1.AlertRuleTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: "down"},
		Spec: v1alpha1.AlertRuleTemplateSpec{
			AlertSpec: v1alpha1.AlertSpec{Alert: "Down", Expr: `up{namespace="$(deployment.namespace)"} == 0`},
		},
	}
	for _, f := range edit {
		f(t)
	}
	return t
}

func newWorkload(edit ...func(*Workload)) Workload {
	w := Workload{Cluster: Cluster{Name: "eu-1"}, Namespace: "shop", Name: "web"}
	for _, f := range edit {
		f(&w)
	}
	return w
}

// random returns a generator that is the same in every run, so that a failure is too.
func random() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

// shards are pieces that mean something to one of the grammars that a value passes.
var shards = []string{
	`"`, `'`, "`", `\`, `\"`, `\n`, "\n", "\r", "\t", "\x00", "\x7f", "\u0085", "\u2028", "\ufffd", "é", "🚀", "\U000e0001",
	"$", "$$", "$(", "$$(", "(", ")", "$(cluster.name)", "cluster.name)", "$(deployment.name)", "$1", "${1}",
	"{", "{{", "}", "}}", "{{.}}", "{{-", "/*", "*/", `{{"{"}}`,
	".", ".*", "+", "?", "|", "[", "]", "^", "-", `\E`, `\Q`, "#", "=~", ",", " ", "a", "B", "7", "eu-1",
}

func nasty(r *rand.Rand) string {
	var b strings.Builder
	for range r.IntN(6) {
		b.WriteString(shards[r.IntN(len(shards))])
	}
	return b.String()
}

// golden compares an object with testdata/<name>.yaml.
func golden(t *testing.T, name string, object any) {
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
