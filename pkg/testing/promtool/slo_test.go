package promtool

import (
	"fmt"
	"os"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"sigs.k8s.io/yaml"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/delivery"
	"github.com/rulefleet/rulefleet/pkg/rule/templating"
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

// The example of an objective of latency fires for a workload by how fast its error budget is used, and by the objective
// that its annotation sets.
func TestLatencyObjective(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../../../docs/examples/alertruletemplate-slo.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var templates []*v1alpha1.AlertRuleTemplate
	for document := range strings.SplitSeq(string(data), "\n---\n") {
		template := &v1alpha1.AlertRuleTemplate{}
		if err := yaml.UnmarshalStrict([]byte(document), template); err != nil {
			t.Fatal(err)
		}
		templates = append(templates, template)
	}
	for name, c := range map[string]struct {
		slow         int // of 10,000 requests a minute
		params       string
		fast, slowly bool
	}{
		"none is slow":                 {0, "", false, false},
		"half of the budget":           {50, "", false, false},
		"twice the budget":             {200, "", false, true},
		"seven times the budget":       {700, "", true, true},
		"twenty times the budget":      {2000, "", true, true},
		"a looser objective":           {700, "objective=0.9", false, false},
		"a tighter objective":          {70, "objective=0.999", true, true},
		"another threshold":            {700, "burn6h=8", false, true},
		"another threshold, in vain":   {700, "latency-budget-burns/burn6h=8", true, true},
		"a bucket with more requests":  {700, "latency=0.5", false, false},
		"a bucket that does not exist": {10000, "latency=0.4", false, false},
		"no objective":                 {700, "objective=1,objective=x", true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := templating.Workload{
				Kind: v1alpha1.DeploymentKind, Cluster: rule.Cluster{Name: "eu-1"}, Namespace: "shop", Name: "web", Labels: map[string]string{"slo": "latency"},
				Annotations: map[string]string{v1alpha1.AdjustmentPrefix + string(v1alpha1.AdjustParams): c.params},
			}
			var groups []monitoringv1.RuleGroup
			for _, template := range templates {
				ar, err := templating.Rule(template, w, "rulefleet-generated")
				if err != nil {
					t.Fatal(err)
				}
				p, err := delivery.Render(ar, w.Cluster, delivery.Options{HubID: "hub-1", AdminNamespace: "rulefleet-system", GeneratedNamespace: "rulefleet-generated", ClusterLabel: "cluster"})
				if err != nil {
					t.Fatal(err)
				}
				groups = append(groups, p.Spec.Groups...)
			}
			fires := func(alert, severity string, does bool) string {
				if !does {
					return fmt.Sprintf("      - {eval_time: 7h, alertname: %s}\n", alert)
				}
				summary := fmt.Sprintf("%.4g%% of the requests of web take longer than 0.3 s.", float64(c.slow)/100)
				return fmt.Sprintf("      - {eval_time: 7h, alertname: %s, exp_alerts: [{exp_labels: {severity: %s, cluster: eu-1, namespace: shop, deployment: web}, exp_annotations: {summary: %q}}]}\n", alert, severity, summary)
			}
			test := fmt.Sprintf(`
rule_files: [%s]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - {series: 'http_request_duration_seconds_bucket{namespace="shop", pod="web-1", le="0.3"}', values: "0+%[2]dx420"}
      - {series: 'http_request_duration_seconds_bucket{namespace="shop", pod="web-1", le="0.5"}', values: "0+10000x420"}
      - {series: 'http_request_duration_seconds_count{namespace="shop", pod="web-1"}', values: "0+10000x420"}
      - {series: 'http_request_duration_seconds_bucket{namespace="shop", pod="api-1", le="0.3"}', values: "0+0x420"}
      - {series: 'http_request_duration_seconds_count{namespace="shop", pod="api-1"}', values: "0+10000x420"}
    alert_rule_test:
`, RulesName, 10000-c.slow) + fires("LatencyBudgetBurnsFast", "critical", c.fast) + fires("LatencyBudgetBurns", "warning", c.slowly)
			if err := Check(t.Context(), groups); err != nil {
				t.Error(err)
			}
			if err := Test(t.Context(), groups, []byte(test)); err != nil {
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
