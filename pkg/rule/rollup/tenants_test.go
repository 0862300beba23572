package rollup

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/internal/ruletest"
)

// A spoke that does not take a rule has a row if it is named, and is counted if it is selected by its labels.
func TestStatusOfTenants(t *testing.T) {
	none := &v1alpha1.TenantSelection{Names: []v1alpha1.NamespaceName{}}
	refusing := Spoke{Cluster: rule.Cluster{Name: "b", Tenants: none, Tenant: &rule.Tenant{Name: "shop"}}, Shown: Shown{Top: OverlayOff}}
	third := refusing
	third.Cluster.Name = "c"
	taking := Spoke{Cluster: rule.Cluster{Name: "a", Tenant: &rule.Tenant{Name: "shop"}}, Shown: Shown{Top: OverlayOff}}
	applied := map[string]v1alpha1.ClusterStatus{"a": {Name: "a", Phase: v1alpha1.PhaseApplied, ObservedGeneration: 1}}
	const more = " (1 more spoke matches, but does not take AlertRules of namespace shop; see its spec.tenants)"
	for name, c := range map[string]struct {
		spokes                  []Spoke
		placement               v1alpha1.ClusterSelection
		reason, message         string
		desired, ready, failing int32
	}{
		"by label": {
			[]Spoke{taking, refusing}, ruletest.EveryCluster(), v1alpha1.ReasonAllApplied, "ready in 1/1 spokes" + more, 1, 1, 0,
		},
		"by label, several": {
			[]Spoke{taking, refusing, third}, ruletest.EveryCluster(), v1alpha1.ReasonAllApplied,
			"ready in 1/1 spokes (2 more spokes match, but do not take AlertRules of namespace shop; see their spec.tenants)", 1, 1, 0,
		},
		"by label, only": {
			[]Spoke{refusing}, ruletest.EveryCluster(), v1alpha1.ReasonNoClusters, "the spokes that spec.placement matches (1) do not take AlertRules of namespace shop; ask", 0, 0, 0,
		},
		"by label, and excluded": {
			[]Spoke{taking, refusing}, excluding(ruletest.EveryCluster(), "b"), v1alpha1.ReasonAllApplied, "ready in 1/1 spokes", 1, 1, 0,
		},
		"by name, and excluded": {
			[]Spoke{taking, refusing}, excluding(ruletest.Clusters("a", "b", "gone"), "b", "gone"), v1alpha1.ReasonAllApplied, "ready in 1/1 spokes", 1, 1, 0,
		},
		"by name, and excluded by label": {
			[]Spoke{taking, refusing}, v1alpha1.ClusterSelection{Names: []v1alpha1.ClusterName{"b"}, Exclude: &v1alpha1.ClusterExclusion{Selector: &metav1.LabelSelector{}}},
			v1alpha1.ReasonNoClusters, "spec.placement matches no registered spoke", 0, 0, 0,
		},
		"by name": {
			[]Spoke{taking, refusing}, ruletest.Clusters("a", "b"), v1alpha1.ReasonTenantNotAllowed,
			"ready in 1/2 spokes; b: TenantNotAllowed: SpokeCluster b does not take AlertRules of namespace shop (spec.tenants); remove", 2, 1, 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := ruletest.Rule(func(r *v1alpha1.AlertRule) { r.Spec.Placement = c.placement })
			// The rule was in both before.
			r.Status.Clusters = []v1alpha1.ClusterStatus{
				{Name: "a", Phase: v1alpha1.PhaseApplied, ObservedGeneration: 1}, {Name: "b", Phase: v1alpha1.PhaseApplied, ObservedGeneration: 1},
			}
			r.Status.Summary = &v1alpha1.RuleSummary{Desired: 2, Ready: "2/2"}
			in := Input{Rule: r, Clusters: c.spokes, Verdicts: applied}
			status, _ := Status(in)
			ready := conditionOf(&status, v1alpha1.ConditionReady)
			if ready.Reason != c.reason || !strings.HasPrefix(ready.Message, c.message) {
				t.Errorf("Ready is %s: %s", ready.Reason, ready.Message)
			}
			if s := status.Summary; s.Desired != c.desired || s.Failing != c.failing {
				t.Errorf("the summary is %+v", s)
			}
			stalled := conditionOf(&status, v1alpha1.ConditionStalled)
			if (stalled.Status == metav1.ConditionTrue) != (c.failing > 0) {
				t.Errorf("Stalled is %+v", stalled)
			}
		})
	}
}

func conditionOf(s *v1alpha1.RuleStatus, kind string) *metav1.Condition {
	for i := range s.Conditions {
		if s.Conditions[i].Type == kind {
			return &s.Conditions[i]
		}
	}
	return &metav1.Condition{}
}

func excluding(s v1alpha1.ClusterSelection, names ...v1alpha1.ClusterName) v1alpha1.ClusterSelection {
	s.Exclude = &v1alpha1.ClusterExclusion{Names: names}
	return s
}
