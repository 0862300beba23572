package membership

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/contest"
	"github.com/rulefleet/rulefleet/pkg/controller/brake"
	"github.com/rulefleet/rulefleet/pkg/interval"
	"github.com/rulefleet/rulefleet/pkg/live"
	"github.com/rulefleet/rulefleet/pkg/spoke"
	"github.com/rulefleet/rulefleet/pkg/spoke/queue"
)

// Reconciler keeps a SpokeCluster for every registered Secret, and writes the state of the spoke into its
// status.
type Reconciler struct {
	// Client reads the hub's cache and writes to the hub.
	Client client.Client
	// Live reads the hub's Secrets, bypassing the cache.
	Live client.Reader
	// Provider serves the spokes.
	Provider *spoke.Provider
	// HubID is the id of this hub.
	HubID string
	// EvaluatorNamespaces are the namespaces of the spokes whose evaluators may be chosen. Empty means all.
	EvaluatorNamespaces []string
	// Namespace is the operator's own. Secrets are read only there.
	Namespace string
	// Brake holds deletions.
	Brake *brake.Brake
	// Failures reports which rules fail; it may be nil.
	Failures Failures
	// Evaluation reports the state of the spokes' evaluators; it may be nil.
	Evaluation Evaluation
	// Coverage reports which workloads have an alert; it may be nil.
	Coverage Coverage
	// Renewals reports how the tokens of the spokes are renewed; it is nil if they are not.
	Renewals Renewals
	// Contests slows down writes that another client reverts, and reports those that concern a spoke.
	Contests *contest.Writes
	// Rules reports the AlertRules on the hub.
	Rules Rules
	// Recorder emits Events about transitions on the SpokeCluster and the Secret.
	Recorder events.EventRecorder
	// LeaveTimeout bounds the removal of rules from a spoke that leaves.
	LeaveTimeout time.Duration
	// TrackingLabels are labels, or domains of labels, that are not copied from a Secret to its SpokeCluster, in
	// addition to trackingDomains.
	TrackingLabels []string
	// Intervals scales the intervals.
	Intervals interval.Scale
	// Log is the logger.
	Log logr.Logger

	// now is the clock of tests, or nil.
	now func() time.Time

	mu sync.Mutex
	// learned is when all statuses were read, which is when this manager began to connect. It is zero before.
	learned time.Time
	// uids are the UIDs of the last seen SpokeClusters.
	uids map[string]types.UID
	// recollected are the UIDs of the SpokeClusters that were checked for a lost identity.
	recollected map[string]types.UID
	// outdated are the resourceVersions, by SpokeCluster, that are known to be superseded on the hub.
	outdated map[string]string
	// numbers says, by SpokeCluster, when its status is written for numbers only.
	numbers map[string]numbers
}

// Rules reports the AlertRules on the hub that concern a spoke.
type Rules interface {
	// Served reports whether the hub serves the operator's kinds and none of them is being deleted. While one is
	// being deleted, nothing is removed from spokes.
	Served(ctx context.Context) (bool, error)
	// Generated returns the AlertRules that templates generated for workloads of a spoke.
	Generated(ctx context.Context, spoke string) ([]v1alpha1.AlertRule, error)
	// Placed returns the AlertRules, as namespace/name, that are placed on a spoke.
	Placed(ctx context.Context, spoke string) ([]string, error)
	// Doomed returns the AlertRules, as namespace/name, whose PrometheusRules are still in a spoke and are to be
	// removed. known is false if that is unknown.
	Doomed(ctx context.Context, spoke string) (rules []string, known bool)
	// Forgotten reports whether the identity of a spoke may be lost: the CustomResourceDefinition of
	// SpokeClusters was deleted and created again after its Secret was created.
	Forgotten(ctx context.Context, registered time.Time) (bool, error)
	// Lacking returns the number of workloads of a spoke that lack AlertRules because of maxRules, and a
	// namespace that has its share if others have not.
	Lacking(spoke string) (n int, namespace string)
}

// SetupWithManager adds the Reconciler to the hub's manager.
func (r *Reconciler) SetupWithManager(mgr manager.Manager) error {
	byName := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: o.GetName()}}}
	})
	err := ctrl.NewControllerManagedBy(mgr).
		Named("membership").
		Watches(&corev1.Secret{}, byName).
		Watches(&v1alpha1.SpokeCluster{}, byName).
		WatchesRawSource(r.Provider.Changes()).
		WithOptions(queue.ControllerOptions[reconcile.Request](4)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up the controller for SpokeClusters: %w", err)
	}
	return nil
}

// Reconcile reconciles the Secret and the SpokeCluster of this name.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if err := r.learn(ctx); err != nil {
		return reconcile.Result{}, err
	}
	secret, err := r.registered(ctx, r.Client, req.Name)
	if err != nil {
		return reconcile.Result{}, err
	}
	sc, wait, err := r.member(ctx, req.Name, secret)
	if err != nil || sc == nil {
		return reconcile.Result{RequeueAfter: wait}, err
	}
	if !sc.DeletionTimestamp.IsZero() {
		return r.leave(ctx, sc, secret)
	}
	n := news{held: r.Brake.Held(req.Name)}
	n.lacking, n.crowded = r.Rules.Lacking(req.Name)
	if n.finding, err = r.connect(ctx, sc, secret); err != nil {
		return reconcile.Result{}, err
	}
	n.renewing = r.renewing(secret)
	wait = interval.Soonest(wait, r.observe(sc, &n, r.Provider.Observation(req.Name)))
	if !n.away() && sc.Annotations[v1alpha1.AcceptIdentityAnnotation] != "" && sc.Status.Identity == n.seen.Identity {
		left, err := r.accepted(ctx, sc)
		if err != nil || left == 0 {
			return reconcile.Result{}, err
		}
		wait = interval.Soonest(wait, left)
	}
	if n.away() || ptr.Deref(sc.Spec.Suspend, false) {
		n.doomed, n.doomedKnown = r.Rules.Doomed(ctx, req.Name)
	}
	var again time.Duration
	n.contested, again = r.Contests.InSpoke(req.Name)
	now := r.time()
	status := statusOf(sc, n, metav1.NewTime(now))
	tellFailing(&status, failing(r.Failures, sc, n.seen))
	r.tellEvaluation(&status, sc, n)
	tellCoverage(&status, r.Coverage, req.Name)
	later, err := r.show(ctx, sc, secret, status)
	return reconcile.Result{RequeueAfter: interval.Soonest(wait, again, later, n.validity(sc, now).wait())}, err
}

// show writes a status if it differs, and emits Events about transitions. It returns how long to wait if another client
// keeps changing the status back, or until it is due if only numbers differ. If the cache is behind, it writes nothing,
// because the write would conflict and Events would repeat. The next event from the cache triggers another reconcile.
func (r *Reconciler) show(ctx context.Context, sc *v1alpha1.SpokeCluster, secret *corev1.Secret, status v1alpha1.SpokeClusterStatus) (time.Duration, error) {
	if equality.Semantic.DeepEqual(status, sc.Status) {
		r.numbersShown(sc.Name, false)
		return 0, nil
	}
	if r.isOutdated(sc) {
		return 0, nil
	}
	write := contest.OfStatus(contest.SpokeCluster, sc, &status)
	turn := r.Contests.Yield(write, sc, func(message string) {
		r.Recorder.Eventf(sc, nil, corev1.EventTypeWarning, v1alpha1.ReasonContested, "Status", "%s", spoke.Clip(message, spoke.MaxNote))
	})
	if turn.Behind || turn.Wait > 0 {
		return turn.Wait, nil
	}
	numbers := onlyNumbersDiffer(sc.Status, status)
	if numbers {
		if wait := r.numbersWait(sc.Name); wait > 0 {
			return wait, nil
		}
	}
	next := sc.DeepCopy()
	next.Status = status
	err := r.Client.Status().Patch(ctx, next, client.MergeFromWithOptions(sc, client.MergeFromWithOptimisticLock{}))
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		r.setOutdated(sc)
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("writing the status of SpokeCluster %s: %w", sc.Name, err)
	}
	if next.ResourceVersion != sc.ResourceVersion { // otherwise the API server found no change and sends no event
		r.setOutdated(sc)
		r.Contests.Wrote(write, next)
	}
	r.numbersShown(sc.Name, numbers)
	r.announce(sc, secret, status.Conditions)
	return 0, nil
}

// learn reads all statuses before the first spoke is registered. It restores the known identities, because the
// first spoke of a cluster has to keep it whichever answers first now, and the held deletions. It also records
// which spokes have no Secret any more: a successor that is engaged earlier would remove their rules as
// leftovers.
func (r *Reconciler) learn(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.learned.IsZero() {
		return nil
	}
	var list v1alpha1.SpokeClusterList
	if err := r.Client.List(ctx, &list); err != nil {
		return fmt.Errorf("listing SpokeClusters: %w", err)
	}
	r.uids = make(map[string]types.UID, len(list.Items))
	for i := range list.Items {
		sc := &list.Items[i]
		secret, err := r.registered(ctx, r.Client, sc.Name)
		if err != nil {
			return err
		}
		r.uids[sc.Name] = sc.UID
		r.Provider.Known(sc.Name, sc.Status.Identity)
		r.Brake.Recall(sc.Name, heldIn(&sc.Status), sc.Status.IdentityTime.Time)
		if kubeconfigIn(secret) == nil {
			r.Provider.Release(sc.Name)
		}
	}
	r.learned = r.time()
	return nil
}

// observe sets what is seen of a spoke, unless that is only that it is being connected again after a start of the manager.
// Then it returns for how long the status stays as it was.
func (r *Reconciler) observe(sc *v1alpha1.SpokeCluster, n *news, seen *spoke.Observation) time.Duration {
	left := r.startupLeft()
	if left > 0 && n.finding == nil && connectsAgain(sc, seen) {
		return left
	}
	n.seen = seen
	return 0
}

// startupLeft returns how much of startup is left. It is not positive if the manager started before that.
func (r *Reconciler) startupLeft() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.Intervals.Of(startup) - r.time().Sub(r.learned)
}

// replaced reports whether a SpokeCluster is another object than the last one with its name. A deletion and a
// creation may arrive as one event.
func (r *Reconciler) replaced(sc *v1alpha1.SpokeCluster) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	was, seen := r.uids[sc.Name]
	r.uids[sc.Name] = sc.UID
	return seen && was != sc.UID
}

// isOutdated reports whether the hub is known to have a newer version of a SpokeCluster.
func (r *Reconciler) isOutdated(sc *v1alpha1.SpokeCluster) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.outdated[sc.Name] == sc.ResourceVersion
}

// setOutdated records that the hub has a newer version of a SpokeCluster, whose event has yet to arrive.
func (r *Reconciler) setOutdated(sc *v1alpha1.SpokeCluster) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.outdated == nil {
		r.outdated = map[string]string{}
	}
	r.outdated[sc.Name] = sc.ResourceVersion
}

// gone forgets a SpokeCluster.
func (r *Reconciler) gone(name string) {
	r.mu.Lock()
	delete(r.uids, name)
	delete(r.outdated, name)
	delete(r.recollected, name)
	delete(r.numbers, name)
	r.mu.Unlock()
	r.Contests.ForgetMembership(name)
	r.Provider.Gone(name)
}

// kubeconfigIn returns the kubeconfig in a Secret, or nil if the Secret or the key is missing.
func kubeconfigIn(secret *corev1.Secret) []byte {
	if secret == nil {
		return nil
	}
	kubeconfig, ok := secret.Data[v1alpha1.KubeconfigKey]
	if ok && kubeconfig == nil {
		return []byte{} // an empty one is refused like any invalid one
	}
	return kubeconfig
}

// registered returns the Secret that registers a spoke, or nil.
func (r *Reconciler) registered(ctx context.Context, reader client.Reader, name string) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	err := reader.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: name}, secret)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading Secret %s/%s: %w", r.Namespace, name, err)
	case !secret.DeletionTimestamp.IsZero(), secret.Labels[v1alpha1.RegistrationLabel] != "true":
		return nil, nil
	}
	return secret, nil
}

// member returns the SpokeCluster after mirroring the Secret's labels, creating it if needed, and the time
// until the next attempt if the write has to wait. It returns nil if there is neither a Secret nor a
// SpokeCluster, and until the event of a write arrives.
func (r *Reconciler) member(ctx context.Context, name string, secret *corev1.Secret) (*v1alpha1.SpokeCluster, time.Duration, error) {
	sc := &v1alpha1.SpokeCluster{}
	err := r.Client.Get(ctx, client.ObjectKey{Name: name}, sc)
	missing := apierrors.IsNotFound(err)
	switch {
	case err != nil && !missing:
		return nil, 0, fmt.Errorf("reading SpokeCluster %s: %w", name, err)
	case missing:
		r.gone(name) // otherwise the state of a former one would be used
		if secret == nil {
			return nil, 0, nil
		}
	case r.replaced(sc):
		r.Provider.Gone(name) // as above
	}
	if !missing && (secret == nil || !sc.DeletionTimestamp.IsZero()) {
		return sc, 0, nil
	}
	labels, due := r.wanted(secret, sc)
	if !missing && !due {
		r.Contests.Stands(contest.Membership(name, ""))
		return sc, 0, nil
	}
	sc.Name = name
	if alters(labels, sc) { // this can remove rules, so confirm it first
		now, err := r.registeredNow(ctx, name)
		if err != nil {
			return nil, 0, fmt.Errorf("confirming the labels of SpokeCluster %s before they change: %w", name, err)
		}
		if labels, due = r.wanted(now, sc); !due {
			return sc, live.BehindRetry, nil // the missing event triggers the next reconcile
		}
	}
	return r.mirror(ctx, sc, secret, labels)
}

// wanted returns the labels that a SpokeCluster takes from its Secret, and whether to write it. Without a
// Secret it is not written.
func (r *Reconciler) wanted(secret *corev1.Secret, sc *v1alpha1.SpokeCluster) (labels map[string]string, due bool) {
	if secret == nil {
		return nil, false
	}
	labels, due = mirrored(secret.Labels, sc, r.TrackingLabels)
	return labels, due || !controllerutil.ContainsFinalizer(sc, v1alpha1.LeaveFinalizer)
}

// registeredNow is registered, bypassing the cache.
func (r *Reconciler) registeredNow(ctx context.Context, name string) (*corev1.Secret, error) {
	ctx, cancel := context.WithTimeout(ctx, live.Timeout)
	defer cancel()
	return r.registered(ctx, r.Live, name)
}

// connect hands the kubeconfig to the provider. The Finding is non-nil if the registration itself is wrong.
func (r *Reconciler) connect(ctx context.Context, sc *v1alpha1.SpokeCluster, secret *corev1.Secret) (*spoke.Finding, error) {
	name := sc.Name
	data := kubeconfigIn(secret)
	if data == nil {
		r.Provider.Release(name)
		return r.missing(name, secret != nil), nil
	}
	if err := r.recollect(ctx, sc, secret); err != nil {
		return nil, err
	}
	r.Provider.Accept(name, sc.Annotations[v1alpha1.AcceptIdentityAnnotation])
	var choose spoke.Choose
	if r.Evaluation != nil {
		choose = r.choose
	}
	return r.Provider.Register(ctx, name, data, choose)
}

// recollect checks, once per SpokeCluster, whether one without an identity lost it with the
// CustomResourceDefinition.
func (r *Reconciler) recollect(ctx context.Context, sc *v1alpha1.SpokeCluster, secret *corev1.Secret) error {
	r.mu.Lock()
	known := sc.Status.Identity != "" || r.recollected[sc.Name] == sc.UID
	r.mu.Unlock()
	if known {
		return nil
	}
	forgotten, err := r.Rules.Forgotten(ctx, secret.CreationTimestamp.Time)
	if err != nil {
		return fmt.Errorf("checking whether the recorded identity of spoke %s was lost: %w", sc.Name, err)
	}
	if forgotten {
		r.Provider.Forgot(sc.Name)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.recollected == nil {
		r.recollected = map[string]types.UID{}
	}
	r.recollected[sc.Name] = sc.UID
	return nil
}

// missing says what is missing, what happens to the spoke, and what to do.
func (r *Reconciler) missing(name string, secret bool) *spoke.Finding {
	message, restore := fmt.Sprintf("Secret %s/%s with label %s=true not found", r.Namespace, name, v1alpha1.RegistrationLabel), "create or restore the Secret and its label"
	if secret {
		message, restore = fmt.Sprintf("Secret %s/%s has no key %s", r.Namespace, name, v1alpha1.KubeconfigKey), "add the key"
	}
	if successor := r.Provider.Successor(name); successor != "" {
		message += fmt.Sprintf(". SpokeCluster %s refers to the same cluster as this one, and the rules in the cluster are now managed under that name. If you renamed the spoke, replace %s with %s in placements of AlertRules and RulePacks, and in spec.placement of templates (rules placed only on %s are removed), and then run kubectl delete spoke %s. Otherwise %s",
			successor, name, successor, name, name, restore)
	} else {
		message += fmt.Sprintf(". Rulefleet does not manage the spoke until this is corrected. The rules in the spoke stay. To reconnect the spoke, %s. To give it up, run kubectl delete spoke %s: this deletes its generated AlertRules on the hub, and the rules in the spoke stay", restore, name)
	}
	return &spoke.Finding{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonKubeconfigMissing, Message: message}
}
