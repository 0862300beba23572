package suspect

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/internal/ruletest"
)

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
		"a former name took it, and was seen": {tenants: none, made: older, seen: Seen{Left: []rule.Cluster{{Name: "former"}}}},
		"a former name did not take it":       {tenants: none, made: older, seen: Seen{Left: []rule.Cluster{{Name: "former", Tenants: none}}}, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			spoke := rule.Cluster{Name: "s", Created: lost, Tenants: c.tenants, Tenant: &rule.Tenant{Name: "shop", Created: c.created}}
			if is, err := rule.PlacedIn(ruletest.Rule(), spoke); is || err != nil {
				t.Fatalf("it is placed there: %v, %v", is, err)
			}
			if got := Unplaced(c.made, ruletest.Rule(), spoke, c.seen); got != c.want {
				t.Errorf("suspect is %v", got)
			}
		})
	}
}
