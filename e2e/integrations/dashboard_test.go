package integrations

import (
	"os"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
)

// TestDashboard holds the dashboard against Grafana's schema. The tests of pkg/metrics check its
// layout and its expressions.
func TestDashboard(t *testing.T) {
	data, err := os.ReadFile("../../charts/rulefleet/files/dashboard.json")
	must(t, err)
	plugins.RegisterDefaultPlugins()
	var d dashboard.Dashboard
	if err := d.UnmarshalJSONStrict(data); err != nil {
		t.Fatalf("it does not fit Grafana's schema: %v", err)
	}
	must(t, d.Validate())
	panels := 0
	for _, p := range d.Panels {
		if p.Panel == nil {
			continue
		}
		panels++
		if _, known := cog.ConfigForPanelcfgVariant(p.Panel.Type); !known {
			t.Errorf("panel %s is of type %s, whose options are not checked", *p.Panel.Title, p.Panel.Type)
		}
		for _, target := range p.Panel.Targets {
			if _, ok := target.(*prometheus.Dataquery); !ok {
				t.Errorf("panel %s has a query of type %T", *p.Panel.Title, target)
			}
		}
	}
	if panels == 0 {
		t.Error("it has no panels")
	}
}
