package validation

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/clip"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/gotemplate"
	"github.com/rulefleet/rulefleet/pkg/rule/parameter"
	"github.com/rulefleet/rulefleet/pkg/rule/placeholder"
)

// Template returns the first error in an AlertRuleTemplate, or nil.
func Template(t *v1alpha1.AlertRuleTemplate, o Options) *rule.Invalid {
	if len(t.Name) > maxTemplate {
		return rule.NewInvalid("metadata.name", "the name of a template has at most %d characters, because it is used as a label value; shorten it", maxTemplate)
	}
	overrides := slices.Collect(rule.TemplateOverrides(t))
	if len(overrides) > maxOverrides {
		return rule.NewInvalid("spec.overrides", "has %d entries; at most %d are allowed; remove some", len(overrides), maxOverrides)
	}
	if bad := checkSpecSize(t.Spec.AlertSpec, overrides); bad != nil {
		return bad
	}
	if bad := checkSelected(t); bad != nil {
		return bad
	}
	if bad := parameter.Check(t.Spec.Parameters); bad != nil {
		return bad
	}
	// Two labels are added to every alert that it makes.
	c := templateChecker{
		checker:  checker{budget: gotemplate.NewBudget(), cost: new(maxTotalCost), evaluator: o.Evaluator, maxLabels: rule.MaxTexts - 2},
		template: t,
	}
	c.stage = c.stageWith(parameter.Defaults(t.Spec.Parameters))
	if bad := c.alert(t.Spec.AlertSpec); bad != nil {
		return bad
	}
	if bad := c.anyValues(t.Spec.Expr); bad != nil {
		return bad
	}
	for i, as := range overrides {
		if bad := c.override(&t.Spec.Overrides[i], as); bad != nil {
			bad.Field = fmt.Sprintf("spec.overrides[%d]", i) + strings.TrimPrefix(bad.Field, "spec")
			return bad
		}
	}
	return nil
}

// checkSelected checks the fields of a template outside of its alert.
func checkSelected(t *v1alpha1.AlertRuleTemplate) *rule.Invalid {
	if bad := checkState(t.Spec.State); bad != nil {
		return bad
	}
	if bad := checkAllow(t.Spec.Allow); bad != nil {
		return bad
	}
	if bad := checkRuleNamespace("spec.ruleNamespace", t.Spec.RuleNamespace); bad != nil {
		return bad
	}
	if bad := rule.FormerKey(&t.Spec); bad != nil {
		return bad
	}
	if t.Spec.Placement != nil {
		if bad := checkSelection("spec.placement", *t.Spec.Placement); bad != nil {
			return bad
		}
	}
	if bad := checkNamespaces(t.Spec.Namespaces); bad != nil {
		return bad
	}
	return checkWorkloads(t.Spec.Workloads)
}

// templateChecker checks the alert of a template and its overrides.
type templateChecker struct {
	checker

	template *v1alpha1.AlertRuleTemplate
}

func (c templateChecker) stageWith(values parameter.Values) placeholder.Stage {
	return placeholder.SampleTemplate(rule.KindsOf(c.template), values)
}

// anyValues checks that an expression is valid with all values that its parameters can have.
func (c templateChecker) anyValues(expr string) *rule.Invalid {
	if placeholder.Shape(expr) == expr { // in string literals, all values are valid
		return nil
	}
	for _, values := range parameter.Extremes(c.template.Spec.Parameters) {
		if bad := c.with(values, expr); bad != nil {
			bad.Message = "with the smallest or the largest values of the parameters: " + bad.Message + "; correct the expression, or set minimum and maximum of the parameters"
			return bad
		}
	}
	return nil
}

// with checks an expression with values of its parameters.
func (c templateChecker) with(values parameter.Values, expr string) *rule.Invalid {
	expanded, bad := c.stageWith(values).Alert(v1alpha1.AlertSpec{Expr: expr})
	if bad != nil {
		return bad
	}
	return c.expr(expr, expanded.Expr)
}

// override checks an override as if its fields were those of a spec.
func (c templateChecker) override(o *v1alpha1.TemplateOverride, as v1alpha1.Override) *rule.Invalid {
	if bad := checkSelection("spec", o.ClusterSelection); bad != nil {
		return bad
	}
	if len(setBy(as)) == 0 && len(o.Parameters) == 0 {
		return rule.NewInvalid("spec", "an override must change something; set state, expr, for, keepFiringFor, interval, severity, labels, annotations or parameters")
	}
	values := parameter.Defaults(c.template.Spec.Parameters)
	for _, name := range slices.Sorted(maps.Keys(o.Parameters)) {
		field := rule.Keyed("spec.parameters", name)
		p, found := parameter.Find(c.template.Spec.Parameters, name)
		if !found {
			return rule.NewInvalid(field, "unknown parameter; correct the name, or add it to spec.parameters of the template")
		}
		if _, err := parameter.Within(p, o.Parameters[name]); err != nil {
			return rule.NewInvalid(field, "%v", err)
		}
	}
	values.Set(c.template.Spec.Parameters, o.Parameters)
	c.stage = c.stageWith(values)
	if bad := c.checker.override(c.template.Spec.AlertSpec, as, len(o.Parameters) > 0); bad != nil {
		return bad
	}
	if o.Expr != "" {
		return c.anyValues(o.Expr)
	}
	if len(o.Parameters) > 0 {
		return c.with(values, c.template.Spec.Expr)
	}
	return nil
}

func checkAllow(allow []v1alpha1.Adjustment) *rule.Invalid {
	known := []v1alpha1.Adjustment{
		v1alpha1.AdjustAlerts, v1alpha1.AdjustDisable, v1alpha1.AdjustSeverity, v1alpha1.AdjustFor, v1alpha1.AdjustLabels, v1alpha1.AdjustParams,
	}
	return checkList("spec.allow", allow, len(allow), func(field, name string) *rule.Invalid {
		if !slices.Contains(known, v1alpha1.Adjustment(name)) {
			return rule.NewInvalid(field, "unknown value %q; use alerts, disable, severity, for, labels or params", clip.Excerpt(name))
		}
		return nil
	})
}
