package distribute

import (
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/metrics"
)

// measured returns how many changes of AlertRules were measured, without and with an outage in between.
func measured(t *testing.T) (well, interrupted uint64) {
	t.Helper()
	families, err := ctrlmetrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "rulefleet_propagation_duration_seconds" {
			continue
		}
		for _, m := range f.GetMetric() {
			n := m.GetHistogram().GetSampleCount()
			for _, l := range m.GetLabel() {
				switch l.GetName() + "=" + l.GetValue() {
				case "interrupted=true":
					interrupted += n
				case "interrupted=false":
					well += n
				}
			}
		}
	}
	return well, interrupted
}

// An event is measured when its write has reached the spoke; nothing else is measured.
func TestPropagation(t *testing.T) {
	for name, tc := range map[string]struct {
		do                func(w *world)
		well, interrupted uint64
	}{
		"a new rule":    {do: func(w *world) { w.told(); w.want("create shop"); w.sync(); w.want() }, well: 1},
		"no event":      {do: func(w *world) { w.want("create shop") }},
		"no engagement": {do: func(w *world) { s := w.spoke; w.spoke = nil; w.told(); w.spoke = s; w.want("create shop") }},
		"a rule that changed": {
			do: func(w *world) {
				w.want("create shop")
				w.sync()
				w.edit(func(ar *v1alpha1.AlertRule) { ar.Spec.Expr = "up < 1" })
				w.told()
				w.want("update shop")
			},
			well: 1,
		},
		"a change that is none for the spoke": {
			do: func(w *world) {
				w.want("create shop")
				w.sync()
				w.told()
				w.want()
				w.edit(func(ar *v1alpha1.AlertRule) { ar.Spec.Expr = "up < 1" })
				w.want("update shop")
			},
		},
		"a spoke that does not answer at first": {
			do: func(w *world) {
				w.told()
				w.refuse["create"] = errors.New("connection refused")
				w.wantError("create shop")
				w.refuse["create"], w.away = nil, true
				w.want("create shop")
			},
			interrupted: 1,
		},
		"a webhook that can't be asked at first": {
			do: func(w *world) {
				w.told()
				w.refuse["create"] = apierrors.NewInternalError(errors.New("failed calling webhook"))
				w.wantError("create shop")
				w.refuse["create"] = nil
				w.want("create shop")
			},
			well: 1,
		},
		"a rule that waits for a person": {
			do: func(w *world) {
				w.told()
				w.refuse["create"] = apierrors.NewForbidden(resource, "x", nil)
				w.want("create shop")
				w.refuse["create"] = nil
				w.want("create shop")
			},
		},
		"a rule that is disabled and enabled": {
			do: func(w *world) {
				w.want("create shop")
				w.sync()
				w.edit(func(ar *v1alpha1.AlertRule) { ar.Spec.State = v1alpha1.Disabled })
				w.told()
				w.refuse["delete"] = apierrors.NewConflict(resource, "x", nil)
				w.want("delete shop")
				w.edit(func(ar *v1alpha1.AlertRule) { ar.Spec.State, ar.Spec.Expr = v1alpha1.Enabled, "up < 1" })
				w.want("update shop")
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.Propagation = metrics.NewPropagation(clock.RealClock{})
			w.put(w.hub, alertRule())
			well, interrupted := measured(t)
			tc.do(w)
			afterWell, afterInterrupted := measured(t)
			if afterWell-well != tc.well || afterInterrupted-interrupted != tc.interrupted {
				t.Errorf("measured are %d, and %d that were interrupted; want %d and %d", afterWell-well, afterInterrupted-interrupted, tc.well, tc.interrupted)
			}
		})
	}
}

// told reports an event of the rule.
func (w *world) told() {
	w.Helper()
	ar := &v1alpha1.AlertRule{}
	if err := w.hub.Get(w.Context(), request("s", "down").NamespacedName, ar); err != nil {
		w.Fatal(err)
	}
	w.onSource("", nil).Create(w.Context(), event.TypedCreateEvent[client.Object]{Object: ar}, w.queue)
}
