package distribute

import (
	"cmp"
	"reflect"
	"slices"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/evaluation"
	"github.com/rulefleet/rulefleet/pkg/spoke"
)

// After a restart, it takes minutes to find again that a rule was late, what it lacks, and what fired before
// its Prometheus went down. Until then, the status stays.
func TestAsTold(t *testing.T) {
	t.Parallel()
	row := v1alpha1.ClusterStatus{Name: "s", Reason: v1alpha1.ReasonNotLoaded, ObservedGeneration: 2, MissingMetrics: []string{"x"}, Firing: 3}
	for name, c := range map[string]struct {
		change func(*v1alpha1.ClusterStatus)
		is     evaluation.State
		late   bool
		lacks  []string
		fires  int32
	}{
		"not known yet":         {nil, evaluation.State{Outcome: evaluation.Absent}, true, []string{"x"}, 0},
		"known":                 {nil, evaluation.State{Outcome: evaluation.Absent, Checked: true}, true, nil, 0},
		"known to lack others":  {nil, evaluation.State{Outcome: evaluation.Evaluates, Checked: true, Missing: []string{"y"}}, true, []string{"y"}, 0},
		"it can't be known":     {nil, evaluation.State{Outcome: evaluation.NotGranted}, true, nil, 0},
		"down since before":     {nil, evaluation.State{Outcome: evaluation.Unreachable}, true, []string{"x"}, 3},
		"down since later":      {nil, evaluation.State{Outcome: evaluation.Unreachable, Seen: true, Firing: 1}, true, []string{"x"}, 1},
		"of another spoke":      {func(r *v1alpha1.ClusterStatus) { r.Name = "t" }, evaluation.State{Outcome: evaluation.Absent}, false, nil, 0},
		"of another generation": {func(r *v1alpha1.ClusterStatus) { r.ObservedGeneration = 1 }, evaluation.State{Outcome: evaluation.Absent}, false, nil, 0},
		"it was about to load":  {func(r *v1alpha1.ClusterStatus) { r.Reason = v1alpha1.ReasonLoading }, evaluation.State{Outcome: evaluation.Absent}, false, []string{"x"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			ar := &v1alpha1.AlertRule{}
			ar.Generation = 2
			ar.Status.Clusters = []v1alpha1.ClusterStatus{*row.DeepCopy()}
			if c.change != nil {
				c.change(&ar.Status.Clusters[0])
			}
			got := (&observation{source: ar, spoke: &spoke.Spoke{Name: "s"}}).asTold(c.is)
			if got.Late != c.late || !slices.Equal(got.Missing, c.lacks) || got.Outcome != c.is.Outcome || got.Firing != c.fires {
				t.Errorf("%s: %+v", name, got)
			}
			renewed := (&observation{source: ar, spoke: &spoke.Spoke{Name: "s"}, renewed: true}).asTold(c.is)
			if !reflect.DeepEqual(renewed, c.is) {
				t.Errorf("%s, of a former spoke: %+v", name, renewed)
			}
		})
	}
}

// After a restart, an evaluated rule stays evaluated until enough polls agree that it is not. Any other row
// does not wait.
func TestAsToldUnsure(t *testing.T) {
	t.Parallel()
	evaluating := v1alpha1.ClusterStatus{Name: "s", Phase: v1alpha1.PhaseEvaluating, ObservedGeneration: 2}
	for name, c := range map[string]struct {
		rows []v1alpha1.ClusterStatus
		want evaluation.Outcome
	}{
		"evaluated": {[]v1alpha1.ClusterStatus{{Name: "t"}, evaluating}, evaluation.Unasked},
		"evaluated, and it failed": {
			[]v1alpha1.ClusterStatus{{Name: "s", Phase: v1alpha1.PhaseSelected, Reason: v1alpha1.ReasonEvaluationFailed, ObservedGeneration: 2}}, evaluation.Unasked,
		},
		"not listed": {[]v1alpha1.ClusterStatus{{Name: "t"}}, evaluation.Unasked},
		"an older generation was": {
			[]v1alpha1.ClusterStatus{{Name: "s", Phase: v1alpha1.PhaseEvaluating, ObservedGeneration: 1}}, evaluation.Absent,
		},
		"not evaluated": {
			[]v1alpha1.ClusterStatus{{Name: "s", Phase: v1alpha1.PhaseSelected, Reason: v1alpha1.ReasonLoading, ObservedGeneration: 2}}, evaluation.Absent,
		},
	} {
		t.Run(name, func(t *testing.T) {
			ar := &v1alpha1.AlertRule{}
			ar.Generation, ar.Status.Clusters = 2, c.rows
			t1 := &observation{source: ar, spoke: &spoke.Spoke{Name: "s"}}
			if got := t1.asTold(evaluation.State{Outcome: evaluation.Absent, Unsure: true}); got.Outcome != c.want {
				t.Errorf("%+v", got)
			}
			if got := t1.asTold(evaluation.State{Outcome: evaluation.Absent}); got.Outcome != evaluation.Absent {
				t.Errorf("when it is sure, %+v", got)
			}
		})
	}
}

// Another Prometheus with other requirements does not affect a rule that a Prometheus has, neither while one
// is chosen nor while the choice is ambiguous.
func TestAnotherPrometheusChangesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	wanting := func(namespace, release string, chosen bool) v1alpha1.Evaluator {
		return v1alpha1.Evaluator{
			Kind: rule.KindPrometheus, Namespace: namespace, Name: "k", Chosen: chosen, RuleNamespaceSelector: &metav1.LabelSelector{},
			RuleSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"release": release}}, ClusterLabel: release,
		}
	}
	are := func(list ...v1alpha1.Evaluator) { w.evaluators = spoke.Evaluators{Known: true, List: list} }
	ar := alertRule()
	ar.Namespace = admin
	req := request("s", ar.Name)
	req.Namespace = admin
	expect := func(what, release string, writes ...string) {
		t.Helper()
		w.rules.ClearActions()
		w.liveClock.Step(time.Second)
		result, err := w.Reconcile(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		if len(writes) == 0 && result.RequeueAfter > 0 {
			t.Errorf("%s: it is to be looked at again after %v", what, result.RequeueAfter)
		}
		var sent []string
		for _, a := range w.rules.Actions() {
			sent = append(sent, a.GetVerb()+" "+a.GetNamespace())
		}
		if !slices.Equal(sent, writes) {
			t.Errorf("%s: sent %q, want %q", what, sent, writes)
		}
		w.sync()
		var list monitoringv1.PrometheusRuleList
		if err := w.spoke.Reader.List(t.Context(), &list); err != nil || len(list.Items) != 1 {
			t.Fatalf("%s: there are %d PrometheusRules: %v", what, len(list.Items), err)
		}
		o := list.Items[0]
		if cluster := o.Spec.Groups[0].Rules[0].Labels["cluster"]; o.Labels["release"] != release || cluster != cmp.Or(release, "s") {
			t.Errorf("%s: it is in %s, with %v, of cluster %q", what, o.Namespace, o.Labels, cluster)
		}
	}
	for _, ns := range []string{"platform", "tenant"} {
		w.put(w.server, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
	}
	w.sync()
	platform, tenant := wanting("platform", "kps", true), wanting("tenant", "mine", false)
	are(platform)
	w.put(w.hub, ar)
	expect("chosen", "kps", "create platform")
	are(platform, tenant)
	expect("another", "kps")
	tenant.RuleSelector, tenant.Version, tenant.ClusterLabel = &metav1.LabelSelector{}, "v2.0.0", "x"
	are(platform, tenant)
	expect("another changed", "kps")
	platform.Chosen = false
	are(platform, tenant)
	expect("none is chosen", "kps")
	platform.RuleSelector, platform.ClusterLabel = &metav1.LabelSelector{}, "y"
	are(platform, tenant)
	expect("none is chosen, and one changed", "kps")
	platform.MissingTime = metav1.Now()
	are(platform)
	expect("the one that was is gone", "kps")
	are(wanting("tenant", "mine", true))
	expect("another is chosen", "mine", "create tenant", "delete platform")
}
