package status

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/contest"
	"github.com/rulefleet/rulefleet/pkg/controller/hub"
	"github.com/rulefleet/rulefleet/pkg/interval"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/rollup"
	"github.com/rulefleet/rulefleet/pkg/rule/templating"
	"github.com/rulefleet/rulefleet/pkg/rule/validation"
	"github.com/rulefleet/rulefleet/pkg/spoke"
	spokequeue "github.com/rulefleet/rulefleet/pkg/spoke/queue"
)

type (
	queue        = workqueue.TypedRateLimitingInterface[rule.Key]
	eventHandler = handler.TypedEventHandler[client.Object, rule.Key]
)

// Reconciler writes the status of AlertRules and RulePacks.
type Reconciler struct {
	// Client reads the hub's cache and writes to the hub.
	Client client.Client
	// Board holds the verdicts.
	Board *Board
	// Recorder emits Events about rules that are not accepted.
	Recorder events.EventRecorder
	// Validator validates rules.
	Validator *validation.Validator
	// Tenants finds the tenants of rules; nil means that spokes take the rules of all.
	Tenants *hub.Tenants
	// Places reports which rules wait because of the limit of their namespace; it may be nil.
	Places *hub.Places
	// Metrics reports whether the series that expressions select are queried.
	Metrics bool
	// Contests reports which AlertRules another client on the hub reverts; it may be nil.
	Contests *contest.Writes
	// Intervals scales the time between two writes about firing alerts.
	Intervals interval.Scale

	damper   damper
	memories sync.Map // of known, by the rule's key
	lives    hub.Lives
	// rules is the queue of AlertRules once the controller has started.
	rules atomic.Pointer[queue]
	// started is when it has.
	started time.Time
}

// SetupWithManager adds the Reconciler and its reconciler of SpokeClusters to the hub's manager.
func (r *Reconciler) SetupWithManager(mgr manager.Manager) error {
	news := spokequeue.Source(&r.Board.news, func(q queue, key rule.Key) { q.AddAfter(key, debounce) })
	shown := source.TypedFunc[rule.Key](func(_ context.Context, q queue) error {
		r.started = time.Now()
		r.rules.Store(&q)
		return nil
	})
	err := builder.TypedControllerManagedBy[rule.Key](mgr).
		Named("status").
		Watches(&v1alpha1.AlertRule{}, later{}).
		Watches(&v1alpha1.RulePack{}, later{}).
		Watches(&v1alpha1.SpokeCluster{}, r.onSpokeCluster()).
		WatchesRawSource(news).
		WatchesRawSource(shown).
		WithOptions(options[rule.Key]()).
		WithLogConstructor(func(key *rule.Key) logr.Logger {
			log := mgr.GetLogger().WithValues("controller", "status")
			if key != nil {
				log = log.WithValues("kind", key.Kind, "namespace", key.Namespace, "name", key.Name)
			}
			return log
		}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up status: %w", err)
	}
	return (&spokes{reader: r.Client, damper: &r.damper, board: r.Board, notify: r.onShown}).setup(mgr)
}

// onSpokeCluster enqueues the rules that may be placed on a SpokeCluster that was created, deleted or
// relabeled.
func (r *Reconciler) onSpokeCluster() eventHandler {
	return handler.TypedFuncs[client.Object, rule.Key]{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) {
			r.saw(e.Object)
			r.onSpoke(ctx, q, e.Object.GetName(), everyRule)
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			if e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() || !maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels()) {
				r.Board.renew(e.ObjectNew.GetName())
			}
			switch {
			case r.saw(e.ObjectNew):
				r.onSpoke(ctx, q, e.ObjectNew.GetName(), everyRule)
			case tenantsChanged(e.ObjectOld, e.ObjectNew):
				r.onSpoke(ctx, q, e.ObjectNew.GetName(), everyRule)
			case !maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels()):
				r.onSpoke(ctx, q, e.ObjectNew.GetName(), seesLabels)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) {
			r.lives.Gone(e.Object.GetName())
			r.forgetSpoke(e.Object.GetName())
			r.onSpoke(ctx, q, e.Object.GetName(), everyRule)
		},
	}
}

// tenantsChanged reports whether a spoke takes AlertRules of other namespaces than before.
func tenantsChanged(before, after client.Object) bool {
	was, ok := before.(*v1alpha1.SpokeCluster)
	is, too := after.(*v1alpha1.SpokeCluster)
	return ok && too && !equality.Semantic.DeepEqual(was.Spec.Tenants, is.Spec.Tenants)
}

// saw records a SpokeCluster, and reports whether it replaces another one of the same name. A deletion and a
// creation may arrive as one event.
func (r *Reconciler) saw(sc client.Object) bool {
	another := r.lives.Saw(sc.GetName(), sc.GetUID())
	if another {
		r.forgetSpoke(sc.GetName())
	}
	return another
}

// forgetSpoke drops the state of a spoke that is gone. It runs with the event, before verdicts on a new spoke
// of that name can arrive.
func (r *Reconciler) forgetSpoke(name string) {
	r.Board.forgetSpoke(name)
	r.damper.forget(name)
}

// onShown enqueues the rules on a spoke whose shown outage changed.
func (r *Reconciler) onShown(ctx context.Context, name string) {
	if q := r.rules.Load(); q != nil { // otherwise all rules are about to be enqueued
		r.onSpoke(ctx, *q, name, everyRule)
	}
}

func options[R comparable]() controller.TypedOptions[R] { return spokequeue.ControllerOptions[R](8) }

// later enqueues the object of an event after the debounce, so that the first verdicts on a new rule are part
// of its first write.
type later struct{}

// Create implements handler.EventHandler.
func (later) Create(_ context.Context, e event.CreateEvent, q queue) { enqueueLater(q, e.Object) }

// Update implements handler.EventHandler.
func (later) Update(_ context.Context, e event.UpdateEvent, q queue) { enqueueLater(q, e.ObjectNew) }

// Delete implements handler.EventHandler.
func (later) Delete(_ context.Context, e event.DeleteEvent, q queue) { enqueueLater(q, e.Object) }

// Generic implements handler.EventHandler.
func (later) Generic(_ context.Context, e event.GenericEvent, q queue) { enqueueLater(q, e.Object) }

func enqueueLater(q queue, o client.Object) {
	q.AddAfter(rule.KeyOf(o.(rule.Source)), debounce)
}

func everyRule(rule.Source) bool { return true }

// seesLabels reports whether a rule may depend on the labels of spokes.
func seesLabels(s rule.Source) bool {
	return rule.SeesLabels(s.GetPlacement()) ||
		slices.ContainsFunc(s.GetOverrides(), func(o v1alpha1.Override) bool { return rule.SeesLabels(o.ClusterSelection) })
}

// onSpoke enqueues the rules that may be placed on a spoke and that concerns selects. There can be thousands,
// most without a change, so they have a low priority.
func (r *Reconciler) onSpoke(ctx context.Context, q queue, name string, concerns func(rule.Source) bool) {
	rules, err := hub.RulesMaybeOn(ctx, r.Client, name)
	if err != nil {
		return // the cache has synced and the index exists, so the process is ending
	}
	for _, source := range rules {
		if !concerns(source) {
			continue
		}
		key := rule.KeyOf(source)
		if pq, ok := q.(priorityqueue.PriorityQueue[rule.Key]); ok {
			pq.AddWithOpts(priorityqueue.AddOpts{After: debounce, Priority: new(handler.LowPriority)}, key)
			continue
		}
		q.AddAfter(key, debounce)
	}
}

// Reconcile updates the status of one source from the verdicts on it.
func (r *Reconciler) Reconcile(ctx context.Context, key rule.Key) (reconcile.Result, error) {
	count := r.lives.Count() // before anything is read
	source, err := hub.Source(ctx, r.Client, key)
	if err != nil {
		return reconcile.Result{}, err //nolint:wrapcheck // it says all
	}
	if source == nil {
		r.forget(key, "")
		return reconcile.Result{}, nil
	}
	was := r.recall(source)
	in, err := r.input(ctx, source, was)
	if err != nil {
		return reconcile.Result{}, err
	}
	status, is, again := r.derive(in)
	is.written, is.paced = was.written, was.paced
	r.memories.Store(key, is)
	if equality.Semantic.DeepEqual(&status, source.GetStatus()) {
		return reconcile.Result{RequeueAfter: again}, nil
	}
	if wait := awaited(source, &status, in.Now.Time); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	write := contest.OfStatus(key.Kind, source, &status)
	if turn := r.yield(write, source); turn.Behind || turn.Wait > 0 {
		return reconcile.Result{RequeueAfter: max(turn.Wait, debounce)}, nil
	}
	now := time.Now()
	wait := is.paced.hold(r.Board.firing, rollup.Compare(source.GetStatus(), &status), now, r.Intervals.Of(firingInterval))
	r.memories.Store(key, is)
	if wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	next := source.DeepCopyObject().(rule.Source)
	*next.GetStatus() = status
	// The base may be old. Without the lock, the patch would omit fields that it considers unchanged.
	patch := client.MergeFromWithOptions(source, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Status().Patch(ctx, next, patch); err != nil {
		is.paced = paced{} // nothing was written
		r.memories.Store(key, is)
		switch {
		case apierrors.IsNotFound(err):
			return reconcile.Result{}, nil
		case apierrors.IsConflict(err):
			return reconcile.Result{RequeueAfter: debounce}, nil
		}
		return reconcile.Result{}, fmt.Errorf("writing the status of %s: %w", key, err)
	}
	is.paced.written(now, time.Now())
	if r.Contests != nil && next.GetResourceVersion() != source.GetResourceVersion() {
		r.Contests.Wrote(write, next)
	}
	is.written = &count
	r.memories.Store(key, is)
	r.tell(source, &status)
	return reconcile.Result{RequeueAfter: again}, nil
}

// firstPatience is how long the first write of a status waits for the spokes that have not processed the rule yet: a
// manager or a spoke under load needs longer than the debounce.
const firstPatience = 6 * time.Second

// awaited returns how much longer the first status of a rule waits for spokes.
func awaited(s rule.Source, status *v1alpha1.RuleStatus, now time.Time) time.Duration {
	waits := func(c v1alpha1.ClusterStatus) bool { return c.Reason == v1alpha1.ReasonWaiting }
	age := now.Sub(s.GetCreationTimestamp().Time)
	if s.GetStatus().ObservedGeneration > 0 || age < 0 || !slices.ContainsFunc(status.Clusters, waits) {
		return 0
	}
	return max(0, firstPatience-age) // the age has whole seconds, so this is at least 5 s
}

// derive returns the next status of a rule, what is to be kept of it, and when to look at it again.
func (r *Reconciler) derive(in rollup.Input) (v1alpha1.RuleStatus, known, time.Duration) {
	var again time.Duration
	if r.Contests != nil {
		in.Contested, again = r.Contests.OfRule(in.Rule.SourceKind(), rule.KeyOf(in.Rule), "")
	}
	left := r.starting()
	in.Starting = left > 0
	status, rows := rollup.Status(in)
	if rows == nil && (again == 0 || left < again) {
		again = left
	}
	is := newKnown(in.Rule.GetUID(), &status, rows)
	return status, is, again
}

// recall returns what is known of a source, and drops what is known of one that had its name before.
func (r *Reconciler) recall(s rule.Source) known {
	key := rule.KeyOf(s)
	was, ok := r.memories.Load(key)
	if ok && was.(known).of != s.GetUID() {
		r.forget(key, s.GetUID())
		ok = false
	}
	if !ok {
		return known{}
	}
	return was.(known)
}

// forget drops what is known of the AlertRules that had a name, except of the one with the UID.
func (r *Reconciler) forget(key rule.Key, except types.UID) {
	r.Board.drop(key, except)
	r.memories.Delete(key)
}

// yield returns whether to write a status now, or later because another client keeps changing it back.
func (r *Reconciler) yield(write contest.Write, s rule.Source) contest.Turn {
	if r.Contests == nil {
		return contest.Turn{}
	}
	return r.Contests.Yield(write, s, func(message string) {
		r.Recorder.Eventf(s, nil, corev1.EventTypeWarning, v1alpha1.ReasonContested, "Status", "%s", spoke.Clip(message, spoke.MaxNote))
	})
}

// startPatience is how long after a start a status that does not list all spokes waits for those that are connected to
// report.
const startPatience = time.Minute

// starting returns for how long statuses may still have to wait because the controller has just started.
func (r *Reconciler) starting() time.Duration {
	if r.started.IsZero() {
		return 0
	}
	return max(0, r.Intervals.Of(startPatience)-time.Since(r.started))
}

// input collects the input of a rule's status.
func (r *Reconciler) input(ctx context.Context, source rule.Source, was known) (rollup.Input, error) {
	in := rollup.Input{
		Rule: source, Invalid: r.Validator.Validate(source), Last: was.last,
		Verdicts: r.Board.rows(rule.KeyOf(source), source.GetUID()), Leftovers: r.Board.leftover(rule.KeyOf(source)), Now: metav1.NewTime(r.damper.now()), Metrics: r.Metrics,
	}
	if in.Invalid == nil {
		var err error
		if in.Invalid, err = r.Places.Waits(ctx, source); err != nil {
			return in, err //nolint:wrapcheck // it says all
		}
	}
	if in.Invalid == nil {
		in.Warnings = r.Validator.Warnings(source)
	}
	if ar, ok := source.(*v1alpha1.AlertRule); ok && hub.Generated(ar) {
		in.Overridden = templating.Overridden(ar)
	}
	spokes, err := r.concerned(ctx, &in)
	if err != nil {
		return in, err
	}
	count := ptr.Deref(was.written, 0)
	in.Clusters = make([]rollup.Spoke, 0, len(spokes))
	for i := range spokes {
		sc := &spokes[i]
		c := rule.Cluster{Name: sc.Name, Labels: sc.Labels, Tenants: sc.Spec.Tenants}
		if known, err := r.Tenants.Ask(ctx, nil, source.GetNamespace(), &c); err != nil {
			return in, err //nolint:wrapcheck // it says all
		} else if !known {
			c.Tenant = nil // until it is known, the rows stay
		}
		in.Clusters = append(in.Clusters, rollup.Spoke{
			Cluster: c, Shown: r.damper.of(sc),
			Renewed: r.lives.ChangedSince(sc.Name, count) || (was.written == nil && rollup.Predates(source, sc.CreationTimestamp)),
		})
	}
	return in, nil
}

// mostNamed is the number of spokes up to which they are read one by one.
const mostNamed = 16

// concerned returns the spokes that the status of a rule can depend on. A rule that is placed by a few names, such as a
// generated one, concerns only these and those with a row: otherwise, each of a fleet's rules would read all its spokes.
func (r *Reconciler) concerned(ctx context.Context, in *rollup.Input) ([]v1alpha1.SpokeCluster, error) {
	placement, names := in.Rule.GetPlacement(), map[string]bool{}
	for _, name := range placement.Names {
		names[string(name)] = true
	}
	for i := range in.Rule.GetStatus().Clusters {
		names[string(in.Rule.GetStatus().Clusters[i].Name)] = true
	}
	for _, rows := range []map[string]v1alpha1.ClusterStatus{in.Verdicts, in.Leftovers} {
		for name := range rows {
			names[name] = true
		}
	}
	if placement.Selector != nil || len(names) > mostNamed {
		var all v1alpha1.SpokeClusterList
		if err := r.Client.List(ctx, &all); err != nil {
			return nil, fmt.Errorf("listing SpokeClusters: %w", err)
		}
		return all.Items, nil
	}
	out := make([]v1alpha1.SpokeCluster, 0, len(names))
	for _, name := range slices.Sorted(maps.Keys(names)) {
		var sc v1alpha1.SpokeCluster
		switch err := r.Client.Get(ctx, client.ObjectKey{Name: name}, &sc); {
		case apierrors.IsNotFound(err):
		case err != nil:
			return nil, fmt.Errorf("reading SpokeCluster %s: %w", name, err)
		default:
			out = append(out, sc)
		}
	}
	return out, nil
}

// tell emits an Event when a rule is no longer accepted, or for another reason.
func (r *Reconciler) tell(s rule.Source, status *v1alpha1.RuleStatus) {
	was := apimeta.FindStatusCondition(s.GetStatus().Conditions, v1alpha1.ConditionAccepted)
	is := apimeta.FindStatusCondition(status.Conditions, v1alpha1.ConditionAccepted)
	if is == nil || is.Status != metav1.ConditionFalse || (was != nil && was.Status == is.Status && was.Message == is.Message) {
		return
	}
	r.Recorder.Eventf(s, nil, "Warning", is.Reason, "Validate", "%s", is.Message)
}
