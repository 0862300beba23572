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

// Action is what to do with an AlertRule's PrometheusRule in one spoke.
type Action string

const (
	// None is an AlertRule that should not be in the spoke: there is only Plan.Delete to do.
	None Action = "None"
	// Keep is an object that is as it should be.
	Keep Action = "Keep"
	// Create is an object that is not there.
	Create Action = "Create"
	// Update is an object of ours that differs.
	Update Action = "Update"
	// Conflict is an object of the same name that is not ours. It is left alone.
	Conflict Action = "Conflict"
	// Mutated is an object of ours that differs just as the spoke answered to the
	// same content before: sending it once more would never end.
	Mutated Action = "Mutated"
	// Terminating is an object of ours that is being deleted: it is waited for.
	Terminating Action = "Terminating"
	// Suspended is an object that is missing or differs, and is left so.
	Suspended Action = "Suspended"
)

// Plan is what to do for one AlertRule in one spoke.
type Plan struct {
	// Action is done first.
	Action Action
	// Object is what to send for Create and Update. An update carries the
	// resourceVersion of the object that the decision was made on.
	Object *monitoringv1.PrometheusRule
	// Delete are objects of ours for the same AlertRule that should not be there,
	// such as in its former namespace. They go after Action has succeeded: an alert
	// that moves must not be gone where its new place is refused.
	Delete []*monitoringv1.PrometheusRule
}

// Decide compares what a spoke should hold for an AlertRule with what it holds.
// desired is nil when it should hold nothing. existing is the object of desired's
// namespace and name, whoever owns it, or nil. claimed are the objects whose
// annotation names the AlertRule. answerDigest is the AnswerDigest of the last write
// that the spoke changed on the way in, or empty.
//
// What Owned says is not this hub's is never changed and never deleted.
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

// Suspend returns the plan of an AlertRule that is suspended: nothing is written and
// nothing is removed.
func (p Plan) Suspend() Plan {
	if p.Action == Create || p.Action == Update || (p.Action == Keep && len(p.Delete) > 0) {
		return Plan{Action: Suspended}
	}
	return Plan{Action: p.Action}
}

// Owned tells whether this hub made an object.
func Owned(o metav1.Object, hubID string) bool {
	labels := o.GetLabels()
	return hubID != "" && labels[v1alpha1.ManagedByLabel] == v1alpha1.ManagedByValue && labels[v1alpha1.HubLabel] == hubID
}

// leftovers returns our claimed objects but the one that should be there, by
// namespace and name. Those that are being deleted already are left to it.
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

// updated returns existing with what this hub decides: the spec is replaced whole,
// other people's metadata stays.
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

// AdoptedName returns the name under which an object of this hub stands for an AlertRule
// because it was taken over from a former hub that named it. ok is false where it was not.
func AdoptedName(o metav1.Object, key types.NamespacedName) (name string, ok bool) {
	former := o.GetAnnotations()[v1alpha1.AdoptedFromAnnotation]
	name = o.GetName()
	return name, former != "" && name == ObjectName(former, key.Namespace, key.Name)
}

// Adopts tells whether an object is what a former hub pushed for an AlertRule.
func Adopts(o metav1.Object, formerHub string, key types.NamespacedName) bool {
	of, ok := ParseRuleKey(o)
	return ok && of == key && Owned(o, formerHub)
}

// Adopt returns the plan that makes a former hub's object, as the spoke has it, this
// hub's: in place, so that the alert is neither gone for a moment nor there twice.
// desired has the object's name.
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

// StandsFor returns the AlertRule that an object of this hub stands for, by its annotation and its name. Anybody
// in a spoke can write this hub's labels and that annotation on an object. One that does not have
// the name which the hub gives to that AlertRule's object was not pushed for it: it is there to be
// removed, and its content is not looked at.
func StandsFor(o metav1.Object, hubID string) (types.NamespacedName, bool) {
	key, ok := ParseRuleKey(o)
	if !ok || !Owned(o, hubID) {
		return types.NamespacedName{}, false
	}
	_, adopted := AdoptedName(o, key)
	return key, adopted || o.GetName() == ObjectName(hubID, key.Namespace, key.Name)
}

// ParseRuleKey returns the AlertRule that a PrometheusRule says it was made from. The
// annotation stands in a spoke, where anybody can write anything.
func ParseRuleKey(o metav1.Object) (types.NamespacedName, bool) {
	// Names of Kubernetes are bounded, and hold no slash.
	namespace, name, _ := strings.Cut(o.GetAnnotations()[v1alpha1.AlertRuleAnnotation], "/")
	if len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return types.NamespacedName{}, false
	}
	return types.NamespacedName{Namespace: namespace, Name: name}, true
}
