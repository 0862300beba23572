package rule

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// The labels of a generated alert that tell which workload it is about.
const (
	namespaceLabel  = "namespace"
	deploymentLabel = "deployment"
)

const deploymentKind = "Deployment"

// Generate returns the AlertRule that a template makes for a workload, in the hub's
// namespace for generated AlertRules. An error is an *Invalid that tells why this
// workload can't have it, such as a label that it lacks. Annotations of the Deployment
// adjust it as far as the template allows; IgnoredAnnotation tells of those that don't.
//
// There are no ownerReferences: what a template or a Deployment leaves behind is
// removed by the operator, under its own safeguards, and not by garbage collection.
func Generate(t *v1alpha1.AlertRuleTemplate, w Workload, namespace string) (*v1alpha1.AlertRule, error) {
	alert, bad := generateStage(w).alert(t.Spec.AlertSpec)
	if bad != nil {
		return nil, bad
	}
	if alert.Labels == nil {
		alert.Labels = map[string]v1alpha1.LabelText{}
	}
	a := adjust(t, w)
	a.apply(&alert)
	// Last, so that neither template nor Deployment can claim another workload.
	alert.Labels[namespaceLabel] = storedText(w.Namespace)
	alert.Labels[deploymentLabel] = storedText(w.Name)
	ar := &v1alpha1.AlertRule{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "AlertRule"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace,
			Name:      GeneratedName(t.Name, w.Cluster.Name, w.Namespace, w.Name),
			Labels: map[string]string{
				v1alpha1.ManagedByLabel: v1alpha1.ManagedByValue,
				v1alpha1.TemplateLabel:  t.Name,
			},
		},
		Spec: v1alpha1.AlertRuleSpec{
			AlertSpec: alert,
			WorkloadRef: &v1alpha1.WorkloadReference{
				Cluster:   v1alpha1.ClusterName(w.Cluster.Name),
				Kind:      deploymentKind,
				Namespace: v1alpha1.NamespaceName(w.Namespace),
				Name:      w.Name,
			},
			Placement: v1alpha1.ClusterSelection{Names: []v1alpha1.ClusterName{v1alpha1.ClusterName(w.Cluster.Name)}},
			State:     v1alpha1.Enabled,
		},
	}
	if len(validation.IsValidLabelValue(w.Cluster.Name)) == 0 {
		ar.Labels[v1alpha1.ClusterLabel] = w.Cluster.Name
	}
	if len(a.ignored) > 0 {
		ar.Annotations = map[string]string{v1alpha1.IgnoredAnnotation: bounded(strings.Join(a.ignored, "; "), maxMessage)}
	}
	return ar, nil
}

// Sound tells whether what a valid template made for a workload is valid for sure: what
// is inserted is escaped, so only its size and the Deployment's adjustments can spoil it.
// Validating all of a fleet's rules would take a minute of every start.
func Sound(r *v1alpha1.AlertRule, w Workload) bool {
	const small = 4096
	size := len(r.Spec.Expr)
	for _, texts := range []map[string]v1alpha1.LabelText{r.Spec.Labels, r.Spec.Annotations} {
		for key, text := range texts {
			size += len(key) + len(text)
		}
	}
	return size <= small && !w.adjusted()
}

// storedText writes a value into a text of an AlertRule, where placeholders are read
// once more.
func storedText(value string) v1alpha1.LabelText {
	return v1alpha1.LabelText(join([]piece{{literal: dataText(value)}}))
}
