package e2e

import (
	"context"
	"fmt"
	"maps"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
)

// workload returns a workload of a kind.
func workload(kind v1alpha1.WorkloadKind, namespace, name string) client.Object {
	meta, d := metav1.ObjectMeta{Namespace: namespace, Name: name}, deployment(namespace, name)
	switch kind {
	case v1alpha1.StatefulSetKind:
		return &appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Replicas: d.Spec.Replicas, Selector: d.Spec.Selector, Template: d.Spec.Template}}
	case v1alpha1.DaemonSetKind:
		if *provider == providerKind {
			d.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "none"} // no test needs its pods
		}
		return &appsv1.DaemonSet{ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{Selector: d.Spec.Selector, Template: d.Spec.Template}}
	case v1alpha1.CronJobKind:
		job := batchv1.JobSpec{Template: *d.Spec.Template.DeepCopy(), BackoffLimit: new(int32)}
		job.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
		return &batchv1.CronJob{ObjectMeta: meta, Spec: batchv1.CronJobSpec{Schedule: "0 0 1 1 *", JobTemplate: batchv1.JobTemplateSpec{Spec: job}}}
	}
	return d
}

// TestKinds has workloads of all kinds with the same name. Each has AlertRules and PrometheusRules of its own, and they
// follow their own workload and the kinds that the template names.
func TestKinds(t *testing.T) {
	parallelOnShared(t)
	name := unique(t)
	m := shared().Spoke(spokeA)
	namespace(t, name, m)
	objects := map[v1alpha1.WorkloadKind]client.Object{}
	for _, kind := range rule.WorkloadKinds() {
		objects[kind] = workload(kind, name, "web")
		create(t, m, objects[kind])
	}
	tpl := template(name, v1alpha1.NamespaceName(name))
	tpl.Spec.Expr = "vector(0) == 1"
	tpl.Spec.Workloads = &v1alpha1.WorkloadSelection{Kinds: rule.WorkloadKinds()}
	create(t, shared().Hub, tpl)

	expect := func(what string, kinds ...v1alpha1.WorkloadKind) {
		t.Helper()
		want := map[v1alpha1.WorkloadKind]bool{}
		for _, kind := range kinds {
			want[kind] = true
		}
		eventually(t, what, func(ctx context.Context) error {
			var rules v1alpha1.AlertRuleList
			if err := shared().Hub.Client.List(ctx, &rules, client.MatchingLabels{v1alpha1.TemplateLabel: name}); err != nil {
				return err
			}
			onHub, inSpoke := map[v1alpha1.WorkloadKind]bool{}, map[v1alpha1.WorkloadKind]bool{}
			for i := range rules.Items {
				onHub[rules.Items[i].Spec.WorkloadRef.Kind] = true
			}
			var objects monitoringv1.PrometheusRuleList
			if err := m.Client.List(ctx, &objects, client.InNamespace(name)); err != nil {
				return err
			}
			n := 0
			for i := range objects.Items {
				made := objects.Items[i].Spec.Groups[0].Rules[0]
				if made.Alert != name { // a built-in template's
					continue
				}
				n++
				for _, kind := range rule.WorkloadKinds() {
					if made.Labels[rule.WorkloadLabel(kind)] == "web" {
						inSpoke[kind] = true
					}
				}
			}
			if !maps.Equal(onHub, want) || !maps.Equal(inSpoke, want) || len(rules.Items) != len(want) || n != len(want) {
				return fmt.Errorf("on the hub there are rules for %v, in the spoke for %v", onHub, inSpoke)
			}
			return nil
		})
	}
	expect("each kind has a rule", rule.WorkloadKinds()...)

	must(t, m.Client.Delete(t.Context(), objects[v1alpha1.StatefulSetKind], client.PropagationPolicy(metav1.DeletePropagationBackground)))
	expect("the StatefulSet is gone", v1alpha1.DeploymentKind, v1alpha1.DaemonSetKind, v1alpha1.CronJobKind)

	update(t, shared().Hub, tpl, func(tpl *v1alpha1.AlertRuleTemplate) {
		tpl.Spec.Workloads.Kinds = []v1alpha1.WorkloadKind{v1alpha1.DeploymentKind, v1alpha1.CronJobKind}
	})
	expect("the template no longer names DaemonSets", v1alpha1.DeploymentKind, v1alpha1.CronJobKind)
	update(t, shared().Hub, tpl, func(tpl *v1alpha1.AlertRuleTemplate) { tpl.Spec.Workloads = nil })
	expect("the template names no kind", v1alpha1.DeploymentKind)
}
