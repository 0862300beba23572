package rule

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// Source is an object on the hub that has rules: an AlertRule or a RulePack. In each spoke on which it is placed, it
// has one PrometheusRule. Its rules for a spoke are what delivery.Render makes of it.
type Source interface {
	metav1.Object
	runtime.Object

	// SourceKind returns the kind of the source.
	SourceKind() string
	// GetPlacement returns the spokes on which it is placed.
	GetPlacement() v1alpha1.ClusterSelection
	// GetState returns its state in all spokes for which no override sets another one.
	GetState() v1alpha1.State
	GetOverrides() []v1alpha1.Override
	// Suspended reports whether it is left unchanged in all spokes.
	Suspended() bool
	// GetRuleNamespace returns the namespace of its PrometheusRules, or "" for the default.
	GetRuleNamespace() v1alpha1.NamespaceName
	// InOperatorNamespace reports whether the default is that of a source in the operator's own namespace, though it
	// is about a workload.
	InOperatorNamespace() bool
	// GetWorkloadRef returns the workload that its rules are about, or nil.
	GetWorkloadRef() *v1alpha1.WorkloadReference
	// GetStatus returns a pointer to the status. It must not be changed in an object from a cache.
	GetStatus() *v1alpha1.RuleStatus
}

var _, _ Source = (*v1alpha1.AlertRule)(nil), (*v1alpha1.RulePack)(nil)

// Key identifies a source on the hub, or a workload in a spoke. Objects of two kinds never have the same key.
type Key struct{ Kind, Namespace, Name string }

// KeyOf returns the key of a source.
func KeyOf(s Source) Key { return Key{s.SourceKind(), s.GetNamespace(), s.GetName()} }

// AlertRuleKey returns the key of an AlertRule.
func AlertRuleKey(namespace, name string) Key { return Key{v1alpha1.AlertRuleKind, namespace, name} }

// WorkloadKey returns the key of the workload that rules are about.
func WorkloadKey(w *v1alpha1.WorkloadReference) Key {
	return Key{string(w.Kind), string(w.Namespace), w.Name}
}

// WorkloadKeyOf returns the key of a workload. The objects of a cache do not have their kind.
func WorkloadKeyOf(kind v1alpha1.WorkloadKind, o metav1.Object) Key {
	return Key{string(kind), o.GetNamespace(), o.GetName()}
}

// RulesIn returns how many rules a source has: those of a RulePack, at least one, and one of an AlertRule.
func RulesIn(s Source) int {
	n := 0
	if p, ok := s.(*v1alpha1.RulePack); ok {
		for i := range p.Spec.Groups {
			n += len(p.Spec.Groups[i].Rules)
		}
	}
	return max(n, 1)
}

// WithArticle returns a kind of sources with its article, for messages.
func WithArticle(kind string) string {
	if kind == v1alpha1.AlertRuleKind {
		return "an " + kind
	}
	return "a " + kind
}

// NamespacedName returns the namespace and the name.
func (k Key) NamespacedName() types.NamespacedName {
	return types.NamespacedName{Namespace: k.Namespace, Name: k.Name}
}

// String returns the key as messages name the object: kind namespace/name.
func (k Key) String() string { return k.Kind + " " + k.NamespacedName().String() }

// Listed returns the key as it is in indexes, and in lists in the status of a SpokeCluster. It has no kind if the source
// is an AlertRule.
func (k Key) Listed() string {
	if k.Kind == v1alpha1.AlertRuleKind {
		return k.NamespacedName().String()
	}
	return k.String()
}
