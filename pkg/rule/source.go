package rule

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// Source is an object on the hub that has rules. In each spoke on which it is placed, it has one PrometheusRule. The
// only kind of sources is AlertRule. Its rules for a spoke are what delivery.Render makes of it.
type Source interface {
	metav1.Object

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
	// GetWorkloadRef returns the workload that its rules are about, or nil.
	GetWorkloadRef() *v1alpha1.WorkloadReference
	// GetStatus returns what its status shows: in general, and for each spoke.
	GetStatus() ([]metav1.Condition, []v1alpha1.ClusterStatus)
}

var _ Source = (*v1alpha1.AlertRule)(nil)

// Key identifies a source on the hub, or a workload in a spoke. Objects of two kinds never have the same key.
type Key struct{ Kind, Namespace, Name string }

// KeyOf returns the key of a source.
func KeyOf(s Source) Key { return Key{s.SourceKind(), s.GetNamespace(), s.GetName()} }

// AlertRuleKey returns the key of an AlertRule.
func AlertRuleKey(namespace, name string) Key { return Key{v1alpha1.AlertRuleKind, namespace, name} }

// NamespacedName returns the namespace and the name.
func (k Key) NamespacedName() types.NamespacedName {
	return types.NamespacedName{Namespace: k.Namespace, Name: k.Name}
}

// String returns the key as messages name the object: kind namespace/name.
func (k Key) String() string { return k.Kind + " " + k.NamespacedName().String() }

// Listed returns the key as indexes have it, and the lists in a SpokeCluster: without the kind of an AlertRule.
func (k Key) Listed() string {
	if k.Kind == v1alpha1.AlertRuleKind {
		return k.NamespacedName().String()
	}
	return k.String()
}
