package rule

import (
	"fmt"
	"iter"
	"slices"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// Merged is an alert with its overrides for one spoke, and the origin of its fields.
type Merged struct {
	// Alert is the alert. It shares no memory with the original if there are overrides.
	Alert v1alpha1.AlertSpec
	// origin is the path of a field that an override has set, by the path that the field has without
	// it: for example spec.overrides[1].expr for spec.expr.
	origin map[string]string
}

// Merge returns an alert with those of its overrides that select a spoke. They are evaluated in
// order: of those that select the spoke, the first that sets a field takes precedence, and labels and annotations
// are merged key by key. StateOf does the same for the state.
//
// Severity and the label severity are the same thing, so an override of either replaces both. An
// override with an invalid selector selects nothing; the validator refuses it.
func Merge(alert v1alpha1.AlertSpec, overrides iter.Seq[v1alpha1.Override], c Cluster) Merged {
	m := Merged{Alert: alert}
	i := -1
	for o := range overrides {
		i++
		if m.origin == nil {
			m = Unmerged(*alert.DeepCopy())
		}
		if picked, err := Places(o.ClusterSelection, c); err == nil && picked {
			m.Take(&o, fmt.Sprintf("spec.overrides[%d]", i))
		}
	}
	return m
}

// Unmerged returns an alert without overrides. Take changes it.
func Unmerged(alert v1alpha1.AlertSpec) Merged {
	return Merged{Alert: alert, origin: map[string]string{}}
}

// StateOf returns the state of an alert in one spoke: that of the first override that selects the
// spoke and sets a state, or else its own.
func StateOf(own v1alpha1.State, overrides iter.Seq[v1alpha1.Override], c Cluster) v1alpha1.State {
	for o := range overrides {
		if o.State == "" {
			continue
		}
		if picked, err := Places(o.ClusterSelection, c); err == nil && picked {
			return o.State
		}
	}
	return own
}

// PossibleStates returns the states that an alert can have in a cluster of that name, with any labels.
// As in StateOf, the first override that selects the cluster decides.
func PossibleStates(own v1alpha1.State, overrides iter.Seq[v1alpha1.Override], name string) []v1alpha1.State {
	var states []v1alpha1.State
	for o := range overrides {
		if o.State == "" || !Selectable(o.ClusterSelection, name) {
			continue
		}
		states = append(states, o.State)
		if !ByLabels(o.ClusterSelection, name) {
			return states
		}
	}
	return append(states, own)
}

// TemplateOverrides returns the overrides of a template as those of an AlertRule, without parameters.
func TemplateOverrides(t *v1alpha1.AlertRuleTemplate) iter.Seq[v1alpha1.Override] {
	return func(yield func(v1alpha1.Override) bool) {
		for i := range t.Spec.Overrides {
			o := &t.Spec.Overrides[i]
			if !yield(v1alpha1.Override{
				ClusterSelection: o.ClusterSelection, State: o.State, Expr: o.Expr, For: o.For, KeepFiringFor: o.KeepFiringFor,
				Interval: o.Interval, Severity: o.Severity, Labels: o.Labels, Annotations: o.Annotations,
			}) {
				return
			}
		}
	}
}

// MaybeGenerates reports whether there can be a spoke in which a template is enabled.
func MaybeGenerates(t *v1alpha1.AlertRuleTemplate) bool {
	return t.Spec.State != v1alpha1.Disabled || slices.ContainsFunc(t.Spec.Overrides, func(o v1alpha1.TemplateOverride) bool {
		return o.State == v1alpha1.Enabled
	})
}

// Take merges an override that comes after those already merged.
func (m *Merged) Take(o *v1alpha1.Override, path string) {
	if o.Expr != "" && m.First("spec.expr", path+".expr") {
		m.Alert.Expr = o.Expr
	}
	if o.For != "" && m.First("spec.for", path+".for") {
		m.Alert.For = o.For
	}
	if o.KeepFiringFor != "" && m.First("spec.keepFiringFor", path+".keepFiringFor") {
		m.Alert.KeepFiringFor = o.KeepFiringFor
	}
	if o.Interval != "" && m.First("spec.interval", path+".interval") {
		m.Alert.Interval = o.Interval
	}
	if o.Severity != "" && m.First("spec.labels[severity]", path+".severity") {
		m.Alert.Severity = o.Severity
		delete(m.Alert.Labels, SeverityLabel)
	}
	if _, replaced := o.Labels[SeverityLabel]; replaced && m.origin["spec.labels[severity]"] == "" {
		m.Alert.Severity = ""
	}
	m.Alert.Labels = m.merge("spec.labels", path+".labels", m.Alert.Labels, o.Labels)
	m.Alert.Annotations = m.merge("spec.annotations", path+".annotations", m.Alert.Annotations, o.Annotations)
}

// First reports whether no earlier override has set a field, and records that this one does.
func (m *Merged) First(field, origin string) bool {
	if m.origin[field] != "" {
		return false
	}
	m.origin[field] = origin
	return true
}

func (m *Merged) merge(field, origin string, to, from map[string]v1alpha1.LabelText) map[string]v1alpha1.LabelText {
	for key, text := range from {
		switch {
		case !m.First(field+"["+key+"]", origin+"["+key+"]"):
		case text == "":
			delete(to, key)
		default:
			if to == nil {
				to = map[string]v1alpha1.LabelText{}
			}
			to[key] = text
		}
	}
	return to
}

// Blame sets the path of the field that contains an error.
func (m *Merged) Blame(bad *Invalid) *Invalid {
	if origin := m.origin[bad.Field]; origin != "" {
		bad.Field = origin
	}
	return bad
}
