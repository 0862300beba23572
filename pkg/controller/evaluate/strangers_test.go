package evaluate

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/evaluation"
)

// The Service of an evaluator may lead to another one in the same namespace. If only that one answers, the status says
// so after a while.
func TestAnotherPrometheusAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := object(1, "up == 0")
		w, f := newWorld(t, o)
		w.once()
		w.news()
		f.set(func() { f.rules = []loaded{loads("other", o, firing(5))} })
		w.unchanged(t, "at first", o, strangersFor-time.Second)
		pass(t, retry)
		w.once()
		w.want(v1alpha1.ConditionEvaluating, "False/"+v1alpha1.ReasonEvaluatorUnreachable+": Prometheus monitoring/k: its Service also selects another")
		if is := w.says(o); is.Outcome != evaluation.Unreachable || is.Firing != 0 {
			t.Errorf("it is %+v", is)
		}
		// An evaluator without own rules is not affected by rules of plain files.
		f.set(func() { f.rules = []loaded{{file: "/etc/own.yaml", group: "own", rule: loads("k", o).rule}} })
		for range agreeFirst {
			w.once()
		}
		if is := w.says(o); is.Outcome != evaluation.Absent {
			t.Errorf("it is %+v", is)
		}
	})
}

// unchanged polls for some time, as the poller would, and expects no news.
func (w *world) unchanged(t *testing.T, when string, o any, span time.Duration) {
	t.Helper()
	before := w.shows()
	for end := time.Now().Add(span); time.Now().Before(end); {
		delay := w.once()
		if told, shown := w.news(); len(told) > 0 || shown > 0 || !reflect.DeepEqual(w.shows(), before) {
			t.Fatalf("%s: news of %v, %d shown, %v of %v", when, told, shown, w.shows(), o)
		}
		pass(t, min(delay, time.Until(end)))
	}
}

// alike returns a Prometheus with the same Service as the chosen one.
func alike(name string) v1alpha1.Evaluator {
	e := prometheus
	e.Name, e.Chosen = name, false
	return e
}

// A tenant creates a Prometheus that shares the Service of the chosen one. Each poll is answered by one of them by
// chance. Nothing changes, whatever the other one answers.
func TestSharedService(t *testing.T) {
	t.Parallel()
	o, missing := object(1, "up == 0"), object(2, "up == 1")
	for name, answer := range map[string][]loaded{
		"with no rules":            nil,
		"with the same rules":      {loads("other", o), loads("other", missing)},
		"with other versions":      {loads("other", o, with("query", "vector(1)"), firing(7))},
		"with rules that fail":     {loads("other", o, with("health", "err"), with("lastError", "no"))},
		"with rules of a ruler":    {ofRuler(loads("k", o, firing(7)))},
		"with rules of plain file": {{file: "/etc/own.yaml", group: "own", rule: loads("k", o).rule}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w, f := newWorld(t, o, missing)
				own := []loaded{loads("k", o, firing(2))} // the other rule is not loaded
				f.rules = own
				for range agreeFirst {
					w.once()
				}
				pass(t, evaluation.LoadingTime+time.Second)
				w.once()
				w.news()
				w.asked()
				w.read.List = []v1alpha1.Evaluator{prometheus, alike("other")}
				random := rand.New(rand.NewPCG(1, 1)) //nolint:gosec // a test that is the same every time
				before, asked := w.shows(), 0
				for range 500 {
					f.set(func() { f.rules = [][]loaded{own, answer, answer}[random.IntN(3)] })
					delay := w.once()
					if told, shown := w.news(); len(told) > 0 || shown > 0 || !reflect.DeepEqual(w.shows(), before) {
						t.Fatalf("news of %v, %d shown, %v", told, shown, w.shows())
					}
					requests, _ := w.asked()
					asked += len(requests)
					if slices.ContainsFunc(requests, func(r string) bool { return strings.Contains(r, "/query") }) {
						t.Fatalf("the Service is asked for metrics: %v", requests[:1])
					}
					pass(t, delay)
				}
				if is := w.says(o); is.Outcome != evaluation.Evaluates || is.Firing != 2 {
					t.Errorf("it is %+v", is)
				}
				if is := w.says(missing); is.Outcome != evaluation.Absent || !is.Late {
					t.Errorf("the missing one is %+v", is)
				}
				if asked < 500 {
					t.Errorf("there were %d requests", asked)
				}
			})
		})
	}
}

func ofRuler(l loaded) loaded {
	l.file = strings.ReplaceAll(l.file, "prometheus-", "thanos-ruler-")
	return l
}

// If the chosen Prometheus does not answer for a while because others do, the status says why. The first of its own
// answers ends that.
func TestSharedServiceWithoutAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := object(1, "up == 0")
		w, f := newWorld(t, o)
		w.once()
		w.news()
		w.read.List = []v1alpha1.Evaluator{prometheus, alike("other")}
		f.set(func() { f.rules = nil })
		w.unchanged(t, "at first", o, strangersFor-time.Second)
		pass(t, retry)
		w.once()
		w.want(v1alpha1.ConditionEvaluating, "Unknown/NotGranted: Prometheus monitoring/k: its answers can't be distinguished from those of Prometheus monitoring/other,"+
			" which has the same Service (http:prometheus-operated:web); give each its own Service")
		if is := w.says(o); is.Outcome != evaluation.NotGranted {
			t.Errorf("it is %+v", is)
		}
		w.news()
		w.unchanged(t, "later", o, time.Hour)
		f.set(func() { f.rules = []loaded{loads("k", o)} })
		w.once()
		if is := w.says(o); is.Outcome != evaluation.Evaluates {
			t.Errorf("with an answer of its own, it is %+v", is)
		}
		f.set(func() { f.rules = nil })
		w.news()
		w.unchanged(t, "again", o, strangersFor-time.Second)
		// One with an address of its own answers for itself, and one without others of the same Service as well.
		w.read.List = []v1alpha1.Evaluator{prometheus}
		for range agreeMost {
			w.once()
		}
		if is := w.says(o); is.Outcome != evaluation.Absent {
			t.Errorf("alone, it is %+v", is)
		}
	})
}

// Two chosen evaluators with the same Service are told apart.
func TestTwoChosenShareAService(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := object(1, "up == 0")
		w, f := newWorld(t, o)
		second := alike("second")
		second.Chosen = true
		w.read.List = []v1alpha1.Evaluator{prometheus, second}
		for i := range 40 {
			f.set(func() {
				f.rules = []loaded{loads([]string{"k", "second"}[i%3%2], o, firing(1+i%3%2))}
			})
			w.once()
		}
		e := rule.EvaluatorOf(&second)
		if is := w.says(o); is.Outcome != evaluation.Evaluates || is.Firing != 1 {
			t.Errorf("the first is %+v", is)
		}
		if is := w.Of("s", &e, o); is.Outcome != evaluation.Evaluates || is.Firing != 2 {
			t.Errorf("the second is %+v", is)
		}
	})
}

// Each page of an answer may come from another evaluator. What is missing in such an answer says nothing.
func TestPagesOfTwo(t *testing.T) {
	t.Parallel()
	a, b := object(1, "up == 0"), object(2, "up == 1")
	w, f := newWorld(t, a, b)
	w.once()
	w.news()
	w.read.List = []v1alpha1.Evaluator{prometheus, alike("other")}
	f.set(func() { f.rules = []loaded{loads("k", a), loads("other", b, with("health", "err"))} })
	for i := range 2 * agreeMost {
		w.once()
		if told, shown := w.news(); len(told) > 0 || shown > 0 {
			t.Fatalf("poll %d: news of %v, %d shown", i, told, shown)
		}
	}
	if is := w.says(b); is.Outcome != evaluation.Evaluates {
		t.Errorf("it is %+v", is)
	}
}

// An evaluator with a configured address is not affected by a shared Service.
func TestSharedServiceBesideAnAddress(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"", "https://p.example.com"} {
		t.Run(fmt.Sprintf("address %q", url), func(t *testing.T) {
			e := rule.EvaluatorOf(&prometheus)
			task := &task{cluster: &rule.Cluster{EvaluatorRefs: []v1alpha1.EvaluatorReference{{Kind: e.Kind, Namespace: "monitoring", Name: e.Name, URL: url}}},
				evaluators: []v1alpha1.Evaluator{prometheus, alike("other")}}
			if shares := task.sharing(&e) != ""; shares != (url == "") {
				t.Errorf("it shares its Service: %v", shares)
			}
		})
	}
}
