// Package openshift has the monitoring objects of an OpenShift cluster with monitoring for user-defined projects, as its
// cluster-monitoring-operator creates them: the fields that prometheus-operator and Rulefleet read to select rules.
package openshift

import (
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The namespaces, names and labels of these objects.
const (
	// Platform is the namespace of the Prometheus k8s.
	Platform = "openshift-monitoring"
	// User is the namespace of the Prometheus and the ThanosRuler for projects.
	User = "openshift-user-workload-monitoring"
	// UserWorkload is the name of both of the latter.
	UserWorkload = "user-workload"
	// PlatformLabel is "true" for the namespaces of the platform.
	PlatformLabel = "openshift.io/cluster-monitoring"
	// UserLabel is "false" for projects without monitoring.
	UserLabel = "openshift.io/user-monitoring"
	// ScopeLabel is the label of PrometheusRules that the Prometheus for projects evaluates, with the value LeafScope.
	ScopeLabel = "openshift.io/prometheus-rule-evaluation-scope"
	// LeafScope is the value of ScopeLabel.
	LeafScope = "leaf-prometheus"
)

// Namespaces returns the namespaces of the objects.
func Namespaces() []client.Object {
	var out []client.Object
	for _, name := range []string{Platform, User} {
		out = append(out, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{PlatformLabel: "true"}}})
	}
	return out
}

// Evaluators returns the objects that evaluate rules.
func Evaluators() []client.Object {
	return []client.Object{
		prometheus(Platform, "k8s", &metav1.LabelSelector{}, &metav1.LabelSelector{MatchLabels: map[string]string{PlatformLabel: "true"}}, ""),
		prometheus(User, UserWorkload, where(not(UserLabel, "false"), metav1.LabelSelectorRequirement{
			Key: ScopeLabel, Operator: metav1.LabelSelectorOpIn, Values: []string{LeafScope},
		}), projects(), "namespace"),
		&monitoringv1.ThanosRuler{
			ObjectMeta: metav1.ObjectMeta{Namespace: User, Name: UserWorkload},
			Spec: monitoringv1.ThanosRulerSpec{
				RuleSelector: where(not(ScopeLabel, LeafScope)), RuleNamespaceSelector: projects(), EnforcedNamespaceLabel: "namespace", ListenLocal: true,
				QueryConfig: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "thanos-ruler-query-config"}, Key: "query.yaml"},
			},
		},
	}
}

func prometheus(namespace, name string, rules, namespaces *metav1.LabelSelector, enforced string) *monitoringv1.Prometheus {
	p := &monitoringv1.Prometheus{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	p.Spec.RuleSelector, p.Spec.RuleNamespaceSelector, p.Spec.EnforcedNamespaceLabel, p.Spec.ListenLocal = rules, namespaces, enforced, true
	p.Spec.ServiceMonitorSelector = &metav1.LabelSelector{}
	return p
}

// projects selects the namespaces of users.
func projects() *metav1.LabelSelector {
	return where(not(PlatformLabel, "true"), not(UserLabel, "false"))
}

func where(all ...metav1.LabelSelectorRequirement) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: all}
}

func not(key, value string) metav1.LabelSelectorRequirement {
	return metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpNotIn, Values: []string{value}}
}
