package validation

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/prometheus/common/model"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/delivery"
	"github.com/rulefleet/rulefleet/pkg/rule/gotemplate"
	"github.com/rulefleet/rulefleet/pkg/rule/placeholder"
	"github.com/rulefleet/rulefleet/pkg/rule/promql"
)

// checkGenerated limits the namespace of generated AlertRules to objects such as templates generate:
// one rule for a workload, in the place of the workload. Otherwise anyone who may edit them could
// write to any namespace.
func checkGenerated(s rule.Source, o Options) *rule.Invalid {
	w, p := s.GetWorkloadRef(), s.GetPlacement()
	var field, must string
	switch {
	case s.SourceKind() != v1alpha1.AlertRuleKind:
		field, must = "metadata.namespace", "must be another one"
	case w == nil:
		field, must = "spec.workloadRef", "is required"
	case p.Selector != nil || p.Exclude != nil || len(p.Names) != 1 || p.Names[0] != w.Cluster:
		field, must = "spec.placement", fmt.Sprintf("must name only %s, the cluster of workloadRef", w.Cluster)
	case s.GetRuleNamespace() != "" && s.GetRuleNamespace() != w.Namespace:
		field, must = "spec.ruleNamespace", fmt.Sprintf("must be %s, the namespace of workloadRef", w.Namespace)
	default:
		return nil
	}
	bad := rule.NewInvalid(field, "%s, because namespace %s accepts only AlertRules of the form that templates generate; create other AlertRules and RulePacks in namespace %s",
		must, s.GetNamespace(), o.AdminNamespace)
	bad.Reason = v1alpha1.ReasonNamespaceNotAllowed
	return bad
}

// checkTenancy allows a source outside of Rulefleet's two namespaces to write only to the spokes' namespace of the same
// name.
func checkTenancy(s rule.Source, o Options) *rule.Invalid {
	kind, own := s.SourceKind(), s.GetNamespace()
	if own != "" && own == o.AdminNamespace {
		return nil
	}
	if own != "" && own == o.GeneratedNamespace {
		return checkGenerated(s, o)
	}
	target := delivery.TargetNamespace(s, rule.Cluster{}, delivery.Options{AdminNamespace: o.AdminNamespace})
	if target == own {
		return nil
	}
	field, remedy := "spec.ruleNamespace", "remove spec.ruleNamespace"
	switch {
	case s.GetRuleNamespace() != "":
	case s.InOperatorNamespace():
		field, remedy = "spec.ruleNamespaceFrom", "remove spec.ruleNamespaceFrom"
	default:
		field, remedy = "spec.workloadRef.namespace", "correct the namespace"
	}
	if !rule.PlatformNamespace(target) { // spokes do not take AlertRules of those
		remedy += fmt.Sprintf(", create the %s in namespace %s of the hub", kind, target)
	}
	bad := rule.NewInvalid(field, "%s in namespace %s can only write to namespace %s of the spokes, not to %s; %s, or ask an administrator of the hub to create it in namespace %s",
		rule.WithArticle(kind), own, own, target, remedy, o.AdminNamespace)
	bad.Reason = v1alpha1.ReasonNamespaceNotAllowed
	return bad
}

// ProtectedLabels checks Tenancy.ProtectedLabels.
func ProtectedLabels(names []string, clusterLabel string) error {
	for _, name := range names {
		switch {
		case !model.LegacyValidation.IsValidLabelName(name) || strings.HasPrefix(name, model.ReservedLabelPrefix):
			return fmt.Errorf("%q is not a label that an alert can have; use letters, digits and _, not beginning with a digit or __", name)
		case name == rule.NamespaceLabel, name == clusterLabel:
			return fmt.Errorf("label %q is always protected; remove it from the list", name)
		case name == rule.SeverityLabel, name == model.AlertNameLabel, rule.NamesWorkload(name):
			return fmt.Errorf("label %q cannot be protected, because alerts need it; remove it from the list", name)
		}
	}
	return nil
}

// tenant is a namespace of the hub outside of the operator's two, with the limits of its AlertRules.
type tenant struct {
	rule.Tenancy

	kind, namespace, admin string
	stored                 bool
}

// tenantOf returns the tenant to which a source belongs, or nil.
func tenantOf(s rule.Source, o Options) *tenant {
	namespace := s.GetNamespace()
	if namespace == o.AdminNamespace || namespace == o.GeneratedNamespace {
		return nil
	}
	return &tenant{Tenancy: o.Tenancy, kind: s.SourceKind(), namespace: namespace, admin: o.AdminNamespace, stored: o.stored}
}

// check checks what only tenants must not do, in the given fields of an alert. expanded has its texts
// with their placeholders replaced.
func (t *tenant) check(a, expanded v1alpha1.AlertSpec) *rule.Invalid {
	if t == nil {
		return nil
	}
	if bad := t.checkInterval("spec.interval", string(a.Interval)); bad != nil {
		return bad
	}
	if bad := t.checkProtected("spec.labels", a.Labels); bad != nil {
		return bad
	}
	for _, m := range []struct {
		field string
		texts map[string]v1alpha1.LabelText
	}{{"spec.labels", expanded.Labels}, {"spec.annotations", expanded.Annotations}} {
		if key, found := queries(m.texts); found {
			return rule.NewInvalid(rule.Keyed(m.field, key), "the function query is not available to %s outside of namespace %s, because it reads the series of all namespaces; move the query into the expression, and use $value and $labels", rule.WithArticle(t.kind), t.admin)
		}
	}
	if !t.EnforceNamespace || expanded.Expr == "" {
		return nil
	}
	if _, f := promql.Enforce(expanded.Expr, t.namespace); f != nil && (!f.Contradiction || !placeholder.In(a.Expr)) {
		return rule.InvalidExpr(expanded.Expr, &f.Fault)
	}
	return nil
}

// checkInterval checks an interval, in a field.
func (t *tenant) checkInterval(field, interval string) *rule.Invalid {
	if t == nil || interval == "" {
		return nil
	}
	if length, bad := checkDuration(field, interval); bad == nil && length < t.MinInterval {
		return rule.NewInvalid(field, "%s is too short for %s outside of namespace %s; use at least %s, or leave the interval out to use that of Prometheus",
			interval, rule.WithArticle(t.kind), t.admin, model.Duration(t.MinInterval))
	}
	return nil
}

// checkProtected refuses labels, in a field, that only administrators may set.
func (t *tenant) checkProtected(field string, labels map[string]v1alpha1.LabelText) *rule.Invalid {
	if t == nil || t.stored {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		if slices.Contains(t.ProtectedLabels, name) {
			return rule.NewInvalid(rule.Keyed(field, name), "label %s is protected, because it can decide who is notified: %s outside of namespace %s cannot set it; remove it", name, rule.WithArticle(t.kind), t.admin)
		}
	}
	return nil
}

// queries returns the first text that calls Prometheus' function query. The texts are valid.
func queries(texts map[string]v1alpha1.LabelText) (key string, found bool) {
	for _, key := range slices.Sorted(maps.Keys(texts)) {
		if text := string(texts[key]); strings.Contains(text, "query") && strings.Contains(text, "{{") {
			if uses, err := gotemplate.Uses(text); err != nil || uses["query"] {
				return key, true
			}
		}
	}
	return "", false
}
