package delivery

import (
	"strings"
	"testing"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/internal/ruletest"
)

// TestRenderChecksEvaluators: the spoke's Prometheus has the last word.
func TestRenderChecksEvaluators(t *testing.T) {
	r := ruletest.Rule(func(r *v1alpha1.AlertRule) { r.Spec.Expr = `acos(up{c="$(cluster.name)"})` })
	_, err := Render(r, rule.Cluster{Name: "eu-1", Evaluators: []rule.Evaluator{{Version: "v2.30.0", Chosen: true}}}, options)
	if err == nil || !strings.Contains(err.Error(), `Prometheus 2.30 of the spoke does not support function "acos"`) {
		t.Errorf("got %v", err)
	}
	if _, err := Render(r, rule.Cluster{Name: "eu-1", Evaluators: []rule.Evaluator{{Version: "v2.31.0", Chosen: true}}}, options); err != nil {
		t.Error(err)
	}
}
