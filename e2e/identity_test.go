package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/testing/controlplane"
	"github.com/rulefleet/rulefleet/pkg/testing/faultproxy"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
)

// exchanged is a spoke behind a proxy that sometimes leads to another cluster.
type exchanged struct {
	*fleet.Fleet
	home, other *fleet.Member
	proxy       *faultproxy.Proxy
	// made are the AlertRules of Deployments in the original cluster.
	made []client.ObjectKey
}

// TestAnotherClusterAtTheAddress makes another cluster answer at a spoke's address during operation, with
// production intervals.
func TestAnotherClusterAtTheAddress(t *testing.T) {
	parallel(t)
	f := &exchanged{Fleet: start(t, fleet.Options{Spokes: []string{"home", "other"}, Audit: true, Intervals: 1})}
	f.home, f.other = f.Spoke("home"), f.Spoke("other")
	namespace(t, "shop", f.home, f.other)
	var err error
	f.proxy, err = faultproxy.Start(f.kubeconfigOf(t, f.home), "token")
	must(t, err)
	t.Cleanup(f.proxy.Close)
	kubeconfig, err := f.proxy.Kubeconfig()
	must(t, err)
	for i := range 5 {
		must(t, f.home.Client.Create(t.Context(), deployment("shop", fmt.Sprintf("web-%d", i))))
	}
	must(t, f.RegisterKubeconfig(t.Context(), "moved", kubeconfig, nil))
	startManager(t, f.Fleet, t.TempDir())
	for i := range 5 {
		key := client.ObjectKeyFromObject(expectGenerated(t, f.Fleet, "moved", "shop", fmt.Sprintf("web-%d", i), 1))
		expectPushed(t, f.home, key, 1)
		f.made = append(f.made, key)
	}
	t.Run("ConnectionsLost", func(t *testing.T) { f.exchange(t, "lost", f.proxy.Sever) })
	if !testing.Short() {
		t.Run("AnswersBreakOff", func(t *testing.T) { f.exchange(t, "off", f.proxy.EndWatches) })
	}
}

func (f *exchanged) kubeconfigOf(t *testing.T, m *fleet.Member) []byte {
	t.Helper()
	kubeconfig, err := m.UserKubeconfig(fleet.SpokeUser)
	must(t, err)
	return kubeconfig
}

// exchange switches to the other cluster after a sign that can be detected. Changes made meanwhile are not
// written there, and objects missing there do not count as deleted.
func (f *exchanged) exchange(t *testing.T, name string, sign func()) {
	t.Helper()
	changed := create(t, f.Hub, alertRule("changed-"+name, "shop", onNamed("moved")))
	deleted := create(t, f.Hub, alertRule("deleted-"+name, "shop", onNamed("moved")))
	expectPushed(t, f.home, changed, 1)
	expectPushed(t, f.home, deleted, 1)
	// The other cluster has rules with the same names, as after a restore.
	for _, key := range []client.ObjectKey{changed, deleted} {
		twin := expectPushed(t, f.home, key, 1).DeepCopy()
		twin.ObjectMeta = metav1.ObjectMeta{Namespace: twin.Namespace, Name: twin.Name, Labels: twin.Labels, Annotations: twin.Annotations}
		must(t, f.other.Client.Create(t.Context(), twin))
		remove(t, f.other, twin)
	}
	home, other := writes(t, f.home), writes(t, f.other)
	reads := f.readsOf(t, f.other)

	must(t, f.proxy.Exchange(f.kubeconfigOf(t, f.other)))
	sign()
	eventually(t, "the manager reads from the other cluster", func(context.Context) error { return reads() })
	update(t, f.Hub, alertRule("changed-"+name, "", onNamed("moved")), func(r *v1alpha1.AlertRule) { r.Spec.For = "9m" })
	must(t, f.Hub.Client.Delete(t.Context(), alertRule("deleted-"+name, "", onNamed("moved"))))
	added := create(t, f.Hub, alertRule("added-"+name, "shop", onNamed("moved")))
	expectCondition(t, f.Fleet, membership("moved"), v1alpha1.ConditionConnected, metav1.ConditionFalse, v1alpha1.ReasonIdentityChanged)
	expectCondition(t, f.Fleet, membership("moved"), v1alpha1.ConditionPrometheusRuleServed, metav1.ConditionUnknown, v1alpha1.ReasonIdentityChanged)
	throughout(t, 3*time.Second, "nothing goes on the hub", f.allMade)
	if w := append(home(), other()...); len(w) > 0 {
		t.Errorf("written: %q", w)
	}

	must(t, f.proxy.Exchange(f.kubeconfigOf(t, f.home)))
	expectCondition(t, f.Fleet, membership("moved"), v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
	expectPushed(t, f.home, added, 1)
	expectPushed(t, f.home, deleted, 0)
	expectRule(t, f.home, changed, "the change", func(r *monitoringv1.Rule) bool { return *r.For == "9m" })
	must(t, f.allMade(t.Context()))
	if w := other(); len(w) > 0 {
		t.Errorf("written to the other cluster: %q", w)
	}
}

// readsOf returns a check that the manager has listed something in a cluster since then.
func (f *exchanged) readsOf(t *testing.T, m *fleet.Member) func() error {
	t.Helper()
	cursor, err := controlplane.NewAuditCursor(m.AuditLog())
	must(t, err)
	return func() error {
		events, err := cursor.Events(func(e controlplane.AuditEvent) bool { return e.User.Username == fleet.SpokeUser })
		if err == nil && len(events) == 0 {
			err = errors.New("it does not")
		}
		return err
	}
}

// allMade returns an error unless the AlertRules of the original Deployments exist.
func (f *exchanged) allMade(ctx context.Context) error {
	for _, key := range f.made {
		if err := f.Hub.Client.Get(ctx, key, &v1alpha1.AlertRule{}); err != nil {
			return err
		}
	}
	return nil
}

// TestSecretsSwapped swaps the Secrets of two spokes, and confirms both, in either order.
func TestSecretsSwapped(t *testing.T) {
	long(t)
	parallel(t)
	f := &lifecycle{Fleet: start(t, fleet.Options{Spokes: []string{"a", "b"}, Audit: true})}
	names, places := []string{"a", "b"}, map[string]*fleet.Member{}
	for _, name := range names {
		m := f.Spoke(name)
		places[name] = m
		namespace(t, "shop", m)
		must(t, m.Client.Create(t.Context(), deployment("shop", "web-of-"+name)))
		must(t, m.Client.Create(t.Context(), deployment("shop", "web")))
		must(t, f.Register(t.Context(), name, nil))
	}
	f.manager = startManager(t, f.Fleet, t.TempDir())
	everywhere := create(t, f.Hub, alertRule("everywhere", "shop", onEvery()))
	kept := map[string]*monitoringv1.PrometheusRule{}
	for _, name := range names {
		f.ready(t, name, metav1.ConditionTrue, v1alpha1.ReasonReady)
		create(t, f.Hub, alertRule("on-"+name, "shop", onNamed(v1alpha1.ClusterName(name))))
		kept[name] = expectPushed(t, places[name], everywhere, 1)
	}
	f.settled(t, places)
	for _, order := range [][]string{{"a", "b"}, {"b", "a"}} {
		t.Run(order[0]+"First", func(t *testing.T) {
			f.swap(t)
			places["a"], places["b"] = places["b"], places["a"]
			for _, name := range names {
				expectCondition(t, f.Fleet, membership(name), v1alpha1.ConditionConnected, metav1.ConditionFalse, v1alpha1.ReasonIdentityChanged)
			}
			written := []func() []string{writes(t, places["a"]), writes(t, places["b"])}
			for i, name := range order {
				uid := clusterUID(t, places[name])
				f.change(t, name, func(sc *v1alpha1.SpokeCluster) {
					sc.Annotations = map[string]string{v1alpha1.AcceptIdentityAnnotation: uid}
				})
				if i == 0 {
					f.confirmOther(t, name, order[1], clusterUID(t, places[order[1]]))
					for _, w := range written {
						if w := w(); len(w) > 0 {
							t.Errorf("written while one of two is confirmed: %q", w)
						}
					}
				}
			}
			f.held(t, places)
			for _, name := range names {
				f.change(t, name, func(sc *v1alpha1.SpokeCluster) {
					sc.Annotations = map[string]string{v1alpha1.AcknowledgeDeletionsAnnotation: "true"}
				})
			}
			f.settled(t, places)
			for name, was := range kept {
				pr := expectPushed(t, f.Spoke(name), everywhere, 1)
				if pr.UID != was.UID {
					t.Errorf("the rule that is placed everywhere was made anew in %s", name)
				}
			}
		})
	}
}

// swap swaps the kubeconfigs in two Secrets.
func (f *lifecycle) swap(t *testing.T) {
	t.Helper()
	a, b := registration("a"), registration("b")
	must(t, read(t.Context(), f.Hub, client.ObjectKeyFromObject(a), a))
	must(t, read(t.Context(), f.Hub, client.ObjectKeyFromObject(b), b))
	update(t, f.Hub, registration("a"), func(s *corev1.Secret) { s.Data = b.Data })
	update(t, f.Hub, registration("b"), func(s *corev1.Secret) { s.Data = a.Data })
}

// confirmOther waits until a confirmed spoke requires the confirmation of the other one.
func (f *lifecycle) confirmOther(t *testing.T, name, other, uid string) {
	t.Helper()
	eventually(t, name+" says that "+other+" has to be confirmed, too", func(ctx context.Context) error {
		sc := membership(name)
		if err := read(ctx, f.Hub, client.ObjectKeyFromObject(sc), sc); err != nil {
			return err
		}
		for _, c := range sc.Status.Conditions {
			if c.Type == v1alpha1.ConditionConnected && c.Reason == v1alpha1.ReasonIdentityChanged && containsAll(c.Message, []string{"spoke " + other + " rulefleet.io/accept-identity=" + uid}) {
				return nil
			}
		}
		return fmt.Errorf("the conditions are %+v", sc.Status.Conditions)
	})
}

// held waits until each spoke's rules are in its present cluster, and the rules of the other cluster are held
// there, few as they are: the rule placed by name and, on the hub, that of the Deployment.
func (f *lifecycle) held(t *testing.T, places map[string]*fleet.Member) {
	t.Helper()
	for name, m := range places {
		f.ready(t, name, metav1.ConditionFalse, v1alpha1.ReasonDeletionsHeld)
		expectPushed(t, m, client.ObjectKey{Namespace: fleet.Namespace, Name: "on-" + name}, 1)
		expectPushed(t, m, client.ObjectKey{Namespace: fleet.Namespace, Name: "on-" + otherOf(name)}, 1)
		expectGenerated(t, f.Fleet, name, "shop", "web-of-"+m.Name(), 1)
		expectGenerated(t, f.Fleet, name, "shop", "web-of-"+otherOf(m.Name()), 1)
	}
}

// settled waits until each spoke's rules, and no others, are in its present cluster.
func (f *lifecycle) settled(t *testing.T, places map[string]*fleet.Member) {
	t.Helper()
	for name, m := range places {
		expectPushed(t, m, client.ObjectKey{Namespace: fleet.Namespace, Name: "on-" + name}, 1)
		expectPushed(t, m, client.ObjectKey{Namespace: fleet.Namespace, Name: "on-" + otherOf(name)}, 0)
		made := expectGenerated(t, f.Fleet, name, "shop", "web-of-"+m.Name(), 1)
		expectPushed(t, m, client.ObjectKeyFromObject(made), 1)
		expectGenerated(t, f.Fleet, name, "shop", "web-of-"+otherOf(m.Name()), 0)
		f.ready(t, name, metav1.ConditionTrue, v1alpha1.ReasonReady)
		eventually(t, "no other rules are in "+m.Name(), func(ctx context.Context) error {
			var list monitoringv1.PrometheusRuleList
			// everywhere, on its name, web-of and web
			if err := m.Client.List(ctx, &list); err != nil || len(list.Items) != 4 {
				return fmt.Errorf("there are %d: %w", len(list.Items), err)
			}
			return nil
		})
	}
}

func otherOf(name string) string { return map[string]string{"a": "b", "b": "a"}[name] }
