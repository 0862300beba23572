package distribute

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/controller/brake"
	"github.com/rulefleet/rulefleet/pkg/controller/hub"
	"github.com/rulefleet/rulefleet/pkg/live"
	"github.com/rulefleet/rulefleet/pkg/rule"
)

// fall makes the hub's cache show a changed object while the API server has another version.
func (w *world) fall(o client.Object, change func(o client.Object)) {
	w.Helper()
	o = w.ofKind(o)
	if err := w.hub.Get(w.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		w.Fatal(err)
	}
	if p, ok := o.(*v1alpha1.RulePack); ok {
		o = asAlertRule(p)
	}
	change(o)
	o = w.ofKind(o)
	w.Reconciler.Hub = interceptor.NewClient(w.hub.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
			if key != client.ObjectKeyFromObject(o) {
				return c.Get(ctx, key, into, opts...)
			}
			switch into := into.(type) {
			case *v1alpha1.AlertRule:
				o.(*v1alpha1.AlertRule).DeepCopyInto(into)
			case *v1alpha1.RulePack:
				o.(*v1alpha1.RulePack).DeepCopyInto(into)
			case *v1alpha1.SpokeCluster:
				o.(*v1alpha1.SpokeCluster).DeepCopyInto(into)
			}
			return nil
		},
	})
}

func theRule() *v1alpha1.AlertRule {
	return &v1alpha1.AlertRule{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "down"}}
}

func theMember() *v1alpha1.SpokeCluster {
	return &v1alpha1.SpokeCluster{ObjectMeta: metav1.ObjectMeta{Name: "s"}}
}

// Old data removes nothing: the cache differs from the API server.
func TestOldKnowledge(t *testing.T) {
	onRule := func(w *world, change func(ar *v1alpha1.AlertRule)) {
		w.fall(theRule(), func(o client.Object) { change(o.(*v1alpha1.AlertRule)) })
	}
	for name, fn := range map[string]func(w *world){
		"placement": func(w *world) {
			onRule(w, func(ar *v1alpha1.AlertRule) { ar.Spec.Placement.Names[0] = "r" })
		},
		"state": func(w *world) {
			onRule(w, func(ar *v1alpha1.AlertRule) { ar.Spec.State = v1alpha1.Disabled })
		},
		"an override's state": func(w *world) {
			onRule(w, func(ar *v1alpha1.AlertRule) {
				ar.Spec.Overrides = []v1alpha1.Override{{ClusterSelection: ar.Spec.Placement, State: v1alpha1.Disabled}}
			})
		},
		"the spoke is suspended by now": func(w *world) {
			w.edit(func(ar *v1alpha1.AlertRule) { ar.Spec.State = v1alpha1.Disabled })
			sc := theMember()
			if err := w.hub.Get(w.Context(), client.ObjectKeyFromObject(sc), sc); err != nil {
				w.Fatal(err)
			}
			sc.Spec.Suspend = new(true)
			if err := w.hub.Update(w.Context(), sc); err != nil {
				w.Fatal(err)
			}
			w.fall(theMember(), func(o client.Object) { o.(*v1alpha1.SpokeCluster).Spec.Suspend = nil })
		},
		"labels": func(w *world) {
			w.edit(func(ar *v1alpha1.AlertRule) {
				ar.Spec.Placement = v1alpha1.ClusterSelection{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"env": "prod"}}}
			})
			w.fall(theMember(), func(o client.Object) { o.SetLabels(nil) })
		},
		"the AlertRule is gone, and another knows it": func(w *world) {
			w.edit(func(ar *v1alpha1.AlertRule) { ar.Spec.State = v1alpha1.Disabled })
			w.fall(theRule(), func(client.Object) {})
			w.drop(w.hub, alertRule()) // which is another decision
		},
	} {
		forKinds(t, name, func(w *world) {
			fn(w.apply())
			for range 2 {
				if result := w.want(); result.RequeueAfter != live.BehindRetry {
					w.Errorf("it looks again after %v", result.RequeueAfter)
				}
			}
			if n := w.Brake.Acknowledge("s", nil); n != 0 {
				w.Errorf("%d are held", n)
			}
		})
	}
}

// A move from old data neither creates nor removes anything.
func TestOldKnowledgeOfANamespace(t *testing.T) {
	w := applied(t)
	w.ownShop()
	w.edit(func(ar *v1alpha1.AlertRule) { ar.Spec.RuleNamespace = "shop" })
	w.want("update shop")
	w.sync()
	w.moveToMonitoring()
	w.fall(theRule(), func(client.Object) {})
	w.edit(func(ar *v1alpha1.AlertRule) { ar.Spec.RuleNamespace = "shop" })
	if result := w.want(); result.RequeueAfter != live.BehindRetry {
		t.Errorf("it looks again after %v", result.RequeueAfter)
	}
	w.Reconciler.Hub = w.hub
	w.want()
}

// A move writes no old content: it would count as the spoke's answer to the new rule, and stay there.
func TestOldKnowledgeOfAnExpression(t *testing.T) {
	w := applied(t)
	w.moveToMonitoring()
	w.fall(theRule(), func(client.Object) {})
	w.edit(func(ar *v1alpha1.AlertRule) { ar.Spec.Expr = "up == 1" })
	if result := w.want(); result.RequeueAfter != live.BehindRetry {
		t.Errorf("it looks again after %v", result.RequeueAfter)
	}
	w.Reconciler.Hub = w.hub
	w.want("create monitoring", "delete shop")
	w.wantRow("Applied")
}

func TestSameAim(t *testing.T) {
	in := func(namespace string) *observation {
		return &observation{source: &v1alpha1.AlertRule{}, desired: &monitoringv1.PrometheusRule{ObjectMeta: metav1.ObjectMeta{Namespace: namespace}}}
	}
	other := in("shop")
	other.meant = "another expression"
	adopting := in("shop")
	adopting.cluster.AdoptHubIDs = []string{"former"}
	for name, tc := range map[string]struct {
		a, b *observation
		want bool
	}{
		"the same":              {in("shop"), in("shop"), true},
		"another namespace":     {in("shop"), in("monitoring"), false},
		"another expression":    {in("shop"), other, false},
		"a former hub's":        {in("shop"), adopting, false},
		"not placed":            {in("shop"), &observation{source: &v1alpha1.AlertRule{}}, false},
		"not placed, both":      {&observation{source: &v1alpha1.AlertRule{}}, &observation{source: &v1alpha1.AlertRule{}}, true},
		"gone":                  {&observation{}, &observation{}, true},
		"not placed, and gone":  {&observation{source: &v1alpha1.AlertRule{}}, &observation{}, false},
		"gone, and it is there": {&observation{}, in("shop"), false},
	} {
		t.Run(name, func(t *testing.T) {
			if sameAim(tc.a, tc.b) != tc.want || sameAim(tc.b, tc.a) != tc.want {
				t.Errorf("want %v", tc.want)
			}
		})
	}
}

// A remembered read may be older than the cache, so the object is read again soon.
func TestRememberedReadRemovesNothing(t *testing.T) {
	w := applied(t)
	if err := w.Guard.Live.Get(t.Context(), hub.Key(theRule()), &v1alpha1.AlertRule{}); err != nil {
		t.Fatal(err)
	}
	w.edit(func(ar *v1alpha1.AlertRule) { ar.Spec.State = v1alpha1.Disabled })
	w.liveClock.SetTime(w.liveClock.Now().Add(-time.Second + time.Millisecond)) // want steps it by a second
	if result := w.want(); result.RequeueAfter != staleRetry {
		t.Errorf("it looks again after %v", result.RequeueAfter)
	}
	w.want("delete shop")
}

// Without a removal, the cache is not bypassed.
func TestNothingIsReadPastTheCache(t *testing.T) {
	w := newWorld(t)
	w.put(w.hub, alertRule())
	reads := 0
	w.live = func() error { reads++; return nil }
	w.want("create shop")
	w.sync()
	w.want()
	w.edit(func(ar *v1alpha1.AlertRule) { ar.Spec.Expr = "up < 1" })
	w.want("update shop")
	if reads != 0 {
		t.Errorf("%d reads", reads)
	}
	w.sync()
	w.edit(func(ar *v1alpha1.AlertRule) { ar.Spec.State = v1alpha1.Disabled })
	w.want("delete shop")
	if reads != 2 {
		t.Errorf("%d reads for a removal; want those of the AlertRule and of the SpokeCluster", reads)
	}
}

// The spoke's objects may be older than the SpokeCluster, which was created again without its labels.
func TestSuspects(t *testing.T) {
	made := time.Unix(1e9, 0)
	earlier, later := metav1.NewTime(made.Add(-time.Hour)), metav1.NewTime(made.Add(time.Hour))
	member := func(w *world, change func(sc *v1alpha1.SpokeCluster)) (before, after *v1alpha1.SpokeCluster) {
		w.Helper()
		after = theMember()
		if err := w.hub.Get(w.Context(), client.ObjectKeyFromObject(after), after); err != nil {
			w.Fatal(err)
		}
		before = after.DeepCopy()
		change(after)
		if err := w.hub.Update(w.Context(), after); err != nil {
			w.Fatal(err)
		}
		return before, after
	}
	bare := func(sc *v1alpha1.SpokeCluster) { sc.Labels = nil }
	remove := func(w *world) { w.drop(w.hub, alertRule()) }
	for name, tc := range map[string]struct {
		member metav1.Time // when the SpokeCluster was made
		kind   metav1.Time // and the kinds
		before func(w *world)
		then   func(w *world)
		held   bool
	}{
		"the label is lost with the SpokeCluster": {member: later, then: func(w *world) { member(w, bare) }, held: true},
		"the label goes while nobody looks":       {member: earlier, then: func(w *world) { member(w, bare) }},
		"the kind SpokeCluster is gone": {member: later, then: func(w *world) {
			w.edit(func(ar *v1alpha1.AlertRule) { ar.Spec.State = v1alpha1.Disabled })
			w.crd = func(client.Object) error { return apierrors.NewNotFound(resource, "x") }
		}, held: true},
		"the label is seen to go": {member: later, then: func(w *world) {
			before, after := member(w, bare)
			w.onSpokeCluster("", nil).Update(w.Context(), event.TypedUpdateEvent[client.Object]{ObjectOld: before, ObjectNew: after}, w.queue)
		}},
		"the SpokeCluster is replaced by one without": {member: later, then: func(w *world) {
			before, after := member(w, bare)
			before.UID = "former"
			w.onSpokeCluster("", nil).Update(w.Context(), event.TypedUpdateEvent[client.Object]{ObjectOld: before, ObjectNew: after}, w.queue)
		}, held: true},
		"the placement is seen to change": {member: later, then: func(w *world) {
			w.change(func(ar *v1alpha1.AlertRule) { ar.Spec.Placement.Selector.MatchLabels["env"] = "dev" })
		}},
		"the placement was seen to change before the label is lost": {member: later, before: func(w *world) {
			w.change(func(ar *v1alpha1.AlertRule) { ar.Spec.Placement.Selector.MatchLabels = nil })
			w.change(func(ar *v1alpha1.AlertRule) {
				ar.Spec.Placement.Selector.MatchLabels = map[string]string{"env": "prod"}
			})
		}, then: func(w *world) { member(w, bare) }, held: true},
		"the placement changes while nobody looks": {member: later, then: func(w *world) {
			w.edit(func(ar *v1alpha1.AlertRule) { ar.Spec.Placement.Selector.MatchLabels["env"] = "dev" })
		}, held: true},
		"it is disabled": {member: later, then: func(w *world) {
			w.edit(func(ar *v1alpha1.AlertRule) { ar.Spec.State = v1alpha1.Disabled })
		}},
		"another spoke is named": {member: later, then: func(w *world) {
			w.put(w.hub, &v1alpha1.SpokeCluster{ObjectMeta: metav1.ObjectMeta{Name: "r"}, Status: v1alpha1.SpokeClusterStatus{Identity: "r"}})
			w.edit(func(ar *v1alpha1.AlertRule) {
				ar.Spec.Placement = v1alpha1.ClusterSelection{Names: []v1alpha1.ClusterName{"r"}}
			})
		}},
		"it is disabled, and names a spoke that was lost": {member: later, kind: later, then: func(w *world) {
			w.edit(func(ar *v1alpha1.AlertRule) {
				ar.Spec.Placement, ar.Spec.State = v1alpha1.ClusterSelection{Names: []v1alpha1.ClusterName{"s", "former"}}, v1alpha1.Disabled
			})
		}},
		"it is disabled here, and names a spoke that was lost": {member: later, kind: later, then: func(w *world) {
			w.edit(func(ar *v1alpha1.AlertRule) {
				ar.Spec.Placement = v1alpha1.ClusterSelection{Names: []v1alpha1.ClusterName{"s", "former"}}
				ar.Spec.Overrides = []v1alpha1.Override{{ClusterSelection: v1alpha1.ClusterSelection{Names: []v1alpha1.ClusterName{"s"}}, State: v1alpha1.Disabled}}
			})
		}, held: true},
		"the spoke's former name was lost": {member: later, kind: later, then: func(w *world) {
			w.edit(func(ar *v1alpha1.AlertRule) {
				ar.Spec.Placement = v1alpha1.ClusterSelection{Names: []v1alpha1.ClusterName{"former"}}
			})
		}, held: true},
		"the spoke's former name was lost, and its SpokeCluster is back": {member: later, kind: later, then: func(w *world) {
			w.put(w.hub, &v1alpha1.SpokeCluster{ObjectMeta: metav1.ObjectMeta{Name: "former"}})
			w.edit(func(ar *v1alpha1.AlertRule) {
				ar.Spec.Placement = v1alpha1.ClusterSelection{Names: []v1alpha1.ClusterName{"former"}}
			})
		}, held: true},
		"the spoke's former name was lost, and an old cache has it": {member: later, kind: later, then: func(w *world) {
			former := &v1alpha1.SpokeCluster{ObjectMeta: metav1.ObjectMeta{Name: "former"}, Status: v1alpha1.SpokeClusterStatus{Identity: "identity"}}
			w.put(w.hub, former.DeepCopy())
			w.edit(func(ar *v1alpha1.AlertRule) {
				ar.Spec.Placement = v1alpha1.ClusterSelection{Names: []v1alpha1.ClusterName{"former"}}
			})
			w.fall(former, func(client.Object) {})
			w.drop(w.hub, former)
		}, held: true},
		"the spoke's former name was seen to be deleted": {member: later, kind: later, then: func(w *world) {
			former := &v1alpha1.SpokeCluster{ObjectMeta: metav1.ObjectMeta{Name: "former", CreationTimestamp: later}}
			w.onSpokeCluster("", nil).Delete(w.Context(), event.TypedDeleteEvent[client.Object]{Object: former}, w.queue)
			w.edit(func(ar *v1alpha1.AlertRule) {
				ar.Spec.Placement = v1alpha1.ClusterSelection{Names: []v1alpha1.ClusterName{"former"}}
			})
		}},
		"the label of the spoke's former name": {member: later, then: func(w *world) {
			_, after := member(w, func(sc *v1alpha1.SpokeCluster) { sc.Labels, sc.Status.Identity = nil, "identity" })
			former := after.DeepCopy()
			former.Name, former.UID, former.Labels = "former", "former", map[string]string{"env": "prod"}
			w.onSpokeCluster("", nil).Delete(w.Context(), event.TypedDeleteEvent[client.Object]{Object: former}, w.queue)
		}},
		"the label is as old as the object": {member: metav1.NewTime(made), then: func(w *world) { member(w, bare) }, held: true},
		"the label is lost with the kind SpokeCluster, though the times say another": {member: earlier, then: func(w *world) {
			member(w, bare)
			w.remake(hub.SpokeClusters, earlier)
		}, held: true},
		"the rule is replaced by one that is elsewhere": {member: later, then: func(w *world) {
			w.replace(func(ar *v1alpha1.AlertRule) { ar.Spec.Placement.Selector.MatchLabels["env"] = "dev" })
		}},
		"the rule is gone with its kind, though the times say another": {kind: earlier, then: func(w *world) {
			remove(w)
			w.remake(w.sources(), earlier)
		}, held: true},
		"the rule is seen to go with its kind, though the times say another": {kind: earlier, then: func(w *world) {
			w.deletedAt(metav1.NewTime(made), "7")
			remove(w)
			w.remake(w.sources(), earlier)
		}, held: true},
		"the rule of a kind that was made anew is seen to be deleted": {kind: earlier, then: func(w *world) {
			w.remake(w.sources(), earlier)
			w.deletedAt(metav1.NewTime(made), "11")
			remove(w)
		}},
		"the spoke's former name goes with its kind": {member: later, kind: earlier, then: func(w *world) {
			w.edit(func(ar *v1alpha1.AlertRule) {
				ar.Spec.Placement = v1alpha1.ClusterSelection{Names: []v1alpha1.ClusterName{"former"}}
			})
			w.crd = func(o client.Object) error { o.SetDeletionTimestamp(&later); return nil }
		}, held: true},
		"the rule is gone with its kind": {kind: later, then: remove, held: true},
		"the rule is gone":               {kind: earlier, then: remove},
		"the rule is seen to be deleted": {kind: later, then: func(w *world) { w.deleted(later); remove(w) }},
		"the rule is seen to go with its kind": {
			kind: later, then: func(w *world) { w.deleted(metav1.NewTime(made)); remove(w) }, held: true,
		},
	} {
		forKinds(t, name, func(w *world) {
			w.apply()
			w.edit(func(ar *v1alpha1.AlertRule) {
				ar.Spec.Placement = v1alpha1.ClusterSelection{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"env": "prod"}}}
			})
			w.touch(func(o *monitoringv1.PrometheusRule) { o.CreationTimestamp = metav1.NewTime(made) })
			w.sync()
			if tc.kind.IsZero() {
				tc.kind = earlier
			}
			w.crd = func(o client.Object) error { o.SetCreationTimestamp(tc.kind); return nil }
			if tc.before != nil {
				tc.before(w)
			}
			// The fake client keeps an object's creation time.
			w.fallBack(tc.member)
			tc.then(w)
			if tc.held {
				w.wantHeld()
				w.clock.SetTime(w.clock.Now().Add(100 * hold))
				w.wantHeld()
				return
			}
			w.want("delete shop")
		})
	}
}

// fallBack creates the SpokeCluster again, at this time.
func (w *world) fallBack(at metav1.Time) {
	w.Helper()
	sc := theMember()
	if err := w.hub.Get(w.Context(), client.ObjectKeyFromObject(sc), sc); err != nil {
		w.Fatal(err)
	}
	w.drop(w.hub, sc)
	sc.ResourceVersion, sc.UID, sc.CreationTimestamp = "", "member", at
	w.put(w.hub, sc)
	seen := sc.DeepCopy()
	seen.ResourceVersion = w.stored().GetResourceVersion() // the fake client counts those of each object
	w.onSpokeCluster("", nil).Create(w.Context(), event.TypedCreateEvent[client.Object]{Object: seen}, w.queue)
}

// change edits the rule, and the Reconciler sees that.
func (w *world) change(change func(*v1alpha1.AlertRule)) {
	w.Helper()
	before := w.stored()
	w.edit(change)
	after := w.stored()
	w.onSource("", nil).Update(w.Context(), event.TypedUpdateEvent[client.Object]{ObjectOld: before, ObjectNew: after}, w.queue)
}

// sources is the kind of the rule.
func (w *world) sources() hub.Kind {
	if w.kind == v1alpha1.RulePackKind {
		return hub.RulePacks
	}
	return hub.AlertRules
}

// remake defines a kind again, at this time: its former definition was read before.
func (w *world) remake(kind hub.Kind, at metav1.Time) {
	w.Helper()
	for i, uid := range []types.UID{"former", "anew"} {
		w.crd = func(o client.Object) error {
			o.SetCreationTimestamp(at)
			o.SetUID(uid)
			o.SetResourceVersion(fmt.Sprint(9 + i))
			return nil
		}
		if _, served, err := w.Guard.Kinds.Defined(w.Context(), kind); err != nil || !served {
			w.Fatal(served, err)
		}
	}
}

// replace deletes the rule and creates it again, as kubectl replace --force does, and reports both events.
func (w *world) replace(change func(*v1alpha1.AlertRule)) {
	w.Helper()
	gone := w.stored()
	ar := asAlertRule(gone.DeepCopyObject().(client.Object))
	if err := w.hub.Delete(w.Context(), gone); err != nil {
		w.Fatal(err)
	}
	h := w.onSource("", nil)
	gone.SetResourceVersion(gone.GetResourceVersion() + "0") // a deletion has a version of its own, which is later
	h.Delete(w.Context(), event.TypedDeleteEvent[client.Object]{Object: gone}, w.queue)
	ar.UID, ar.ResourceVersion = "anew", ""
	change(ar)
	anew := w.ofKind(ar)
	w.put(w.hub, anew)
	h.Create(w.Context(), event.TypedCreateEvent[client.Object]{Object: anew}, w.queue)
}

// deleted reports the deletion of the rule, which was created at this time.
func (w *world) deleted(made metav1.Time) { w.deletedAt(made, "") }

// deletedAt is deleted with a resourceVersion.
func (w *world) deletedAt(made metav1.Time, version string) {
	ar := alertRule()
	ar.CreationTimestamp, ar.ResourceVersion = made, version
	w.onSource("", nil).Delete(w.Context(), event.TypedDeleteEvent[client.Object]{Object: w.ofKind(ar)}, w.queue)
}

// Rules that are held for a spoke are reconciled when it is engaged again.
func TestEngagedAnew(t *testing.T) {
	w := applied(t)
	w.crd = func(o client.Object) error {
		o.SetCreationTimestamp(metav1.NewTime(time.Now().Add(time.Hour)))
		return nil
	}
	w.drop(w.hub, alertRule())
	w.wantHeld()
	w.drop(w.server, w.object()) // while it was away
	w.cached = nil
	w.sync()
	w.enqueued()
	w.onEngaged(t.Context(), "s", w.queue)
	if got := w.enqueued(); !slices.Equal(got, []string{"down in s"}) {
		t.Errorf("enqueued are %q", got)
	}
	w.want()
	if owners := w.Brake.Owners(brake.Distribute, "s"); len(owners) != 0 {
		t.Errorf("it is held for %v", owners)
	}
}

// A suspect is released when the label is back, or when the restored rule is invalid.
func TestSuspectRecedes(t *testing.T) {
	for name, back := range map[string]func(w *world){
		"restored": func(w *world) { w.put(w.hub, alertRule()) },
		"restored, and broken": func(w *world) {
			ar := alertRule()
			ar.UID, ar.Spec.Expr = "again", "up =="
			w.put(w.hub, ar)
		},
		"restored, and suspended": func(w *world) {
			ar := alertRule()
			ar.Spec.Suspend = new(true)
			w.put(w.hub, ar)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := applied(t)
			w.crd = func(o client.Object) error {
				o.SetCreationTimestamp(metav1.NewTime(time.Now().Add(time.Hour)))
				return nil
			}
			w.drop(w.hub, alertRule())
			w.wantHeld()
			if owners := w.Brake.Owners(brake.Distribute, "s"); len(owners) != 1 || owners[0] != rule.AlertRuleKey("shop", "down") {
				t.Errorf("the owners are %v", owners)
			}
			cache := w.Reconciler.Hub
			w.Reconciler.Hub = interceptor.NewClient(w.hub.(client.WithWatch), interceptor.Funcs{
				Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
					return errors.New("no answer")
				},
			})
			w.wantError()
			if owners := w.Brake.Owners(brake.Distribute, "s"); len(owners) != 1 {
				t.Errorf("it is not held any more because the hub can't be read")
			}
			w.Reconciler.Hub = cache
			back(w)
			w.want()
			if owners := w.Brake.Owners(brake.Distribute, "s"); len(owners) != 0 {
				t.Errorf("it is held for %v", owners)
			}
		})
	}
}

// An AlertRule that was read just before its deletion is read again a second later, and not after the retry
// for a lost kind.
func TestDeletedAfterItWasRead(t *testing.T) {
	w := applied(t)
	if err := w.Guard.Live.Get(t.Context(), hub.Key(theRule()), &v1alpha1.AlertRule{}); err != nil {
		t.Fatal(err)
	}
	w.drop(w.hub, alertRule())
	w.liveClock.SetTime(w.liveClock.Now().Add(-time.Second + time.Millisecond)) // want steps it by a second
	if result := w.want(); result.RequeueAfter != staleRetry {
		t.Errorf("it looks again after %v", result.RequeueAfter)
	}
	w.want("delete shop")
}
