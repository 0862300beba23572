package rule

import (
	"slices"
	"strings"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// NamespaceLabel is the label of a generated alert with the namespace of its workload.
const NamespaceLabel = "namespace"

// WorkloadLabel is the label of a generated alert with the name of its workload, as in the metrics of
// kube-state-metrics.
func WorkloadLabel(kind v1alpha1.WorkloadKind) string { return strings.ToLower(string(kind)) }

// NamesWorkload reports whether a label is that of WorkloadLabel for a kind.
func NamesWorkload(label string) bool {
	return slices.ContainsFunc(WorkloadKinds(), func(kind v1alpha1.WorkloadKind) bool { return label == WorkloadLabel(kind) })
}

// WorkloadKinds are the kinds of workloads, in the order in which they are shown.
func WorkloadKinds() []v1alpha1.WorkloadKind {
	return []v1alpha1.WorkloadKind{v1alpha1.DeploymentKind, v1alpha1.StatefulSetKind, v1alpha1.DaemonSetKind, v1alpha1.CronJobKind}
}

// KindsOf returns the kinds of the workloads that a template selects.
func KindsOf(t *v1alpha1.AlertRuleTemplate) []v1alpha1.WorkloadKind {
	if t.Spec.Workloads == nil || len(t.Spec.Workloads.Kinds) == 0 {
		return []v1alpha1.WorkloadKind{v1alpha1.DeploymentKind}
	}
	return t.Spec.Workloads.Kinds
}

// FormerKey returns an error if a template was stored with a key that was renamed since. Any write that keeps such a key is
// refused.
func FormerKey(s *v1alpha1.AlertRuleTemplateSpec) *Invalid {
	if s.Clusters != nil {
		return NewInvalid("spec.clusters", "clusters was renamed; move its content to spec.placement")
	}
	if w := s.Workloads; w != nil && (w.MatchLabels != nil || w.MatchExpressions != nil) {
		return NewInvalid("spec.workloads", "matchLabels and matchExpressions were moved; move them to spec.workloads.selector")
	}
	return nil
}

// SeverityLabel is the alert's label for spec.severity.
const SeverityLabel = "severity"
