package distribute

import (
	"slices"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/delivery"
)

// member changes the SpokeCluster of the spoke.
func (w *world) member(change func(*v1alpha1.SpokeCluster)) {
	w.Helper()
	sc := &v1alpha1.SpokeCluster{}
	if err := w.hub.Get(w.Context(), client.ObjectKey{Name: "s"}, sc); err != nil {
		w.Fatal(err)
	}
	change(sc)
	if err := w.hub.Update(w.Context(), sc); err != nil {
		w.Fatal(err)
	}
}

const formerHub = "former"

// formers creates in the spoke the object that another hub pushed for the rule.
func (w *world) formers(change func(*monitoringv1.PrometheusRule)) *monitoringv1.PrometheusRule {
	w.Helper()
	_, note := rule.NamesOf(w.key("down"))
	o := &monitoringv1.PrometheusRule{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: rule.ObjectName(formerHub, w.key("down")), UID: "theirs",
		Labels:      map[string]string{v1alpha1.ManagedByLabel: v1alpha1.ManagedByValue, v1alpha1.HubLabel: formerHub, "release": "kps"},
		Annotations: note,
	}}
	change(o)
	w.put(w.server, o)
	w.sync()
	return o
}

func adopt(sc *v1alpha1.SpokeCluster) { sc.Spec.AdoptHubIDs = []v1alpha1.HubID{"none", formerHub} }

func nothing(*monitoringv1.PrometheusRule) {}

// adopted checks that the spoke has only the former hub's object, adopted by this hub.
func (w *world) adopted(o *monitoringv1.PrometheusRule) {
	w.Helper()
	var list monitoringv1.PrometheusRuleList
	if err := w.server.List(w.Context(), &list); err != nil {
		w.Fatal(err)
	}
	if len(list.Items) != 1 {
		w.Fatalf("the spoke has %d objects", len(list.Items))
	}
	got := &list.Items[0]
	if got.Name != o.Name || !rule.Owned(got, hubID) || got.Labels["release"] != "kps" || got.Annotations[v1alpha1.AdoptedFromAnnotation] != formerHub {
		w.Errorf("it is %+v", got.ObjectMeta)
	}
}

// A former hub's rules are adopted; none is deleted or duplicated.
func TestAdopt(t *testing.T) {
	for name, fn := range map[string]func(w *world){
		"in place, and for good": func(w *world) {
			o := w.formers(nothing)
			w.member(adopt)
			w.want("get shop", "update shop")
			w.adopted(o)
			w.sync()
			w.want()
			w.member(func(sc *v1alpha1.SpokeCluster) { sc.Spec.AdoptHubIDs = nil })
			w.restart()
			w.want()
			w.edit(func(ar *v1alpha1.AlertRule) { ar.Spec.For = "9m" })
			w.want("update shop")
			w.adopted(o)
			w.sync()
			w.drop(w.hub, alertRule())
			w.want("delete shop")
		},
		"where the rule was pushed already": func(w *world) {
			w.want("create shop")
			o := w.formers(nothing)
			w.member(adopt)
			w.want("get shop", "update shop", "delete shop") // its own, when the other is
			w.adopted(o)
		},
		"not without being told to": func(w *world) {
			w.formers(nothing)
			w.want("create shop")
		},
		"not that of another rule": func(w *world) {
			w.formers(func(o *monitoringv1.PrometheusRule) { _, o.Annotations = rule.NamesOf(w.key("up")) })
			w.member(adopt)
			w.want("create shop")
		},
		"not under another name": func(w *world) {
			w.formers(func(o *monitoringv1.PrometheusRule) { o.Name = "mine" })
			w.member(adopt)
			w.want("create shop")
		},
		"not that of a person": func(w *world) {
			w.formers(func(o *monitoringv1.PrometheusRule) { delete(o.Labels, v1alpha1.ManagedByLabel) })
			w.member(adopt)
			w.want("create shop")
		},
		"not one that is gone by now": func(w *world) {
			w.drop(w.server, w.formers(nothing))
			w.member(adopt)
			w.want("get shop", "create shop")
		},
		"not one that is another's by now": func(w *world) {
			o := w.formers(nothing)
			w.member(adopt)
			o.Labels[v1alpha1.HubLabel] = "third"
			if err := w.server.Update(w.Context(), o); err != nil {
				w.Fatal(err)
			}
			w.want("get shop", "create shop")
		},
		"not in a spoke that is suspended": func(w *world) {
			w.formers(nothing)
			w.member(func(sc *v1alpha1.SpokeCluster) { adopt(sc); sc.Spec.Suspend = new(true) })
			w.want("get shop")
		},
		"again, when it was written meanwhile": func(w *world) {
			o := w.formers(nothing)
			w.member(adopt)
			w.refuse["update"] = apierrors.NewConflict(resource, o.Name, nil)
			if result := w.want("get shop", "update shop"); result.RequeueAfter == 0 {
				w.Error("it does not look again")
			}
			delete(w.refuse, "update")
			w.want("get shop", "update shop")
			w.adopted(o)
		},
	} {
		forKinds(t, name, func(w *world) {
			w.put(w.hub, alertRule())
			fn(w)
		})
	}
}

// successor makes the rule look like one that a template generated for the spoke "former", and returns the one
// that it generates for the spoke itself.
func (w *world) successor() *v1alpha1.AlertRule {
	w.Helper()
	made := func(name string, cluster v1alpha1.ClusterName) *v1alpha1.AlertRule {
		ar := alertRule()
		ar.Namespace, ar.Name, ar.UID = "rulefleet-generated", name, ""
		ar.Labels = map[string]string{v1alpha1.ManagedByLabel: v1alpha1.ManagedByValue, v1alpha1.TemplateLabel: "down"}
		ar.Spec.Placement = onCluster(cluster)
		ar.Spec.WorkloadRef = &v1alpha1.WorkloadReference{Cluster: cluster, Kind: "Deployment", Namespace: "shop", Name: "web"}
		return ar
	}
	w.put(w.hub, made("of-former", "former"))
	return made("of-s", "s")
}

func onCluster(name v1alpha1.ClusterName) v1alpha1.ClusterSelection {
	return v1alpha1.ClusterSelection{Names: []v1alpha1.ClusterName{name}}
}

// Renaming a Secret removes no alert.
func TestInherit(t *testing.T) {
	place := func(w *world, name v1alpha1.ClusterName) {
		w.edit(func(ar *v1alpha1.AlertRule) { ar.Spec.Placement = onCluster(name) })
	}
	for name, fn := range map[string]func(w *world){
		"placed on the predecessor by name": func(w *world) {
			place(w, "former")
			w.want()
			w.want()
			w.enqueued()
			// When its SpokeCluster is gone, nothing keeps it.
			former := &v1alpha1.SpokeCluster{ObjectMeta: metav1.ObjectMeta{Name: "former"}}
			w.drop(w.hub, former)
			w.onSpokeCluster("", nil).Delete(w.Context(), deleted(former), w.queue)
			if got := w.enqueued(); !slices.Equal(got, []string{"down in s"}) {
				w.Errorf("enqueued %q", got)
			}
			w.want("delete shop")
		},
		"placed on a spoke that is no predecessor": func(w *world) {
			w.predecessors = nil
			place(w, "former")
			w.want("delete shop")
		},
		"placed nowhere": func(w *world) {
			place(w, "nowhere")
			w.want("delete shop")
		},
		"disabled": func(w *world) {
			place(w, "former")
			w.edit(func(ar *v1alpha1.AlertRule) { ar.Spec.State = v1alpha1.Disabled })
			w.want("delete shop")
		},
		"deleted": func(w *world) {
			w.drop(w.hub, alertRule())
			w.want("delete shop")
		},
	} {
		forKinds(t, name, func(w *world) {
			w.apply()
			w.put(w.hub, &v1alpha1.SpokeCluster{ObjectMeta: metav1.ObjectMeta{Name: "former"}})
			w.predecessors = []string{"former"}
			fn(w)
		})
	}
	t.Run("made by a template", func(t *testing.T) {
		w := newWorld(t)
		w.put(w.hub, &v1alpha1.SpokeCluster{ObjectMeta: metav1.ObjectMeta{Name: "former"}})
		w.predecessors = []string{"former"}
		successor := w.successor()
		old := &v1alpha1.AlertRule{}
		if err := w.hub.Get(w.Context(), client.ObjectKey{Namespace: successor.Namespace, Name: "of-former"}, old); err != nil {
			t.Fatal(err)
		}
		rendered := func(ar *v1alpha1.AlertRule, cluster string) *monitoringv1.PrometheusRule {
			t.Helper()
			pr, err := delivery.Render(ar, rule.Cluster{Name: cluster}, w.Render)
			if err != nil {
				t.Fatal(err)
			}
			return pr
		}
		w.put(w.server, rendered(old, "former"))
		w.sync()
		w.others(20) // the brake would hold it, if it were a deletion
		ask := func(name string, writes int, wait bool) {
			t.Helper()
			w.rules.ClearActions()
			req := request("s", name)
			req.Namespace = successor.Namespace
			result, err := w.Reconcile(t.Context(), req)
			if err != nil || len(w.rules.Actions()) != writes || (result.RequeueAfter > 0) != wait {
				t.Fatalf("%s: %d writes, %+v, %v", name, len(w.rules.Actions()), result, err)
			}
		}
		ask("of-former", 0, true)
		// What another template generates for the workload replaces nothing.
		other := successor.DeepCopy()
		other.Name, other.Labels[v1alpha1.TemplateLabel] = "of-another-template", "another"
		w.put(w.hub, other)
		w.put(w.server, rendered(other, "s"))
		w.sync()
		ask("of-former", 0, true)
		w.put(w.hub, successor)
		ask("of-former", 0, true)
		ask("of-s", 1, true)      // it looks for the event of the creation
		ask("of-former", 0, true) // the cache does not show it yet
		w.sync()
		// Since the cache was filled, the replacement was deleted, and another object has its name.
		replacement := rendered(successor, "s")
		w.drop(w.server, replacement.DeepCopy())
		replacement.UID = "another"
		w.put(w.server, replacement)
		ask("of-former", 0, true)
		w.sync()
		ask("of-former", 1, false)
		if a := w.rules.Actions()[0]; a.GetVerb() != "delete" {
			t.Errorf("it was %s", a.GetVerb())
		}
	})
}

// Nothing is written to a suspended spoke, and its pending deletions are shown.
func TestSuspendedSpoke(t *testing.T) {
	suspend := func(sc *v1alpha1.SpokeCluster) { sc.Spec.Suspend = new(true) }
	resume := func(sc *v1alpha1.SpokeCluster) { sc.Spec.Suspend = nil; sc.Generation++ }
	for name, tc := range map[string]struct {
		change func(w *world)
		row    string
		doomed bool
		then   string
	}{
		"nothing differs": {change: func(*world) {}, row: "Applied"},
		"the rule changed": {
			change: func(w *world) { w.edit(func(ar *v1alpha1.AlertRule) { ar.Spec.For = "9m" }) },
			row:    "Applied/Suspended", then: "update shop",
		},
		"the rule was deleted": {
			change: func(w *world) { w.drop(w.hub, alertRule()) }, row: "", doomed: true, then: "delete shop",
		},
		"the rule was disabled": {
			change: func(w *world) { w.edit(func(ar *v1alpha1.AlertRule) { ar.Spec.State = v1alpha1.Disabled }) },
			row:    "forgotten", doomed: true, then: "delete shop",
		},
		"the rule is not valid": {
			change: func(w *world) { w.edit(func(ar *v1alpha1.AlertRule) { ar.Spec.Expr = "up ==" }) },
		},
	} {
		forKinds(t, name, func(w *world) {
			w.apply()
			before := &v1alpha1.SpokeCluster{ObjectMeta: metav1.ObjectMeta{Name: "s"}}
			w.member(suspend)
			tc.change(w)
			w.want()
			if tc.row == "" && w.reports["down in s"] != nil {
				w.Errorf("reported %+v", w.reports)
			} else if tc.row != "" {
				w.wantRow(tc.row)
			}
			var doomed []string
			if tc.doomed {
				doomed = []string{w.key("down").Listed()}
			}
			if got, known := w.Doomed(w.Context(), "s"); !known || !slices.Equal(got, doomed) {
				w.Errorf("it has to lose %q, %v", got, known)
			}
			w.member(resume)
			after := &v1alpha1.SpokeCluster{}
			if err := w.hub.Get(w.Context(), client.ObjectKey{Name: "s"}, after); err != nil {
				w.Fatal(err)
			}
			w.enqueued()
			w.onSpokeCluster("", nil).Update(w.Context(), updated(before, after), w.queue)
			if got := w.enqueued(); !slices.Contains(got, "down in s") {
				w.Errorf("enqueued %q", got)
			}
			if tc.then == "" {
				w.want()
				return
			}
			w.want(tc.then)
		})
	}
	t.Run("news is told", func(t *testing.T) {
		w := applied(t)
		ar := alertRule()
		w.onSource("", nil).Delete(t.Context(), deleted(ar), w.queue)
		if len(w.changed) > 0 {
			t.Errorf("a spoke that is there is told of: %q", w.changed)
		}
		w.away = true
		w.onSource("", nil).Delete(t.Context(), deleted(ar), w.queue)
		w.away = false
		w.member(suspend)
		w.onSource("", nil).Delete(t.Context(), deleted(ar), w.queue)
		if !slices.Equal(w.changed, []string{"s", "s"}) {
			t.Errorf("told %q", w.changed)
		}
	})
	t.Run("a spoke that was not read", func(t *testing.T) {
		w := applied(t)
		if _, known := w.Doomed(t.Context(), "t"); known {
			t.Error("what it has to lose is known")
		}
	})
}

func deleted(o client.Object) event.TypedDeleteEvent[client.Object] {
	return event.TypedDeleteEvent[client.Object]{Object: o}
}

func updated(before, after client.Object) event.TypedUpdateEvent[client.Object] {
	return event.TypedUpdateEvent[client.Object]{ObjectOld: before, ObjectNew: after}
}

// The objects of a newly engaged spoke stay while its templates are being processed.
func TestSettling(t *testing.T) {
	orphan := func(w *world) (wait bool) {
		w.Helper()
		ar := w.successor()
		pr, err := delivery.Render(ar, rule.Cluster{Name: "s"}, w.Render)
		if err != nil {
			w.Fatal(err)
		}
		w.put(w.server, pr)
		w.sync()
		req := request("s", ar.Name)
		req.Namespace = ar.Namespace
		w.rules.ClearActions()
		result, err := w.Reconcile(w.Context(), req)
		if err != nil {
			w.Fatal(err)
		}
		if (result.RequeueAfter > 0) == (len(w.rules.Actions()) > 0) {
			w.Errorf("%d writes, and it looks again after %v", len(w.rules.Actions()), result.RequeueAfter)
		}
		return result.RequeueAfter > 0
	}
	w := newWorld(t)
	w.spoke.Since = time.Now()
	if !orphan(w) {
		t.Error("removed as soon as the spoke came")
	}
	w = newWorld(t)
	w.spoke.Since = time.Now().Add(-settle)
	if orphan(w) {
		t.Error("it stays")
	}
	// A rule written and deleted by hand meanwhile is removed at once.
	w = applied(t)
	w.spoke.Since = time.Now()
	w.drop(w.hub, alertRule())
	w.want("delete shop")
}
