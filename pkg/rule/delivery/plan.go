package delivery

import (
	"cmp"
	"slices"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
)

// Action is the next step for an AlertRule's PrometheusRule in one spoke.
type Action string

const (
	// None means that the AlertRule does not belong in the spoke. Only Plan.Delete has to be done.
	None Action = "None"
	// Keep means that the object is up to date.
	Keep Action = "Keep"
	// Create means that the object does not exist.
	Create Action = "Create"
	// Update means that the object belongs to this hub and differs.
	Update Action = "Update"
	// Conflict means that an object of the same name exists that does not belong to this hub. It is
	// left unchanged.
	Conflict Action = "Conflict"
	// Mutated means that the object differs exactly as it did after the same content was last sent:
	// sending it again would never end.
	Mutated Action = "Mutated"
	// Terminating means that the object is being deleted, and that the operator waits for it.
	Terminating Action = "Terminating"
	// Suspended means that the object is missing or differs, and is left that way.
	Suspended Action = "Suspended"
)

// Plan contains the steps for one AlertRule in one spoke.
type Plan struct {
	// Action is done first.
	Action Action
	// Object is the object to send for Create and Update. An update has the resourceVersion of the
	// object on which the decision is based.
	Object *monitoringv1.PrometheusRule
	// Delete lists objects of this hub for the same AlertRule that should not exist, for example in its
	// former namespace. They are deleted after Action has succeeded, so that an alert that moves does
	// not disappear if its new place refuses it.
	Delete []*monitoringv1.PrometheusRule
}

// Decide compares the objects that a spoke should have for an AlertRule with those that it has.
// desired is nil if it should have none. existing is the object with the namespace and name of
// desired, whoever owns it, or nil. claimed are the objects whose annotation names the AlertRule.
// answerDigest is the AnswerDigest of the last write that the spoke changed, or empty.
//
// Objects that do not belong to this hub, according to Owned, are never changed and never deleted.
func Decide(desired, existing *monitoringv1.PrometheusRule, claimed []*monitoringv1.PrometheusRule, hubID, answerDigest string) Plan {
	if desired == nil {
		return Plan{Action: None, Delete: leftovers(claimed, nil, hubID)}
	}
	p := Plan{Action: Keep, Delete: leftovers(claimed, desired, hubID)}
	switch {
	case existing == nil:
		p.Action, p.Object = Create, desired.DeepCopy()
	case !rule.Owned(existing, hubID):
		return Plan{Action: Conflict}
	case existing.DeletionTimestamp != nil:
		return Plan{Action: Terminating}
	case Digest(existing) == Digest(desired):
	case answerDigest != "" && answerDigest == AnswerDigest(desired, existing):
		p.Action = Mutated
	default:
		p.Action, p.Object = Update, updated(existing, desired)
	}
	return p
}

// Suspend returns the plan of a suspended AlertRule: nothing is written or removed.
func (p Plan) Suspend() Plan {
	if p.Action == Create || p.Action == Update || (p.Action == Keep && len(p.Delete) > 0) {
		return Plan{Action: Suspended}
	}
	return Plan{Action: p.Action}
}

// leftovers returns the claimed objects of this hub except the desired one, by namespace and name, and
// except those that are already being deleted.
func leftovers(claimed []*monitoringv1.PrometheusRule, desired *monitoringv1.PrometheusRule, hubID string) []*monitoringv1.PrometheusRule {
	var out []*monitoringv1.PrometheusRule
	for _, o := range claimed {
		wanted := desired != nil && o.Namespace == desired.Namespace && o.Name == desired.Name
		if !wanted && o.DeletionTimestamp == nil && rule.Owned(o, hubID) {
			out = append(out, o)
		}
	}
	slices.SortFunc(out, func(a, b *monitoringv1.PrometheusRule) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// updated returns existing with the content that this hub defines: the spec is replaced, and metadata
// of others is kept.
func updated(existing, desired *monitoringv1.PrometheusRule) *monitoringv1.PrometheusRule {
	o := existing.DeepCopy()
	desired.Spec.DeepCopyInto(&o.Spec)
	o.TypeMeta = desired.TypeMeta
	for _, key := range rule.ExtraLabels(o) {
		delete(o.Labels, key)
	}
	o.Labels = rule.WithKeys(o.Labels, desired.Labels, slices.Concat(rule.ExtraLabels(desired), rule.OwnLabels))
	delete(o.Annotations, v1alpha1.RuleLabelsAnnotation)
	o.Annotations = rule.WithKeys(o.Annotations, desired.Annotations, rule.OwnAnnotations)
	if list := desired.Annotations[v1alpha1.RuleLabelsAnnotation]; list != "" {
		o.Annotations[v1alpha1.RuleLabelsAnnotation] = list
	}
	return o
}

// Adopt returns the plan that turns a former hub's object into an object of this hub. It is changed in
// place, so that the alert is neither missing for a moment nor there twice. desired has the object's
// name.
func Adopt(existing, desired *monitoringv1.PrometheusRule, claimed []*monitoringv1.PrometheusRule, hubID string) Plan {
	object := updated(existing, desired)
	object.Annotations[v1alpha1.AdoptedFromAnnotation] = existing.Labels[v1alpha1.HubLabel]
	return Plan{Action: Update, Object: object, Delete: leftovers(claimed, desired, hubID)}
}
