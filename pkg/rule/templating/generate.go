package templating

import (
	"maps"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/clip"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/gotemplate"
	"github.com/rulefleet/rulefleet/pkg/rule/placeholder"
)

// Rule returns the AlertRule that a template generates for a workload, in the hub's namespace for
// generated AlertRules. An error is an *Invalid that explains why it can't be generated for this
// workload, such as a missing label. Annotations of the workload adjust the AlertRule as far as the
// template allows. IgnoredAnnotation lists the annotations that don't.
//
// The AlertRule has no ownerReferences. When a template or workload is gone, the operator removes
// its AlertRules with its own safeguards, and not the garbage collector.
func Rule(t *v1alpha1.AlertRuleTemplate, w Workload, namespace string) (*v1alpha1.AlertRule, error) {
	e := effectiveIn(t, w.Cluster)
	a := adjust(t, e.Alert.Labels, w)
	maps.Copy(e.Parameters, a.parameters)
	alert, bad := placeholder.ForWorkload(placeholder.Workload{
		Kind: w.Kind, Name: w.Name, Namespace: w.Namespace, Cluster: w.Cluster.Name, Labels: w.Labels, Annotations: w.Annotations,
	}, e.Parameters).Alert(e.Alert)
	if bad != nil {
		return nil, e.Blame(bad)
	}
	if alert.Labels == nil {
		alert.Labels = map[string]v1alpha1.LabelText{}
	}
	a.apply(&alert)
	// Set last, so that neither the template nor the workload can override them.
	alert.Labels[rule.NamespaceLabel] = storedText(w.Namespace)
	alert.Labels[rule.WorkloadLabel(w.Kind)] = storedText(w.Name)
	ar := &v1alpha1.AlertRule{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "AlertRule"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace,
			Name:      rule.GeneratedName(t.Name, w.Cluster.Name, w.Kind, w.Namespace, w.Name),
			Labels: map[string]string{
				v1alpha1.ManagedByLabel: v1alpha1.ManagedByValue,
				v1alpha1.TemplateLabel:  t.Name,
			},
		},
		Spec: v1alpha1.AlertRuleSpec{
			AlertSpec: alert,
			WorkloadRef: &v1alpha1.WorkloadReference{
				Cluster:   v1alpha1.ClusterName(w.Cluster.Name),
				Kind:      w.Kind,
				Namespace: v1alpha1.NamespaceName(w.Namespace),
				Name:      w.Name,
			},
			Placement: v1alpha1.ClusterSelection{Names: []v1alpha1.ClusterName{v1alpha1.ClusterName(w.Cluster.Name)}},
			State:     v1alpha1.Enabled,
		},
	}
	if t.Spec.RuleNamespace == v1alpha1.InOperatorNamespace {
		ar.Spec.RuleNamespaceFrom = v1alpha1.InOperatorNamespace
	}
	if len(validation.IsValidLabelValue(w.Cluster.Name)) == 0 {
		ar.Labels[v1alpha1.ClusterLabel] = w.Cluster.Name
	}
	if len(a.ignored) > 0 {
		ar.Annotations = map[string]string{v1alpha1.IgnoredAnnotation: clip.Marked(strings.Join(a.ignored, "; "), rule.MaxMessage)}
	}
	return ar, nil
}

// Sound reports whether the AlertRule that a valid template generates for a workload is certainly
// valid. Inserted values are escaped, so only its size, labels of several overrides, empty values (a selector needs one
// matcher that is not empty), and the workload's adjustments can make it invalid. Validating all rules of a fleet would take a minute at each start.
func Sound(r *v1alpha1.AlertRule, w Workload) bool {
	const small = 4096
	size := len(r.Spec.Expr)
	for _, texts := range []map[string]v1alpha1.LabelText{r.Spec.Labels, r.Spec.Annotations} {
		for key, text := range texts {
			size += len(key) + len(text)
		}
	}
	for _, values := range []map[string]string{w.Labels, w.Annotations} {
		for _, value := range values {
			if value == "" {
				return false
			}
		}
	}
	return size <= small && len(r.Spec.Labels) <= rule.MaxTexts && len(r.Spec.Annotations) <= rule.MaxTexts && !w.adjusted()
}

// storedText writes a value into a text of an AlertRule, in which placeholders are replaced once more.
func storedText(value string) v1alpha1.LabelText {
	return v1alpha1.LabelText(placeholder.Escape(gotemplate.Literal(value)))
}
