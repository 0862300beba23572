package why

import (
	"fmt"
	"strings"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/plugin/advice"
)

// join says how to register the spoke. Rulefleet does not remember the options of the last time.
func (c *chain) join() string {
	return fmt.Sprintf("kubectl rulefleet join %s --spoke-context CONTEXT (if it was registered before, with the same options, such as --server and --no-evaluate)", c.Cluster)
}

// fixSpoke returns the remedy for a reason of the SpokeCluster.
func (c *chain) fixSpoke(reason string) string {
	fix := advice.Remedy(advice.OfSpoke, reason, c.Cluster)
	if reason == v1alpha1.ReasonDuplicateCluster {
		fix += fmt.Sprintf(" To give up the name %s, begin with: kubectl -n %s delete secret %s", c.Cluster, c.Namespace, c.Cluster)
	}
	return fix
}

// fixRule returns the remedy for a reason of the AlertRule, with the command for it.
func (c *chain) fixRule(reason string) string {
	return advice.Remedy(advice.OfRule, reason, c.Cluster) + c.command(reason)
}

// command returns a sentence with the command that carries out the remedy for a reason of the AlertRule, as far as it is known.
func (c *chain) command(reason string) string {
	switch reason {
	case v1alpha1.ReasonInvalidExpr, v1alpha1.ReasonInvalidSpec, v1alpha1.ReasonNamespaceNotAllowed, v1alpha1.ReasonUnsupported,
		v1alpha1.ReasonRejected, v1alpha1.ReasonNamespaceEnforced, v1alpha1.ReasonEvaluationFailed:
		return c.edit()
	}
	if c.row == nil {
		return ""
	}
	namespace, name, known := strings.Cut(c.row.Rule, "/")
	if !known {
		return ""
	}
	switch reason {
	case v1alpha1.ReasonNamespaceMissing:
		return " To create the namespace: kubectl --context CONTEXT create namespace " + namespace
	case v1alpha1.ReasonQuotaExceeded:
		return fmt.Sprintf(" To edit the ResourceQuotas: kubectl --context CONTEXT -n %s edit resourcequotas", namespace)
	case v1alpha1.ReasonConflict, v1alpha1.ReasonMutated:
		return fmt.Sprintf(" To delete the PrometheusRule: kubectl --context CONTEXT -n %s delete prometheusrule %s", namespace, name)
	}
	return ""
}

// edit returns a sentence with the command to edit the rule, or the template that generates it.
func (c *chain) edit() string {
	if template := c.Rule.GetLabels()[v1alpha1.TemplateLabel]; template != "" {
		return fmt.Sprintf(" The AlertRule is generated: change AlertRuleTemplate %s (kubectl edit alertruletemplate %s). If status.overriddenFields of the AlertRule lists the field to correct, edit the AlertRule instead: kubectl -n %s edit alertrule %s",
			template, template, c.Rule.GetNamespace(), c.Rule.GetName())
	}
	return fmt.Sprintf(" To edit the %s: kubectl -n %s edit %s %s", c.Rule.SourceKind(), c.Rule.GetNamespace(), strings.ToLower(c.Rule.SourceKind()), c.Rule.GetName())
}

// recorded returns a sentence about the recording rules that the row may list, or "".
func (c *chain) recorded() string {
	if c.Rule.SourceKind() != v1alpha1.RulePackKind {
		return ""
	}
	return " If the list contains the name of a recording rule, the expression of that rule has no result although the series that it reads exist: compare the labels on both sides of each operation, and the ranges with the scrape interval."
}

// set returns the command that sets a field of the rule's spec.
func (c *chain) set(spec string) string {
	return fmt.Sprintf("kubectl -n %s patch %s %s --type=merge -p '{\"spec\":{%s}}'", c.Rule.GetNamespace(), strings.ToLower(c.Rule.SourceKind()), c.Rule.GetName(), spec)
}

// restore says how to restore the Secret of the spoke, or its kubeconfig.
func (c *chain) restore() string {
	return c.fixSpoke(v1alpha1.ReasonKubeconfigMissing) + " To restore it with a new token: " + c.join()
}
