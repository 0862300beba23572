package rule

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

func TestTenants(t *testing.T) {
	type names = []v1alpha1.NamespaceName
	team := &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}
	shop := &Tenant{Name: "shop", Labels: map[string]string{"team": "a"}}
	for name, c := range map[string]struct {
		tenants *v1alpha1.TenantSelection
		tenant  *Tenant
		want    bool
		labels  bool // whether they decide
	}{
		"by default":                 {nil, shop, true, false},
		"a system namespace":         {nil, &Tenant{Name: "kube-system"}, false, false},
		"a platform's namespace":     {nil, &Tenant{Name: "openshift-monitoring"}, false, false},
		"default is no system's":     {nil, &Tenant{Name: "default"}, true, false},
		"the operator's own":         {&v1alpha1.TenantSelection{Names: names{}}, nil, true, false},
		"none":                       {&v1alpha1.TenantSelection{Names: names{}}, shop, false, false},
		"named":                      {&v1alpha1.TenantSelection{Names: names{"other", "shop"}}, shop, true, false},
		"not named":                  {&v1alpha1.TenantSelection{Names: names{"other"}}, shop, false, false},
		"a system namespace, named":  {&v1alpha1.TenantSelection{Names: names{"kube-system"}}, &Tenant{Name: "kube-system"}, true, false},
		"selected":                   {&v1alpha1.TenantSelection{Selector: team}, shop, true, true},
		"not selected":               {&v1alpha1.TenantSelection{Selector: team}, &Tenant{Name: "shop", Labels: map[string]string{"team": "b"}}, false, true},
		"named, not selected":        {&v1alpha1.TenantSelection{Names: names{"shop"}, Selector: team}, &Tenant{Name: "shop"}, true, false},
		"all":                        {&v1alpha1.TenantSelection{Selector: &metav1.LabelSelector{}}, &Tenant{Name: "shop"}, true, true},
		"all are no system's":        {&v1alpha1.TenantSelection{Selector: &metav1.LabelSelector{}}, &Tenant{Name: "kube-public"}, false, false},
		"an invalid selector: none":  {&v1alpha1.TenantSelection{Selector: badSelector}, shop, false, true},
		"an invalid selector, named": {&v1alpha1.TenantSelection{Names: names{"shop"}, Selector: badSelector}, shop, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			spoke := Cluster{Name: "s", Tenants: c.tenants, Tenant: c.tenant}
			got, err := PlacedIn(newRule(), spoke)
			if got != c.want || (err != nil) != (c.tenants != nil && c.tenants.Selector == badSelector && c.labels) {
				t.Errorf("it is placed: %v, %v", got, err)
			}
			if c.tenant != nil && spoke.ByTenantLabels(c.tenant.Name) != c.labels {
				t.Error("whether labels decide")
			}
		})
	}
}

// A removal because of spec.tenants is suspect as one because of labels is.
func TestSuspectTenants(t *testing.T) {
	shop := &v1alpha1.TenantSelection{Names: []v1alpha1.NamespaceName{"shop"}}
	byTeam := &v1alpha1.TenantSelection{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}}
	none := &v1alpha1.TenantSelection{Names: []v1alpha1.NamespaceName{}}
	for name, c := range map[string]struct {
		tenants       *v1alpha1.TenantSelection
		made, created time.Time // created is the time of the namespace
		seen          Seen
		want          bool
	}{
		"the SpokeCluster is younger":         {tenants: none, made: older, want: true},
		"the SpokeCluster is older":           {tenants: none, made: lost.Add(time.Hour)},
		"the change was seen":                 {tenants: none, made: older, seen: Seen{Spokes: []FormerSpoke{{Tenants: shop}}}},
		"another change was seen":             {tenants: none, made: older, seen: Seen{Spokes: []FormerSpoke{{Tenants: none}}}, want: true},
		"the namespace is younger":            {tenants: byTeam, made: lost.Add(time.Hour), created: lost.Add(2 * time.Hour), want: true},
		"the namespace is older":              {tenants: byTeam, made: lost.Add(time.Hour), created: lost},
		"the namespace makes no difference":   {tenants: none, made: lost.Add(time.Hour), created: lost.Add(2 * time.Hour)},
		"a former name took it, and was seen": {tenants: none, made: older, seen: Seen{Left: []Cluster{{Name: "former"}}}},
		"a former name did not take it":       {tenants: none, made: older, seen: Seen{Left: []Cluster{{Name: "former", Tenants: none}}}, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			spoke := Cluster{Name: "s", Created: lost, Tenants: c.tenants, Tenant: &Tenant{Name: "shop", Created: c.created}}
			if is, err := PlacedIn(newRule(), spoke); is || err != nil {
				t.Fatalf("it is placed there: %v, %v", is, err)
			}
			if got := SuspectUnplaced(c.made, newRule(), spoke, c.seen); got != c.want {
				t.Errorf("suspect is %v", got)
			}
		})
	}
}

// A spoke that does not take a rule has a row if it is named, and is counted if it is selected by its labels.
func TestStatusOfTenants(t *testing.T) {
	none := &v1alpha1.TenantSelection{Names: []v1alpha1.NamespaceName{}}
	refusing := SpokeState{Cluster: Cluster{Name: "b", Tenants: none, Tenant: &Tenant{Name: "shop"}}, Shown: Shown{Top: OverlayOff}}
	taking := SpokeState{Cluster: Cluster{Name: "a", Tenant: &Tenant{Name: "shop"}}, Shown: Shown{Top: OverlayOff}}
	applied := map[string]v1alpha1.ClusterStatus{"a": {Name: "a", Phase: v1alpha1.PhaseApplied, ObservedGeneration: 1}}
	const more = " (1 more match, but do not take AlertRules of namespace shop: spec.tenants of the SpokeCluster)"
	for name, c := range map[string]struct {
		spokes                  []SpokeState
		placement               v1alpha1.ClusterSelection
		reason, message         string
		desired, ready, failing int32
	}{
		"by label": {
			[]SpokeState{taking, refusing}, everyCluster(), v1alpha1.ReasonAllApplied, "ready in 1/1 spokes" + more, 1, 1, 0,
		},
		"by label, only": {
			[]SpokeState{refusing}, everyCluster(), v1alpha1.ReasonNoClusters, "spec.placement matches no registered spoke" + more + "; list", 0, 0, 0,
		},
		"by name": {
			[]SpokeState{taking, refusing}, clusters("a", "b"), v1alpha1.ReasonTenantNotAllowed,
			"ready in 1/2 spokes; b: TenantNotAllowed: SpokeCluster b does not take AlertRules of namespace shop (spec.tenants); remove", 2, 1, 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRule(func(r *v1alpha1.AlertRule) { r.Spec.Placement = c.placement })
			// The rule was in both before.
			r.Status.Clusters = []v1alpha1.ClusterStatus{
				{Name: "a", Phase: v1alpha1.PhaseApplied, ObservedGeneration: 1}, {Name: "b", Phase: v1alpha1.PhaseApplied, ObservedGeneration: 1},
			}
			r.Status.Summary = &v1alpha1.RuleSummary{Desired: 2, Ready: "2/2"}
			in := StatusInput{Rule: r, Clusters: c.spokes, Verdicts: applied}
			status, _ := Status(in)
			ready := conditionOf(&status, v1alpha1.ConditionReady)
			if ready.Reason != c.reason || len(ready.Message) < len(c.message) || ready.Message[:len(c.message)] != c.message {
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

func conditionOf(s *v1alpha1.AlertRuleStatus, kind string) *metav1.Condition {
	for i := range s.Conditions {
		if s.Conditions[i].Type == kind {
			return &s.Conditions[i]
		}
	}
	return &metav1.Condition{}
}
