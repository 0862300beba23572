package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
)

// TestConflictIsLeftAlone creates another PrometheusRule in the place of ours.
func TestConflictIsLeftAlone(t *testing.T) {
	parallelOnShared(t)
	a, b, ns := shared().Spoke(spokeA), shared().Spoke(spokeB), unique(t)
	namespace(t, ns, a, b)
	ar := alertRule(ns, ns, onNamed(spokeB))
	key := create(t, shared().Hub, ar)
	name := expectPushed(t, b, key, 1).Name
	for _, c := range []struct {
		name    string
		foreign metav1.ObjectMeta
	}{
		{"somebody's", metav1.ObjectMeta{Labels: map[string]string{"team": "shop"}}},
		// The annotation and the hash alone do not make an object ours.
		{"another hub's", metav1.ObjectMeta{
			Labels: map[string]string{
				v1alpha1.ManagedByLabel: v1alpha1.ManagedByValue, v1alpha1.HubLabel: "other",
				v1alpha1.AlertRuleHashLabel: expectPushed(t, b, key, 1).Labels[v1alpha1.AlertRuleHashLabel],
			},
			Annotations: map[string]string{v1alpha1.AlertRuleAnnotation: key.String()},
		}},
	} {
		t.Log(c.name)
		update(t, shared().Hub, ar, func(r *v1alpha1.AlertRule) { r.Spec.Placement = onNamed(spokeB) })
		expectPushed(t, a, key, 0)
		foreign := &monitoringv1.PrometheusRule{ObjectMeta: c.foreign, Spec: monitoringv1.PrometheusRuleSpec{Groups: []monitoringv1.RuleGroup{
			{Name: "mine", Rules: []monitoringv1.Rule{{Record: "mine", Expr: intstr.FromString("vector(1)")}}},
		}}}
		foreign.Namespace, foreign.Name = ns, name
		must(t, a.Client.Create(t.Context(), foreign)) // no cleanup: ours has the same name later

		update(t, shared().Hub, ar, func(r *v1alpha1.AlertRule) { r.Spec.Placement = onNamed(spokeA, spokeB) })
		expectRow(t, shared(), key, spokeB, v1alpha1.PhaseApplied, v1alpha1.ReasonNoEvaluator)
		ar = expectRow(t, shared(), key, spokeA, v1alpha1.PhasePending, v1alpha1.ReasonConflict)
		if r := row(ar, spokeA); r.Rule != ns+"/"+name || ar.Status.Summary.Ready != "1/2" || ar.Status.Summary.Failing != 1 {
			t.Errorf("the status is %+v", ar.Status)
		}
		expectCondition(t, shared(), ar, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonConflict)
		expectCondition(t, shared(), ar, v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonConflict)
		expectCondition(t, shared(), ar, v1alpha1.ConditionAccepted, metav1.ConditionTrue, v1alpha1.ReasonAccepted)

		// A change of the rule reaches the other spoke and changes nothing here; neither does removing it from
		// this spoke.
		for _, placement := range []v1alpha1.ClusterSelection{onNamed(spokeB), onNamed(spokeA, spokeB)} {
			update(t, shared().Hub, ar, func(r *v1alpha1.AlertRule) { r.Spec.Placement, r.Spec.Expr = placement, r.Spec.Expr+" or vector(0)" })
			expectRule(t, b, key, "the change", func(r *monitoringv1.Rule) bool { return r.Expr.String() == ar.Spec.Expr })
		}
		expectRow(t, shared(), key, spokeA, v1alpha1.PhasePending, v1alpha1.ReasonConflict)
		must(t, untouched(t.Context(), a, foreign))

		must(t, a.Client.Delete(t.Context(), foreign))
		pr := expectRule(t, a, key, "ours in its place", func(r *monitoringv1.Rule) bool { return r.Expr.String() == ar.Spec.Expr })
		if pr.Name != name || pr.UID == foreign.UID {
			t.Errorf("ours is %s/%s", pr.Namespace, pr.Name)
		}
		ar = expectReady(t, shared(), key, metav1.ConditionTrue, v1alpha1.ReasonAllApplied)
		if c := meta.FindStatusCondition(ar.Status.Conditions, v1alpha1.ConditionStalled); c != nil {
			t.Errorf("Stalled is %+v", c)
		}
	}
}

// TestTwoHubsShareASpoke tests two hubs with one spoke, and the same rules with the same names.
func TestTwoHubsShareASpoke(t *testing.T) {
	long(t)
	parallel(t)
	const ns = "shop"
	one := start(t, fleet.Options{Spokes: []string{spokeA}})
	hubs := []*fleet.Fleet{one, start(t, fleet.Options{})}
	spoke := one.Spoke(spokeA)
	kubeconfig, err := spoke.UserKubeconfig(fleet.SpokeUser)
	must(t, err)
	namespace(t, ns, spoke)
	web := deployment(ns, "web")
	create(t, spoke, web)

	// Each hub has its own copy of the same two rules: one written by hand, and one of the built-in template.
	rules, ids := make([]*v1alpha1.AlertRule, len(hubs)), make([]string, len(hubs))
	for i, hub := range hubs {
		startManager(t, hub, t.TempDir())
		must(t, hub.RegisterKubeconfig(t.Context(), spokeA, kubeconfig, nil))
		rules[i] = alertRule("same", ns, onEvery())
		create(t, hub.Hub, rules[i])
		state := &corev1.ConfigMap{}
		must(t, read(t.Context(), hub.Hub, client.ObjectKey{Namespace: fleet.Namespace, Name: "rulefleet-hub"}, state))
		ids[i] = state.Data["id"]
	}
	for i, hub := range hubs {
		generated := expectGenerated(t, hub, spokeA, ns, "web", 1)
		expectReady(t, hub, client.ObjectKeyFromObject(generated), metav1.ConditionTrue, v1alpha1.ReasonAllApplied)
		expectReady(t, hub, client.ObjectKeyFromObject(rules[i]), metav1.ConditionTrue, v1alpha1.ReasonAllApplied)
	}

	// While the first hub's rules are changed, damaged and deleted, the second's are not written.
	theirs := expectOfHub(t, spoke, ids[1], 2)
	before := expectOfHub(t, spoke, ids[0], 2)
	update(t, one.Hub, rules[0], func(r *v1alpha1.AlertRule) { r.Spec.Expr = "up == 1" })
	eventually(t, "the change", func(_ context.Context) error {
		for _, pr := range expectOfHub(t, spoke, ids[0], 2) {
			if pr.Spec.Groups[0].Rules[0].Expr.String() == "up == 1" {
				return nil
			}
		}
		return errors.New("no rule has it")
	})
	for i := range before {
		must(t, spoke.Client.Delete(t.Context(), &before[i]))
	}
	expectOfHub(t, spoke, ids[0], 2)
	must(t, one.Hub.Client.Delete(t.Context(), rules[0]))
	expectOfHub(t, spoke, ids[0], 1)
	throughout(t, time.Second, "the other hub's rules stay", func(ctx context.Context) error {
		for i := range theirs {
			if err := untouched(ctx, spoke, &theirs[i]); err != nil {
				return err
			}
		}
		return nil
	})

	// The second hub still manages its own rules, and both remove those of a deleted Deployment.
	for i := range theirs {
		must(t, spoke.Client.Delete(t.Context(), &theirs[i]))
	}
	expectOfHub(t, spoke, ids[1], 2)
	must(t, spoke.Client.Delete(t.Context(), web))
	expectOfHub(t, spoke, ids[0], 0)
	expectOfHub(t, spoke, ids[1], 1)
}

// expectOfHub waits until a hub has exactly n PrometheusRules in a spoke.
func expectOfHub(t *testing.T, m *fleet.Member, hubID string, n int) []monitoringv1.PrometheusRule {
	t.Helper()
	var list monitoringv1.PrometheusRuleList
	eventually(t, fmt.Sprintf("%d PrometheusRules of hub %s in %s", n, hubID, m.Name()), func(ctx context.Context) error {
		list = monitoringv1.PrometheusRuleList{}
		err := m.Client.List(ctx, &list, client.MatchingLabels{v1alpha1.HubLabel: hubID})
		if err == nil && len(list.Items) != n {
			err = fmt.Errorf("there are %d", len(list.Items))
		}
		return err
	})
	return list.Items
}
