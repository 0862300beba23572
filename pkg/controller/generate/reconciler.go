// Package generate keeps an AlertRule on the hub for every workload in a spoke that an AlertRuleTemplate
// matches.
//
// It reconciles one workload in one spoke at a time. It reads the spoke's cache and writes only to the hub.
package generate

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/contest"
	"github.com/rulefleet/rulefleet/pkg/controller/brake"
	"github.com/rulefleet/rulefleet/pkg/controller/expect"
	"github.com/rulefleet/rulefleet/pkg/controller/hub"
	"github.com/rulefleet/rulefleet/pkg/interval"
	"github.com/rulefleet/rulefleet/pkg/metrics"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/coverage"
	"github.com/rulefleet/rulefleet/pkg/rule/templating"
	"github.com/rulefleet/rulefleet/pkg/rule/validation"
	"github.com/rulefleet/rulefleet/pkg/spoke"
	"github.com/rulefleet/rulefleet/pkg/spoke/queue"
)

// namespaceLag is when to check again for a workload's namespace, because the two arrive by separate
// watches.
const namespaceLag = time.Second

// staleRetry is when to retry while the hub's cache lags behind a write. The event of the write triggers a
// reconcile as well, unless another key made the write.
const staleRetry = time.Second

// quotaRetry is when to retry a workload that lacks AlertRules because of the spoke's quota. It is enqueued when there is
// room; this is for room that another workload did not use.
const quotaRetry = 5 * time.Minute

// Spokes are the engaged spokes.
type Spokes interface {
	// Spoke returns an engaged spoke, or nil.
	Spoke(name string) *spoke.Spoke
	// Spokes returns all engaged spokes.
	Spokes() []*spoke.Spoke
	// KindsChanged is called when templates may name other kinds of workloads than before.
	KindsChanged()
	// ChangedSoon requests an update of a spoke's status.
	ChangedSoon(name string)
}

// Options are the options of the Reconciler.
type Options struct {
	// Hub reads the hub's cache and writes to the hub.
	Hub client.Client
	// Guard confirms that an absent template was deleted.
	Guard hub.Guard
	// Witness remembers changes that were seen on the hub.
	Witness *hub.Witness
	// Spokes are the engaged spokes.
	Spokes Spokes
	// Brake holds mass deletions.
	Brake *brake.Brake
	// Recorder emits Events about templates that can't be filled in for a workload.
	Recorder events.EventRecorder
	// Contests slows down writes that another client reverts; nil means one for this Reconciler only.
	Contests *contest.Writes
	// Changed is called when an AlertRule's status has to be updated; it may be nil.
	Changed func(rule.Key)
	// Intervals scales the retry intervals.
	Intervals interval.Scale
	// Outcomes is told what became of each workload; it may be nil.
	Outcomes Outcomes
	// Propagation measures the latency of changes; it may be nil.
	Propagation *metrics.Propagation
	// Namespace is the namespace of generated AlertRules.
	Namespace string
	// NamespaceShare is how many percent of a spoke's maxRules the workloads of one of its namespaces can use;
	// 0 means all.
	NamespaceShare int
	// Writes is how many AlertRules per second a spoke may cause to be rewritten; 0 means DefaultWrites.
	Writes int
	// MaxObjects is how many objects of a kind a spoke can have; 0 means spoke.DefaultMaxObjects.
	MaxObjects int
	// Validator validates templates and rules.
	Validator *validation.Validator
}

// Reconciler manages the AlertRules of one workload in one spoke.
type Reconciler struct {
	Options

	writes *expect.Writes[types.NamespacedName]
	quota  quota
	pace   pace
	// replays limits how often the workloads of a changed namespace are enqueued.
	replays spoke.Replays
}

// Lacking returns the number of workloads of a spoke that lack AlertRules because of maxRules, and a namespace
// that has its share if others have not.
func (r *Reconciler) Lacking(spoke string) (n int, namespace string) { return r.quota.lackingOf(spoke) }

// Forget drops the state of a spoke that is no longer registered. Its AlertRules count while they are on the
// hub.
func (r *Reconciler) Forget(name string) {
	r.quota.forget(name)
	r.pace.forget(name)
	r.replays.Forget(name)
}

// NewReconciler returns a Reconciler.
func NewReconciler(o Options) *Reconciler {
	if o.Contests == nil {
		o.Contests = contest.New(clock.RealClock{}, o.Intervals)
	}
	if o.Propagation == nil {
		o.Propagation = metrics.NewPropagation(clock.RealClock{})
	}
	r := &Reconciler{
		Options: o, writes: expect.New[types.NamespacedName](clock.RealClock{}),
		pace: pace{writes: o.Writes}, quota: quota{percent: o.NamespaceShare}, replays: spoke.Replays{Burst: o.MaxObjects},
	}
	r.quota.changed = func(name string) { r.Spokes.ChangedSoon(name) }
	return r
}

// applied reports whether everything that can be applied now is applied and visible in the cache.
func applied(unseen, waits time.Duration) bool {
	// A longer wait than that for the cache is for a person, the end of a contest, or an overdue event.
	return unseen == 0 && (waits == 0 || waits > staleRetry)
}

// Reconcile reconciles the AlertRules of one workload.
func (r *Reconciler) Reconcile(ctx context.Context, req queue.Request) (reconcile.Result, error) {
	s := r.Spokes.Spoke(req.ClusterName.String())
	switch {
	case s == nil:
		return reconcile.Result{}, nil // engaging it enqueues all its keys again
	case !s.Reads(v1alpha1.WorkloadKind(req.Kind)):
		return reconcile.Result{}, r.unread(ctx, s, req)
	}
	if err := s.Identity.Settle(ctx); err != nil {
		return reconcile.Result{}, err //nolint:wrapcheck // it says all
	}
	key := hub.KeyOf(req)
	workload, ready, err := r.observe(ctx, s, key)
	if err != nil {
		return reconcile.Result{}, err
	}
	if !ready {
		r.report(s, req, coverage.Outcomes{}) // nothing can be generated yet
		return reconcile.Result{RequeueAfter: namespaceLag}, nil
	}
	existing, err := hub.GeneratedFor(ctx, r.Hub, s.Name, key)
	if err != nil {
		return reconcile.Result{}, err
	}
	input := digest(workload)
	if wait := r.turn(s.Name, key, workload, input, len(existing)); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	ctx, writes := counting(ctx)
	defer func() { r.pace.wrote(s.Name, key, input, *writes) }()
	ctx, told := telling(ctx)
	desired, keep, err := r.desired(ctx, workload)
	if err != nil {
		return reconcile.Result{}, err
	}
	unseen, waits, full, failed := r.apply(ctx, workload, desired)
	r.quota.record(s.Name, key, full)
	r.report(s, req, withKept(workload, told, keep, existing))
	if failed == nil && applied(unseen, waits) {
		r.Propagation.WorkloadDone(s.Name, key)
	}
	unfounded, unsure, err := r.unfoundedOf(ctx, workload, desired, keep, existing)
	if err != nil {
		return reconcile.Result{}, errors.Join(failed, err)
	}
	unfounded, unconfirmed, err := r.confirmed(ctx, s, key, workload, unfounded)
	if err != nil {
		return reconcile.Result{}, errors.Join(failed, err)
	}
	held, err := r.prune(ctx, req, unfounded)
	if err := errors.Join(failed, err); err != nil {
		return reconcile.Result{}, err
	}
	later := time.Duration(0)
	if full {
		later = r.Intervals.Of(quotaRetry)
	}
	return reconcile.Result{RequeueAfter: interval.Soonest(min(unseen, staleRetry), waits, unsure, unconfirmed, held, later)}, nil
}

// turn returns how long the writes for a workload have to wait. Without it and without AlertRules, there are none.
func (r *Reconciler) turn(cluster string, key rule.Key, w *templating.Workload, input uint64, existing int) time.Duration {
	if w == nil && existing == 0 {
		return 0
	}
	return r.pace.wait(cluster, key, input)
}

// unread drops what is kept of a workload whose kind is not read any more. Its AlertRules stay, if there are any: then the
// kind is about to be read again, which enqueues all keys.
func (r *Reconciler) unread(ctx context.Context, s *spoke.Spoke, req queue.Request) error {
	key := hub.KeyOf(req)
	existing, err := hub.GeneratedFor(ctx, r.Hub, s.Name, key)
	if err != nil {
		return fmt.Errorf("looking for AlertRules of %s, which is not read any more: %w", key, err)
	}
	if len(existing) > 0 {
		return nil
	}
	r.quota.record(s.Name, key, false)
	_, err = r.prune(ctx, req, nil)
	return err
}

// observe reads the workload and everything that templates may use of it. It returns nil if the workload does
// not exist. ready is false while the caches lack something.
func (r *Reconciler) observe(ctx context.Context, s *spoke.Spoke, key rule.Key) (w *templating.Workload, ready bool, err error) {
	cluster, err := hub.Cluster(ctx, r.Hub, s.Name)
	if err != nil || cluster == nil {
		return nil, false, err
	}
	o := spoke.WorkloadMetadata(v1alpha1.WorkloadKind(key.Kind))
	switch err := s.Reader.Get(ctx, key.NamespacedName(), o); {
	case apierrors.IsNotFound(err):
		return nil, true, nil
	case err != nil:
		return nil, false, fmt.Errorf("reading %s of spoke %s: %w", key, s.Name, err)
	case !o.DeletionTimestamp.IsZero():
		return nil, true, nil
	}
	ns := spoke.NamespaceMetadata()
	switch err := s.Reader.Get(ctx, client.ObjectKey{Name: key.Namespace}, ns); {
	case apierrors.IsNotFound(err):
		return nil, false, nil
	case err != nil:
		return nil, false, fmt.Errorf("reading namespace %s of spoke %s: %w", key.Namespace, s.Name, err)
	}
	w = workload(v1alpha1.WorkloadKind(key.Kind), o, ns)
	w.Cluster = *cluster
	return w, true, nil
}

// workload returns a workload as templates see it.
func workload(kind v1alpha1.WorkloadKind, o, ns *metav1.PartialObjectMetadata) *templating.Workload {
	return &templating.Workload{Kind: kind, Namespace: o.Namespace, NamespaceLabels: ns.Labels, Name: o.Name, Labels: o.Labels, Annotations: o.Annotations}
}

// desired returns the AlertRules that the workload should have, by name, and the templates whose AlertRules
// stay as they are because their desired state is unknown. A bad template affects only its own.
func (r *Reconciler) desired(ctx context.Context, w *templating.Workload) (map[string]*v1alpha1.AlertRule, map[string]bool, error) {
	if w == nil {
		return nil, nil, nil
	}
	var templates v1alpha1.AlertRuleTemplateList
	if err := r.Hub.List(ctx, &templates); err != nil {
		return nil, nil, fmt.Errorf("listing AlertRuleTemplates: %w", err)
	}
	desired, keep := map[string]*v1alpha1.AlertRule{}, map[string]bool{}
	for i := range templates.Items {
		w.Know(&templates.Items[i])
	}
	for i := range templates.Items {
		t := &templates.Items[i]
		if templating.Frozen(t) || r.Validator.ValidateTemplate(t) != nil {
			keep[t.Name] = true // the template's status shows it
			continue
		}
		selects, err := templating.SelectsWorkload(t, *w)
		if err != nil {
			keep[t.Name] = true
			continue
		}
		if !selects {
			continue
		}
		if templating.TurnedOff(t, *w) {
			tell(ctx, t.Name, coverage.Disabled)
			continue
		}
		ar, err := r.made(t, *w)
		if err != nil {
			keep[t.Name] = true
			tell(ctx, t.Name, coverage.Failed)
			count(ctx) // an Event
			note := fmt.Sprintf("%s %s/%s of spoke %s: %v", w.Kind, w.Namespace, w.Name, w.Cluster.Name, err)
			r.Recorder.Eventf(t, nil, corev1.EventTypeWarning, "NotGenerated", "Generate", "%s", spoke.Clip(note, spoke.MaxNote))
			continue
		}
		desired[ar.Name] = ar
		tell(ctx, t.Name, coverage.Generated)
	}
	return desired, keep, nil
}

// made returns the AlertRule that a template generates for a workload. The error says that the two are not
// valid together, so the hub would refuse the result. If the workload's adjustments are the cause, it omits
// them.
func (r *Reconciler) made(t *v1alpha1.AlertRuleTemplate, w templating.Workload) (*v1alpha1.AlertRule, error) {
	ar, err := templating.Rule(t, w, r.Namespace)
	if err != nil {
		return nil, err //nolint:wrapcheck // it says all
	}
	if templating.Sound(ar, w) {
		return ar, nil
	}
	bad := r.Validator.Validate(ar)
	if bad == nil {
		return ar, nil
	}
	if ar, err = templating.Rule(t, w.Unadjusted(bad), r.Namespace); err != nil {
		return nil, err //nolint:wrapcheck // it says all
	}
	if bad := r.Validator.Validate(ar); bad != nil {
		return nil, bad
	}
	return ar, nil
}
