package evaluate

import (
	"fmt"
	"net/http"
	"net/http/httputil"
	"slices"
	"strings"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/evaluation"
	testprometheus "github.com/rulefleet/rulefleet/pkg/testing/prometheus"
)

// packObject returns the nth PrometheusRule of a RulePack with these groups.
func packObject(t *testing.T, n int, groups string) *monitoringv1.PrometheusRule {
	t.Helper()
	name := fmt.Sprintf("r%d", n)
	o := &monitoringv1.PrometheusRule{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: rule.ObjectName(hubID, rule.Key{Kind: v1alpha1.RulePackKind, Namespace: "shop", Name: name}), Generation: 1,
		UID:         types.UID(fmt.Sprintf("00000000-0000-0000-0001-%012d", n)),
		Labels:      map[string]string{v1alpha1.ManagedByLabel: v1alpha1.ManagedByValue, v1alpha1.HubLabel: hubID},
		Annotations: map[string]string{v1alpha1.RulePackAnnotation: "shop/" + name},
	}}
	if err := yaml.UnmarshalStrict([]byte(groups), &o.Spec.Groups); err != nil {
		t.Fatal(err)
	}
	return o
}

// The result of a recording rule is missing only after some time in which what the rule reads exists.
func TestEmptyRecordings(t *testing.T) {
	t.Parallel()
	input, result := &presence{}, &presence{}
	s := &series{known: map[string]*presence{"input": input, "job:result": result}}
	r := &recording{result: "job:result", needs: [][]string{{"input"}}}
	now := time.Unix(1e9, 0)
	check := func(after time.Duration, hasInput, hasResult, want bool) {
		t.Helper()
		now = now.Add(after)
		for is, has := range map[*presence]bool{input: hasInput, result: hasResult} {
			if is.at, is.absent = now, is.absent+1; has {
				is.absent = 0
			}
		}
		if got := s.empty(r, emptyPatience); got != want {
			t.Errorf("after %v: %v", after, got)
		}
	}
	for range 100 { // without the exporter
		check(time.Minute, false, false, false)
	}
	check(time.Second, true, false, false)
	for range 20 { // however often it is checked
		check(time.Second, true, false, false)
	}
	check(5*time.Minute, true, false, false)
	check(time.Second, true, true, false)
	check(time.Second, true, false, false)
	check(9*time.Minute, true, false, false)
	check(time.Minute, true, false, true)
	check(time.Minute, false, false, false)
	check(time.Minute, true, false, false)
	delete(s.known, "job:result") // the rule is not evaluated
	if s.empty(r, 0) {
		t.Error("a result that is not asked for is missing")
	}
}

// A real Prometheus evaluates the rules of RulePacks beside those of an AlertRule of the same name.
func TestPacksOnARealPrometheus(t *testing.T) {
	t.Parallel()
	for name, folder := range map[string]string{"files of prometheus-operator": "prometheus-k-rulefiles-0/", "other files": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testPacks(t, folder)
		})
	}
}

func testPacks(t *testing.T, folder string) {
	t.Helper()
	const records = `
- name: z-first
  interval: 1s
  rules:
  - {record: "job:one", expr: 1, labels: {source: pack}}
  - {record: "job:two", expr: 'job:one * 2'}
  - {record: "job:without_input", expr: 'up{job="none"} * 2'}
  - {record: "job:filtered", expr: 'job:one > 5'}
  - {record: "job:no_match", expr: 'job:one * label_replace(job:two, "a", "b", "", "")'}
  - {record: "job:of_no_match", expr: 'job:no_match + job:without_input'}
`
	good := packObject(t, 1, records+`
- name: a-second
  interval: 1s
  labels: {tier: web}
  rules:
  - {alert: Fires, expr: 'job:two > 1', labels: {severity: critical}, annotations: {summary: 'it is {{ $value }}'}}
  - {alert: FiresToo, expr: 'vector(1)'}
  - {alert: Quiet, expr: 'up{job="none"} == 0', for: 5m, keep_firing_for: 1m}
`)
	bad := packObject(t, 2, `
- name: fails
  interval: 1s
  rules:
  - {alert: Works, expr: vector(1)}
  - {record: "job:fails", expr: 'label_replace(vector(1), "a", "1", "", "") + on () (label_replace(vector(1), "b", "1", "", "") or label_replace(vector(1), "b", "2", "", ""))'}
  - {alert: FailsToo, expr: 'vector(1) + on () (label_replace(vector(1), "b", "1", "", "") or label_replace(vector(1), "b", "2", "", ""))'}
`)
	alert := object(1, "vector(1)  >0")
	w, _ := newWorld(t, good, bad, alert)
	w.Intervals = 0.001 // of the time that a recording rule may have no result
	in := map[string][]byte{}
	for name, text := range files(t, good, bad, alert) {
		in[folder+name] = text
	}
	p, err := testprometheus.Start(t.Context(), testprometheus.Options{Dir: t.TempDir(), Rules: in})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
	w.prometheus = http.StripPrefix("/api/v1/namespaces/monitoring/services/http:prometheus-operated:web/proxy", httputil.NewSingleHostReverseProxy(p.URL()))
	eventually(t, func() error {
		w.once()
		if is := w.says(good); is.Outcome != evaluation.Evaluates || is.Firing != 2 || !slices.Equal(is.Missing, []string{`up{job="none"}`, "job:no_match"}) {
			return fmt.Errorf("the good one: %+v", is)
		}
		if is := w.says(bad); is.Outcome != evaluation.Failed || is.Firing != 1 || !strings.HasPrefix(is.Message, "2 of 3 rules fail; the first is job:fails of group fails: ") {
			return fmt.Errorf("the bad one: %+v", is)
		}
		if is := w.says(alert); is.Outcome != evaluation.Evaluates {
			return fmt.Errorf("the AlertRule: %+v", is)
		}
		return nil
	})
	for name, es := range w.state("s").evaluators {
		if es.loaded != 13 {
			t.Errorf("%s has loaded %d", name, es.loaded)
		}
	}
	// Until Prometheus has reloaded, it has another version, whatever was edited.
	generation := good.Generation
	for name, edit := range map[string]func(*monitoringv1.PrometheusRule){
		"an expression": func(o *monitoringv1.PrometheusRule) {
			o.Spec.Groups[0].Rules[1].Expr = intstr.FromString("job:one * 3")
		},
		"a label":         func(o *monitoringv1.PrometheusRule) { o.Spec.Groups[0].Rules[1].Labels = map[string]string{"x": "y"} },
		"a group's label": func(o *monitoringv1.PrometheusRule) { o.Spec.Groups[1].Labels["tier"] = "db" },
		"a group's name":  func(o *monitoringv1.PrometheusRule) { o.Spec.Groups[1].Name = "other" },
		"one less":        func(o *monitoringv1.PrometheusRule) { o.Spec.Groups[1].Rules = o.Spec.Groups[1].Rules[:2] },
		"another order":   func(o *monitoringv1.PrometheusRule) { slices.Reverse(o.Spec.Groups[1].Rules) },
		"a group less":    func(o *monitoringv1.PrometheusRule) { o.Spec.Groups = o.Spec.Groups[1:] },
		"the other kind": func(o *monitoringv1.PrometheusRule) {
			r := &o.Spec.Groups[0].Rules[1]
			r.Alert, r.Record = r.Record, ""
		},
	} {
		other := good.DeepCopy()
		generation++
		other.Generation = generation
		edit(other)
		w.hold(other, bad, alert)
		w.once()
		unknown := folder == "" && name == "a group less" // the file of a rule tells whose it is
		if is := w.says(other); !unknown && (is.Outcome != evaluation.Absent || is.Message == "") {
			t.Errorf("%s: %+v", name, is)
		}
	}
}
