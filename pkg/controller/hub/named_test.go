package hub

import (
	"slices"
	"testing"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// TestNamingWorkloads finds each AlertRule that names a workload of a spoke once, whoever made it.
func TestNamingWorkloads(t *testing.T) {
	tenants := alertRule("tenant", generatedFrom("down", "s", "web"))
	tenants.Namespace = "team-a"
	c := cache(t,
		alertRule("generated", generatedFrom("down", "s", "web")), alertRule("elsewhere", generatedFrom("down", "other", "web")), tenants,
		alertRule("written", func(ar *v1alpha1.AlertRule) {
			ar.Spec.WorkloadRef = &v1alpha1.WorkloadReference{Cluster: "s", Kind: "CronJob", Namespace: "shop", Name: "report"}
		}),
		alertRule("plain", named("s")),
	)
	rules, err := NamingWorkloads(t.Context(), c, "s")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for i := range rules {
		got = append(got, rules[i].Name)
	}
	slices.Sort(got)
	if !slices.Equal(got, []string{"generated", "tenant", "written"}) {
		t.Errorf("got %v", got)
	}
}
