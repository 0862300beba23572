package validation

import (
	"fmt"
	"strings"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/compat"
	"github.com/rulefleet/rulefleet/pkg/rule/gotemplate"
	"github.com/rulefleet/rulefleet/pkg/rule/placeholder"
	"github.com/rulefleet/rulefleet/pkg/rule/promql"
)

// Options are the settings of the hub on which the validity of an AlertRule depends.
type Options struct {
	// AdminNamespace is the operator's own namespace.
	AdminNamespace string
	// GeneratedNamespace is the hub's namespace for generated AlertRules.
	GeneratedNamespace string
	// ClusterLabel is the alert's label for the spoke's name. Empty means no label.
	ClusterLabel string
	// Evaluator is the oldest Prometheus of the fleet. nil means that it is not known: any release is
	// assumed, without features.
	Evaluator *rule.Evaluator
	// Tenancy has the limits of AlertRules outside of the admin namespace.
	Tenancy rule.Tenancy

	// stored is true for AlertRules that the hub has stored. A protected label in one of them is a warning and not
	// an error: Render removes it, but as long as an AlertRule is not valid, the spokes keep its last valid version,
	// which may have the label.
	stored bool
}

// Rule returns the first error in an AlertRule, or nil. The webhook, the controllers and the CLI
// use it. It includes the checks of the API server, because it also runs without one. Its running time
// is limited for any object.
func Rule(r *v1alpha1.AlertRule, o Options) *rule.Invalid {
	if bad := checkSpecSize(r.Spec.AlertSpec, r.Spec.Overrides); bad != nil {
		return bad
	}
	c := checker{stage: placeholder.Sample(), budget: gotemplate.NewBudget(), cost: new(maxTotalCost), evaluator: o.Evaluator, maxLabels: rule.MaxTexts, tenant: tenantOf(r, o)}
	if bad := c.alert(r.Spec.AlertSpec); bad != nil {
		return bad
	}
	if bad := checkState(r.Spec.State); bad != nil {
		return bad
	}
	if bad := checkSelection("spec.placement", r.Spec.Placement); bad != nil {
		return bad
	}
	if bad := c.overrides(r.Spec); bad != nil {
		return bad
	}
	if bad := checkPlace(r); bad != nil {
		return bad
	}
	return checkTenancy(r, o)
}

// maxTotalCost limits the cost of parsing all expressions of an object.
const maxTotalCost = 200_000

// checker checks the alerts of one object.
type checker struct {
	stage  placeholder.Stage
	budget *gotemplate.Budget
	// cost is what is left for parsing expressions. See Cost.
	cost      *int
	evaluator *rule.Evaluator
	maxLabels int
	// tenant is the namespace of the hub to which the object belongs, or nil for the operator's own ones.
	tenant *tenant
	// verbatim means that the texts have no placeholders, as in a RulePack.
	verbatim bool
}

// Alert checks an alert as it is written, and with its placeholders replaced.
func (c checker) alert(a v1alpha1.AlertSpec) *rule.Invalid {
	if bad := checkAlertName(a.Alert); bad != nil {
		return bad
	}
	if bad := checkSize(a.Expr); bad != nil {
		return bad
	}
	return c.part(a)
}

// part checks the given fields of an alert: an override has no name and often no expression.
func (c checker) part(a v1alpha1.AlertSpec) *rule.Invalid {
	if bad := checkFields(a); bad != nil {
		return bad
	}
	if bad := checkTexts("spec.labels", a.Labels, c.maxLabels); bad != nil {
		return bad
	}
	if bad := checkTexts("spec.annotations", a.Annotations, rule.MaxTexts); bad != nil {
		return bad
	}
	expanded := a
	if !c.verbatim {
		var bad *rule.Invalid
		if expanded, bad = c.stage.Alert(a); bad != nil {
			return bad
		}
	}
	if a.Expr != "" {
		if bad := c.expr(a.Expr, expanded.Expr); bad != nil {
			return bad
		}
	}
	if bad := gotemplate.Check("spec.labels", expanded.Labels, c.budget); bad != nil {
		return bad
	}
	if bad := gotemplate.Check("spec.annotations", expanded.Annotations, c.budget); bad != nil {
		return bad
	}
	if bad := c.tenant.check(a, expanded); bad != nil {
		return bad
	}
	return compat.Check(c.evaluator, "spec", expanded, compat.OfFleet)
}

func (c checker) expr(written, expanded string) *rule.Invalid {
	cost, f := promql.Cost(expanded)
	if f == nil && cost > *c.cost {
		f = &rule.Fault{Pos: -1, Message: "the expressions of this object together take too long to parse; use fewer or simpler ones"}
	}
	if f != nil {
		return rule.InvalidExpr(expanded, f)
	}
	*c.cost -= cost
	p := compat.Parser(c.evaluator)
	_, f = promql.ParseAlert(expanded, p)
	if f == nil {
		return nil
	}
	// The positions of what was written are of more use than those of what it became.
	if _, own := promql.ParseAlert(placeholder.Shape(written), p); own != nil {
		return rule.InvalidExpr(written, own)
	}
	return rule.InvalidExpr(expanded, f)
}

// overrides checks every override alone, and merged with the alert.
func (c checker) overrides(s v1alpha1.AlertRuleSpec) *rule.Invalid {
	if len(s.Overrides) > maxOverrides {
		return rule.NewInvalid("spec.overrides", "has %d entries; at most %d are allowed; remove some", len(s.Overrides), maxOverrides)
	}
	for i, o := range s.Overrides {
		if bad := c.override(s.AlertSpec, o, false); bad != nil {
			bad.Field = fmt.Sprintf("spec.overrides[%d]", i) + strings.TrimPrefix(bad.Field, "spec")
			return bad
		}
	}
	return nil
}

// override checks an override as if its fields were those of a spec. more means that it changes something else as well.
func (c checker) override(base v1alpha1.AlertSpec, o v1alpha1.Override, more bool) *rule.Invalid {
	if bad := checkSelection("spec", o.ClusterSelection); bad != nil {
		return bad
	}
	if len(setBy(o)) == 0 && !more {
		return rule.NewInvalid("spec", "an override must change something; set state, expr, for, keepFiringFor, interval, severity, labels or annotations")
	}
	if bad := checkState(o.State); bad != nil {
		return bad
	}
	part := v1alpha1.AlertSpec{Expr: o.Expr, For: o.For, KeepFiringFor: o.KeepFiringFor, Interval: o.Interval, Severity: o.Severity, Labels: o.Labels, Annotations: o.Annotations}
	if o.Expr != "" {
		if bad := checkSize(o.Expr); bad != nil {
			return bad
		}
	}
	if bad := c.part(part); bad != nil {
		return bad
	}
	return c.merged(base, o)
}

// merged checks the alert after an override.
func (c checker) merged(base v1alpha1.AlertSpec, o v1alpha1.Override) *rule.Invalid {
	if n := mergedTexts(base.Labels, o.Labels); n > c.maxLabels {
		return rule.NewInvalid("spec.labels", "has %d entries together with the alert's own; at most %d are allowed; remove some", n, c.maxLabels)
	}
	if n := mergedTexts(base.Annotations, o.Annotations); n > rule.MaxTexts {
		return rule.NewInvalid("spec.annotations", "has %d entries together with the alert's own; at most %d are allowed; remove some", n, rule.MaxTexts)
	}
	return nil
}

// mergedTexts counts the texts after an override.
func mergedTexts(base, override map[string]v1alpha1.LabelText) int {
	n := 0
	for key := range base {
		if text, set := override[key]; !set || text != "" {
			n++
		}
	}
	for key, text := range override {
		if _, set := base[key]; !set && text != "" {
			n++
		}
	}
	return n
}
