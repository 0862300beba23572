package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
	"github.com/rulefleet/rulefleet/pkg/testing/pipeline"
)

// tenantsRule returns an AlertRule of a tenant.
func tenantsRule(namespace, name string, placement v1alpha1.ClusterSelection) *v1alpha1.AlertRule {
	ar := alertRule(name, "", placement)
	ar.Namespace = namespace
	return ar
}

// TestTenants follows the consent of a spoke, and the limit of AlertRules, with the permissions of the chart.
func TestTenants(t *testing.T) {
	parallel(t)
	f := start(t, fleet.Options{Spokes: []string{spokeA, spokeB}})
	dir := t.TempDir()
	args := []string{"--tenant-max-rules=2", "--protected-labels=team"}
	m := startManagerWith(t, f, fleet.ManagerOptions{Dir: dir, Args: args})
	a, b := f.Spoke(spokeA), f.Spoke(spokeB)
	for _, ns := range []string{"shop", "kube-system"} {
		for _, member := range []*fleet.Member{f.Hub, a, b} {
			if err := member.Client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}); err != nil && ns != "kube-system" {
				t.Fatal(err)
			}
		}
	}
	for _, name := range []string{spokeA, spokeB} {
		must(t, f.Register(t.Context(), name, nil))
	}
	take := func(s *v1alpha1.TenantSelection) {
		t.Helper()
		update(t, f.Hub, membership(spokeB), func(sc *v1alpha1.SpokeCluster) { sc.Spec.Tenants = s })
	}
	label := func(value string) {
		t.Helper()
		update(t, f.Hub, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, func(ns *corev1.Namespace) {
			ns.Labels["team"] = value
		})
	}

	everywhere := create(t, f.Hub, tenantsRule("shop", "everywhere", onEvery()))
	named := create(t, f.Hub, tenantsRule("shop", "named", onNamed(spokeB)))
	admin := create(t, f.Hub, alertRule("admin", "shop", onNamed(spokeB)))
	system := create(t, f.Hub, tenantsRule("kube-system", "system", onNamed(spokeB)))
	for _, key := range []client.ObjectKey{everywhere, named, admin} {
		expectPushed(t, b, key, 1)
	}
	expectRow(t, f, system, spokeB, v1alpha1.PhasePending, v1alpha1.ReasonTenantNotAllowed)
	must(t, nonePushed(t.Context(), b, system))

	// By names: those that are not taken any more are removed.
	take(&v1alpha1.TenantSelection{Names: []v1alpha1.NamespaceName{"kube-system"}})
	expectPushed(t, b, system, 1)
	expectPushed(t, b, everywhere, 0)
	expectPushed(t, b, named, 0)
	expectPushed(t, b, admin, 1)
	expectPushed(t, a, everywhere, 1)
	r := row(expectRow(t, f, named, spokeB, v1alpha1.PhasePending, v1alpha1.ReasonTenantNotAllowed), spokeB)
	if !strings.Contains(r.Message, "does not take AlertRules of namespace shop (spec.tenants)") {
		t.Errorf("the message is %q", r.Message)
	}
	eventually(t, "a spoke that does not take the rule is not counted", func(ctx context.Context) error {
		ar := &v1alpha1.AlertRule{}
		if err := read(ctx, f.Hub, everywhere, ar); err != nil || ar.Status.Summary == nil || ar.Status.Summary.Desired != 1 {
			return fmt.Errorf("the status is %+v, and reading it: %w", ar.Status, err)
		}
		return nil
	})
	expectReady(t, f, everywhere, metav1.ConditionTrue, v1alpha1.ReasonAllApplied)

	// By labels, which may change.
	take(&v1alpha1.TenantSelection{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}})
	expectPushed(t, b, system, 0)
	must(t, nonePushed(t.Context(), b, named))
	label("a")
	expectPushed(t, b, everywhere, 1)
	expectPushed(t, b, named, 1)
	expectReady(t, f, named, metav1.ConditionTrue, v1alpha1.ReasonAllApplied)
	label("b")
	expectPushed(t, b, everywhere, 0)
	expectPushed(t, b, named, 0)
	label("a")
	expectPushed(t, b, named, 1)

	// The third AlertRule of a namespace waits, also after a restart.
	late := create(t, f.Hub, tenantsRule("shop", "a-late", onNamed(spokeA)))
	expectCondition(t, f, &v1alpha1.AlertRule{ObjectMeta: metav1.ObjectMeta{Namespace: late.Namespace, Name: late.Name}},
		v1alpha1.ConditionAccepted, metav1.ConditionFalse, v1alpha1.ReasonLimitExceeded)
	must(t, m.Kill())
	startManagerWith(t, f, fleet.ManagerOptions{Dir: dir, Args: append(args, "--tenant-max-rules=1")})
	update(t, f.Hub, tenantsRule("shop", "named", onNamed(spokeB)), func(ar *v1alpha1.AlertRule) { ar.Spec.Expr = "up == 2" })
	eventually(t, "an accepted one is still updated", func(ctx context.Context) error {
		found, err := pushed(ctx, b, named)
		if err == nil && (len(found) != 1 || found[0].Spec.Groups[0].Rules[0].Expr.String() != "up == 2") {
			err = fmt.Errorf("there are %+v", found)
		}
		return err
	})
	expectPushed(t, a, everywhere, 1)
	must(t, nonePushed(t.Context(), a, late))
	for _, name := range []string{"named", "everywhere"} {
		must(t, f.Hub.Client.Delete(t.Context(), tenantsRule("shop", name, onEvery())))
	}
	pr := expectPushed(t, a, late, 1)
	if got := pr.Spec.Groups[0].Rules[0].Labels; got["namespace"] != "shop" || got["team"] != "" {
		t.Errorf("the labels are %v", got)
	}

	// A protected label of an AlertRule that the webhook has not seen is not sent.
	update(t, f.Hub, tenantsRule("shop", "a-late", onNamed(spokeA)), func(ar *v1alpha1.AlertRule) {
		ar.Spec.Expr, ar.Spec.Labels = "up == 3", map[string]v1alpha1.LabelText{"team": "payments"}
	})
	eventually(t, "the alert has no protected label", func(ctx context.Context) error {
		found, err := pushed(ctx, a, late)
		if err == nil && (len(found) != 1 || found[0].Spec.Groups[0].Rules[0].Expr.String() != "up == 3" || found[0].Spec.Groups[0].Rules[0].Labels["team"] != "") {
			err = fmt.Errorf("there are %+v", found)
		}
		return err
	})

	// What a tenant may not set is refused.
	bad := tenantsRule("shop", "bad", onNamed(spokeA))
	bad.Spec.Interval = "1s"
	create(t, f.Hub, bad)
	expectCondition(t, f, bad, v1alpha1.ConditionAccepted, metav1.ConditionFalse, v1alpha1.ReasonInvalidSpec)
}

// paging has a tenant's AlertRule, placed with those of others, try to notify another team.
func (e *evaluating) paging(t *testing.T) {
	fake := tenantsRule(e.shop, "fake", onNamed(spokeA))
	fake.Spec.Alert, fake.Spec.For, fake.Spec.Severity = "FakeOutage", "1s", "critical"
	fake.Spec.Expr = `label_replace(test_fake > 0, "namespace", "payments", "", "")`
	fake.Spec.Labels = map[string]v1alpha1.LabelText{"namespace": "payments", "cluster": "another"}
	namespace(t, e.shop, e.Hub)
	key := create(t, e.Hub, fake)
	e.first.SetMetric("test_fake", map[string]string{"namespace": "payments", "team": "payments", "own": "x"}, 1)
	e.evaluates(t, key, spokeA)
	n := e.notified(t, linkLimit, pipeline.Firing, map[string]string{"alertname": "FakeOutage"})
	want := map[string]string{"alertname": "FakeOutage", "namespace": e.shop, "cluster": "prod-" + spokeA, "severity": "critical", "own": "x"}
	for name, value := range want {
		if n.Labels[name] != value {
			t.Errorf("Alertmanager received the label %s=%q, want %q", name, n.Labels[name], value)
		}
	}
	if team, has := n.Labels["team"]; has {
		t.Errorf("Alertmanager received the protected label team=%q", team)
	}
	for _, other := range e.alertmanager.Received() {
		if other.Labels["alertname"] == "FakeOutage" && other.Labels["namespace"] != e.shop {
			t.Errorf("Alertmanager received %v", other.Labels)
		}
	}
	must(t, e.Hub.Client.Delete(t.Context(), fake))
	e.first.RemoveMetric("test_fake", map[string]string{"namespace": "payments", "team": "payments", "own": "x"})
}
