package delivery

import (
	"fmt"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
)

// merged is an alert with its overrides, and the origin of its fields.
type merged struct {
	alert v1alpha1.AlertSpec
	// origin is the path of a field that an override has set, by the path that the field has without
	// it: for example spec.overrides[1].expr for spec.expr.
	origin map[string]string
}

// effective returns an AlertRule's alert for one spoke, with its overrides. Overrides are evaluated in
// order: of those that select the spoke, the first that sets a field takes precedence, and labels and annotations
// are merged key by key. rule.StateIn does the same for its state.
//
// Severity and the label severity are the same thing, so an override of either replaces both. An
// override with an invalid selector selects nothing; validation.Rule refuses it.
func effective(r *v1alpha1.AlertRule, c rule.Cluster) merged {
	m := merged{alert: r.Spec.AlertSpec}
	if len(r.Spec.Overrides) == 0 {
		return m
	}
	m.alert, m.origin = *r.Spec.AlertSpec.DeepCopy(), map[string]string{}
	for i := range r.Spec.Overrides {
		o := &r.Spec.Overrides[i]
		if picked, err := rule.Places(o.ClusterSelection, c); err == nil && picked {
			m.take(o, fmt.Sprintf("spec.overrides[%d]", i))
		}
	}
	return m
}

// take merges an override that comes after those already merged.
func (m *merged) take(o *v1alpha1.Override, path string) {
	if o.Expr != "" && m.first("spec.expr", path+".expr") {
		m.alert.Expr = o.Expr
	}
	if o.For != "" && m.first("spec.for", path+".for") {
		m.alert.For = o.For
	}
	if o.KeepFiringFor != "" && m.first("spec.keepFiringFor", path+".keepFiringFor") {
		m.alert.KeepFiringFor = o.KeepFiringFor
	}
	if o.Interval != "" && m.first("spec.interval", path+".interval") {
		m.alert.Interval = o.Interval
	}
	if o.Severity != "" && m.first("spec.labels[severity]", path+".severity") {
		m.alert.Severity = o.Severity
		delete(m.alert.Labels, rule.SeverityLabel)
	}
	if _, replaced := o.Labels[rule.SeverityLabel]; replaced && m.origin["spec.labels[severity]"] == "" {
		m.alert.Severity = ""
	}
	m.alert.Labels = m.merge("spec.labels", path+".labels", m.alert.Labels, o.Labels)
	m.alert.Annotations = m.merge("spec.annotations", path+".annotations", m.alert.Annotations, o.Annotations)
}

// first reports whether no earlier override has set a field, and records that this one does.
func (m *merged) first(field, origin string) bool {
	if m.origin[field] != "" {
		return false
	}
	m.origin[field] = origin
	return true
}

func (m *merged) merge(field, origin string, to, from map[string]v1alpha1.LabelText) map[string]v1alpha1.LabelText {
	for key, text := range from {
		switch {
		case !m.first(field+"["+key+"]", origin+"["+key+"]"):
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

// blame sets the path of the field that contains an error.
func (m *merged) blame(bad *rule.Invalid) *rule.Invalid {
	if origin := m.origin[bad.Field]; origin != "" {
		bad.Field = origin
	}
	return bad
}
