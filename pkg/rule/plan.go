package rule

import (
	"cmp"
	"slices"
	"strings"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
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
	case !Owned(existing, hubID):
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

// Owned reports whether this hub created an object.
func Owned(o metav1.Object, hubID string) bool {
	labels := o.GetLabels()
	return hubID != "" && labels[v1alpha1.ManagedByLabel] == v1alpha1.ManagedByValue && labels[v1alpha1.HubLabel] == hubID
}

// leftovers returns the claimed objects of this hub except the desired one, by namespace and name, and
// except those that are already being deleted.
func leftovers(claimed []*monitoringv1.PrometheusRule, desired *monitoringv1.PrometheusRule, hubID string) []*monitoringv1.PrometheusRule {
	var out []*monitoringv1.PrometheusRule
	for _, o := range claimed {
		wanted := desired != nil && key(o) == key(desired)
		if !wanted && o.DeletionTimestamp == nil && Owned(o, hubID) {
			out = append(out, o)
		}
	}
	slices.SortFunc(out, func(a, b *monitoringv1.PrometheusRule) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return out
}

func key(o metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}

// updated returns existing with the content that this hub defines: the spec is replaced, and metadata
// of others is kept.
func updated(existing, desired *monitoringv1.PrometheusRule) *monitoringv1.PrometheusRule {
	o := existing.DeepCopy()
	desired.Spec.DeepCopyInto(&o.Spec)
	o.TypeMeta = desired.TypeMeta
	for _, key := range extraLabels(o) {
		delete(o.Labels, key)
	}
	o.Labels = withKeys(o.Labels, desired.Labels, slices.Concat(extraLabels(desired), ownLabels))
	delete(o.Annotations, v1alpha1.RuleLabelsAnnotation)
	o.Annotations = withKeys(o.Annotations, desired.Annotations, ownAnnotations)
	if list := desired.Annotations[v1alpha1.RuleLabelsAnnotation]; list != "" {
		o.Annotations[v1alpha1.RuleLabelsAnnotation] = list
	}
	return o
}

// AdoptedName returns the name under which an object of this hub belongs to an AlertRule because it
// was taken over from a former hub that named it. ok is false if it was not taken over.
func AdoptedName(o metav1.Object, key types.NamespacedName) (name string, ok bool) {
	former := o.GetAnnotations()[v1alpha1.AdoptedFromAnnotation]
	name = o.GetName()
	return name, former != "" && name == ObjectName(former, key.Namespace, key.Name)
}

// Adopts reports whether an object is the one that a former hub wrote for an AlertRule.
func Adopts(o metav1.Object, formerHub string, key types.NamespacedName) bool {
	of, ok := ParseRuleKey(o)
	return ok && of == key && Owned(o, formerHub)
}

// Adopt returns the plan that turns a former hub's object into an object of this hub. It is changed in
// place, so that the alert is neither missing for a moment nor there twice. desired has the object's
// name.
func Adopt(existing, desired *monitoringv1.PrometheusRule, claimed []*monitoringv1.PrometheusRule, hubID string) Plan {
	object := updated(existing, desired)
	object.Annotations[v1alpha1.AdoptedFromAnnotation] = existing.Labels[v1alpha1.HubLabel]
	return Plan{Action: Update, Object: object, Delete: leftovers(claimed, desired, hubID)}
}

func withKeys(to, from map[string]string, keys []string) map[string]string {
	if to == nil {
		to = map[string]string{}
	}
	for _, k := range keys {
		to[k] = from[k]
	}
	return to
}

// StandsFor returns the AlertRule to which an object of this hub belongs, by its annotation and its
// name. Anyone in a spoke can set this hub's labels and the annotation on an object. An object without
// the name that the hub gives to that AlertRule's object was not written for it: it is removed, and
// its content is ignored.
func StandsFor(o metav1.Object, hubID string) (types.NamespacedName, bool) {
	key, ok := ParseRuleKey(o)
	if !ok || !Owned(o, hubID) {
		return types.NamespacedName{}, false
	}
	_, adopted := AdoptedName(o, key)
	return key, adopted || o.GetName() == ObjectName(hubID, key.Namespace, key.Name)
}

// ParseRuleKey returns the AlertRule from which a PrometheusRule was created, according to its
// annotation. Anyone in the spoke can change the annotation.
func ParseRuleKey(o metav1.Object) (types.NamespacedName, bool) {
	// Names in Kubernetes have a maximum length and no slash.
	namespace, name, _ := strings.Cut(o.GetAnnotations()[v1alpha1.AlertRuleAnnotation], "/")
	if len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return types.NamespacedName{}, false
	}
	return types.NamespacedName{Namespace: namespace, Name: name}, true
}
