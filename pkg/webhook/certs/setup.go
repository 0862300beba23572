package certs

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/rulefleet/rulefleet/pkg/contest"
	"github.com/rulefleet/rulefleet/pkg/interval"
)

const (
	minBackoff = 100 * time.Millisecond
	maxBackoff = 30 * time.Second
)

// Options define where the certificates are stored, and for which hosts.
type Options struct {
	// Namespace is the operator's own namespace, in which the Secret is stored.
	Namespace string
	// Config is the name of the ValidatingWebhookConfiguration.
	Config string
	// Webhooks are the names of our webhooks in the configuration.
	Webhooks []string
	// Hosts are the DNS names and addresses of the webhook.
	Hosts []string
	// Lifetimes are those of the certificates.
	Lifetimes Lifetimes
	// Intervals scales the delay of an injection after another client reverted the previous one.
	Intervals interval.Scale
	// NewInformer creates the informers. nil means client-go's.
	NewInformer func(toolscache.ListerWatcher, runtime.Object, time.Duration, toolscache.Indexers) toolscache.SharedIndexInformer
}

// SetupWithManager adds the maintenance of the certificates to a manager: the Keeper follows the
// Secret in every replica, and the rotator works in the leader. They share a cache of only those two
// objects.
func SetupWithManager(ctx context.Context, mgr manager.Manager, keeper *Keeper, o Options) error {
	objects, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), NewInformer: o.NewInformer,
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Secret{}: {
				Namespaces: map[string]cache.Config{o.Namespace: {}},
				Field:      fields.OneTermEqualSelector("metadata.name", SecretName),
				Transform:  cache.TransformStripManagedFields(),
			},
			&admissionv1.ValidatingWebhookConfiguration{}: {
				Field:     fields.OneTermEqualSelector("metadata.name", o.Config),
				Transform: cache.TransformStripManagedFields(),
			},
		},
	})
	if err != nil {
		return fmt.Errorf("creating a cache of the webhook's certificates: %w", err)
	}
	if err := mgr.Add(everywhere{objects}); err != nil {
		return fmt.Errorf("adding the cache of the webhook's certificates: %w", err)
	}
	if err := keeper.follow(ctx, objects, o.Namespace+"/"+SecretName, mgr.GetLogger().WithName("webhook")); err != nil {
		return err
	}
	direct, err := client.New(mgr.GetConfig(), client.Options{HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return fmt.Errorf("creating a client for the webhook's certificates: %w", err)
	}
	r := &rotator{
		Client: direct, Namespace: o.Namespace, Config: o.Config, Webhooks: o.Webhooks, Hosts: o.Hosts,
		Lifetimes: o.Lifetimes, Clock: clock.RealClock{},
		Contests: contest.New(clock.RealClock{}, o.Intervals), Recorder: mgr.GetEventRecorder("rulefleet"),
	}
	return r.setup(mgr, objects)
}

// follow takes every certificate that appears in the Secret with this name.
func (k *Keeper) follow(ctx context.Context, objects cache.Cache, name string, log logr.Logger) error {
	informer, err := objects.GetInformer(ctx, &corev1.Secret{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watching Secret %s: %w", name, err)
	}
	take := func(o any) {
		secret, ok := o.(*corev1.Secret)
		if !ok {
			return
		}
		changed, err := k.take(secret)
		if err != nil {
			log.Error(err, "the certificate in the Secret can't be used; the previous certificate, if there is one, stays in use", "secret", name)
		} else if changed {
			if c, err := k.GetCertificate(nil); err == nil {
				log.Info("serving a new certificate", "until", c.Leaf.NotAfter)
			}
		}
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    take,
		UpdateFunc: func(_, o any) { take(o) },
	})
	if err != nil {
		return fmt.Errorf("watching Secret %s: %w", name, err)
	}
	return nil
}

func (r *rotator) setup(mgr manager.Manager, objects cache.Cache) error {
	key := reconcile.Request{NamespacedName: client.ObjectKey{Namespace: r.Namespace, Name: SecretName}}
	always := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{key}
	})
	begin := source.Func(func(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		q.Add(key) // there may be no object to begin with
		return nil
	})
	err := ctrl.NewControllerManagedBy(mgr).
		Named("webhook-certificates").
		WatchesRawSource(source.Kind[client.Object](objects, &corev1.Secret{}, always)).
		WatchesRawSource(source.Kind[client.Object](objects, &admissionv1.ValidatingWebhookConfiguration{}, always)).
		WatchesRawSource(begin).
		WatchesRawSource(clockSet(key)).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: 1, // r.trust is not for several
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](minBackoff, maxBackoff),
			ReconciliationTimeout:   time.Minute,
		}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up the rotation of the webhook's certificates: %w", err)
	}
	return nil
}

// everywhere is a cache that runs in every replica, leader or not.
type everywhere struct{ cache.Cache }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (everywhere) NeedLeaderElection() bool { return false }
