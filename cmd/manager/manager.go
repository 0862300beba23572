package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/leader"
	"github.com/rulefleet/rulefleet/pkg/lean"
	"github.com/rulefleet/rulefleet/pkg/spoke"
	"github.com/rulefleet/rulefleet/pkg/spoke/renewal"
	"github.com/rulefleet/rulefleet/pkg/webhook/certs"
)

// readyTimeout limits a check of /readyz.
const readyTimeout = time.Second

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	return scheme
}

// newManager creates the manager. Its cache holds Secrets of the operator's own namespace only, and of
// those only the ones that register a spoke.
func newManager(
	cfg *rest.Config, provider *spoke.Provider, scheme *runtime.Scheme, keeper *certs.Keeper, informer newInformerFunc,
	lock resourcelock.Interface, log logr.Logger, o *options,
) (mcmanager.Manager, error) {
	shared := true // every reader copies an object before it changes it
	lease, renew, retry := leader.LeaseDuration, leader.RenewDeadline, leader.RetryPeriod
	registered := labels.SelectorFromSet(labels.Set{v1alpha1.RegistrationLabel: "true"})
	mgr, err := mcmanager.New(cfg, provider, manager.Options{
		Scheme:                              scheme,
		MapperProvider:                      func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return hubMapper(), nil },
		Logger:                              log,
		LeaderElection:                      lock != nil,
		LeaderElectionID:                    leaseName, // in metrics; the lock has its own
		LeaderElectionResourceLockInterface: lock,
		LeaderElectionReleaseOnCancel:       true,
		LeaseDuration:                       &lease,
		RenewDeadline:                       &renew,
		RetryPeriod:                         &retry,
		Metrics:                             metricsOptions(keeper, o),
		HealthProbeBindAddress:              o.healthAddress,
		PprofBindAddress:                    o.profileAddress,
		WebhookServer:                       webhookServer(keeper, o),
		Cache: cache.Options{
			NewInformer: informer,
			ByObject: map[client.Object]cache.ByObject{
				&corev1.Secret{}: {
					Namespaces: map[string]cache.Config{o.namespace: {}},
					Label:      registered,
					Transform:  renewal.Trim,
				},
				spoke.NamespaceMetadata():     {Transform: cache.TransformStripManagedFields()},
				&v1alpha1.AlertRule{}:         {Transform: lean.AlertRule, UnsafeDisableDeepCopy: &shared},
				&v1alpha1.RulePack{}:          {Transform: lean.RulePack, UnsafeDisableDeepCopy: &shared},
				&v1alpha1.AlertRuleTemplate{}: {UnsafeDisableDeepCopy: &shared},
				&v1alpha1.SpokeCluster{}:      {UnsafeDisableDeepCopy: &shared},
			},
		},
		Client: client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.ConfigMap{}, &corev1.Namespace{}}}},
	})
	if err != nil {
		return nil, fmt.Errorf("creating the manager: %w", err)
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return nil, fmt.Errorf("adding /healthz: %w", err)
	}
	if err := mgr.AddReadyzCheck("hub-cache", cacheReady(mgr.GetLocalManager().GetCache())); err != nil {
		return nil, fmt.Errorf("adding /readyz: %w", err)
	}
	return mgr, nil
}

// cacheReady reports ready when all watched objects of the hub have been read once.
func cacheReady(c cache.Cache) healthz.Checker {
	return func(req *http.Request) error {
		ctx, cancel := context.WithTimeout(req.Context(), readyTimeout)
		defer cancel()
		if !c.WaitForCacheSync(ctx) {
			return errors.New("the hub's objects have not been read yet")
		}
		return nil
	}
}
