package evaluate

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/evaluation"
	"github.com/rulefleet/rulefleet/pkg/spoke"
)

const forbidden = `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"services \"http:prometheus-operated:web\" is forbidden","reason":"Forbidden","code":403}`

// The states of a rule in a Prometheus.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	o := object(1, "up == 0")
	for name, c := range map[string]struct {
		loaded []loaded
		want   evaluation.State
	}{
		"loaded":            {[]loaded{loads("k", o)}, evaluation.State{Outcome: evaluation.Evaluates}},
		"fires":             {[]loaded{loads("k", o, firing(3))}, evaluation.State{Outcome: evaluation.Evaluates, Firing: 3, Pending: 1}},
		"formatted":         {[]loaded{loads("k", o, with("query", "  up==0"))}, evaluation.State{Outcome: evaluation.Evaluates}},
		"absent":            {nil, evaluation.State{Outcome: evaluation.Absent}},
		"outdated":          {[]loaded{loads("k", o, with("query", "up == 1"), firing(1))}, evaluation.State{Outcome: evaluation.Absent, Firing: 1, Pending: 1}},
		"outdated for":      {[]loaded{loads("k", o, with("duration", 61))}, evaluation.State{Outcome: evaluation.Absent}},
		"fails":             {[]loaded{loads("k", o, with("health", "err"), with("lastError", "many-to-many"))}, evaluation.State{Outcome: evaluation.Failed, Message: "many-to-many"}},
		"not evaluated yet": {[]loaded{loads("k", o, with("health", "unknown"))}, evaluation.State{Outcome: evaluation.Waiting}},
		"by its group":      {[]loaded{{file: "/etc/rules.yaml", group: "shop/r1", rule: loads("k", o).rule}}, evaluation.State{Outcome: evaluation.Evaluates}},
		"another group":     {[]loaded{{file: "/etc/rules.yaml", group: "shop/r2", rule: loads("k", o).rule}}, evaluation.State{Outcome: evaluation.Absent}},
		"of another UID":    {[]loaded{loads("k", object(2, "up == 0"), with("name", "Down")), {file: loads("k", object(3, "up == 0")).file, group: "shop/r1", rule: loads("k", o).rule}}, evaluation.State{Outcome: evaluation.Absent}},
	} {
		t.Run(name, func(t *testing.T) {
			w, f := newWorld(t, o)
			f.rules = c.loaded
			if is := w.says(o); is.Outcome != evaluation.Unasked {
				t.Errorf("%s: before, it is %+v", name, is)
			}
			w.once()
			got := w.says(o)
			if !got.Seen {
				t.Errorf("%s: it was not seen", name)
			}
			if missing := got.Outcome == evaluation.Absent || got.Outcome == evaluation.Waiting; got.Unsure != missing {
				t.Errorf("%s: unsure is %v", name, got.Unsure)
			}
			got.Checked, got.Missing, got.Seen, got.Unsure = false, nil, false, false
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("%s: got %+v", name, got)
			}
			if told, _ := w.news(); !slices.Equal(told, []string{"r1"}) {
				t.Errorf("%s: news of %v", name, told)
			}
			w.once()
			if told, shown := w.news(); len(told) > 0 || shown > 0 {
				t.Errorf("%s: again, news of %v, %d shown", name, told, shown)
			}
			// An older version is loaded than the spoke has now.
			if is := w.says(edited(o)); is.Outcome != evaluation.Absent || is.Late || is.Unsure || is.Firing != c.want.Firing {
				t.Errorf("%s: edited, %+v", name, is)
			}
		})
	}
}

// Changes are reported once, and only for the rules concerned.
func TestNews(t *testing.T) {
	t.Parallel()
	a, b := object(1, "up == 0"), object(2, "up == 0")
	w, f := newWorld(t, a, b)
	for _, step := range []struct {
		what string
		do   func()
		want []string
	}{
		{"at first", func() {}, []string{"r1", "r2"}},
		{"nothing", func() {}, nil},
		{"one fires", func() { f.rules[0] = loads("k", a, firing(1)) }, []string{"r1"}},
		{"more of it", func() { f.rules[0] = loads("k", a, firing(2)) }, []string{"r1"}},
		{"it rests", func() { f.rules[0] = loads("k", a) }, []string{"r1"}},
		{"one fails", func() { f.rules[1] = loads("k", b, with("health", "err"), with("lastError", "x")) }, []string{"r2"}},
		{"otherwise", func() { f.rules[1] = loads("k", b, with("health", "err"), with("lastError", "y")) }, []string{"r2"}},
		{"one seems to be gone", func() { f.rules = f.rules[:1] }, nil},
		{"twice", func() {}, nil},
		{"three times", func() {}, nil},
		{"it is gone", func() {}, []string{"r2"}},
		{"one is edited", func() { w.hold(edited(a), b) }, []string{"r1"}},
		{"and loaded", func() { f.rules[0] = loads("k", edited(a)) }, []string{"r1"}},
	} {
		f.set(step.do)
		w.once()
		if told, _ := w.news(); !slices.Equal(told, step.want) {
			t.Errorf("%s: news of %v, want %v", step.what, told, step.want)
		}
	}
	if is := w.says(w.objects[0]); is.Outcome != evaluation.Evaluates {
		t.Errorf("in the end, %+v", is)
	}
	// Incomplete and foreign objects are ignored.
	foreign, broken := object(3, "up"), object(4, "up")
	foreign.Labels[v1alpha1.HubLabel], broken.Annotations = "hub-2", nil
	w.hold(foreign, broken)
	w.once()
	if told, _ := w.news(); len(told) > 0 {
		t.Errorf("news of %v", told)
	}
}

// A rule that is not loaded in time is late; a change starts the time again.
func TestLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := object(1, "up == 0")
		w, f := newWorld(t, o)
		f.rules = nil
		late := func(what string, o *monitoringv1.PrometheusRule, want bool) {
			t.Helper()
			w.once()
			if is := w.says(o); is.Outcome != evaluation.Absent || is.Late != want {
				t.Errorf("%s: %+v", what, is)
			}
		}
		late("at first", o, false)
		w.news()
		pass(t, evaluation.LoadingTime)
		late("in time", o, false)
		if told, _ := w.news(); len(told) > 0 {
			t.Errorf("news of %v", told)
		}
		pass(t, time.Second)
		late("after that", o, true)
		if told, _ := w.news(); len(told) != 1 {
			t.Errorf("news of %v", told)
		}
		w.hold(edited(o))
		late("edited", edited(o), false)
		pass(t, evaluation.LoadingTime+time.Second)
		late("and not loaded", edited(o), true)
		f.set(func() { f.rules = []loaded{loads("k", edited(o))} })
		w.once()
		if is := w.says(edited(o)); is.Outcome != evaluation.Evaluates || is.Late {
			t.Errorf("loaded: %+v", is)
		}
	})
}

// pass lets time pass, in a bubble of synctest.
func pass(t *testing.T, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	<-ctx.Done()
	synctest.Wait()
}

// prometheus-operator rewrites confined rules, and the confinement may be seen later than its effect.
func TestConfinedLate(t *testing.T) {
	t.Parallel()
	o := object(1, "up == 0")
	w, f := newWorld(t, o)
	f.rules = []loaded{loads("k", o, with("query", `up{namespace="shop"} == 0`), with("labels", map[string]string{"severity": "critical", "namespace": "shop"}))}
	w.once()
	if is := w.says(o); is.Outcome != evaluation.Absent {
		t.Errorf("at first: %+v", is)
	}
	e := prometheus
	e.EnforcedNamespaceLabel = "namespace"
	w.read.List = []v1alpha1.Evaluator{e}
	w.once()
	if is := w.says(o); is.Outcome != evaluation.Evaluates {
		t.Errorf("once that is known: %+v", is)
	}
}

// An outage shows after three consecutive failed polls, and its text does not matter.
func TestFailingPolls(t *testing.T) {
	t.Parallel()
	o := object(1, "up == 0")
	w, f := newWorld(t, o)
	f.rules = []loaded{loads("k", o, firing(2))}
	if delay := w.once(); delay < 25*time.Second || delay > 32*time.Second {
		t.Errorf("the next poll is in %v", delay)
	}
	w.want(v1alpha1.ConditionEvaluating, "True/Evaluating: Prometheus monitoring/k")
	w.news()
	down := func(words string) { f.set(func() { f.fail = answers(503, "text/plain", words) }) }
	for i := range 2 {
		down(fmt.Sprint("try ", i))
		if delay := w.once(); delay > 8*time.Second {
			t.Errorf("failed, the next poll is in %v", delay)
		}
		if told, shown := w.news(); len(told) > 0 || shown > 0 || w.says(o).Outcome != evaluation.Evaluates {
			t.Fatalf("one that failed is told: %v, %d", told, shown)
		}
	}
	f.set(func() { f.fail = nil })
	w.once()
	for i := range 3 {
		down(fmt.Sprint("try ", i))
		w.once()
	}
	if told, shown := w.news(); !slices.Equal(told, []string{"r1"}) || shown != 1 {
		t.Errorf("three in a row: news of %v, %d shown", told, shown)
	}
	if is := w.says(o); is.Outcome != evaluation.Unreachable || is.Firing != 2 {
		t.Errorf("three in a row: %+v", is)
	}
	w.want(v1alpha1.ConditionEvaluating, "False/"+v1alpha1.ReasonEvaluatorUnreachable+": Prometheus monitoring/k: ")
	down("other words")
	w.once()
	if told, shown := w.news(); len(told) > 0 || shown > 0 {
		t.Errorf("the same outage is news: %v, %d", told, shown)
	}
	f.set(func() { f.fail = nil })
	w.once()
	if told, shown := w.news(); !slices.Equal(told, []string{"r1"}) || shown != 1 || w.says(o).Outcome != evaluation.Evaluates {
		t.Errorf("back again: news of %v, %d shown", told, shown)
	}
	w.want(v1alpha1.ConditionEvaluating, "True/Evaluating")
}

func TestNotGranted(t *testing.T) {
	t.Parallel()
	o := object(1, "up == 0")
	w, f := newWorld(t, o)
	f.fail = answers(403, "application/json", forbidden)
	w.once()
	if told, shown := w.news(); !slices.Equal(told, []string{"r1"}) || shown != 1 || w.says(o).Outcome != evaluation.NotGranted {
		t.Errorf("news of %v, %d shown, %+v", told, shown, w.says(o))
	}
	w.want(v1alpha1.ConditionEvaluating, "Unknown/NotGranted: Prometheus monitoring/k: permission denied")
	w.want(v1alpha1.ConditionMetricsPresent, "unknown")
	w.once()
	if told, shown := w.news(); len(told) > 0 || shown > 0 {
		t.Errorf("again: news of %v, %d shown", told, shown)
	}
	// The message names the Service, for which the permission is missing.
	moved := prometheus
	moved.Service = "http:prometheus-operated:http-web"
	w.read.List = []v1alpha1.Evaluator{moved}
	w.once()
	if told, shown := w.news(); len(told) > 0 || shown != 1 {
		t.Errorf("by another Service: news of %v, %d shown", told, shown)
	}
	w.read.List = []v1alpha1.Evaluator{prometheus}
	w.once()
	w.news()
	// A proxy in front of the Prometheus is another cause, with another remedy.
	f.set(func() { f.fail = answers(403, "text/plain", "no") })
	w.once()
	if told, shown := w.news(); len(told) > 0 || shown != 1 {
		t.Errorf("by a proxy: news of %v, %d shown", told, shown)
	}
	w.want(v1alpha1.ConditionEvaluating, "Unknown/NotGranted: Prometheus monitoring/k: it, or a proxy in front of it, denies access (HTTP 403): no."+
		" Rulefleet does not support a login. Rules are verified only up to Selected. To verify more, set spec.evaluatorRefs[].url of SpokeCluster s to an address without a login that only the hub can reach, including any path prefix")
	f.set(func() { f.fail = nil })
	w.once()
	if is := w.says(o); is.Outcome != evaluation.Evaluates {
		t.Errorf("granted: %+v", is)
	}
	// An evaluator that can't be polled says why.
	e := prometheus
	e.Service, e.Message = "", "it listens on loopback"
	w.read.List = []v1alpha1.Evaluator{e}
	w.once()
	w.want(v1alpha1.ConditionEvaluating, "Unknown/NotGranted: Prometheus monitoring/k: ")
	if got := w.shows()[v1alpha1.ConditionEvaluating]; !strings.Contains(got, "listens on loopback") {
		t.Errorf("it says %q", got)
	}
}

// Another text of a refusal is not a change: a proxy may insert the request's id.
func TestNotGrantedInOtherWords(t *testing.T) {
	t.Parallel()
	w, f := newWorld(t, object(1, "up == 0"))
	n := 0
	f.fail = func(w http.ResponseWriter, req *http.Request) bool {
		n++
		return answers(403, "text/plain", fmt.Sprintf("denied, request %d", n))(w, req)
	}
	w.once()
	before := w.shows()
	w.news()
	w.once()
	if told, shown := w.news(); len(told) > 0 || shown > 0 || !reflect.DeepEqual(w.shows(), before) {
		t.Errorf("news of %v, %d shown, %v", told, shown, w.shows())
	}
	// A message that a person can act on is reported again.
	e := prometheus
	e.Service, e.Message = "", "it listens on loopback"
	w.read.List = []v1alpha1.Evaluator{e}
	w.once()
	if _, shown := w.news(); shown != 1 || !strings.Contains(w.shows()[v1alpha1.ConditionEvaluating], "loopback") {
		t.Errorf("%d shown, %v", shown, w.shows())
	}
	w.read.List = []v1alpha1.Evaluator{prometheus}
	w.once()
	if _, shown := w.news(); shown != 1 || !strings.Contains(w.shows()[v1alpha1.ConditionEvaluating], "denied") {
		t.Errorf("%d shown, %v", shown, w.shows())
	}
}

// Nothing is kept about evaluators that are gone, however many there were.
func TestEvaluatorsThatAreGone(t *testing.T) {
	t.Parallel()
	w, _ := newWorld(t, object(1, "up == 0"))
	for i := range 5 {
		e := prometheus
		e.Name = fmt.Sprint("k", i)
		w.read.List = []v1alpha1.Evaluator{e}
		w.once()
	}
	if n := len(w.state("s").evaluators); n != 1 {
		t.Errorf("%d are kept", n)
	}
	w.read.List = nil
	w.once()
	if n := len(w.state("s").evaluators); n != 0 {
		t.Errorf("without an evaluator, %d are kept", n)
	}
}

// Rules are read only if an evaluator is asked about them.
func TestRulesReadForAPoll(t *testing.T) {
	t.Parallel()
	w, _ := newWorld(t, object(1, "up == 0"))
	for _, tc := range []struct {
		evaluators []v1alpha1.Evaluator
		read       int
	}{{[]v1alpha1.Evaluator{prometheus}, 1}, {nil, 0}} {
		w.read.List = tc.evaluators
		task, err := w.task(t.Context(), "s")
		if err != nil {
			t.Fatal(err)
		}
		if len(task.objects) != tc.read {
			t.Errorf("with %d evaluators, %d rules are read", len(tc.evaluators), len(task.objects))
		}
	}
}

// A ThanosRuler adds its external labels to its rules.
func TestThanosRuler(t *testing.T) {
	t.Parallel()
	o := object(1, "up == 0")
	o.Spec.Groups[0].Rules[0].Labels["cluster"] = "s"
	ruler := prometheus
	ruler.Kind, ruler.ClusterLabel = rule.KindThanosRuler, "eu"
	e := rule.EvaluatorOf(&ruler)
	for name, c := range map[string]struct {
		labels map[string]string
		want   evaluation.Outcome
	}{
		"with its own":   {map[string]string{"severity": "critical", "cluster": "s", "thanos_ruler_replica": "thanos-ruler-k-0"}, evaluation.Evaluates},
		"in their place": {map[string]string{"severity": "critical", "cluster": "eu", "thanos_ruler_replica": "thanos-ruler-k-0"}, evaluation.Evaluates},
		"outdated":       {map[string]string{"severity": "warning", "cluster": "eu", "thanos_ruler_replica": "thanos-ruler-k-0"}, evaluation.Absent},
		"one less":       {map[string]string{"cluster": "eu"}, evaluation.Absent},
	} {
		t.Run(name, func(t *testing.T) {
			w, f := newWorld(t, o)
			w.read.List = []v1alpha1.Evaluator{ruler}
			l := loads("k", o, with("labels", c.labels))
			l.file = strings.ReplaceAll(l.file, "prometheus", "thanos-ruler")
			f.set(func() { f.rules = []loaded{l} })
			w.once()
			if is := w.Of("s", &e, o); is.Outcome != c.want {
				t.Errorf("%s: %+v", name, is)
			}
		})
	}
}

// An answer may not fill the memory with rules that are named like those of this hub.
func TestAnswersThatAreTooLarge(t *testing.T) {
	t.Parallel()
	labels := map[string]string{}
	for i := range 55_000 { // a group with more is refused by itself
		labels[fmt.Sprintf("l%d", i)] = ""
	}
	var objects []*monitoringv1.PrometheusRule
	for i := range 7 {
		objects = append(objects, object(i+1, "up == 0"))
	}
	w, f := newWorld(t, objects...)
	for n := 6; n <= 7; n++ {
		refused := n == 7
		f.set(func() {
			f.rules = nil
			for i, o := range objects {
				if i < n {
					f.rules = append(f.rules, loads("k", o, with("labels", labels)))
				}
			}
		})
		w.once()
		if is := w.says(objects[6]); (is.Outcome == evaluation.Unreachable) != refused {
			t.Errorf("with %d of them, it is %+v", n, is)
		}
	}
	w.want(v1alpha1.ConditionEvaluating, "False/"+v1alpha1.ReasonTooLarge+": Prometheus monitoring/k: Rulefleet's own rules in the answer: ")
	if got := w.shows()[v1alpha1.ConditionEvaluating]; !strings.Contains(got, " bytes; the limit is 50,331,648; check that the Service or the address leads to a Prometheus") {
		t.Errorf("it names no value and limit: %s", got)
	}
}

// The Prometheus objects can't be read at present: those in the status are polled.
func TestEvaluatorsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	o := object(1, "up == 0")
	w, _ := newWorld(t, o)
	w.read = spoke.Evaluators{WhyNot: "may not list them"}
	sc := &v1alpha1.SpokeCluster{}
	if err := w.hub.Get(t.Context(), client.ObjectKey{Name: "s"}, sc); err != nil {
		t.Fatal(err)
	}
	sc.Status.Evaluators = []v1alpha1.Evaluator{prometheus}
	if err := w.hub.Status().Update(t.Context(), sc); err != nil {
		t.Fatal(err)
	}
	for range patience {
		w.once()
	}
	if is := w.says(o); is.Outcome != evaluation.Evaluates {
		t.Errorf("it is %+v", is)
	}
	w.want(v1alpha1.ConditionEvaluatorsFound, "Unknown/EvaluatorsUnknown: may not list them")
	w.want(v1alpha1.ConditionEvaluating, "True/Evaluating")
}

func TestTooManyRules(t *testing.T) {
	t.Parallel()
	w, f := newWorld(t)
	fill := func(n int) {
		f.set(func() {
			f.rules = nil
			for i := range n {
				f.rules = append(f.rules, loaded{file: "x", group: fmt.Sprint(i), rule: map[string]any{"type": "alerting", "name": "A", "query": "up", "health": "ok"}})
			}
		})
		w.once()
	}
	fill(1600)
	w.want(v1alpha1.ConditionEvaluating, "True/Evaluating")
	w.news()
	fill(1601)
	w.want(v1alpha1.ConditionEvaluating, "True/TooManyRules: Prometheus monitoring/k has more than 1600 rules of Rulefleet; at most 2000 are supported")
	if _, shown := w.news(); shown != 1 {
		t.Errorf("%d shown", shown)
	}
	fill(1700)
	if _, shown := w.news(); shown != 0 {
		t.Errorf("%d shown", shown)
	}
	fill(10)
	w.want(v1alpha1.ConditionEvaluating, "True/Evaluating")
}

// Show changes nothing before the evaluators were polled.
func TestShowAfterRestart(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(http.ResponseWriter, *http.Request) bool{
		"well": nil, "not granted": answers(403, "application/json", forbidden), "down": answers(503, "text/plain", "down"),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, f := newWorld(t, object(1, `kube_x{a="b"} == 0`), object(2, "x"))
				f.series = map[string]bool{"x": true}
				f.fail = fail
				for range 4 {
					w.once()
				}
				sc := &v1alpha1.SpokeCluster{ObjectMeta: metav1.ObjectMeta{Name: "s"}}
				list, findings := w.Show(sc, w.read)
				sc.Status.Evaluators = list
				w.restart()
				for i := range 4 { // before, and while it asks
					again, told := w.Show(sc, w.read)
					if !reflect.DeepEqual(again, list) {
						t.Errorf("%s, after %d polls: %+v, was %+v", name, i, again, list)
					}
					for kind, f := range told {
						if f != findings[kind] {
							t.Errorf("%s, after %d polls: %s is %+v, was %+v", name, i, kind, f, findings[kind])
						}
					}
					w.once()
				}
				if _, told := w.Show(sc, w.read); !reflect.DeepEqual(told, findings) {
					t.Errorf("%s: in the end, %+v, was %+v", name, told, findings)
				}
				// Nothing is known before a read, and the record of a missing evaluator stays.
				w.restart()
				list = append(list, v1alpha1.Evaluator{Kind: rule.KindPrometheus, Namespace: "m", Name: "n", MissingTime: metav1.Now(), Message: "its selectors have more than 4 KiB"})
				sc.Status.Evaluators = list
				if again, told := w.Show(sc, spoke.Evaluators{}); !reflect.DeepEqual(again, list) || len(told) > 0 {
					t.Errorf("%s, not read: %+v %+v", name, again, told)
				}
			})
		})
	}
}

// Each engaged spoke is polled until its engagement ends, and one with a Prometheus that hangs delays no
// other.
func TestEngagements(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := object(1, "up == 0")
		w, f := newWorld(t, o)
		hung, hf := newWorld(t, o)
		hf.fail = func(_ http.ResponseWriter, req *http.Request) bool { <-req.Context().Done(); return true }
		ctx, cancel := context.WithCancel(t.Context())
		for _, p := range []*world{w, hung} {
			if err := p.Engage(ctx, multicluster.ClusterName("s"), nil); err != nil {
				t.Fatal(err)
			}
		}
		pass(t, first+time.Second)
		if requests, _ := w.asked(); len(requests) != 2 { // the rules, and the series
			t.Errorf("at first: %v", requests)
		}
		pass(t, time.Minute)
		requests, _ := w.asked()
		rules := slices.DeleteFunc(requests, func(r string) bool { return !strings.Contains(r, "/api/v1/rules") })
		if len(rules) < 1 || len(rules) > 3 {
			t.Errorf("in a minute: %v", rules)
		}
		if is := hung.says(o); is.Outcome != evaluation.Unasked && is.Outcome != evaluation.Unreachable {
			t.Errorf("the one that hangs: %+v", is)
		}

		// While it is engaged again, only one goroutine polls.
		again, stop := context.WithCancel(t.Context())
		if err := w.Engage(again, "s", nil); err != nil {
			t.Fatal(err)
		}
		pass(t, 5*time.Second)
		cancel()
		w.asked()
		f.set(func() { f.rules = []loaded{loads("k", o, firing(1))} })
		pass(t, time.Minute)
		if requests, _ := w.asked(); len(requests) == 0 || w.says(o).Firing != 1 {
			t.Errorf("engaged anew: %v, %+v", requests, w.says(o))
		}
		// A change of the evaluators causes a poll at once, and a spoke that is away is not polled.
		w.Kick("s")
		synctest.Wait()
		if requests, _ := w.asked(); len(requests) == 0 {
			t.Error("after news of the evaluators, it is not asked")
		}
		w.mu.Lock()
		w.away = true
		w.mu.Unlock()
		pass(t, time.Hour)
		if requests, _ := w.asked(); len(requests) > 0 || w.says(o).Outcome != evaluation.Evaluates {
			t.Errorf("away: %v, %+v", requests, w.says(o))
		}
		stop()
		synctest.Wait() // or the test does not end
	})
}

// With 5,000 rules a poll is one read, in the evaluator's pages.
func TestCostOfPolls(t *testing.T) {
	var objects []*monitoringv1.PrometheusRule
	for i := range 5000 {
		objects = append(objects, object(i, fmt.Sprintf(`kube_deployment_status_replicas_available{namespace="shop",deployment="web-%d"} == 0`, i)))
	}
	w, _ := newWorld(t, objects...)
	w.read.List = []v1alpha1.Evaluator{prometheus}
	begun := time.Now()
	w.once()
	firstTook := time.Since(begun)
	all, bytes := w.asked()
	rules := 0
	for _, r := range all {
		if strings.Contains(r, "/api/v1/rules") {
			rules++
		}
	}
	if rules != 10 {
		t.Errorf("a poll takes %d pages of rules", rules)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	begun = time.Now()
	w.once()
	took := time.Since(begun)
	runtime.ReadMemStats(&after)
	again, more := w.asked()
	if len(again) > 20 {
		t.Errorf("a poll takes %d requests", len(again))
	}
	perMinute := float64(time.Minute) / float64(DefaultInterval)
	t.Logf("5,000 rules: the first poll takes %d requests, %d KiB, %v; the next %d requests, %d KiB, %v, %d MiB allocated; %.0f requests and %.1f MiB a minute",
		len(all), bytes>>10, firstTook.Round(time.Millisecond), len(again), more>>10, took.Round(time.Millisecond), (after.TotalAlloc-before.TotalAlloc)>>20,
		float64(len(again))*perMinute, float64(more)*perMinute/(1<<20))
	if told, _ := w.news(); len(slices.Compact(told)) != 5000 {
		t.Errorf("news of %d", len(told))
	}
}

// An answer that the transport finds too large is shown as such at once, and another failure after it as what it is.
func TestAnswersThatAreCutOff(t *testing.T) {
	t.Parallel()
	w, f := newWorld(t, object(1, "up == 0"))
	w.once()
	s := w.state("s")
	task, err := w.task(t.Context(), "s")
	if err != nil {
		t.Fatal(err)
	}
	e := rule.EvaluatorOf(&prometheus)
	cut := fmt.Errorf("the answer ended early: %w", &spoke.TooLargeError{What: "the answer to GET /rules", Value: 2000, Bound: 1000, Unit: "bytes"})
	if delay := w.keep(task, s, &e, answer{err: cut}); delay != w.Interval {
		t.Errorf("it is asked again in %v", delay)
	}
	w.want(v1alpha1.ConditionEvaluating, "False/"+v1alpha1.ReasonTooLarge+": Prometheus monitoring/k: the answer to GET /rules: 2,000 bytes; the limit is 1,000; check that the Service or the address leads to a Prometheus")
	f.fail = answers(503, "text/plain", "no")
	for range patience {
		w.once()
	}
	w.want(v1alpha1.ConditionEvaluating, "False/"+v1alpha1.ReasonEvaluatorUnreachable)
}

// An answer that takes long is shown while it arrives, and until one does not take long.
func TestSlowAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const slow = "Prometheus monitoring/k took more than 20s to answer"
		w, f := newWorld(t, object(1, "up == 0"))
		takes := func(d time.Duration) {
			f.set(func() {
				f.fail = func(_ http.ResponseWriter, req *http.Request) bool {
					if strings.HasSuffix(req.URL.Path, "/api/v1/rules") {
						time.Sleep(d) //nolint:forbidigo // of the bubble's clock
					}
					return false
				}
			})
		}
		poll := func(during, afterwards string) {
			t.Helper()
			done := make(chan struct{})
			go func() {
				defer close(done)
				w.once()
			}()
			time.Sleep(slowAnswer + time.Second) //nolint:forbidigo // of the bubble's clock
			synctest.Wait()
			if during != "" {
				w.want(v1alpha1.ConditionEvaluating, during)
			}
			<-done
			w.want(v1alpha1.ConditionEvaluating, afterwards)
		}
		const known = "True/Evaluating: Prometheus monitoring/k answers queries"
		takes(slowAnswer + 2*time.Second)
		poll("Unknown/EvaluatorUnreachable: "+slow, known+"; "+slow)
		w.news()
		poll(known+"; "+slow, known+"; "+slow)
		if _, shown := w.news(); shown > 0 {
			t.Error("it is shown again")
		}
		takes(0)
		poll("", known)
		if got := w.shows()[v1alpha1.ConditionEvaluating]; got != known {
			t.Errorf("it is %q", got)
		}
		if _, shown := w.news(); shown == 0 {
			t.Error("it is not shown that it is over")
		}
		takes(slowAnswer + 2*time.Second)
		poll(known+"; "+slow, known+"; "+slow)
	})
}
