package e2e

import (
	"context"
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// TestDeploymentToPrometheusRule tests the main function: a Deployment in a spoke gets an AlertRule on the hub
// and a PrometheusRule only in its own spoke, and both are deleted with it.
func TestDeploymentToPrometheusRule(t *testing.T) {
	parallelOnShared(t)
	a, b, ns := shared().Spoke(spokeA), shared().Spoke(spokeB), unique(t)
	namespace(t, ns, a)
	d := deployment(ns, "web")
	create(t, a, d)

	ar := expectGenerated(t, shared(), spokeA, ns, "web", 1)
	key := client.ObjectKeyFromObject(ar)
	pr := expectPushed(t, a, key, 1)
	if pr.Namespace != ns || pr.Labels[v1alpha1.ManagedByLabel] != v1alpha1.ManagedByValue {
		t.Errorf("the PrometheusRule is %s/%s with labels %v", pr.Namespace, pr.Name, pr.Labels)
	}
	got := pr.Spec.Groups[0].Rules[0]
	if got.Alert != "DeploymentDown" || got.Labels["cluster"] != spokeA || got.Labels["severity"] != "critical" ||
		got.Labels["namespace"] != ns || got.Labels["deployment"] != "web" {
		t.Errorf("the rule is %+v", got)
	}
	expectPushed(t, b, key, 0)
	ar = expectReady(t, shared(), key, metav1.ConditionTrue, v1alpha1.ReasonAllApplied)
	if s := ar.Status.Summary; s == nil || s.Ready != "1/1" || s.Applied != 1 {
		t.Errorf("the summary is %+v", s)
	}
	if len(ar.OwnerReferences) != 0 || len(ar.Finalizers) != 0 || len(pr.OwnerReferences) != 0 {
		t.Errorf("owners and finalizers: %v, %v, %v", ar.OwnerReferences, ar.Finalizers, pr.OwnerReferences)
	}

	must(t, a.Client.Delete(t.Context(), d))
	expectGenerated(t, shared(), spokeA, ns, "web", 0)
	expectPushed(t, a, key, 0)
}

// TestAlertRuleOfAPerson follows the life of an AlertRule: created, changed, disabled, enabled, deleted.
func TestAlertRuleOfAPerson(t *testing.T) {
	parallelOnShared(t)
	a, b, ns := shared().Spoke(spokeA), shared().Spoke(spokeB), unique(t)
	namespace(t, ns, a, b)
	ar := alertRule(ns, ns, onEvery())
	key := create(t, shared().Hub, ar)
	expectPushed(t, a, key, 1)
	expectPushed(t, b, key, 1)
	expectReady(t, shared(), key, metav1.ConditionTrue, v1alpha1.ReasonAllApplied)

	update(t, shared().Hub, ar, func(r *v1alpha1.AlertRule) { r.Spec.Expr, r.Spec.Severity = "up == 1", "critical" })
	eventually(t, "the change in both spokes", func(ctx context.Context) error {
		for _, m := range []string{spokeA, spokeB} {
			found, err := pushed(ctx, shared().Spoke(m), key)
			if err != nil {
				return err
			}
			if len(found) != 1 || found[0].Spec.Groups[0].Rules[0].Expr.String() != "up == 1" || found[0].Spec.Groups[0].Rules[0].Labels["severity"] != "critical" {
				return errors.New(m + " has the old rule")
			}
		}
		return nil
	})

	update(t, shared().Hub, ar, func(r *v1alpha1.AlertRule) { r.Spec.State = v1alpha1.Disabled })
	expectPushed(t, a, key, 0)
	expectPushed(t, b, key, 0)
	expectReady(t, shared(), key, metav1.ConditionTrue, v1alpha1.ReasonDisabled)

	update(t, shared().Hub, ar, func(r *v1alpha1.AlertRule) { r.Spec.State = v1alpha1.Enabled })
	expectPushed(t, a, key, 1)

	must(t, shared().Hub.Client.Delete(t.Context(), ar))
	expectPushed(t, a, key, 0)
	expectPushed(t, b, key, 0)
}
