package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// The methods of an AlertRule by which the manager treats it as a source of rules, like any other kind of sources.

// AlertRuleKind is the kind of AlertRules.
const AlertRuleKind = "AlertRule"

// SourceKind returns the kind of the source.
func (r *AlertRule) SourceKind() string { return AlertRuleKind }

// GetPlacement returns spec.placement.
func (r *AlertRule) GetPlacement() ClusterSelection { return r.Spec.Placement }

// GetState returns spec.state.
func (r *AlertRule) GetState() State { return r.Spec.State }

// GetOverrides returns spec.overrides, which can set another state in some of the spokes.
func (r *AlertRule) GetOverrides() []Override { return r.Spec.Overrides }

// GetRuleNamespace returns spec.ruleNamespace.
func (r *AlertRule) GetRuleNamespace() NamespaceName { return r.Spec.RuleNamespace }

// GetWorkloadRef returns spec.workloadRef.
func (r *AlertRule) GetWorkloadRef() *WorkloadReference { return r.Spec.WorkloadRef }

// Suspended reports whether spec.suspend is true.
func (r *AlertRule) Suspended() bool { return r.Spec.Suspend != nil && *r.Spec.Suspend }

// GetStatus returns the conditions and the rows of the status.
func (r *AlertRule) GetStatus() (conditions []metav1.Condition, rows []ClusterStatus) {
	return r.Status.Conditions, r.Status.Clusters
}
