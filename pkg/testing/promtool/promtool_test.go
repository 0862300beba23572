package promtool

import (
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func groups(expr string) []monitoringv1.RuleGroup {
	return []monitoringv1.RuleGroup{{
		Name: "g", PartialResponseStrategy: "warn",
		Rules: []monitoringv1.Rule{{Alert: "A", Expr: intstr.FromString(expr), Annotations: map[string]string{"a": "{{ $value }}"}}},
	}}
}

func TestCheck(t *testing.T) {
	if err := Check(t.Context(), groups("up == 0")); err != nil {
		t.Error(err)
	}
	for name, bad := range map[string][]monitoringv1.RuleGroup{
		"expression":        groups("up =="),
		"twice in one file": append(groups("up"), groups("up")...),
	} {
		if err := Check(t.Context(), bad); err == nil {
			t.Errorf("%s: it is accepted", name)
		}
	}
}

func TestTest(t *testing.T) {
	test := func(alerts string) []byte {
		return []byte(`
rule_files: [` + RulesName + `]
tests:
  - input_series: [{series: up, values: "0 0"}]
    alert_rule_test: [{eval_time: 1m, alertname: A, exp_alerts: ` + alerts + `}]
`)
	}
	if err := Test(t.Context(), groups("up == 0"), test(`[{exp_annotations: {a: "0"}}]`)); err != nil {
		t.Error(err)
	}
	if err := Test(t.Context(), groups("up == 0"), test("[]")); err == nil || !strings.Contains(err.Error(), "alertname: A") {
		t.Errorf("an alert too many: %v", err)
	}
}

func TestMissing(t *testing.T) {
	t.Setenv("RULEFLEET_PROMTOOL", t.TempDir()+"/none")
	if err := Check(t.Context(), groups("up")); err == nil || !strings.Contains(err.Error(), "make promtool") {
		t.Errorf("without promtool: %v", err)
	}
}
