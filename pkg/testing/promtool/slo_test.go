package promtool

import (
	"fmt"
	"os"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/delivery"
)

// The example of service-level objectives fires by how fast the error budget is used, and by the objective of the cluster.
func TestServiceLevelObjectives(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../../../docs/examples/rulepack-slo.yaml")
	if err != nil {
		t.Fatal(err)
	}
	pack := &v1alpha1.RulePack{}
	if err := yaml.UnmarshalStrict(data, pack); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		failing    int // of 10,000 requests a minute
		tier       string
		fast, slow bool
	}{
		"none fails":              {0, "", false, false},
		"half of the budget":      {5, "", false, false},
		"twice the budget":        {20, "", false, true},
		"seven times the budget":  {70, "", true, true},
		"the same in a test":      {70, "test", false, false},
		"thirty times the budget": {300, "", true, true},
		"three times, in a test":  {400, "test", false, true},
		"twenty times, in a test": {2000, "test", true, true},
		"all fail, in a test":     {10000, "test", true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := delivery.Render(pack, rule.Cluster{Name: "eu-1", Labels: map[string]string{"tier": c.tier}}, delivery.Options{
				HubID: "hub-1", AdminNamespace: "rulefleet-system", ClusterLabel: "cluster",
			})
			if err != nil {
				t.Fatal(err)
			}
			fires := func(alert, severity string, does bool) string {
				if !does {
					return fmt.Sprintf("      - {eval_time: 7h, alertname: %s}\n", alert)
				}
				return fmt.Sprintf("      - {eval_time: 7h, alertname: %s, exp_alerts: [{exp_labels: {severity: %s, cluster: eu-1, job: web}, exp_annotations: {summary: %q}}]}\n", alert, severity, summary(alert, c.failing))
			}
			test := fmt.Sprintf(`
rule_files: [%s]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - {series: 'http_requests_total{job="web", code="200"}', values: "0+%dx420"}
      - {series: 'http_requests_total{job="web", code="500"}', values: "0+%dx420"}
    alert_rule_test:
`, RulesName, 10000-c.failing, c.failing) + fires("ErrorBudgetBurnsFast", "critical", c.fast) + fires("ErrorBudgetBurns", "warning", c.slow)
			if err := Check(t.Context(), p.Spec.Groups); err != nil {
				t.Error(err)
			}
			if err := Test(t.Context(), p.Spec.Groups, []byte(test)); err != nil {
				t.Error(err)
			}
		})
	}
}

// summary is the annotation of an alert while so many of 10,000 requests fail.
func summary(alert string, failing int) string {
	how := "uses its error budget too fast"
	if alert == "ErrorBudgetBurns" {
		how = "uses its error budget"
	}
	return fmt.Sprintf("web %s: %.4g%% of its requests fail.", how, float64(failing)/100)
}
