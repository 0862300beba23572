package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
	"github.com/rulefleet/rulefleet/pkg/testing/pipeline"
)

// Titles of the steps that a lite demo omits.
const (
	startPipeline = "Prometheus and its components start in one spoke"
	fireAlert     = "Pods crash, and Alertmanager gets the alert"
)

// isLite reports whether the demo omits alerts. The error says why it has to although that was not requested.
func isLite() (bool, error) {
	if os.Getenv("DEMO") == "lite" {
		return true, nil
	}
	_, err := pipeline.Address()
	return err != nil, err
}

// startPipeline runs Prometheus and its components for prod.
func (d *demo) startPipeline(ctx context.Context) error {
	d.out.note("prometheus-operator, Prometheus, kube-state-metrics and Alertmanager run as local processes. As in many clusters, this Prometheus selects only PrometheusRules with the label release: monitoring.")
	var err error
	d.pipeline, err = pipeline.Start(ctx, d.fleet.Spoke(prod), pipeline.Options{
		Dir: filepath.Join(d.dir, "pipeline"),
		Prometheus: monitoringv1.PrometheusSpec{
			CommonPrometheusFields: monitoringv1.CommonPrometheusFields{ExternalLabels: map[string]string{"cluster": prod}},
			RuleSelector:           &metav1.LabelSelector{MatchLabels: map[string]string{"release": "monitoring"}},
			RuleNamespaceSelector:  &metav1.LabelSelector{},
		},
		Output: d.out,
	})
	if err != nil {
		return err
	}
	return d.onSpoke(ctx, d.fleet.Spoke(prod), "-n", pipeline.Namespace, "get", "prometheuses")
}

// fireAlert breaks the pods of a Deployment, and repairs them.
func (d *demo) fireAlert(ctx context.Context) error {
	cart := types.NamespacedName{Namespace: shop, Name: "cart"}
	d.out.note("An annotation sets the alert's 'for' to 5 s. The default is one minute.")
	if err := d.onSpoke(ctx, d.fleet.Spoke(prod), "-n", shop, "annotate", "deployment", cart.Name, "rulefleet.io/for=5s"); err != nil {
		return err
	}
	if err := d.await(ctx, prod+" has for: 5s", d.waits(cart, "5s")); err != nil {
		return err
	}
	d.pipeline.Break(cart)
	of := map[string]string{"alertname": "DeploymentDown", "cluster": prod, "namespace": shop, "deployment": cart.Name}
	if err := d.await(ctx, "the pods of cart crash, and Alertmanager has sent the firing notification", d.notified(pipeline.Firing, of)); err != nil {
		return err
	}
	ofPack := map[string]string{"alertname": "NamespaceDegraded", "cluster": prod, "namespace": shop}
	if err := d.await(ctx, "Alertmanager has sent the firing notification of the RulePack's alert", d.notified(pipeline.Firing, ofPack)); err != nil {
		return err
	}
	if err := d.showFiring(ctx); err != nil {
		return err
	}
	d.pipeline.Mend(cart)
	if err := d.await(ctx, "the pods are healthy again, and Alertmanager has sent the resolved notification", d.notified(pipeline.Resolved, of)); err != nil {
		return err
	}
	if err := d.await(ctx, "Alertmanager has sent the resolved notification of the RulePack's alert", d.notified(pipeline.Resolved, ofPack)); err != nil {
		return err
	}
	return d.draw(ctx)
}

// showFiring shows the notification and what the hub reports about the firing alert.
func (d *demo) showFiring(ctx context.Context) error {
	for _, n := range d.pipeline.Alertmanager().Received() {
		d.out.line("%s: %s", n.Status, n.Annotations["summary"])
		for _, name := range slices.Sorted(maps.Keys(n.Labels)) {
			d.out.line("  %s=%q", name, n.Labels[name])
		}
	}
	if err := d.await(ctx, "the hub shows that the alert fires", d.fires("cart", 1)); err != nil {
		return err
	}
	if err := d.onHub(ctx, "-n", fleet.GeneratedNamespace, "get", "alertrules"); err != nil {
		return err
	}
	d.out.note("You did not set the label that this Prometheus selects by. Rulefleet read it from the Prometheus object and added it:")
	return d.onSpoke(ctx, d.fleet.Spoke(prod), "-n", shop, "get", "prometheusrules", "-L", "release")
}

// fires checks the number of firing alerts of a Deployment in prod in the hub's status.
func (d *demo) fires(deployment string, want int32) check {
	return func(ctx context.Context) error {
		rules, err := d.alertRules(ctx)
		if err != nil {
			return err
		}
		for i := range rules {
			w, s := rules[i].Spec.WorkloadRef, rules[i].Status.Summary
			if w == nil || string(w.Cluster) != prod || w.Name != deployment {
				continue
			}
			if s == nil || s.Firing == nil || *s.Firing != want {
				return fmt.Errorf("the status of %s is %+v", rules[i].Name, rules[i].Status)
			}
		}
		return nil
	}
}

// notified checks that Alertmanager has sent a notification of an alert.
func (d *demo) notified(status string, labels map[string]string) check {
	return func(context.Context) error {
		all := d.pipeline.Alertmanager().Received()
		if !slices.ContainsFunc(all, func(n pipeline.Notification) bool { return n.Has(status, labels) }) {
			return fmt.Errorf("no such notification among %+v", all)
		}
		return nil
	}
}

// waits checks the duration of a Deployment's alert in prod.
func (d *demo) waits(deployment types.NamespacedName, want string) check {
	return func(ctx context.Context) error {
		var list monitoringv1.PrometheusRuleList
		if err := d.fleet.Spoke(prod).Client.List(ctx, &list, client.InNamespace(deployment.Namespace)); err != nil {
			return fmt.Errorf("listing PrometheusRules in %s: %w", prod, err)
		}
		for i := range list.Items {
			r := &list.Items[i]
			if isFor(r, deployment.Name) && only(r).For != nil && string(*only(r).For) == want {
				return nil
			}
		}
		return fmt.Errorf("none of the %d PrometheusRules has it", len(list.Items))
	}
}
