package evaluate

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule/promql"
	"github.com/rulefleet/rulefleet/pkg/spoke"
)

// A metric is missing when two consecutive checks have not found it.
func TestMissingMetrics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := object(1, `custom{a="b"} > 0 and other > 0`), object(2, "there or elsewhere")
		w, f := newWorld(t, a, b)
		f.series = map[string]bool{"there": true}
		want := func(what string, missing []string, checked bool) {
			t.Helper()
			is := w.says(a)
			if !slices.Equal(is.Missing, missing) || is.Checked != checked {
				t.Errorf("%s: %q is missing, checked: %v", what, is.Missing, is.Checked)
			}
			if is := w.says(b); len(is.Missing) > 0 {
				t.Errorf("%s: of an or, %q is missing", what, is.Missing)
			}
		}
		want("before", nil, false)
		if delay := w.once(); delay > 8*time.Second {
			t.Errorf("one that seems to be missing is looked for again in %v", delay)
		}
		want("once", nil, false)
		pass(t, retry)
		w.once()
		want("twice", []string{`custom{a="b"}`, "other"}, true)
		if told, _ := w.news(); !slices.Contains(told, "r1") {
			t.Errorf("news of %v", told)
		}
		pass(t, DefaultInterval)
		f.set(func() { f.series["custom"] = true })
		w.once()
		want("one is there", []string{"other"}, true)
		if told, _ := w.news(); !slices.Equal(told, []string{"r1"}) {
			t.Errorf("news of %v", told)
		}
		// An edited rule has other selectors.
		w.hold(edited(a), b)
		if is := w.says(edited(a)); is.Checked || len(is.Missing) > 0 {
			t.Errorf("edited: %+v", is)
		}
		// A failed query does not make a metric missing.
		f.set(func() { f.fail = answers(503, "text/plain", "down") })
		for range 4 {
			pass(t, DefaultInterval)
			w.once()
		}
		w.want(v1alpha1.ConditionMetricsPresent, "True/")
	})
}

// Prometheus is not asked for series that an enforced namespace hides, although somebody in the spoke may change a
// rule to ask for them.
func TestMissingMetricsOfTenants(t *testing.T) {
	t.Parallel()
	asks := func(t *testing.T, expr string, enforce bool) string {
		t.Helper()
		w, f := newWorld(t, object(1, expr))
		f.series = map[string]bool{}
		w.Render.Tenancy.EnforceNamespace, w.Render.AdminNamespace = enforce, "rulefleet-system"
		w.once()
		requests, _ := w.asked()
		var queries []string
		for _, r := range requests {
			if _, query, found := strings.Cut(r, "query="); found {
				text, err := url.QueryUnescape(query)
				if err != nil {
					t.Fatal(err)
				}
				queries = append(queries, text)
			}
		}
		return strings.Join(queries, "\n")
	}
	for name, c := range map[string]struct {
		expr    string
		enforce bool
		want    string // part of what is asked; none for nothing
		not     string
	}{
		"as rendered":       {`secret{namespace="shop"} > 0`, true, `secret{namespace="shop"}`, ""},
		"changed":           {`secret > 0`, true, `secret{namespace="shop"}`, "group(secret)"},
		"another namespace": {`secret{namespace="payments"} > 0`, true, "", "secret"},
		"off":               {`secret > 0`, false, "group(secret)", "namespace"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := asks(t, c.expr, c.enforce)
			if !strings.Contains(got, c.want) || c.want == "" && got != "" || c.not != "" && strings.Contains(got, c.not) {
				t.Errorf("asked is %q", got)
			}
		})
	}
}

func TestMetricsOff(t *testing.T) {
	t.Parallel()
	o := object(1, "custom")
	w, f := newWorld(t, o)
	w.Metrics, f.series = false, map[string]bool{}
	for range 3 {
		w.once()
	}
	if requests, _ := w.asked(); len(requests) != 3 {
		t.Errorf("it is asked %v", requests)
	}
	if is := w.says(o); !is.Checked || len(is.Missing) > 0 {
		t.Errorf("it is %+v", is)
	}
	if got := w.shows(); got[v1alpha1.ConditionMetricsPresent] != ": " && got[v1alpha1.ConditionMetricsPresent] != "" {
		t.Errorf("shown is %v", got)
	}
}

// Missing kube-state-metrics is reported once, however many rules need it, initially and whenever it
// disappears or returns.
func TestKubeStateMetrics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var objects []*monitoringv1.PrometheusRule
		for i := range 160 {
			objects = append(objects, object(i, fmt.Sprintf(`kube_a{n="%d"} == 0 and on() kube_b{n="%d"} > 0`, i, i)))
		}
		w, f := newWorld(t, append(objects, object(999, "custom"))...)
		polls := func(what string, n int, condition string) {
			t.Helper()
			for range n {
				pass(t, w.once())
				for _, o := range objects {
					if is := w.says(o); len(is.Missing) > 0 {
						t.Fatalf("%s: %q is missing of %s", what, is.Missing, o.Name)
					}
				}
			}
			w.want(v1alpha1.ConditionMetricsPresent, condition)
		}
		set := func(names ...string) {
			f.set(func() {
				f.series = map[string]bool{}
				for _, name := range names {
					f.series[name] = true
				}
			})
		}
		const missing = "False/KubeStateMetricsMissing: Prometheus has none of the metrics of kube-state-metrics that rules need, such as kube_a,"
		set("custom")
		polls("not there", 10, missing)
		set("custom", "kube_a", "kube_b")
		polls("it comes", 4, "True/")
		polls("and stays", 10, "True/")
		set("custom")
		polls("it goes", 3, missing)
		polls("and stays away", 10, missing)
		w.news()
		polls("with no news", 5, missing)
		if _, shown := w.news(); shown > 0 {
			t.Errorf("%d shown", shown)
		}
		set("custom", "kube_a", "kube_b")
		polls("back", 8, "True/")

		// Other metrics of it exist: those that rules need may exist only at times.
		set("custom", promql.MetricName(anyKube)) // which has no name
		for range 40 {
			pass(t, w.once())
		}
		w.want(v1alpha1.ConditionMetricsPresent, "True/")
		for _, o := range objects {
			if is := w.says(o); len(is.Missing) != 2 {
				t.Fatalf("%q is missing of %s", is.Missing, o.Name)
			}
		}

		// A single missing metric of it concerns only the rules.
		set("custom", "kube_a")
		for range 40 {
			pass(t, w.once())
		}
		w.want(v1alpha1.ConditionMetricsPresent, "True/")
		for _, o := range objects {
			if is := w.says(o); len(is.Missing) != 1 {
				t.Fatalf("%q is missing of %s", is.Missing, o.Name)
			}
		}
	})
}

// With more selectors than fit into a check, each has its turn, and missing ones do not delay the others.
func TestEachSelectorHasItsTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var objects []*monitoringv1.PrometheusRule
		for i := range 220 {
			objects = append(objects, object(i, fmt.Sprintf("metric_%d", i)))
		}
		w, f := newWorld(t, objects...)
		f.series = map[string]bool{}
		for i := range 220 {
			f.series[fmt.Sprintf("metric_%d", i)] = i%2 == 0 // half of them are missing
		}
		for range 40 {
			pass(t, w.once())
		}
		f.set(func() { f.series["metric_8"] = false })
		f.set(func() { f.series["metric_9"] = true })
		begun := time.Now()
		for ; time.Since(begun) < 12*time.Minute; pass(t, w.once()) {
			if len(w.says(objects[8]).Missing) == 1 && len(w.says(objects[9]).Missing) == 0 {
				return
			}
		}
		t.Errorf("after %v, %v and %v are missing", time.Since(begun), w.says(objects[8]).Missing, w.says(objects[9]).Missing)
	})
}

// A Prometheus that answers about its rules and not about metrics is shown after two failures, until it answers.
func TestQueriesForMetricsFail(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, f := newWorld(t, object(1, `kube_a == 0`))
		answer := func(fail func(http.ResponseWriter)) {
			f.set(func() {
				f.fail = func(w http.ResponseWriter, req *http.Request) bool {
					if fail == nil || !strings.HasSuffix(req.URL.Path, "/api/v1/query") {
						return false
					}
					fail(w)
					return true
				}
			})
		}
		poll := func(condition string) {
			t.Helper()
			w.news()
			pass(t, w.once())
			w.want(v1alpha1.ConditionEvaluating, "True/Evaluating")
			w.want(v1alpha1.ConditionMetricsPresent, condition)
		}
		poll("True/")
		answer(func(w http.ResponseWriter) { http.Error(w, "down", http.StatusServiceUnavailable) })
		poll("True/")
		for i := range 3 {
			poll("Unknown/EvaluatorUnreachable: it is unknown whether Prometheus has the metrics that rules need: ")
			if _, shown := w.news(); (shown > 0) != (i == 0) {
				t.Errorf("after %d more failures, it is shown: %v", i, shown > 0)
			}
		}
		answer(nil)
		poll("True/")
		answer(func(w http.ResponseWriter) { _, _ = io.WriteString(w, strings.Repeat(`{"a":`, 1000)) })
		poll("True/")
		poll("Unknown/TooLarge: ")
		answer(nil)
		poll("True/")

		// Without a rule that needs metrics, there is nothing to say, also if a former manager has said something.
		answer(func(w http.ResponseWriter) { http.Error(w, "down", http.StatusServiceUnavailable) })
		poll("True/")
		poll("Unknown/")
		w.holdAll()
		w.Poller.state("s").series.checked = false // as after a restart
		sc := &v1alpha1.SpokeCluster{ObjectMeta: metav1.ObjectMeta{Name: "s"}}
		for range 2 {
			pass(t, w.once())
			if _, findings := w.Show(sc, w.Evaluators("s")); findings[v1alpha1.ConditionMetricsPresent].Reason != "" {
				t.Errorf("it shows %v", findings)
			}
			sc.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionMetricsPresent, Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonTooLarge}}
		}
		if f, known := findingOf(w, sc, v1alpha1.ConditionMetricsPresent); !known || f.Status != "" {
			t.Errorf("the condition stays: %+v, %v", f, known)
		}
	})
}

func findingOf(w *world, sc *v1alpha1.SpokeCluster, kind string) (spoke.Finding, bool) {
	_, findings := w.Show(sc, w.Evaluators("s"))
	f, known := findings[kind]
	return f, known
}
