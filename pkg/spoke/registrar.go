package spoke

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	applyv1alpha1 "github.com/rulefleet/rulefleet/api/v1alpha1/applyconfiguration/api/v1alpha1"
)

// Registrar keeps the membership: a SpokeCluster for every registered Secret, with
// what is seen of the spoke in its status.
type Registrar struct {
	// Client reads the hub's cache and writes to the hub.
	Client client.Client
	// Provider serves the spokes.
	Provider *Provider
	// Namespace is the operator's own: Secrets are read there alone.
	Namespace string
	// Deletions tells which deletions are held.
	Deletions Deletions

	mu      sync.Mutex
	learned bool
}

// SetupWithManager adds the Registrar to the hub's manager.
func (r *Registrar) SetupWithManager(mgr manager.Manager) error {
	byName := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: o.GetName()}}}
	})
	seen := source.Func(func(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		r.Provider.OnChange(func(name string) {
			q.Add(reconcile.Request{NamespacedName: client.ObjectKey{Name: name}})
		})
		return nil
	})
	err := ctrl.NewControllerManagedBy(mgr).
		Named("registrar").
		Watches(&corev1.Secret{}, byName).
		Watches(&v1alpha1.SpokeCluster{}, byName).
		WatchesRawSource(seen).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: 4,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](minBackoff, maxBackoff),
			ReconciliationTimeout:   time.Minute,
		}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up the registrar: %w", err)
	}
	return nil
}

// Reconcile brings one membership in line. The request's name is that of the
// Secret and of the SpokeCluster.
func (r *Registrar) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if err := r.learn(ctx); err != nil {
		return reconcile.Result{}, err
	}
	secret, err := r.registered(ctx, req.Name)
	if err != nil {
		return reconcile.Result{}, err
	}
	sc, err := r.member(ctx, req.Name, secret)
	if err != nil || sc == nil {
		return reconcile.Result{}, err
	}
	finding, err := r.connect(ctx, sc, secret)
	if err != nil {
		return reconcile.Result{}, err
	}
	status := statusOf(sc, r.Provider.Observation(req.Name), finding, r.Deletions.Held(req.Name), metav1.Now())
	if equality.Semantic.DeepEqual(status, sc.Status) {
		return reconcile.Result{}, nil
	}
	next := sc.DeepCopy()
	next.Status = status
	err = r.Client.Status().Patch(ctx, next, client.MergeFrom(sc))
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("writing the status of SpokeCluster %s: %w", req.Name, err)
	}
	return reconcile.Result{}, nil
}

// learn tells, before the first spoke is registered, what the statuses remember: which
// clusters are known, because the one that was first has to win whichever comes first
// now, and which deletions were held.
func (r *Registrar) learn(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.learned {
		return nil
	}
	var list v1alpha1.SpokeClusterList
	if err := r.Client.List(ctx, &list); err != nil {
		return fmt.Errorf("listing SpokeClusters: %w", err)
	}
	for i := range list.Items {
		r.Provider.Known(list.Items[i].Name, list.Items[i].Status.Identity)
		r.Deletions.Recall(list.Items[i].Name, heldIn(&list.Items[i].Status))
	}
	r.learned = true
	return nil
}

// registered returns the Secret that registers a spoke, or nil.
func (r *Registrar) registered(ctx context.Context, name string) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: name}, secret)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading Secret %s/%s: %w", r.Namespace, name, err)
	case !secret.DeletionTimestamp.IsZero(), secret.Labels[v1alpha1.RegistrationLabel] != "true", len(secret.Data[v1alpha1.KubeconfigKey]) == 0:
		return nil, nil
	}
	return secret, nil
}

// member returns the SpokeCluster, after it made it for a Secret that has none and
// mirrored the Secret's labels. It is nil where there is neither.
func (r *Registrar) member(ctx context.Context, name string, secret *corev1.Secret) (*v1alpha1.SpokeCluster, error) {
	sc := &v1alpha1.SpokeCluster{}
	err := r.Client.Get(ctx, client.ObjectKey{Name: name}, sc)
	missing := apierrors.IsNotFound(err)
	switch {
	case err != nil && !missing:
		return nil, fmt.Errorf("reading SpokeCluster %s: %w", name, err)
	case missing && secret == nil:
		r.Provider.Remove(name)
		r.Provider.Gone(name)
		return nil, nil
	case secret == nil, !sc.DeletionTimestamp.IsZero():
		return sc, nil
	}
	labels, changed := mirrored(secret.Labels, sc)
	if !missing && !changed {
		return sc, nil
	}
	apply := applyv1alpha1.SpokeCluster(name).WithLabels(labels)
	// Without force: a label that somebody has just set is theirs, though the cache does
	// not show it yet. The conflict has it looked at again.
	if err := r.Client.Apply(ctx, apply, client.FieldOwner(mirrorManager)); err != nil {
		return nil, fmt.Errorf("applying SpokeCluster %s: %w", name, err)
	}
	return nil, nil // the write's own event brings it back here
}

// connect hands the kubeconfig to the provider. The Finding is non-nil where the
// registration itself is at fault.
func (r *Registrar) connect(ctx context.Context, sc *v1alpha1.SpokeCluster, secret *corev1.Secret) (*Finding, error) {
	name := sc.Name
	if secret == nil {
		r.Provider.Remove(name)
		return &Finding{
			Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonKubeconfigMissing,
			Message: fmt.Sprintf("no Secret %s/%s with label %s=true and key %s; nothing is removed from the spoke meanwhile",
				r.Namespace, name, v1alpha1.RegistrationLabel, v1alpha1.KubeconfigKey),
		}, nil
	}
	err := r.Provider.Register(ctx, name, secret.Data[v1alpha1.KubeconfigKey])
	if _, refused := errors.AsType[*RefusedError](err); refused {
		finding := disconnected(err)
		return &finding, nil
	}
	return nil, err
}
