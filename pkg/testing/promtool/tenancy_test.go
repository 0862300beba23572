package promtool

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/delivery"
)

// Prometheus takes the labels that Rulefleet forces on a tenant's alert over those of the series, and an empty
// one removes a label of the series.
func TestTenantsLabels(t *testing.T) {
	r := &v1alpha1.AlertRule{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "fake"}}
	r.Spec.Alert, r.Spec.Expr, r.Spec.Severity = "A", `label_replace(up == 0, "namespace", "payments", "", "")`, "critical"
	r.Spec.Labels = map[string]v1alpha1.LabelText{"namespace": "payments", "team": "payments"}
	render := func(namespace string) []byte {
		return []byte(`
rule_files: [` + RulesName + `]
tests:
  - input_series: [{series: 'up{team="payments", tier="1", cluster="x"}', values: "0 0"}]
    alert_rule_test:
      - {eval_time: 1m, alertname: A, exp_alerts: [{exp_labels: ` + namespace + `}]}
`)
	}
	for name, c := range map[string]struct{ namespace, want string }{
		"a tenant":     {"shop", `{severity: critical, cluster: eu-1, namespace: shop}`},
		"the operator": {"rulefleet-system", `{severity: critical, cluster: eu-1, namespace: payments, team: payments, tier: "1"}`},
	} {
		t.Run(name, func(t *testing.T) {
			r := r.DeepCopy()
			r.Namespace = c.namespace
			p, err := delivery.Render(r, rule.Cluster{Name: "eu-1"}, delivery.Options{
				HubID: "hub-1", AdminNamespace: "rulefleet-system", ClusterLabel: "cluster", Tenancy: rule.Tenancy{ProtectedLabels: []string{"team", "tier"}},
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := Check(t.Context(), p.Spec.Groups); err != nil {
				t.Error(err)
			}
			if err := Test(t.Context(), p.Spec.Groups, render(c.want)); err != nil {
				t.Error(err)
			}
		})
	}
}
