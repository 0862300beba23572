package validation

import (
	"strings"
	"testing"

	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/gotemplate"
	"github.com/rulefleet/rulefleet/pkg/rule/internal/ruletest"
	"github.com/rulefleet/rulefleet/pkg/rule/placeholder"
)

func TestExpressionsTogetherHaveABudget(t *testing.T) {
	r := ruletest.Rule()
	c := checker{stage: placeholder.Sample(), budget: gotemplate.NewBudget(), cost: new(0), maxLabels: rule.MaxTexts}
	r.Spec.Expr = ruletest.Long("a + ", 100) + "a"
	if bad := c.alert(r.Spec.AlertSpec); bad == nil || bad.Field != "spec.expr" || !strings.Contains(bad.Message, "together") {
		t.Errorf("got %v", bad)
	}
}
