package evaluate

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"golang.org/x/time/rate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/evaluation"
	"github.com/rulefleet/rulefleet/pkg/rule/promql"
)

// held returns the spoke's objects that are considered, as namespace/name.
func (w *world) held() []string {
	w.Helper()
	t, err := w.task(w.Context(), "s")
	if err != nil {
		w.Fatal(err)
	}
	var out []string
	for uid, o := range t.objects {
		if o.UID != uid {
			w.Errorf("%s is there as %s", o.UID, uid)
		}
		out = append(out, o.Namespace+"/"+o.Name)
	}
	for group, o := range t.groups {
		if key, _ := rule.ParseRuleKey(o); key.Listed() != group || t.objects[o.UID] != o {
			w.Errorf("group %s is of %s/%s", group, o.Namespace, o.Name)
		}
	}
	slices.Sort(out)
	return out
}

// Anybody in a spoke can set this hub's labels on an object. It is considered only if it has an AlertRule's
// name, and of several objects for one AlertRule, only the one that distribute keeps.
func TestObjectsThatStandForAlertRules(t *testing.T) {
	t.Parallel()
	edited := func(change func(o *monitoringv1.PrometheusRule)) *monitoringv1.PrometheusRule {
		o := object(9, "stray")
		o.Name, o.Annotations[v1alpha1.AlertRuleAnnotation] = rule.ObjectName(hubID, rule.AlertRuleKey("shop", "r1")), "shop/r1"
		o.Spec.Groups[0].Name = "shop/r1"
		o.CreationTimestamp = metav1.NewTime(time.Unix(1e9, 0))
		change(o)
		return o
	}
	for name, c := range map[string]struct {
		other *monitoringv1.PrometheusRule
		want  string // which of the two, by its namespace and UID
	}{
		"another name":              {edited(func(o *monitoringv1.PrometheusRule) { o.Name = "stray" }), "shop 1"},
		"an AlertRule that is none": {object(9, "stray"), "shop 1"},
		"another hub's":             {edited(func(o *monitoringv1.PrometheusRule) { o.Namespace, o.Labels[v1alpha1.HubLabel] = "a", "hub-2" }), "shop 1"},
		"not managed by it":         {edited(func(o *monitoringv1.PrometheusRule) { o.Namespace = "a"; delete(o.Labels, v1alpha1.ManagedByLabel) }), "shop 1"},
		"a copy elsewhere, older":   {edited(func(o *monitoringv1.PrometheusRule) { o.Namespace, o.CreationTimestamp = "a", metav1.Time{} }), "shop 1"},
		"taken over elsewhere": {edited(func(o *monitoringv1.PrometheusRule) {
			o.Namespace, o.Name, o.Annotations[v1alpha1.AdoptedFromAnnotation] = "a", rule.ObjectName("hub-0", rule.AlertRuleKey("shop", "r1")), "hub-0"
		}), "shop 1"},
		"taken over": {edited(func(o *monitoringv1.PrometheusRule) {
			o.Name, o.Annotations[v1alpha1.AdoptedFromAnnotation] = rule.ObjectName("hub-0", rule.AlertRuleKey("shop", "r1")), "hub-0"
		}), "shop 9"},
		"taken over, as it says alone": {edited(func(o *monitoringv1.PrometheusRule) {
			o.Name, o.Annotations[v1alpha1.AdoptedFromAnnotation] = "stray", "hub-0"
		}), "shop 1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := object(1, "up == 0")
			o.CreationTimestamp = metav1.NewTime(time.Unix(1e9, 0))
			w, f := newWorld(t, o)
			w.holdAll(o, c.other)
			f.rules = append(f.rules, loads("k", c.other, firing(5)))
			held := w.held()
			if len(held) != 1 {
				t.Fatalf("it asks about %v", held)
			}
			w.once()
			of := map[string]*monitoringv1.PrometheusRule{"shop 1": o, c.other.Namespace + " 9": c.other}
			for which, o := range of {
				if seen := w.says(o).Seen; seen != (which == c.want) {
					t.Errorf("%s seen: %v", which, seen)
				}
			}
			if told, _ := w.news(); !slices.Equal(told, []string{"r1"}) {
				t.Errorf("news of %v", told)
			}
			asked, _ := w.asked()
			if stray := strings.Contains(strings.Join(asked, " "), "stray"); stray != (c.want == "shop 9") {
				t.Errorf("its series are asked for: %v, in %q", stray, asked)
			}
		})
	}
}

// expensive is an expression that may be parsed, and takes about a tenth of a second.
var expensive = strings.Repeat("(", 3_500) + "1" + strings.Repeat(")", 3_500)

// A spoke has a parsing budget: a rule that has to wait for it keeps its state, and is parsed later.
func TestParsingIsShared(t *testing.T) {
	t.Parallel()
	var objects []*monitoringv1.PrometheusRule
	for n := range 8 {
		objects = append(objects, object(n+1, "up == 0"))
	}
	w, _ := newWorld(t, objects...)
	// poll polls with a budget for two and a half rules.
	poll := func() (judged, parsed int) {
		w.state("s").parsing = rate.NewLimiter(0, 5*promql.ReadingCost("up == 0"))
		w.once()
		for _, o := range objects {
			is := w.says(o)
			switch is.Outcome {
			case evaluation.Evaluates:
				judged++
			case evaluation.Unasked:
			default:
				t.Errorf("%s is %+v", o.Name, is)
			}
		}
		return judged, len(w.state("s").series.needs)
	}
	if judged, parsed := poll(); judged != 2 || parsed != 1 {
		t.Errorf("at first, %d are judged, and of %d is known what they need", judged, parsed)
	}
	// Nothing is parsed twice, so the others get their turn.
	for range 5 {
		poll()
	}
	if judged, parsed := poll(); judged != len(objects) || parsed != len(objects) {
		t.Errorf("in the end, %d are judged, and of %d is known what they need", judged, parsed)
	}
	// A changed rule does not keep its state.
	objects[0] = edited(objects[0])
	w.hold(objects...)
	w.state("s").parsing = rate.NewLimiter(0, 0)
	w.once()
	if is := w.says(objects[0]); is.Outcome != evaluation.Unasked || is.Checked {
		t.Errorf("edited, it is %+v", is)
	}
	if is := w.says(objects[1]); is.Outcome != evaluation.Evaluates {
		t.Errorf("another is %+v", is)
	}
}

// While expressions are parsed, the state of the spoke can be read by workers, by a scrape, and for the
// status.
func TestNoLockWhileParsing(t *testing.T) {
	objects := []*monitoringv1.PrometheusRule{object(1, expensive), object(2, expensive)}
	w, _ := newWorld(t, objects...)
	done := make(chan struct{})
	// Each of the two is parsed four times, for a twentieth of a second at least.
	slowest, from := time.Duration(0), time.Now()
	go func() {
		defer close(done)
		w.once()
	}()
	for polled := false; !polled; {
		select {
		case <-done:
			polled = true
		default:
			begun := time.Now()
			w.says(objects[0])
			slowest = max(slowest, time.Since(begun))
		}
	}
	if took := time.Since(from); slowest > took/4 {
		t.Errorf("of %v, one read took %v", took, slowest)
	}
}

// strays returns objects with this hub's labels that no AlertRule has.
func strays(n int, expr string) []*monitoringv1.PrometheusRule {
	out := make([]*monitoringv1.PrometheusRule, 0, n)
	for i := range n {
		o := object(i+1000, expr)
		o.Name, o.UID = fmt.Sprintf("stray-%d", i), types.UID(fmt.Sprintf("stray-%d", i))
		o.Spec.Groups[0].Rules[0].Labels = map[string]string{strings.Repeat("l", 10_000): "x"}
		for range 20 {
			o.Spec.Groups[0].Rules = append(o.Spec.Groups[0].Rules, monitoringv1.Rule{Alert: "A", Expr: intstr.FromString(expr)})
		}
		out = append(out, o)
	}
	return out
}
