package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/contest"
	"github.com/rulefleet/rulefleet/pkg/continuity"
	"github.com/rulefleet/rulefleet/pkg/controller/brake"
	"github.com/rulefleet/rulefleet/pkg/controller/credential"
	"github.com/rulefleet/rulefleet/pkg/controller/distribute"
	"github.com/rulefleet/rulefleet/pkg/controller/evaluate"
	"github.com/rulefleet/rulefleet/pkg/controller/generate"
	"github.com/rulefleet/rulefleet/pkg/controller/hub"
	"github.com/rulefleet/rulefleet/pkg/controller/membership"
	"github.com/rulefleet/rulefleet/pkg/controller/status"
	"github.com/rulefleet/rulefleet/pkg/leader"
	"github.com/rulefleet/rulefleet/pkg/live"
	"github.com/rulefleet/rulefleet/pkg/metrics"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/builtin"
	"github.com/rulefleet/rulefleet/pkg/rule/delivery"
	"github.com/rulefleet/rulefleet/pkg/rule/validation"
	"github.com/rulefleet/rulefleet/pkg/spoke"
	"github.com/rulefleet/rulefleet/pkg/spoke/renewal"
	"github.com/rulefleet/rulefleet/pkg/webhook/certs"
)

// startTimeout limits the time for reading and writing objects on the hub before the manager starts.
const startTimeout = 30 * time.Second

// readyTimeout limits a check of /readyz.
const readyTimeout = time.Second

// releaseTimeout limits the time for which a replica that exits by itself tries to release the Lease.
const releaseTimeout = 5 * time.Second

// recordRetry is how often a replica tries to record that the hub was restored, and recordTimeout limits the time
// for that.
const (
	recordRetry   = time.Second
	recordTimeout = 20 * time.Second
)

// leaseName is the name of the Lease for leader election.
const leaseName = "rulefleet-manager"

// podEnv is the environment variable with the UID of the manager's pod, if it runs in one.
const podEnv = "POD_UID"

// run creates the manager and runs it until ctx ends.
func run(ctx context.Context, o *options) error {
	log, err := o.logger()
	if err != nil {
		return err
	}
	ctrl.SetLogger(log)
	klog.SetLogger(log)
	noticeDeadConnections()

	identity, err := leader.Identity(os.Getenv(podEnv))
	if err != nil {
		return err
	}
	cfg, err := hubConfig(o, identity)
	if err != nil {
		return err
	}
	countSelf(cfg)
	scheme := newScheme()
	// A standby does it, too: it creates the objects that every replica needs.
	state, err := awaitHub(ctx, o, log, func(ctx context.Context) (*corev1.ConfigMap, error) { return prepareHub(ctx, cfg, scheme, o) })
	if err != nil {
		return err
	}
	hubID := o.hubIDOf(state)
	log.Info("starting", "version", version, "hub", hubID, "namespace", o.namespace, "replica", identity)

	fence := o.fence()
	guard := continuity.NewGuard(fence.Close, nil) // nothing may be written because of what the caches show next
	lock, err := election(cfg, identity, fence, guard, o)
	if err != nil {
		return err
	}
	unfenced := rest.CopyConfig(cfg)
	cfg.Wrap(fence.Wrap) // from here on, only the leader writes
	propagation := metrics.NewPropagation(clock.RealClock{})
	provider := spoke.NewProvider(spoke.Options{
		HubID: hubID, UserAgent: cfg.UserAgent, Allow: o.allow, Limits: o.limits, Intervals: o.intervals, Wrap: fence.Wrap, Log: log,
		Stands:              func(o metav1.Object) bool { _, stands := rule.StandsFor(o, hubID); return stands },
		EvaluatorNamespaces: o.evaluatorNamespaces(), OperatorNamespaces: fields(o.operatorSpaces),
	})
	keeper, informer := &certs.Keeper{}, newInformer(guard, o.intervals)
	mgr, err := newManager(cfg, provider, scheme, keeper, informer, lock, log, o)
	if err != nil {
		return err
	}
	if err := setupWebhook(ctx, mgr.GetLocalManager(), keeper, informer, o); err != nil {
		return err
	}
	if err := setup(ctx, mgr, fence, provider, propagation, state, o); err != nil {
		return err
	}
	local := mgr.GetLocalManager()
	err = local.Add(&builtIns{
		client: local.GetClient(), reader: local.GetAPIReader(), backoff: builtInsBackoff, log: log,
		templates: builtin.Templates(builtin.Options{KubeStateMetrics: o.kubeStateMetrics, Enabled: o.enabledTemplates}),
		configMap: client.ObjectKeyFromObject(state),
	})
	if err != nil {
		return fmt.Errorf("setting up the built-in templates: %w", err)
	}
	record := func(ctx context.Context) error { return recordRestore(ctx, unfenced, scheme, o) }
	if err := work(ctx, mgr, fence, guard, record); err != nil {
		return err
	}
	log.Info("stopped")
	return nil
}

// fence returns the fence that blocks the writes of a replica that is not the leader.
func (o *options) fence() *leader.Fence {
	if !o.leaderElect {
		return leader.NewOpenFence()
	}
	return leader.NewFence(clock.RealClock{}, leader.RenewDeadline)
}

// election returns the lock for leader election, or nil without leader election. A standby whose cache
// may be from before a restore does not take the Lease.
func election(cfg *rest.Config, identity string, fence *leader.Fence, guard *continuity.Guard, o *options) (resourcelock.Interface, error) {
	if !o.leaderElect {
		return nil, nil
	}
	return leader.NewLock(cfg, client.ObjectKey{Namespace: o.namespace, Name: leaseName}, identity, os.Getenv(podEnv), fence, guard.Current)
}

// work runs the manager until ctx ends, the Lease is lost, or the hub was restored from a backup. When
// the Lease is lost, it does not wait for work in progress, which may not write any more. The same is
// true when the hub was restored, but then the restore is recorded for the next leader, and the Lease is
// released, because this replica or another one has to become the leader soon.
func work(ctx context.Context, mgr mcmanager.Manager, fence *leader.Fence, guard *continuity.Guard, record func(context.Context) error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	select {
	case <-fence.Lost():
		if guard.Err() != nil { // another replica may already work with the restored hub
			return errors.Join(leader.ErrLost, record(ctx))
		}
		return leader.ErrLost
	case <-guard.Restored():
		unrecorded := record(ctx)
		stop()
		var err error
		select {
		case err = <-ended:
		case <-time.After(releaseTimeout):
		}
		return errors.Join(fmt.Errorf("the hub was restored, so this replica exits and reads everything again when it is started. If the API servers were not restarted after the restore, restart them: %w", guard.Err()), unrecorded, err)
	case err := <-ended:
		switch {
		case err != nil && fence.Expired():
			return fmt.Errorf("the Lease %s was not renewed within %v, so this replica exits and restarts as a standby. If this repeats, check the hub's API server and the CPU limit of the manager: %w",
				leaseName, leader.RenewDeadline, err)
		case err != nil:
			return fmt.Errorf("running: %w", err)
		}
		return nil
	}
}

// recordRestore records that the hub was restored from a backup. It tries again for some time, because a hub that
// was restored may not be stable yet.
func recordRestore(ctx context.Context, cfg *rest.Config, scheme *runtime.Scheme, o *options) error {
	c, err := client.New(impatient(cfg), client.Options{Scheme: scheme, Mapper: hubMapper()})
	if err != nil {
		return fmt.Errorf("connecting to the hub to record that it was restored: %w", err)
	}
	kinds := hub.NewKinds(c, c, o.recordKeys(), clock.RealClock{}, nil)
	ended := wait.PollUntilContextTimeout(ctx, recordRetry, recordTimeout, true, func(ctx context.Context) (bool, error) {
		err = kinds.RecordRestore(ctx)
		return err == nil, nil
	})
	if ended != nil {
		return err
	}
	return nil
}

// setup adds the controllers, in the order of the data flow.
func setup(ctx context.Context, mgr mcmanager.Manager, fence *leader.Fence, provider *spoke.Provider, propagation *metrics.Propagation, state *corev1.ConfigMap, o *options) error {
	local, hubID := mgr.GetLocalManager(), o.hubIDOf(state)
	if err := hub.SetupIndexes(ctx, local.GetFieldIndexer(), hubID, o.generatedNamespace); err != nil {
		return fmt.Errorf("setting up the hub's indexes: %w", err)
	}
	guard := hub.Guard{
		Live:  live.New(local.GetAPIReader(), clock.RealClock{}),
		Kinds: hub.NewKinds(local.GetAPIReader(), local.GetClient(), o.recordKeys(), clock.RealClock{}, fence.Former),
	}
	if err := local.Add(guard.Kinds); err != nil {
		return fmt.Errorf("setting up the tracking of CustomResourceDefinitions: %w", err)
	}
	witness := hub.NewWitness()
	tenants := hub.NewTenants(ctx, local.GetCache(), o.namespace, o.generatedNamespace)
	places := hub.NewPlaces(local.GetClient(), o.tenantMaxRules, o.namespace, o.generatedNamespace)
	recorder := local.GetEventRecorder("rulefleet")
	validator := validation.New(o.validateOptions())
	board := status.NewBoard()
	failures := status.NewFailures(board, o.intervals, o.spokeMaxWrites, provider.Changed)
	held := brake.New(clock.RealClock{}, o.deletionHold)
	contests := contest.New(clock.RealClock{}, o.intervals)

	// the state of the spokes' evaluators, for (0) and (2)
	render := delivery.Options{
		HubID: hubID, AdminNamespace: o.namespace, GeneratedNamespace: o.generatedNamespace, RuleNamespace: o.ruleNamespace, ClusterLabel: o.clusterLabel, Tenancy: o.tenancy,
	}
	poller := evaluate.NewPoller(evaluate.Options{
		Hub: local.GetClient(), Spokes: provider, Render: render, Interval: o.evaluatorInterval, Intervals: o.intervals, Metrics: o.checkMetrics, Log: mgr.GetLogger(),
	})

	generator := generate.NewReconciler(generate.Options{
		Hub: local.GetClient(), Guard: guard, Witness: witness, Brake: held, Spokes: provider, Recorder: recorder, Namespace: o.generatedNamespace,
		Validator: validator, Propagation: propagation, Contests: contests, Changed: board.Notify, Writes: o.spokeMaxWrites, NamespaceShare: o.spokeNamespaceShare, Intervals: o.intervals,
	})
	distributor := distribute.NewReconciler(distribute.Options{
		Hub: local.GetClient(), Guard: guard, Witness: witness, Brake: held, Spokes: provider, Reporter: failures, Validator: validator, Generated: o.generatedNamespace,
		Propagation: propagation, Evaluations: poller, Contests: contests, Intervals: o.intervals,
		Render: render, Tenants: tenants, Places: places, Changed: board.Notify,
	})
	provider.SetLifecycle(spoke.Lifecycle{
		Left: []func(string){propagation.Forget, contests.ForgetSpoke, poller.Forget, generator.Forget, distributor.Forget},
		// Writes to the former cluster were not undone in this one, and a restored server lacks writes that no client has undone.
		Replaced:   []func(string){contests.ForgetSpoke, held.Beware},
		Restored:   []func(string){contests.ForgetSpoke},
		Evaluators: []func(string){poller.Kick, distributor.EvaluatorsChanged},
	})

	// (0) Secret → spoke
	rules := &rulesOfSpokes{hub: local.GetClient(), guard: guard, generator: generator, distributor: distributor}
	renewals, err := renewTokens(local, provider, o)
	if err != nil {
		return err
	}
	members := &membership.Reconciler{
		Client: local.GetClient(), Live: local.GetAPIReader(), Provider: provider, HubID: hubID, Namespace: o.namespace, EvaluatorNamespaces: o.evaluatorNamespaces(),
		Brake: held, Rules: rules, Failures: failures, Evaluation: poller, Renewals: renewals, Contests: contests, Recorder: recorder, LeaveTimeout: o.leaveTimeout, TrackingLabels: fields(o.trackingLabels), Log: mgr.GetLogger(),
	}
	if err := members.SetupWithManager(local); err != nil {
		return err
	}
	// (1) Deployment → AlertRule
	if err := generator.SetupWithManager(mgr, provider); err != nil {
		return err
	}
	// (2) AlertRule → PrometheusRule
	if err := mgr.Add(poller); err != nil {
		return fmt.Errorf("setting up the polls of evaluators: %w", err)
	}
	if err := distributor.SetupWithManager(ctx, mgr, provider); err != nil {
		return err
	}
	// before the deletions of (1) and (2)
	braker := &brake.Reconciler{
		Client: local.GetClient(), Brake: held, Changed: provider.Changed, Recorder: recorder, Contests: contests,
		Engaged: func(name string) bool { return provider.Spoke(name) != nil },
	}
	if err := braker.SetupWithManager(local); err != nil {
		return err
	}
	// (3) verdicts → status
	reconciler := &status.Reconciler{Client: local.GetClient(), Board: board, Failures: failures, Recorder: recorder, Validator: validator, Tenants: tenants, Places: places, Metrics: o.checkMetrics, Contests: contests, Intervals: o.intervals}
	if err := reconciler.SetupWithManager(local); err != nil {
		return err
	}
	if err := countFleet(local, provider, reconciler, poller); err != nil {
		return err
	}
	return (&status.TemplateReconciler{Client: local.GetClient(), Validator: validator}).SetupWithManager(local)
}

// renewTokens adds the controller that renews the tokens of spokes. It returns nil if that is switched off.
func renewTokens(mgr manager.Manager, provider *spoke.Provider, o *options) (membership.Renewals, error) {
	if !o.renewTokens {
		return nil, nil
	}
	r := credential.NewReconciler(credential.Options{
		Hub: mgr.GetClient(), Namespace: o.namespace, Changed: provider.Changed, Intervals: o.intervals, Scale: o.renewalScale, Now: time.Now, Log: mgr.GetLogger(),
		Spoke: func(name string) credential.Requester {
			if s := provider.Spoke(name); s != nil && !provider.Away(name) {
				return s
			}
			return nil
		},
	})
	if err := r.SetupWithManager(mgr); err != nil {
		return nil, err
	}
	return r, nil
}

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
				&v1alpha1.AlertRule{}:         {UnsafeDisableDeepCopy: &shared},
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

// hubConfig returns the configuration for connecting to the hub.
func hubConfig(o *options, identity string) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.kubeconfig
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("finding the hub (--kubeconfig): %w", err)
	}
	// It identifies the replica in audit logs, and the operator in managedFields.
	cfg.UserAgent = contest.Manager + "/" + version + " (" + identity + ")"
	// The number of concurrent reconciles limits the requests, in addition to the API server's own
	// priority and fairness.
	cfg.QPS = -1
	// A host that is down does not refuse connections, so connecting needs a timeout.
	cfg.Dial = (&net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive}).DialContext
	return cfg, nil
}

// prepareHub creates the objects that are needed on the hub, and reads the hub's id.
func prepareHub(ctx context.Context, cfg *rest.Config, scheme *runtime.Scheme, o *options) (*corev1.ConfigMap, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	httpClient, err := rest.HTTPClientFor(impatient(cfg))
	if err != nil {
		return nil, finalError{fmt.Errorf("connecting to the hub: %w", err)}
	}
	defer utilnet.CloseIdleConnectionsFor(httpClient.Transport) // it is only used for this attempt
	c, err := client.New(cfg, client.Options{Scheme: scheme, HTTPClient: httpClient, Mapper: hubMapper()})
	if err != nil {
		return nil, fmt.Errorf("connecting to the hub: %w", err)
	}
	if err := checkCRDs(ctx, c); err != nil {
		return nil, err
	}
	if err := ensureNamespace(ctx, c, o.generatedNamespace); err != nil {
		return nil, err
	}
	if o.ownCertificate() {
		if err := certs.Prepare(ctx, c, o.certificates()); err != nil {
			return nil, err
		}
	}
	state, err := hubState(ctx, c, o)
	if err != nil {
		return nil, err
	}
	// It is done before this replica takes the Lease, which shows until when there was a leader.
	if _, err := hub.NewKinds(c, c, o.recordKeys(), clock.RealClock{}, nil).Learn(ctx); err != nil {
		return nil, err //nolint:wrapcheck // it has all details
	}
	return state, nil
}

// noticeDeadConnections makes client-go detect within seconds that the other end of a connection is
// gone. Its defaults take 45 s, which is longer than the outage of a spoke may stay undetected.
func noticeDeadConnections() {
	for name, seconds := range map[string]string{
		"HTTP2_READ_IDLE_TIMEOUT_SECONDS": "10",
		"HTTP2_PING_TIMEOUT_SECONDS":      "5",
	} {
		if os.Getenv(name) == "" {
			_ = os.Setenv(name, seconds)
		}
	}
}
