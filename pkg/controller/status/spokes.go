package status

import (
	"context"
	"fmt"
	"sync"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule/rollup"
)

// damper records, for every spoke, what the rows of rules show of its outage. The zero value is ready to use.
type damper struct {
	mu    sync.Mutex
	shown map[string]rollup.Shown
	clock clock.PassiveClock // nil means the real clock
}

// observe updates what is shown of a spoke.
func (d *damper) observe(sc *v1alpha1.SpokeCluster) (changed bool, result reconcile.Result) {
	d.mu.Lock()
	defer d.mu.Unlock()
	is, recheck := d.damp(sc)
	changed = is.Differs(d.shown[sc.Name])
	d.keep(sc.Name, is)
	return changed, reconcile.Result{RequeueAfter: recheck}
}

// of returns what is shown of a spoke. It uses the given object only if the spoke was not observed yet,
// because a reader's copy can be older.
func (d *damper) of(sc *v1alpha1.SpokeCluster) rollup.Shown {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, known := d.shown[sc.Name]; !known {
		is, _ := d.damp(sc)
		d.keep(sc.Name, is)
	}
	return d.shown[sc.Name]
}

// forget drops a spoke that is gone: a later one of that name is another spoke.
func (d *damper) forget(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.shown, name)
}

func (d *damper) damp(sc *v1alpha1.SpokeCluster) (rollup.Shown, time.Duration) {
	connected := apimeta.FindStatusCondition(sc.Status.Conditions, v1alpha1.ConditionConnected)
	return rollup.Damp(d.shown[sc.Name], connected, d.now())
}

func (d *damper) keep(name string, is rollup.Shown) {
	if d.shown == nil {
		d.shown = map[string]rollup.Shown{}
	}
	d.shown[name] = is
}

func (d *damper) now() time.Time {
	if d.clock == nil {
		return time.Now()
	}
	return d.clock.Now()
}

// spokes reconciles SpokeClusters. It enqueues the rules on a spoke when the shown outage changes, and checks
// again when that is due without an event.
type spokes struct {
	reader client.Reader
	damper *damper
	board  *Board
	notify func(ctx context.Context, name string)
}

func (s *spokes) setup(mgr ctrl.Manager) error {
	err := ctrl.NewControllerManagedBy(mgr).
		Named("status-spokes").
		For(&v1alpha1.SpokeCluster{}, builder.WithPredicates(predicate.Funcs{UpdateFunc: connectedChanged})).
		WithOptions(options[reconcile.Request]()).
		Complete(s)
	if err != nil {
		return fmt.Errorf("setting up status-spokes: %w", err)
	}
	return nil
}

// connectedChanged reports whether an update changes the connection. Another message about the same outage
// does not count.
func connectedChanged(e event.UpdateEvent) bool {
	before, okBefore := e.ObjectOld.(*v1alpha1.SpokeCluster)
	after, okAfter := e.ObjectNew.(*v1alpha1.SpokeCluster)
	if !okBefore || !okAfter {
		return true
	}
	was := apimeta.FindStatusCondition(before.Status.Conditions, v1alpha1.ConditionConnected)
	is := apimeta.FindStatusCondition(after.Status.Conditions, v1alpha1.ConditionConnected)
	if was == nil || is == nil {
		return was != is
	}
	return was.Status != is.Status || was.Reason != is.Reason || !was.LastTransitionTime.Equal(&is.LastTransitionTime)
}

// Reconcile updates what is shown of one spoke.
func (s *spokes) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	sc := &v1alpha1.SpokeCluster{}
	if err := s.reader.Get(ctx, req.NamespacedName, sc); err != nil {
		if client.IgnoreNotFound(err) != nil {
			return reconcile.Result{}, fmt.Errorf("reading SpokeCluster %s: %w", req.Name, err)
		}
		s.damper.forget(req.Name)
		s.board.forgetSpoke(req.Name)
		return reconcile.Result{}, nil
	}
	changed, result := s.damper.observe(sc)
	if changed {
		s.notify(ctx, req.Name)
	}
	return result, nil
}
