package rule

import (
	"fmt"
	"slices"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// Effective returns an AlertRule's alert and state as they are for one spoke, with
// its overrides. They are read in order: of those that pick the spoke, the first that
// sets a field wins, and labels and annotations are merged key by key.
//
// Severity and the label severity are one thing, so an override of either replaces
// both. An override whose selector is not valid picks nothing; Validate refuses it.
func Effective(r *v1alpha1.AlertRule, c Cluster) (v1alpha1.AlertSpec, v1alpha1.State) {
	e := effective(r, c)
	return e.alert, e.state
}

// merged is an alert with its overrides, and where its fields come from.
type merged struct {
	alert v1alpha1.AlertSpec
	state v1alpha1.State
	// origin is the path of a field that an override has set, by the path that it
	// would have without: spec.expr is spec.overrides[1].expr.
	origin map[string]string
}

func effective(r *v1alpha1.AlertRule, c Cluster) merged {
	m := merged{alert: r.Spec.AlertSpec, state: r.Spec.State}
	if len(r.Spec.Overrides) == 0 {
		return m
	}
	m.alert, m.origin = *r.Spec.AlertSpec.DeepCopy(), map[string]string{}
	for i := range r.Spec.Overrides {
		o := &r.Spec.Overrides[i]
		if picked, err := Places(o.ClusterSelection, c); err == nil && picked {
			m.take(o, fmt.Sprintf("spec.overrides[%d]", i))
		}
	}
	return m
}

// take merges an override that comes after those that were taken.
func (m *merged) take(o *v1alpha1.Override, path string) {
	if o.State != "" && m.first("spec.state", path+".state") {
		m.state = o.State
	}
	if o.Expr != "" && m.first("spec.expr", path+".expr") {
		m.alert.Expr = o.Expr
	}
	if o.For != "" && m.first("spec.for", path+".for") {
		m.alert.For = o.For
	}
	if o.Severity != "" && m.first("spec.labels[severity]", path+".severity") {
		m.alert.Severity = o.Severity
		delete(m.alert.Labels, severityLabel)
	}
	if _, replaced := o.Labels[severityLabel]; replaced && m.origin["spec.labels[severity]"] == "" {
		m.alert.Severity = ""
	}
	m.alert.Labels = m.merge("spec.labels", path+".labels", m.alert.Labels, o.Labels)
	m.alert.Annotations = m.merge("spec.annotations", path+".annotations", m.alert.Annotations, o.Annotations)
}

// first tells whether no override before has set a field, and notes that this one does.
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

// blame gives a mistake the path of the field that it is in.
func (m *merged) blame(bad *Invalid) *Invalid {
	if origin := m.origin[bad.Field]; origin != "" {
		bad.Field = origin
	}
	return bad
}

// PlacedIn tells whether an AlertRule is meant to be in a spoke: its placement picks it,
// and it is enabled there. An error is a selector that is not valid.
func PlacedIn(r *v1alpha1.AlertRule, c Cluster) (bool, error) {
	placed, err := Places(r.Spec.Placement, c)
	if err != nil || !placed {
		return false, err
	}
	return stateIn(r, c) != v1alpha1.Disabled, nil
}

// stateIn returns Effective's state alone, without merging anything.
func stateIn(r *v1alpha1.AlertRule, c Cluster) v1alpha1.State {
	for i := range r.Spec.Overrides {
		o := &r.Spec.Overrides[i]
		if o.State == "" {
			continue
		}
		if picked, err := Places(o.ClusterSelection, c); err == nil && picked {
			return o.State
		}
	}
	return r.Spec.State
}

// MaybeEnabled tells whether there can be a spoke in which an AlertRule is enabled.
func MaybeEnabled(r *v1alpha1.AlertRule) bool {
	return r.Spec.State != v1alpha1.Disabled || slices.ContainsFunc(r.Spec.Overrides, func(o v1alpha1.Override) bool {
		return o.State == v1alpha1.Enabled
	})
}
