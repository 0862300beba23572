package rule

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"

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

// DefaultMinInterval is the default of Tenancy.MinInterval.
const DefaultMinInterval = 5 * time.Second

// Tenancy has the settings of the hub for tenants, which are the authors of AlertRules outside of the
// operator's two namespaces.
type Tenancy struct {
	// ProtectedLabels are labels of alerts, in addition to namespace, that AlertRules outside of the admin
	// namespace cannot have, whether they set them or their series have them.
	ProtectedLabels []string
	// MinInterval is the minimum of spec.interval for tenants.
	MinInterval time.Duration
	// EnforceNamespace restricts the expressions of tenants to series of their own namespace.
	EnforceNamespace bool
}

// ValidateProtectedLabels checks Tenancy.ProtectedLabels.
func ValidateProtectedLabels(names []string, clusterLabel string) error {
	for _, name := range names {
		switch {
		case !model.LegacyValidation.IsValidLabelName(name) || strings.HasPrefix(name, model.ReservedLabelPrefix):
			return fmt.Errorf("%q is not a label that an alert can have; use letters, digits and _, not beginning with a digit or __", name)
		case name == namespaceLabel, name == clusterLabel:
			return fmt.Errorf("label %q is always protected; remove it from the list", name)
		case name == severityLabel, name == deploymentLabel, name == model.AlertNameLabel:
			return fmt.Errorf("label %q cannot be protected, because alerts need it; remove it from the list", name)
		}
	}
	return nil
}

// forced returns the labels that every alert gets that is not from the admin namespace. Prometheus
// takes a label of the rule over one of the series. An empty one removes that of the series.
func forced(t Tenancy, namespace string) map[string]string {
	out := make(map[string]string, 1+len(t.ProtectedLabels))
	for _, name := range t.ProtectedLabels {
		out[name] = ""
	}
	out[namespaceLabel] = dataText(namespace)
	return out
}

// tenant reports whether a namespace of the hub is a tenant's.
func (o RenderOptions) tenant(namespace string) bool {
	return namespace != o.AdminNamespace && namespace != o.GeneratedNamespace
}

// tenant is a namespace of the hub outside of the operator's two, with the limits of its AlertRules.
type tenant struct {
	Tenancy

	namespace, admin string
}

// tenantOf returns the tenant to which an AlertRule belongs, or nil.
func tenantOf(r *v1alpha1.AlertRule, o ValidateOptions) *tenant {
	if r.Namespace == o.AdminNamespace || r.Namespace == o.GeneratedNamespace {
		return nil
	}
	return &tenant{Tenancy: o.Tenancy, namespace: r.Namespace, admin: o.AdminNamespace}
}

// check checks what only tenants must not do, in the given fields of an alert. expanded has its texts
// with their placeholders replaced.
func (t *tenant) check(a, expanded v1alpha1.AlertSpec) *Invalid {
	if t == nil {
		return nil
	}
	if length, bad := checkDuration("spec.interval", string(a.Interval)); bad == nil && a.Interval != "" && length < t.MinInterval {
		return invalid("spec.interval", "%s is too short for an AlertRule outside of namespace %s; use at least %s, or leave the interval out to use that of Prometheus",
			a.Interval, t.admin, model.Duration(t.MinInterval))
	}
	for _, name := range slices.Sorted(maps.Keys(a.Labels)) {
		if slices.Contains(t.ProtectedLabels, name) {
			return invalid(keyed("spec.labels", name), "label %s is protected, because it can decide who is notified: an AlertRule outside of namespace %s cannot set it; remove it", name, t.admin)
		}
	}
	for _, m := range []struct {
		field string
		texts map[string]v1alpha1.LabelText
	}{{"spec.labels", expanded.Labels}, {"spec.annotations", expanded.Annotations}} {
		if key, found := queries(m.texts); found {
			return invalid(keyed(m.field, key), "the function query is not available to an AlertRule outside of namespace %s, because it reads the series of all namespaces; move the query into spec.expr, and use $value and $labels", t.admin)
		}
	}
	if !t.EnforceNamespace || expanded.Expr == "" {
		return nil
	}
	if _, f := enforcedExpr(expanded.Expr, t.namespace); f != nil && (!f.contradiction || !hasPlaceholder(a.Expr)) {
		return invalidExpr(expanded.Expr, &f.fault)
	}
	return nil
}

// queries returns the first text that calls Prometheus' function query. The texts are valid.
func queries(texts map[string]v1alpha1.LabelText) (key string, found bool) {
	for _, key := range slices.Sorted(maps.Keys(texts)) {
		if text := string(texts[key]); strings.Contains(text, "query") && strings.Contains(text, "{{") {
			if uses, err := usesOf(text); err != nil || uses["query"] {
				return key, true
			}
		}
	}
	return "", false
}
