package distribute

import (
	"context"
	"fmt"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/controller/brake"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/spoke"
)

const hold = 10 * time.Minute

// others makes other rules want as many deletions as are released, or one more.
func (w *world) others(n int) {
	w.Helper()
	for i := range n {
		key := rule.AlertRuleKey("shop", fmt.Sprintf("other-%d", i))
		_, err := w.Brake.Ask(brake.Question{
			Hop: brake.Distribute, Spoke: "s", Owner: key, Deletions: []brake.Deletion{{Key: key}}, Holds: func() (sets.Set[rule.Key], error) { return nil, nil },
		})
		if err != nil {
			w.Fatal(err)
		}
	}
}

// wantHeld reconciles the rule, of which nothing may be deleted before the hold is over.
func (w *world) wantHeld() {
	w.Helper()
	if result := w.want(); result.RequeueAfter != hold {
		w.Errorf("it looks again after %v", result.RequeueAfter)
	}
}

func TestBrake(t *testing.T) {
	disable := func(w *world) {
		w.edit(func(ar *v1alpha1.AlertRule) { ar.Spec.State = v1alpha1.Disabled })
	}
	made := time.Unix(1e9, 0)
	// dated sets the creation time of the spoke's object, and defines the kind a second later.
	dated := func(w *world, created time.Time) {
		w.touch(func(o *monitoringv1.PrometheusRule) { o.CreationTimestamp = metav1.NewTime(created) })
		w.sync()
		w.crd = func(o client.Object) error { o.SetCreationTimestamp(metav1.NewTime(made)); return nil }
	}
	for name, fn := range map[string]func(w *world){
		"the last that is let go": func(w *world) {
			w.others(19)
			w.drop(w.hub, alertRule())
			w.want("delete shop")
		},
		"deleted": func(w *world) {
			w.others(20)
			w.drop(w.hub, alertRule())
			w.wantHeld()
			w.clock.SetTime(w.clock.Now().Add(hold))
			w.want("delete shop")
		},
		"denied at first: it counts from its deletion on": func(w *world) {
			w.others(19)
			w.refuse["delete"] = errDenied
			w.drop(w.hub, alertRule())
			w.want("delete shop")
			w.clock.SetTime(w.clock.Now().Add(hold / 2))
			delete(w.refuse, "delete")
			w.want("delete shop")
			w.clock.SetTime(w.clock.Now().Add(hold / 2))
			w.others(20)
			if n := w.Brake.Acknowledge("s", nil); n != 1 {
				w.Errorf("%d of 20 others are held", n)
			}
		},
		"disabled": func(w *world) {
			w.others(20)
			disable(w)
			w.wantHeld()
			w.wantRow("forgotten") // as it would be when it is gone
		},
		"not placed any more": func(w *world) {
			w.others(20)
			w.edit(func(ar *v1alpha1.AlertRule) {
				ar.Spec.Placement = v1alpha1.ClusterSelection{Names: []v1alpha1.ClusterName{"r"}}
			})
			w.wantHeld()
		},
		"acknowledged": func(w *world) {
			w.others(20)
			w.drop(w.hub, alertRule())
			w.wantHeld()
			if n := w.Brake.Acknowledge("s", nil); n != 1 {
				w.Errorf("%d were acknowledged", n)
			}
			w.want("delete shop")
		},
		"enabled again": func(w *world) {
			w.others(20)
			disable(w)
			w.wantHeld()
			w.edit(func(ar *v1alpha1.AlertRule) { ar.Spec.State = v1alpha1.Enabled })
			w.want()
			w.wantRow("Applied")
			if n := w.Brake.Acknowledge("s", nil); n != 0 {
				w.Errorf("%d are held", n)
			}
		},
		"it moves, which is no deletion": func(w *world) {
			w.others(21)
			w.moveToMonitoring()
			w.want("create monitoring", "delete shop")
		},
		"deleted by the hop before": func(w *world) {
			w.others(20)
			w.Brake.Vouch("s", w.key("down"), alertRule().UID)
			w.want() // the hub's cache still has it
			w.drop(w.hub, alertRule())
			w.want("delete shop")
		},
		"deleted by the hop before, and made again": func(w *world) {
			w.others(20)
			w.Brake.Vouch("s", w.key("down"), "another")
			w.want()
			w.drop(w.hub, alertRule())
			w.wantHeld()
		},
		"older than the kind": func(w *world) {
			dated(w, made.Add(-time.Second))
			w.drop(w.hub, alertRule())
			w.wantHeld()
		},
		"as old as the kind": func(w *world) {
			dated(w, made)
			w.drop(w.hub, alertRule())
			w.wantHeld()
		},
		"younger than the kind": func(w *world) {
			dated(w, made.Add(time.Second))
			w.drop(w.hub, alertRule())
			w.want("delete shop")
		},
		"older than the kind, and disabled": func(w *world) {
			dated(w, made.Add(-time.Second))
			disable(w)
			w.want("delete shop")
		},
	} {
		forKinds(t, name, func(w *world) { fn(w.apply()) })
	}
}

// holds counts by AlertRule, without other hubs' objects and those that anybody in the spoke could have
// created.
func TestHolds(t *testing.T) {
	w := applied(t)
	gone := alertRule()
	gone.Name = "gone"
	w.Witness.Before(spoke.OnEvent(func(context.Context, spoke.WorkQueue, ...client.Object) {})).Delete(
		t.Context(), event.TypedDeleteEvent[client.Object]{Object: gone}, w.queue)
	for _, name := range []string{"gone", "invented"} {
		w.put(w.server, labeled(rule.ObjectName(hubID, rule.AlertRuleKey("shop", name)), "shop/"+name))
	}
	for i, labels := range []map[string]string{
		{v1alpha1.ManagedByLabel: v1alpha1.ManagedByValue, v1alpha1.HubLabel: hubID},
		{v1alpha1.ManagedByLabel: v1alpha1.ManagedByValue, v1alpha1.HubLabel: "hub-2"},
		nil,
	} {
		for _, ns := range []string{"shop", "monitoring"} {
			w.put(w.server, &monitoringv1.PrometheusRule{ObjectMeta: metav1.ObjectMeta{
				Namespace: ns, Name: fmt.Sprintf("o-%d", i), Labels: labels, Annotations: map[string]string{v1alpha1.AlertRuleAnnotation: "shop/other"},
			}})
		}
	}
	w.sync()
	if keys, err := w.holds(t.Context(), &observation{spoke: w.spoke}); keys.Len() != 2 || err != nil {
		t.Errorf("got %v, %v", keys, err)
	}
}

// labeled returns an object with this hub's labels, which anybody in a spoke could create.
func labeled(name, of string) *monitoringv1.PrometheusRule {
	return &monitoringv1.PrometheusRule{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: name, UID: types.UID(name),
		Labels:      map[string]string{v1alpha1.ManagedByLabel: v1alpha1.ManagedByValue, v1alpha1.HubLabel: hubID},
		Annotations: map[string]string{v1alpha1.AlertRuleAnnotation: of},
	}}
}

// An object with this hub's labels but without an AlertRule's name is removed at once, without a read of the
// hub, whatever the brake holds, and is not shown as pending deletion.
func TestStraysAreRemoved(t *testing.T) {
	for name, rules := range map[string]func(w *world){
		"of an AlertRule that is none":   func(w *world) { w.drop(w.hub, alertRule()) },
		"of an AlertRule that is placed": func(*world) {},
		"of one that is disabled":        func(w *world) { w.edit(func(ar *v1alpha1.AlertRule) { ar.Spec.State = v1alpha1.Disabled }) },
	} {
		t.Run(name, func(t *testing.T) {
			w := applied(t)
			w.drop(w.server, w.object())
			rules(w)
			w.put(w.server, labeled("stray", "shop/down"))
			w.others(21)
			if name == "of an AlertRule that is placed" {
				w.sync()
				w.want("create shop", "delete shop")
				return
			}
			w.sync()
			if doomed, known := w.Doomed(t.Context(), "s"); len(doomed) > 0 || !known {
				t.Errorf("it is to lose %v, known: %v", doomed, known)
			}
			w.live = func() error { t.Error("the hub is read"); return nil }
			w.crd = func(client.Object) error { t.Error("the kind is read"); return nil }
			w.want("delete shop")
			if n := w.Brake.Acknowledge("s", nil); n != 1 {
				t.Errorf("%d are held, and one of the others is", n)
			}
		})
	}
}
