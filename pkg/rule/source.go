package rule

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
