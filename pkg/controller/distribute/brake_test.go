package distribute

import (
	"fmt"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/controller/brake"
	"github.com/rulefleet/rulefleet/pkg/controller/hub"
)

const hold = 10 * time.Minute

// others has as many deletions asked for in the spoke as are let go, or one more.
func (w *world) others(n int) {
	w.Helper()
	for i := range n {
		key := types.NamespacedName{Namespace: "shop", Name: fmt.Sprintf("other-%d", i)}
		_, err := w.Brake.Ask(brake.Question{
			Hop: brake.Distribute, Spoke: "s", Owner: key, Deletions: []brake.Deletion{{Key: key}}, Holds: func() (int, error) { return 60, nil },
		})
		if err != nil {
			w.Fatal(err)
		}
	}
}

// wantHeld reconciles the rule, of which nothing is deleted before the time is over.
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
	// dated has the spoke's object made at a time, and the kind defined a second later.
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
			if n := w.Brake.Acknowledge("s"); n != 1 {
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
			if n := w.Brake.Acknowledge("s"); n != 0 {
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
			w.Brake.Vouch("s", hub.Key(alertRule()), alertRule().UID)
			w.want() // the hub's cache still has it
			w.drop(w.hub, alertRule())
			w.want("delete shop")
		},
		"deleted by the hop before, and made again": func(w *world) {
			w.others(20)
			w.Brake.Vouch("s", hub.Key(alertRule()), "another")
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
			w.want("delete shop")
		},
		"older than the kind, and disabled": func(w *world) {
			dated(w, made.Add(-time.Second))
			disable(w)
			w.want("delete shop")
		},
	} {
		t.Run(name, func(t *testing.T) { fn(applied(t)) })
	}
}

// What a spoke holds is counted by AlertRule, and without what others have there.
func TestHolds(t *testing.T) {
	w := applied(t)
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
	if n, err := w.holds(t.Context(), &task{spoke: w.spoke}); n != 2 || err != nil {
		t.Errorf("got %d, %v", n, err)
	}
}
