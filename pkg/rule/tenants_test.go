package rule_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/internal/ruletest"
)

func TestTenants(t *testing.T) {
	type names = []v1alpha1.NamespaceName
	team := &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}
	shop := &rule.Tenant{Name: "shop", Labels: map[string]string{"team": "a"}}
	for name, c := range map[string]struct {
		tenants *v1alpha1.TenantSelection
		tenant  *rule.Tenant
		want    bool
		labels  bool // whether they decide
	}{
		"by default":                 {nil, shop, true, false},
		"a system namespace":         {nil, &rule.Tenant{Name: "kube-system"}, false, false},
		"a platform's namespace":     {nil, &rule.Tenant{Name: "openshift-monitoring"}, false, false},
		"default is no system's":     {nil, &rule.Tenant{Name: "default"}, true, false},
		"the operator's own":         {&v1alpha1.TenantSelection{Names: names{}}, nil, true, false},
		"none":                       {&v1alpha1.TenantSelection{Names: names{}}, shop, false, false},
		"named":                      {&v1alpha1.TenantSelection{Names: names{"other", "shop"}}, shop, true, false},
		"not named":                  {&v1alpha1.TenantSelection{Names: names{"other"}}, shop, false, false},
		"a system namespace, named":  {&v1alpha1.TenantSelection{Names: names{"kube-system"}}, &rule.Tenant{Name: "kube-system"}, true, false},
		"selected":                   {&v1alpha1.TenantSelection{Selector: team}, shop, true, true},
		"not selected":               {&v1alpha1.TenantSelection{Selector: team}, &rule.Tenant{Name: "shop", Labels: map[string]string{"team": "b"}}, false, true},
		"named, not selected":        {&v1alpha1.TenantSelection{Names: names{"shop"}, Selector: team}, &rule.Tenant{Name: "shop"}, true, false},
		"all":                        {&v1alpha1.TenantSelection{Selector: &metav1.LabelSelector{}}, &rule.Tenant{Name: "shop"}, true, true},
		"all are no system's":        {&v1alpha1.TenantSelection{Selector: &metav1.LabelSelector{}}, &rule.Tenant{Name: "kube-public"}, false, false},
		"an invalid selector: none":  {&v1alpha1.TenantSelection{Selector: ruletest.BadSelector}, shop, false, true},
		"an invalid selector, named": {&v1alpha1.TenantSelection{Names: names{"shop"}, Selector: ruletest.BadSelector}, shop, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			spoke := rule.Cluster{Name: "s", Tenants: c.tenants, Tenant: c.tenant}
			got, err := rule.PlacedIn(ruletest.Rule(), spoke)
			if got != c.want || (err != nil) != (c.tenants != nil && c.tenants.Selector == ruletest.BadSelector && c.labels) {
				t.Errorf("it is placed: %v, %v", got, err)
			}
			if c.tenant != nil && spoke.ByTenantLabels(c.tenant.Name) != c.labels {
				t.Error("whether labels decide")
			}
		})
	}
}
