package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
)

const (
	// patience is how long a check may take to succeed.
	patience = time.Minute
	// interval is the interval between checks.
	interval = 20 * time.Millisecond
)

// alertRuleKey is the AlertRule that the demo creates.
var alertRuleKey = types.NamespacedName{Namespace: fleet.Namespace, Name: "high-error-rate"}

type check func(context.Context) error

// await retries a check until it succeeds, and shows how long that took.
func (d *demo) await(ctx context.Context, what string, look check) error {
	begin := time.Now()
	last := errors.New("never looked at")
	err := wait.PollUntilContextTimeout(ctx, interval, patience, true, func(ctx context.Context) (bool, error) {
		if d.manager.Ended() {
			return false, fmt.Errorf("the manager has exited: %w", d.manager.ExitErr())
		}
		// The error of an attempt that the deadline interrupted is ignored.
		if err := look(ctx); err == nil || ctx.Err() == nil {
			last = err
		}
		return last == nil, nil
	})
	switch {
	case wait.Interrupted(err):
		return fmt.Errorf("%s: not within %v: %w", what, patience, last)
	case err != nil:
		return fmt.Errorf("%s: %w", what, err)
	}
	d.out.done(what, time.Since(begin))
	return nil
}

// awaitOn waits until the demo's AlertRule is in the named spokes and in no other.
func (d *demo) awaitOn(ctx context.Context, names ...string) error {
	what := "HighErrorRate is in no spoke"
	if len(names) > 0 {
		what = "HighErrorRate is in " + strings.Join(names, " and ")
		if len(names) < len(spokeNames) {
			what += ", and in no other spoke"
		}
	}
	want := map[string]int{}
	for _, name := range names {
		want[name] = 1
	}
	return d.await(ctx, what, func(ctx context.Context) error {
		for _, m := range d.spokes() {
			rules, err := rulesOf(ctx, m, alertRuleKey)
			if err != nil {
				return err
			}
			if len(rules) != want[m.Name()] {
				return fmt.Errorf("%s has %d PrometheusRules of it", m.Name(), len(rules))
			}
		}
		return nil
	})
}

// spokesReady checks that the spokes are Ready, and have the labels of their Secrets.
func (d *demo) spokesReady(ctx context.Context) error {
	for _, name := range spokeNames {
		sc := &v1alpha1.SpokeCluster{}
		if err := d.fleet.Hub.Client.Get(ctx, client.ObjectKey{Name: name}, sc); err != nil {
			return fmt.Errorf("reading SpokeCluster %s: %w", name, err)
		}
		if !meta.IsStatusConditionTrue(sc.Status.Conditions, v1alpha1.ConditionReady) {
			return fmt.Errorf("the conditions of %s are %+v", name, sc.Status.Conditions)
		}
		for _, label := range spokeLabels[name] {
			if key, value, _ := strings.Cut(label, "="); sc.Labels[key] != value {
				return fmt.Errorf("the labels of %s are %v", name, sc.Labels)
			}
		}
	}
	return nil
}

// replicaSets checks that every Deployment of the shop has its ReplicaSet.
func (d *demo) replicaSets(ctx context.Context) error {
	for _, m := range d.spokes() {
		var list appsv1.ReplicaSetList
		if err := m.Client.List(ctx, &list, client.InNamespace(shop)); err != nil {
			return fmt.Errorf("listing ReplicaSets in %s: %w", m.Name(), err)
		}
		if len(list.Items) != len(deployments) {
			return fmt.Errorf("spoke %s has %d ReplicaSets, not %d", m.Name(), len(list.Items), len(deployments))
		}
	}
	return nil
}

// allReady checks that the status of every AlertRule is about its present spec, and that the rule is in all
// spokes where it is placed.
func (d *demo) allReady(ctx context.Context) error {
	rules, err := d.alertRules(ctx)
	if err != nil {
		return err
	}
	for i := range rules {
		if err := ready(&rules[i]); err != nil {
			return err
		}
	}
	return nil
}

// ready checks that the status of a source is about its present spec, and Ready.
func ready(s rule.Source) error {
	status := s.GetStatus()
	if status.ObservedGeneration != s.GetGeneration() || !meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionReady) {
		return fmt.Errorf("%s: the status is %+v", rule.KeyOf(s), *status)
	}
	return nil
}

// packReady checks that the status of every RulePack is Ready.
func (d *demo) packReady(ctx context.Context) error {
	packs, err := d.rulePacks(ctx)
	if err != nil {
		return err
	}
	for i := range packs {
		if err := ready(&packs[i]); err != nil {
			return err
		}
	}
	return nil
}

// says checks the column READY of the demo's AlertRule.
func (d *demo) says(ready string) check {
	return func(ctx context.Context) error {
		r := &v1alpha1.AlertRule{}
		if err := d.fleet.Hub.Client.Get(ctx, alertRuleKey, r); err != nil {
			return fmt.Errorf("reading AlertRule %s: %w", alertRuleKey, err)
		}
		if r.Status.Summary == nil || r.Status.Summary.Ready != ready {
			return fmt.Errorf("the status is %+v", r.Status)
		}
		return nil
	}
}

// templatesAccepted checks that every AlertRuleTemplate is valid.
func (d *demo) templatesAccepted(ctx context.Context) error {
	var list v1alpha1.AlertRuleTemplateList
	if err := d.fleet.Hub.Client.List(ctx, &list); err != nil {
		return fmt.Errorf("listing AlertRuleTemplates: %w", err)
	}
	for i := range list.Items {
		if t := &list.Items[i]; !meta.IsStatusConditionTrue(t.Status.Conditions, v1alpha1.ConditionAccepted) {
			return fmt.Errorf("the conditions of %s are %+v", t.Name, t.Status.Conditions)
		}
	}
	return nil
}

// hasFor checks the duration of the demo's alert in a spoke.
func (d *demo) hasFor(spoke, want string) check {
	return func(ctx context.Context) error {
		rules, err := rulesOf(ctx, d.fleet.Spoke(spoke), alertRuleKey)
		if err != nil {
			return err
		}
		for i := range rules {
			if got := only(&rules[i]); got != nil && got.For != nil && string(*got.For) == want {
				return nil
			}
		}
		return fmt.Errorf("none of the %d PrometheusRules in %s has for: %s", len(rules), spoke, want)
	}
}

// isNew checks that a deleted PrometheusRule was created again.
func (d *demo) isNew(spoke string, old *monitoringv1.PrometheusRule) check {
	return func(ctx context.Context) error {
		got := &monitoringv1.PrometheusRule{}
		if err := d.fleet.Spoke(spoke).Client.Get(ctx, client.ObjectKeyFromObject(old), got); err != nil {
			return err
		}
		if got.UID == old.UID {
			return fmt.Errorf("PrometheusRule %s in %s was not created again yet", client.ObjectKeyFromObject(old), spoke)
		}
		return nil
	}
}

// hasAlert checks that a Deployment has an alert of that name and team in its spoke.
func (d *demo) hasAlert(spoke, deployment, alert, team string) check {
	return func(ctx context.Context) error {
		var list monitoringv1.PrometheusRuleList
		if err := d.fleet.Spoke(spoke).Client.List(ctx, &list, client.InNamespace(shop)); err != nil {
			return fmt.Errorf("listing PrometheusRules in %s: %w", spoke, err)
		}
		for i := range list.Items {
			if r := only(&list.Items[i]); r != nil && r.Alert == alert && r.Labels["deployment"] == deployment && r.Labels["team"] == team {
				return nil
			}
		}
		return fmt.Errorf("none of the %d PrometheusRules in %s has alert %s for Deployment %s with team %s", len(list.Items), spoke, alert, deployment, team)
	}
}

// alertsOf checks how many alerts a Deployment has on the hub, and in its spoke.
func (d *demo) alertsOf(spoke, deployment string, want int) check {
	return func(ctx context.Context) error {
		rules, err := d.alertRules(ctx)
		if err != nil {
			return err
		}
		onHub := 0
		for i := range rules {
			if w := rules[i].Spec.WorkloadRef; w != nil && string(w.Cluster) == spoke && w.Name == deployment {
				onHub++
			}
		}
		var list monitoringv1.PrometheusRuleList
		if err := d.fleet.Spoke(spoke).Client.List(ctx, &list, client.InNamespace(shop)); err != nil {
			return fmt.Errorf("listing PrometheusRules in %s: %w", spoke, err)
		}
		inSpoke := 0
		for i := range list.Items {
			if isFor(&list.Items[i], deployment) {
				inSpoke++
			}
		}
		if onHub != want || inSpoke != want {
			return fmt.Errorf("there are %d AlertRules and %d PrometheusRules", onHub, inSpoke)
		}
		return nil
	}
}
