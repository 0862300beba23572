package ruletest

import (
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// packGroups has every field that a group of a PrometheusRule has.
const packGroups = `
- name: requests
  interval: 30s
  limit: 100
  query_offset: 1m
  partial_response_strategy: abort
  labels: {tier: web}
  rules:
  - {record: "job:errors:rate5m", expr: 'sum by (job) (rate(errors_total[5m]))', labels: {source: pack}}
  - {alert: ErrorsHigh, expr: 'job:errors:rate5m > 10', for: 5m, keep_firing_for: 10m, labels: {severity: critical}, annotations: {summary: 'it is {{ $value }}'}}
  - {alert: ErrorsHigh, expr: 'job:errors:rate5m > 1', for: 15m, labels: {severity: warning}}
- name: time
  rules:
  - {record: "one", expr: 1}
  - {alert: Watchdog, expr: vector(1)}
`

// Pack returns a RulePack of the operator's own namespace that is valid, with edits.
func Pack(t *testing.T, edit ...func(*v1alpha1.RulePack)) *v1alpha1.RulePack {
	t.Helper()
	p := &v1alpha1.RulePack{ObjectMeta: metav1.ObjectMeta{Namespace: "rulefleet-system", Name: "web"}, Spec: v1alpha1.RulePackSpec{Placement: EveryCluster()}}
	p.Spec.Groups = Groups(t, packGroups)
	for _, f := range edit {
		f(p)
	}
	return p
}

// Groups reads the groups of a PrometheusRule.
func Groups(t *testing.T, text string) (out []monitoringv1.RuleGroup) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}
