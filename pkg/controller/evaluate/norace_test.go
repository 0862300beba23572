//go:build !race

package evaluate

import (
	"context"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/pkg/rule/evaluation"
)

// cpuTime returns the CPU time of this process.
func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// shared is a cache of a spoke, which copies nothing as the real one does not.
type shared struct {
	client.Reader
	objects []*monitoringv1.PrometheusRule
}

// List implements client.Reader.
func (s shared) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	out := list.(*monitoringv1.PrometheusRuleList)
	for _, o := range s.objects {
		out.Items = append(out.Items, *o)
	}
	return nil
}

// TestTextsOfSpokesAreBounded checks that invalid texts of a spoke are rejected quickly, wherever they come
// from. It measures time, so it runs without the race detector and alone: make test-measured runs it.
func TestTextsOfSpokesAreBounded(t *testing.T) {
	hostile := strings.Repeat("(", 700_000)
	replace := func(expr string) func(w *world, o *monitoringv1.PrometheusRule, f *fakeProm) {
		return func(w *world, o *monitoringv1.PrometheusRule, _ *fakeProm) {
			o = edited(o)
			o.Spec.Groups[0].Rules[0].Expr = intstr.FromString(expr)
			w.spoke.Reader = shared{objects: []*monitoringv1.PrometheusRule{o}}
		}
	}
	answer := func(expr string) func(w *world, o *monitoringv1.PrometheusRule, f *fakeProm) {
		return func(_ *world, o *monitoringv1.PrometheusRule, f *fakeProm) {
			f.rules[0] = loads("k", o, with("query", expr))
		}
	}
	for name, spoil := range map[string]func(w *world, o *monitoringv1.PrometheusRule, f *fakeProm){
		"parentheses in a PrometheusRule": replace(hostile),
		"parentheses in an answer":        answer(hostile),
		"both": func(w *world, o *monitoringv1.PrometheusRule, f *fakeProm) {
			replace(hostile)(w, o, f)
			answer(hostile)(w, o, f)
		},
		"minus in an answer":                       answer(strings.Repeat("-", 700_000) + "1"),
		"a regular expression in an answer":        answer(`a{b=~"(?i)` + strings.Repeat(`[B-\\x{1e900}]`, 15_000) + `"}`),
		"a regular expression in a PrometheusRule": replace(`a{b=~"(?i)` + strings.Repeat(`[B-\\x{1e900}]`, 15_000) + `"}`),
		"a thousand objects with our labels": func(w *world, o *monitoringv1.PrometheusRule, _ *fakeProm) {
			w.spoke.Reader = shared{objects: append(strays(1000, hostile), o)}
		},
		"a thousand objects that are cheap to refuse": func(w *world, o *monitoringv1.PrometheusRule, _ *fakeProm) {
			w.spoke.Reader = shared{objects: append(strays(1000, "sum(up)"), o)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := object(1, "up == 0")
			w, f := newWorld(t, o)
			for range 3 {
				w.once()
			}
			spoil(w, o, f)
			recorder := httptest.NewRecorder()
			f.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/rules?group_limit=500", http.NoBody))
			body := recorder.Body.Bytes()
			w.prometheus = http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
				if strings.HasSuffix(req.URL.Path, "/rules") {
					_, _ = rw.Write(body)
					return
				}
				f.ServeHTTP(rw, req)
			})
			s := w.state("s")
			runtime.GC() // what was needed until here is not counted
			start := cpuTime(t)
			w.poll(t.Context(), "s", s)
			took := cpuTime(t) - start
			t.Logf("it takes %v", took)
			if took > 50*time.Millisecond {
				t.Errorf("it takes %v", took)
			}
		})
	}
}

// TestExpensiveSpokesAreBounded checks that a spoke can't repeat expensive parsing continuously.
func TestExpensiveSpokesAreBounded(t *testing.T) {
	var objects []*monitoringv1.PrometheusRule
	for n := range 100 {
		objects = append(objects, object(n+1, expensive))
	}
	w, f := newWorld(t, objects...)
	f.series = map[string]bool{}
	s := w.state("s")
	total := time.Duration(0)
	for range 5 {
		task, err := w.task(t.Context(), "s")
		if err != nil {
			t.Fatal(err)
		}
		start := cpuTime(t)
		w.askAll(t.Context(), task, s)
		total += cpuTime(t) - start
	}
	if total > 2*time.Second {
		t.Errorf("five polls take %v", total)
	}
	judged := 0
	for _, o := range objects {
		if w.says(o).Outcome == evaluation.Evaluates {
			judged++
		}
	}
	if judged == 0 || judged > 10 {
		t.Errorf("%d are judged", judged)
	}
}
