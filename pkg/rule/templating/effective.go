package templating

import (
	"slices"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/parameter"
)

// effective is the alert of a template for one spoke: with those of its overrides that select the spoke. stateIn returns
// the state there.
type effective struct {
	rule.Merged

	// Parameters are the values of the parameters, unless the annotations of a workload set others.
	Parameters parameter.Values
}

// effectiveIn returns the alert of a valid template for one spoke.
func effectiveIn(t *v1alpha1.AlertRuleTemplate, c rule.Cluster) effective {
	e := effective{Merged: rule.Merge(t.Spec.AlertSpec, rule.TemplateOverrides(t), c), Parameters: parameter.Defaults(t.Spec.Parameters)}
	// The first override that sets a parameter takes precedence, so it is applied last.
	for i := len(t.Spec.Overrides) - 1; i >= 0; i-- {
		o := &t.Spec.Overrides[i]
		if len(o.Parameters) == 0 {
			continue
		}
		if picked, err := rule.Places(o.ClusterSelection, c); err == nil && picked {
			e.Parameters.Set(t.Spec.Parameters, o.Parameters)
		}
	}
	return e
}

// stateIn returns the state of a template in one spoke, with its overrides.
func stateIn(t *v1alpha1.AlertRuleTemplate, c rule.Cluster) v1alpha1.State {
	return rule.StateOf(t.Spec.State, rule.TemplateOverrides(t), c)
}

// Frozen reports whether a template leaves its AlertRules as they are.
func Frozen(t *v1alpha1.AlertRuleTemplate) bool { return t.Spec.Suspend != nil && *t.Spec.Suspend }

// ByLabels reports whether the labels of a cluster of that name determine whether a template is placed and enabled
// there.
func ByLabels(t *v1alpha1.AlertRuleTemplate, name string) bool {
	placed := false
	if p := t.Spec.Placement; p != nil {
		if !rule.Selectable(*p, name) {
			return false
		}
		placed = rule.ByLabels(*p, name)
	}
	states := rule.PossibleStates(t.Spec.State, rule.TemplateOverrides(t), name)
	disabled := slices.Contains(states, v1alpha1.Disabled)
	enabled := slices.ContainsFunc(states, func(s v1alpha1.State) bool { return s != v1alpha1.Disabled })
	return enabled && (placed || disabled)
}
