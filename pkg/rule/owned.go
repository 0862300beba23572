package rule

import (
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// The labels and annotations that a hub sets on the PrometheusRules that it writes. A PrometheusRule only has the hash label
// and the annotation of the kind of its source.
var (
	OwnLabels      = []string{v1alpha1.ManagedByLabel, v1alpha1.HubLabel, v1alpha1.AlertRuleHashLabel, v1alpha1.RulePackHashLabel}
	OwnAnnotations = []string{v1alpha1.AlertRuleAnnotation, v1alpha1.RulePackAnnotation}
)

// naming is how the PrometheusRules of a kind of sources name their source.
type naming struct{ kind, hashLabel, annotation string }

var namings = []naming{
	{v1alpha1.AlertRuleKind, v1alpha1.AlertRuleHashLabel, v1alpha1.AlertRuleAnnotation},
	{v1alpha1.RulePackKind, v1alpha1.RulePackHashLabel, v1alpha1.RulePackAnnotation},
}

// NamesOf returns the label and the annotation with which the PrometheusRules of a source name it, each as a map of one
// entry.
func NamesOf(key Key) (labels, annotations map[string]string) {
	m := namings[slices.IndexFunc(namings, func(m naming) bool { return m.kind == key.Kind })]
	return map[string]string{m.hashLabel: Hash(key.Namespace, key.Name)}, map[string]string{m.annotation: key.NamespacedName().String()}
}

// ExtraLabels returns the labels that an object has for the spoke's evaluators, according to its
// annotation. It leaves out the labels that delivery.Render sets on every object, because anyone in the spoke
// can edit the annotation.
func ExtraLabels(o metav1.Object) []string {
	list := o.GetAnnotations()[v1alpha1.RuleLabelsAnnotation]
	if list == "" {
		return nil
	}
	return slices.DeleteFunc(strings.Split(list, ","), func(key string) bool { return slices.Contains(OwnLabels, key) })
}

// Owned reports whether this hub created an object.
func Owned(o metav1.Object, hubID string) bool {
	labels := o.GetLabels()
	return hubID != "" && labels[v1alpha1.ManagedByLabel] == v1alpha1.ManagedByValue && labels[v1alpha1.HubLabel] == hubID
}

// AdoptedName returns the name under which an object of this hub belongs to a source because it
// was taken over from a former hub that named it. ok is false if it was not taken over.
func AdoptedName(o metav1.Object, key Key) (name string, ok bool) {
	former := o.GetAnnotations()[v1alpha1.AdoptedFromAnnotation]
	name = o.GetName()
	return name, former != "" && name == ObjectName(former, key)
}

// Adopts reports whether an object is the one that a former hub wrote for a source.
func Adopts(o metav1.Object, formerHub string, key Key) bool {
	of, ok := ParseRuleKey(o)
	return ok && of == key && Owned(o, formerHub)
}

// WithKeys copies the values of keys to a map, which may be nil. It deletes those that from lacks.
func WithKeys(to, from map[string]string, keys []string) map[string]string {
	if to == nil {
		to = map[string]string{}
	}
	for _, k := range keys {
		if value, has := from[k]; has {
			to[k] = value
		} else {
			delete(to, k)
		}
	}
	return to
}

// StandsFor returns the source to which an object of this hub belongs, by its annotation and its
// name. Anyone in a spoke can set this hub's labels and the annotation on an object. An object without
// the name that the hub gives to that source's object was not written for it: it is removed, and
// its content is ignored.
func StandsFor(o metav1.Object, hubID string) (Key, bool) {
	key, ok := ParseRuleKey(o)
	if !ok || !Owned(o, hubID) {
		return Key{}, false
	}
	_, adopted := AdoptedName(o, key)
	return key, adopted || o.GetName() == ObjectName(hubID, key)
}

// ParseRuleKey returns the source from which a PrometheusRule was created, according to its
// annotation. Anyone in the spoke can change the annotation.
func ParseRuleKey(o metav1.Object) (Key, bool) {
	for _, m := range namings {
		// Names in Kubernetes have a maximum length and no slash.
		namespace, name, _ := strings.Cut(o.GetAnnotations()[m.annotation], "/")
		if len(validation.IsDNS1123Label(namespace)) == 0 && len(validation.IsDNS1123Subdomain(name)) == 0 {
			return Key{m.kind, namespace, name}, true
		}
	}
	return Key{}, false
}

// NoteExtra records in annotations of a PrometheusRule which of its labels it has for the spoke's
// evaluators. See ExtraLabels.
func NoteExtra(annotations, labels map[string]string) {
	extra := slices.DeleteFunc(slices.Sorted(maps.Keys(labels)), func(key string) bool { return slices.Contains(OwnLabels, key) })
	if len(extra) > 0 {
		annotations[v1alpha1.RuleLabelsAnnotation] = strings.Join(extra, ",")
	}
}
