package rule

import (
	"fmt"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// checkGenerated limits the namespace of generated AlertRules to objects such as templates generate:
// one rule for a workload, in the place of the workload. Otherwise anyone who may edit them could
// write to any namespace.
func checkGenerated(r *v1alpha1.AlertRule, o ValidateOptions) *Invalid {
	w, p := r.Spec.WorkloadRef, r.Spec.Placement
	var field, must string
	switch {
	case w == nil:
		field, must = "spec.workloadRef", "is required"
	case p.Selector != nil || len(p.Names) != 1 || p.Names[0] != w.Cluster:
		field, must = "spec.placement", fmt.Sprintf("must name only the cluster of workloadRef (%s)", w.Cluster)
	case r.Spec.RuleNamespace != "" && r.Spec.RuleNamespace != w.Namespace:
		field, must = "spec.ruleNamespace", fmt.Sprintf("must be the namespace of workloadRef (%s)", w.Namespace)
	default:
		return nil
	}
	bad := invalid(field, "%s in namespace %s, which is only for AlertRules as templates generate them; create other AlertRules in namespace %s",
		must, r.Namespace, o.AdminNamespace)
	bad.Reason = v1alpha1.ReasonNamespaceNotAllowed
	return bad
}

// checkTenancy allows an AlertRule outside of Rulefleet's two namespaces to write only to the
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
	field, remedy := "spec.ruleNamespace", "remove spec.ruleNamespace"
	if r.Spec.RuleNamespace == "" {
		field, remedy = "spec.workloadRef.namespace", "correct the namespace"
	}
	bad := invalid(field, "an AlertRule in namespace %s can only write to namespace %s of the spokes, not to %s; %s, or create the AlertRule in namespace %s or %s of the hub",
		r.Namespace, r.Namespace, target, remedy, target, o.AdminNamespace)
	bad.Reason = v1alpha1.ReasonNamespaceNotAllowed
	return bad
}
