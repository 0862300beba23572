package rule

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// BuiltIns returns the templates that the operator brings along. They can be edited
// and disabled on the hub.
func BuiltIns() []*v1alpha1.AlertRuleTemplate {
	return []*v1alpha1.AlertRuleTemplate{deploymentDown()}
}

// deploymentDown fires when a Deployment that should have replicas has none
// available. Scaled to zero is not down.
func deploymentDown() *v1alpha1.AlertRuleTemplate {
	return &v1alpha1.AlertRuleTemplate{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "AlertRuleTemplate"},
		ObjectMeta: metav1.ObjectMeta{Name: "deployment-down"},
		Spec: v1alpha1.AlertRuleTemplateSpec{
			AlertSpec: v1alpha1.AlertSpec{
				Alert: "DeploymentDown",
				Expr: `kube_deployment_status_replicas_available{namespace="$(deployment.namespace)",deployment="$(deployment.name)"} == 0
and on (namespace, deployment)
kube_deployment_spec_replicas{namespace="$(deployment.namespace)",deployment="$(deployment.name)"} > 0`,
				For:      "1m",
				Severity: "critical",
				Annotations: map[string]v1alpha1.LabelText{
					"summary": "Deployment $(deployment.namespace)/$(deployment.name) in cluster $(cluster.name) is down.",
					"description": "No replica of Deployment $(deployment.namespace)/$(deployment.name) in cluster $(cluster.name)" +
						" is available, though it is not scaled to zero.",
				},
			},
			State: v1alpha1.Enabled,
		},
	}
}
