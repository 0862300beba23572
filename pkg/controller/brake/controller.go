package brake

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/contest"
	"github.com/rulefleet/rulefleet/pkg/controller/hub"
	"github.com/rulefleet/rulefleet/pkg/metrics"
	"github.com/rulefleet/rulefleet/pkg/spoke"
	"github.com/rulefleet/rulefleet/pkg/spoke/queue"
)

const (
	// debounce collects changes into one write of a status.
	debounce = 2 * time.Second
	// retry is when to retry after a conflicting write, and to check for deletions held before a start.
	retry = time.Second
)

// Woken is a source for a hop's controller that enqueues the keys whose deletions are released.
func (b *Brake) Woken(hop Hop) source.TypedSource[queue.Request] {
	return queue.Source(b.released[hop], func(q spoke.WorkQueue, w woken) {
		for _, owner := range w.owners {
			spoke.Enqueue(q, handler.LowPriority, hub.Request(w.spoke, owner))
		}
	})
}

// Reconciler shows held deletions on SpokeClusters, and processes acknowledgements.
type Reconciler struct {
	// Client reads the hub's cache and writes to the hub.
	Client client.Client
	// Brake is the brake.
	Brake *Brake
	// Engaged reports whether a spoke is engaged.
	Engaged func(spoke string) bool
	// Changed is called when the status of a SpokeCluster has to be updated.
	Changed func(spoke string)
	// Recorder emits Events about held deletions and acknowledgements.
	Recorder events.EventRecorder
	// Contests slows down the removal of acknowledgements that another client keeps setting.
	Contests *contest.Writes
}

// SetupWithManager adds the Reconciler to the hub's manager.
func (r *Reconciler) SetupWithManager(mgr manager.Manager) error {
	changed := queue.Source(&r.Brake.changed, func(q workqueue.TypedRateLimitingInterface[reconcile.Request], name string) {
		q.AddAfter(reconcile.Request{NamespacedName: client.ObjectKey{Name: name}}, debounce)
	})
	err := ctrl.NewControllerManagedBy(mgr).
		Named("brake").
		Watches(&v1alpha1.SpokeCluster{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(concerned)).
		WatchesRawSource(changed).
		WithOptions(queue.ControllerOptions[reconcile.Request](2)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up the controller that holds deletions: %w", err)
	}
	return nil
}

// concerned passes the creation and deletion of a SpokeCluster, and an acknowledgement.
var concerned = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool { return acknowledges(e.ObjectNew) },
}

func acknowledges(o client.Object) bool {
	return o.GetAnnotations()[v1alpha1.AcknowledgeDeletionsAnnotation] != ""
}

// Reconcile processes an acknowledgement, and updates what is shown of one spoke.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	sc := &v1alpha1.SpokeCluster{}
	err := r.Client.Get(ctx, req.NamespacedName, sc)
	switch {
	case apierrors.IsNotFound(err):
		r.Brake.drop(req.Name)
		metrics.HeldDeletions.DeletePartialMatch(map[string]string{"cluster": req.Name})
		return reconcile.Result{}, nil
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("reading SpokeCluster %s: %w", req.Name, err)
	}
	wait := time.Duration(0)
	if acknowledges(sc) {
		if wait, err = r.acknowledge(ctx, sc); err != nil {
			return reconcile.Result{}, err
		}
	}
	p := r.Brake.publish(req.Name, r.Engaged(req.Name))
	for hop, n := range p.held {
		metrics.HeldDeletions.WithLabelValues(req.Name, string(hop)).Set(float64(n))
	}
	r.tell(ctx, sc, p)
	if !p.was.Equal(p.is) {
		r.Changed(req.Name)
	}
	if wait == 0 {
		wait = p.next
	}
	return reconcile.Result{RequeueAfter: wait}, nil
}

// acknowledge removes the annotation and then releases what is held, so that the next mass deletion needs
// another acknowledgement. It returns when to retry, or 0. An acknowledgement with nothing to acknowledge that
// keeps coming back does not come from a person.
func (r *Reconciler) acknowledge(ctx context.Context, sc *v1alpha1.SpokeCluster) (time.Duration, error) {
	if r.Brake.unsettled(sc.Name) {
		return retry, nil // the status shows deletions that are not held again yet
	}
	write := contest.Removal(sc, v1alpha1.AcknowledgeDeletionsAnnotation)
	turn := r.Contests.Yield(write, sc, func(string) { r.Changed(sc.Name) })
	if turn.Behind || turn.Wait > 0 {
		return turn.Wait, nil // if the cache is behind, an event follows
	}
	next := sc.DeepCopy()
	delete(next.Annotations, v1alpha1.AcknowledgeDeletionsAnnotation)
	err := r.Client.Patch(ctx, next, client.MergeFromWithOptions(sc, client.MergeFromWithOptimisticLock{}))
	switch {
	case apierrors.IsNotFound(err):
		return 0, nil
	case apierrors.IsConflict(err):
		return max(retry, r.Contests.LostTo(write, sc.ResourceVersion, sc, func(string) { r.Changed(sc.Name) })), nil
	case err != nil:
		return 0, fmt.Errorf("removing the acknowledgement from SpokeCluster %s: %w", sc.Name, err)
	}
	n := r.Brake.Acknowledge(sc.Name, named(sc))
	left := r.Brake.suspects(sc.Name)
	switch {
	case n > 0 && left > 0:
		r.Recorder.Eventf(sc, nil, "Normal", "DeletionsAcknowledged", "Release",
			"%d held deletions were acknowledged and continue; %d more were not listed in status.pendingDeletions.names and need another acknowledgement", n, left)
		return 0, nil
	case n > 0:
		r.Recorder.Eventf(sc, nil, "Normal", "DeletionsAcknowledged", "Release", "%d held deletions were acknowledged and continue", n)
		return 0, nil
	case left > 0:
		r.Recorder.Eventf(sc, nil, "Warning", "NothingReleased", "Release",
			"annotation %s was removed and had no effect: %d held deletions were not listed in status.pendingDeletions.names; set it again when they are listed",
			v1alpha1.AcknowledgeDeletionsAnnotation, left)
		return 0, nil
	}
	r.Contests.Wrote(write, next)
	r.Recorder.Eventf(sc, nil, "Warning", "NothingReleased", "Release",
		"annotation %s was removed and had no effect: no deletion is held; set it only when deletions are held", v1alpha1.AcknowledgeDeletionsAnnotation)
	return 0, nil
}

// named returns the AlertRules in the status when it was acknowledged.
func named(sc *v1alpha1.SpokeCluster) []string {
	if sc.Status.PendingDeletions == nil {
		return nil
	}
	return sc.Status.PendingDeletions.Names
}

// tell emits an Event when deletions begin or cease to be held.
func (r *Reconciler) tell(ctx context.Context, sc *v1alpha1.SpokeCluster, p publication) {
	log := log.FromContext(ctx).WithValues("cluster", sc.Name)
	switch {
	case p.was == nil && p.is != nil:
		for hop, n := range p.held {
			if n > 0 {
				metrics.DeletionHolds.WithLabelValues(string(hop)).Inc()
			}
		}
		log.Info("holding deletions", "count", p.is.Count, "message", p.is.Message)
		r.Recorder.Eventf(sc, nil, "Warning", v1alpha1.ReasonDeletionsHeld, "Hold", "%s", spoke.Clip(p.is.Message, spoke.MaxNote))
	case p.was == nil || p.is != nil:
	case p.ended == waited:
		log.Info("held deletions continue: the hold is over")
		r.Recorder.Eventf(sc, nil, "Normal", "DeletionsReleased", "Release", "the hold is over; the deletions continue")
	case p.ended == decided:
		log.Info("held deletions no longer need an acknowledgement")
		r.Recorder.Eventf(sc, nil, "Normal", "DeletionsReleased", "Release", "the held deletions no longer need an acknowledgement: they continue, or are no longer necessary")
	case p.ended == acknowledged: // it has its own Event
		log.Info("held deletions continue: they were acknowledged")
	default:
		log.Info("no deletions are held any more: the rules are needed again, or the remaining deletions are too few to be held")
		r.Recorder.Eventf(sc, nil, "Normal", "DeletionsReleased", "Release", "no deletions are held any more: the rules are needed again, or the remaining deletions are too few to be held")
	}
}
