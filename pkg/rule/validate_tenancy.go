package rule

import (
	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// checkGenerated limits the namespace of generated AlertRules to objects such as templates generate:
// one rule for a workload, in the place of the workload. Otherwise anyone who may edit them could
// write to any namespace.
func checkGenerated(r *v1alpha1.AlertRule, o ValidateOptions) *Invalid {
	w, p := r.Spec.WorkloadRef, r.Spec.Placement
	var field string
	switch {
	case w == nil:
		field = "spec.workloadRef"
	case p.Selector != nil || len(p.Names) != 1 || p.Names[0] != w.Cluster:
		field = "spec.placement"
	case r.Spec.RuleNamespace != "" && r.Spec.RuleNamespace != w.Namespace:
		field = "spec.ruleNamespace"
	default:
		return nil
	}
	bad := invalid(field, "namespace %s is reserved for the AlertRules that templates generate, each for a workload, in the cluster and namespace of that workload; create other AlertRules in the operator's namespace (%s)",
		r.Namespace, o.AdminNamespace)
	bad.Reason = v1alpha1.ReasonNamespaceNotAllowed
	return bad
}

// checkTenancy allows an AlertRule outside of the operator's two namespaces to write only to the
// spokes' namespace of the same name.
func checkTenancy(r *v1alpha1.AlertRule, o ValidateOptions) *Invalid {
	if r.Namespace != "" && r.Namespace == o.AdminNamespace {
		return nil
	}
	if r.Namespace != "" && r.Namespace == o.GeneratedNamespace {
		return checkGenerated(r, o)
	}
	target := TargetNamespace(r, Cluster{}, RenderOptions{AdminNamespace: o.AdminNamespace})
	if target == r.Namespace {
		return nil
	}
	field := "spec.ruleNamespace"
	if r.Spec.RuleNamespace == "" {
		field = "spec.workloadRef.namespace"
	}
	bad := invalid(field, "an AlertRule in namespace %s may only write to namespace %s of the spokes, not to %s; move it to that namespace of the hub, or to the operator's namespace (%s)",
		r.Namespace, r.Namespace, target, o.AdminNamespace)
	bad.Reason = v1alpha1.ReasonNamespaceNotAllowed
	return bad
}
