package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
)

// TestHealth removes the permissions of a spoke's account and restores them, with three spokes in parallel,
// and makes rules fail in a healthy spoke.
func TestHealth(t *testing.T) {
	long(t)
	parallel(t)
	const workloads, rules, writes = "workloads", "rules", "writes"
	f, dir := start(t, fleet.Options{Spokes: []string{workloads, rules, writes}}), t.TempDir()
	m := startManager(t, f, dir)
	for _, name := range []string{workloads, rules, writes} {
		namespace(t, "shop", f.Spoke(name))
		must(t, f.Register(t.Context(), name, nil))
		expectSpoke(t, f, name, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady, "")
	}
	type grant struct {
		condition string
		resources []string
		verbs     []string
	}
	t.Run("Grants", func(t *testing.T) {
		atOnce(t, map[string]grant{
			workloads: {v1alpha1.ConditionConnected, []string{"deployments.apps", "namespaces"}, []string{"get", "list", "watch"}},
			rules:     {v1alpha1.ConditionPrometheusRuleServed, []string{"prometheusrules.monitoring.coreos.com"}, []string{"get", "list", "watch"}},
			writes:    {v1alpha1.ConditionReady, []string{"prometheusrules.monitoring.coreos.com"}, []string{"create", "update", "delete"}},
		}, func(t *testing.T, name string, c grant) {
			t.Helper()
			for _, verb := range c.verbs {
				revoke(t, f.Spoke(name), verb, c.resources...)
				for _, resource := range c.resources {
					expectSpoke(t, f, name, c.condition, metav1.ConditionFalse, v1alpha1.ReasonForbidden, verb+" "+resource)
				}
				expectSpoke(t, f, name, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonForbidden, "spoke-access.yaml")
			}
			throughout(t, quickly(24*time.Second), "it goes on to be shown", func(ctx context.Context) error {
				return says(ctx, f, membership(name), c.condition, metav1.ConditionFalse, v1alpha1.ReasonForbidden, "")
			})
			if name == writes {
				expectConnected(t, f, name, metav1.ConditionTrue, v1alpha1.ReasonConnected)
			}
			restored := time.Now()
			revoke(t, f.Spoke(name), "")
			expectSpoke(t, f, name, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady, "")
			create(t, f.Spoke(name), deployment("shop", "web"))
			ar := expectGenerated(t, f, name, "shop", "web", 1)
			expectPushed(t, f.Spoke(name), client.ObjectKeyFromObject(ar), 1)
			t.Logf("served again %v after all was granted", time.Since(restored).Round(time.Millisecond))
		})
	})
	t.Run("RulesFailing", func(t *testing.T) { rulesFailing(t, f, m, dir, writes) })
}

// rulesFailing makes rules fail in a spoke, restarts the manager, and repairs the rules.
func rulesFailing(t *testing.T, f *fleet.Fleet, m *fleet.Manager, dir, name string) {
	t.Helper()
	for n := range 3 {
		create(t, f.Hub, alertRule(fmt.Sprintf("homeless-%d", n), "nowhere", onNamed(v1alpha1.ClusterName(name))))
	}
	sc := expectSpoke(t, f, name, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonRulesFailing,
		"3 rules are not in effect there: 3 NamespaceMissing. For example AlertRule "+fleet.Namespace+`/homeless-0: namespace "nowhere" not found`)

	// The numbers of workloads are written later than the condition.
	version, since := "", time.Time{}
	eventually(t, "the status does not change any more", func(ctx context.Context) error {
		if err := read(ctx, f.Hub, client.ObjectKeyFromObject(sc), sc); err != nil {
			return err
		}
		if sc.ResourceVersion != version {
			version, since = sc.ResourceVersion, time.Now()
		}
		if quiet := time.Since(since); quiet < 2*afterwards {
			return fmt.Errorf("it was written within the last %v", quiet)
		}
		return nil
	})
	// The status is the same after a restart, without a write.
	must(t, m.Stop())
	m = startManager(t, f, dir)
	eventually(t, "all spokes are served", func(ctx context.Context) error { return metricIs(ctx, m, "rulefleet_engaged_spokes", 3) })
	throughout(t, quickly(30*time.Second), "the status stays", func(ctx context.Context) error {
		is := membership(name)
		if err := read(ctx, f.Hub, client.ObjectKeyFromObject(is), is); err != nil {
			return err
		}
		if is.ResourceVersion != sc.ResourceVersion {
			return fmt.Errorf("it was written: %+v, and was %+v", is.Status, sc.Status)
		}
		return nil
	})
	namespace(t, "nowhere", f.Spoke(name))
	expectSpoke(t, f, name, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady, "")
}

// expectSpoke waits until a condition of a SpokeCluster has these values.
func expectSpoke(t *testing.T, f *fleet.Fleet, name, kind string, status metav1.ConditionStatus, reason, words string) *v1alpha1.SpokeCluster {
	t.Helper()
	sc, began := membership(name), time.Now()
	eventually(t, fmt.Sprintf("SpokeCluster %s: %s=%s, reason %s, %q", name, kind, status, reason, words), func(ctx context.Context) error {
		return says(ctx, f, sc, kind, status, reason, words)
	})
	t.Logf("%s: %s=%s, %s %q, after %v", name, kind, status, reason, words, time.Since(began).Round(time.Millisecond))
	return sc
}

// says reads a SpokeCluster and returns an error unless a condition has these values.
func says(ctx context.Context, f *fleet.Fleet, sc *v1alpha1.SpokeCluster, kind string, status metav1.ConditionStatus, reason, words string) error {
	if err := read(ctx, f.Hub, client.ObjectKeyFromObject(sc), sc); err != nil {
		return err
	}
	c := meta.FindStatusCondition(sc.Status.Conditions, kind)
	if c == nil || c.Status != status || c.Reason != reason || !strings.Contains(c.Message, words) {
		return fmt.Errorf("the conditions are %+v", sc.Status.Conditions)
	}
	return nil
}

// revoke removes a verb on some resources from the account in a spoke; "" restores all permissions.
func revoke(t *testing.T, m *fleet.Member, verb string, resources ...string) {
	t.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: fleet.SpokeUser}}
	update(t, m, role, func(role *rbacv1.ClusterRole) {
		for i := range role.Rules {
			r := &role.Rules[i]
			name := strings.TrimSuffix(r.Resources[0]+"."+r.APIGroups[0], ".")
			all := []string{"get", "list", "watch"}
			if r.Resources[0] == "prometheusrules" {
				all = append(all, "create", "update", "delete")
			}
			r.Verbs = all
			if slices.Contains(resources, name) {
				r.Verbs = slices.DeleteFunc(all, func(v string) bool { return v == verb })
			}
		}
	})
}
