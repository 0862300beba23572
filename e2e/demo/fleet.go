package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
)

// measure creates a Deployment of the shop, and returns the time from its creation
// until a watch on the spoke's API server showed its PrometheusRule.
func (d *demo) measure(ctx context.Context, m *fleet.Member, name string) (time.Duration, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not within %v", patience))
	defer cancel()
	c, err := client.NewWithWatch(m.RESTConfig(), client.Options{Scheme: fleet.Scheme})
	if err != nil {
		return 0, fmt.Errorf("creating a client for %s: %w", m.Name(), err)
	}
	w, err := c.Watch(ctx, &monitoringv1.PrometheusRuleList{}, client.InNamespace(shop))
	if err != nil {
		return 0, fmt.Errorf("watching the PrometheusRules of %s: %w", m.Name(), err)
	}
	defer w.Stop()
	begin := time.Now()
	if err := c.Create(ctx, deployment(name)); err != nil {
		return 0, fmt.Errorf("creating Deployment %s/%s in %s: %w", shop, name, m.Name(), err)
	}
	for {
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("the PrometheusRule of Deployment %s/%s in %s: %w", shop, name, m.Name(), context.Cause(ctx))
		case <-d.manager.Done():
			return 0, fmt.Errorf("the manager has exited: %w", d.manager.ExitErr())
		case e, open := <-w.ResultChan():
			if !open {
				return 0, errors.New("the watch of PrometheusRules has ended")
			}
			if r, ok := e.Object.(*monitoringv1.PrometheusRule); ok && isFor(r, name) {
				return time.Since(begin), nil
			}
		}
	}
}

func deployment(name string) *appsv1.Deployment {
	replicas := int32(2)
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: name, Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "nginx", Image: "nginx"}}},
			},
		},
	}
}

// isFor reports whether a PrometheusRule was pushed for a Deployment of the shop.
func isFor(r *monitoringv1.PrometheusRule, name string) bool {
	rule := only(r)
	return rule != nil && r.Labels[v1alpha1.ManagedByLabel] == v1alpha1.ManagedByValue &&
		rule.Labels["namespace"] == shop && rule.Labels["deployment"] == name
}

// only returns the one rule of a PrometheusRule, or nil.
func only(r *monitoringv1.PrometheusRule) *monitoringv1.Rule {
	if len(r.Spec.Groups) != 1 || len(r.Spec.Groups[0].Rules) != 1 {
		return nil
	}
	return &r.Spec.Groups[0].Rules[0]
}

// rulesOf returns the PrometheusRules in a spoke that belong to an AlertRule.
func rulesOf(ctx context.Context, m *fleet.Member, key types.NamespacedName) ([]monitoringv1.PrometheusRule, error) {
	var list monitoringv1.PrometheusRuleList
	if err := m.Client.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("listing PrometheusRules in %s: %w", m.Name(), err)
	}
	return slices.DeleteFunc(list.Items, func(r monitoringv1.PrometheusRule) bool {
		return r.Annotations[v1alpha1.AlertRuleAnnotation] != key.String()
	}), nil
}

// alertRules returns every AlertRule on the hub.
func (d *demo) alertRules(ctx context.Context) ([]v1alpha1.AlertRule, error) {
	var list v1alpha1.AlertRuleList
	if err := d.fleet.Hub.Client.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("listing AlertRules: %w", err)
	}
	return list.Items, nil
}

// rulePacks returns every RulePack on the hub.
func (d *demo) rulePacks(ctx context.Context) ([]v1alpha1.RulePack, error) {
	var list v1alpha1.RulePackList
	if err := d.fleet.Hub.Client.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("listing RulePacks: %w", err)
	}
	return list.Items, nil
}

// numbers are the numbers of objects on the API servers.
type numbers struct {
	spokes, deployments, alertRules, rulePacks, prometheusRules int
}

// tally counts objects, and checks that the hub and the spokes agree.
func (d *demo) tally(ctx context.Context) (numbers, error) {
	var n numbers
	var spokes v1alpha1.SpokeClusterList
	if err := d.fleet.Hub.Client.List(ctx, &spokes); err != nil {
		return n, fmt.Errorf("listing SpokeClusters: %w", err)
	}
	for i := range spokes.Items {
		if meta.IsStatusConditionTrue(spokes.Items[i].Status.Conditions, v1alpha1.ConditionReady) {
			n.spokes++
		}
	}
	rules, err := d.alertRules(ctx)
	if err != nil {
		return n, err
	}
	packs, err := d.rulePacks(ctx)
	if err != nil {
		return n, err
	}
	n.alertRules, n.rulePacks = len(rules), len(packs)
	for _, m := range d.spokes() {
		var ds appsv1.DeploymentList
		var prs monitoringv1.PrometheusRuleList
		if err := errors.Join(m.Client.List(ctx, &ds), m.Client.List(ctx, &prs)); err != nil {
			return n, fmt.Errorf("counting in %s: %w", m.Name(), err)
		}
		n.deployments += len(ds.Items)
		n.prometheusRules += len(prs.Items)
	}
	applied := 0
	for i := range rules {
		if s := rules[i].Status.Summary; s != nil {
			applied += int(s.Applied)
		}
	}
	for i := range packs {
		if s := packs[i].Status.Summary; s != nil {
			applied += int(s.Applied)
		}
	}
	// One AlertRule per Deployment, that of the template, and the demo's own.
	if want := n.deployments + 2; n.alertRules != want || n.prometheusRules != applied || n.spokes != len(spokeNames) {
		return n, fmt.Errorf("the numbers differ: %+v; %d AlertRules are expected, and their status counts %d PrometheusRules", n, want, applied)
	}
	return n, nil
}
