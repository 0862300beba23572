package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/contest"
	"github.com/rulefleet/rulefleet/pkg/continuity"
	"github.com/rulefleet/rulefleet/pkg/controller/brake"
	"github.com/rulefleet/rulefleet/pkg/controller/coverage"
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
	"github.com/rulefleet/rulefleet/pkg/rule/delivery"
	"github.com/rulefleet/rulefleet/pkg/rule/validation"
	"github.com/rulefleet/rulefleet/pkg/spoke"
	"github.com/rulefleet/rulefleet/pkg/webhook/certs"
)

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
	provider := newProvider(hubID, cfg.UserAgent, fence, log, o)
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
	if err := setupBuiltIns(mgr.GetLocalManager(), state, log, o); err != nil {
		return err
	}
	record := func(ctx context.Context) error { return recordRestore(ctx, unfenced, scheme, o) }
	if err := work(ctx, mgr, fence, guard, record); err != nil {
		return err
	}
	log.Info("stopped")
	return nil
}

// newProvider returns the Provider, which writes to spokes only while the fence is open.
func newProvider(hubID, userAgent string, fence *leader.Fence, log logr.Logger, o *options) *spoke.Provider {
	return spoke.NewProvider(spoke.Options{
		HubID: hubID, UserAgent: userAgent, Allow: o.allow, Limits: o.limits, Intervals: o.intervals, Wrap: fence.Wrap, Log: log,
		Memory:              spokesMemory(),
		Stands:              func(o metav1.Object) bool { _, stands := rule.StandsFor(o, hubID); return stands },
		EvaluatorNamespaces: o.evaluatorNamespaces(), OperatorNamespaces: fields(o.operatorSpaces),
	})
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
	return leader.NewLock(cfg, client.ObjectKey{Namespace: o.namespace, Name: leaseName}, identity, os.Getenv(podEnv), fence, guard)
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
		return errors.Join(fmt.Errorf("the hub was restored, so this replica exits and reads everything again when it is started. If the API servers were not restarted after the restore, restart them. The error: %w", guard.Err()), unrecorded, err)
	case err := <-ended:
		switch {
		case err != nil && fence.Expired():
			return fmt.Errorf("the Lease %s was not renewed within %v, so this replica exits and restarts as a standby. If this repeats, check the hub's API server and the CPU limit of the manager. The error: %w",
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

// setup creates the controllers with what they share, and adds them to the manager.
func setup(ctx context.Context, mgr mcmanager.Manager, fence *leader.Fence, provider *spoke.Provider, propagation *metrics.Propagation, state *corev1.ConfigMap, o *options) error {
	local, hubID := mgr.GetLocalManager(), o.hubIDOf(state)
	if err := hub.SetupIndexes(ctx, local.GetFieldIndexer(), hubID, o.generatedNamespace); err != nil {
		return fmt.Errorf("setting up the hub's indexes: %w", err)
	}
	guard, err := newGuard(local, fence, o)
	if err != nil {
		return err
	}
	witness := hub.NewWitness()
	tenants := hub.NewTenants(ctx, local.GetCache(), o.namespace, o.generatedNamespace)
	places := hub.NewPlaces(local.GetClient(), o.tenantMaxRules, o.namespace, o.generatedNamespace)
	recorder := local.GetEventRecorder("rulefleet")
	validator := validation.New(o.validateOptions())
	board := status.NewBoard(o.intervals, o.spokeMaxWrites, provider.Changed)
	held := brake.New(clock.RealClock{}, o.deletionHold)
	contests := contest.New(clock.RealClock{}, o.intervals)
	render := o.renderOptions(hubID)
	poller := evaluate.NewPoller(evaluate.Options{
		Hub: local.GetClient(), Spokes: provider, Render: render, Interval: o.evaluatorInterval, Intervals: o.intervals, Metrics: o.checkMetrics,
	})
	counter := coverage.NewCounter(coverage.Options{
		Hub: local.GetClient(), Informers: local.GetCache(), Spokes: provider, Trusted: []string{o.namespace, o.generatedNamespace}, Intervals: o.intervals, Clock: clock.RealClock{}, Log: mgr.GetLogger(),
	})
	generator := generate.NewReconciler(generate.Options{
		Hub: local.GetClient(), Guard: guard, Witness: witness, Brake: held, Spokes: provider, Recorder: recorder, Namespace: o.generatedNamespace,
		Validator: validator, Outcomes: counter, Propagation: propagation, Contests: contests, Changed: board.Notify, Writes: o.spokeMaxWrites, MaxObjects: o.limits.Objects, NamespaceShare: o.spokeNamespaceShare, Intervals: o.intervals,
	})
	distributor := distribute.NewReconciler(distribute.Options{
		Hub: local.GetClient(), Guard: guard, Witness: witness, Brake: held, Spokes: provider, Reporter: board, Validator: validator, Generated: o.generatedNamespace,
		Propagation: propagation, Evaluations: poller, Contests: contests, Intervals: o.intervals, MaxObjects: o.limits.Objects,
		Render: render, Tenants: tenants, Places: places, Changed: board.Notify,
	})
	provider.SetLifecycle(spoke.Lifecycle{
		Kinds: workloadKinds(ctx, local.GetClient()),
		Left:  []func(string){propagation.Forget, contests.ForgetSpoke, poller.Forget, generator.Forget, distributor.Forget, counter.Forget},
		// Writes to the former cluster were not undone in this one, and a restored server lacks writes that no client has undone.
		Replaced:   []func(string){contests.ForgetSpoke, held.Beware, counter.Forget},
		Restored:   []func(string){contests.ForgetSpoke},
		Evaluators: []func(string){poller.Kick, distributor.EvaluatorsChanged},
	})
	rules := &rulesOfSpokes{hub: local.GetClient(), guard: guard, generator: generator, distributor: distributor}
	renewals, err := renewTokens(local, provider, o)
	if err != nil {
		return err
	}
	members := &membership.Reconciler{
		Client: local.GetClient(), Live: local.GetAPIReader(), Provider: provider, HubID: hubID, Namespace: o.namespace, EvaluatorNamespaces: o.evaluatorNamespaces(),
		Brake: held, Rules: rules, Failures: board, Evaluation: poller, Coverage: counter, Renewals: renewals, Contests: contests, Recorder: recorder, LeaveTimeout: o.leaveTimeout, TrackingLabels: fields(o.trackingLabels), Intervals: o.intervals, Log: mgr.GetLogger(),
	}
	braker := &brake.Reconciler{
		Client: local.GetClient(), Brake: held, Changed: provider.Changed, Recorder: recorder, Contests: contests,
		Engaged: func(name string) bool { return provider.Spoke(name) != nil },
	}
	statuses := &status.Reconciler{Client: local.GetClient(), Board: board, Recorder: recorder, Validator: validator, Tenants: tenants, Places: places, Metrics: o.checkMetrics, Contests: contests, Intervals: o.intervals}
	c := &controllers{provider: provider, members: members, generator: generator, counter: counter, poller: poller, distributor: distributor, braker: braker, statuses: statuses}
	return c.add(ctx, mgr)
}

// renderOptions returns the options for rendering rules.
func (o *options) renderOptions(hubID string) delivery.Options {
	return delivery.Options{
		HubID: hubID, AdminNamespace: o.namespace, GeneratedNamespace: o.generatedNamespace, RuleNamespace: o.ruleNamespace, ClusterLabel: o.clusterLabel, Tenancy: o.tenancy,
	}
}

// workloadKinds returns a function that returns the kinds of workloads that are read from a spoke.
func workloadKinds(ctx context.Context, r client.Reader) func(spoke string) []v1alpha1.WorkloadKind {
	return func(spoke string) []v1alpha1.WorkloadKind {
		kinds, _ := hub.WorkloadKinds(ctx, r, spoke) // the cache has synced, so an error means that the process is ending
		return kinds
	}
}

// newGuard returns the Guard, and adds the tracking of its kinds.
func newGuard(mgr manager.Manager, fence *leader.Fence, o *options) (hub.Guard, error) {
	guard := hub.Guard{
		Live:  live.New(mgr.GetAPIReader(), clock.RealClock{}),
		Kinds: hub.NewKinds(mgr.GetAPIReader(), mgr.GetClient(), o.recordKeys(), clock.RealClock{}, fence.Former),
	}
	if err := mgr.Add(guard.Kinds); err != nil {
		return guard, fmt.Errorf("setting up the tracking of CustomResourceDefinitions: %w", err)
	}
	return guard, nil
}

// controllers are the parts that setup has created and that add adds to the manager.
type controllers struct {
	provider    *spoke.Provider
	members     *membership.Reconciler
	generator   *generate.Reconciler
	counter     *coverage.Counter
	poller      *evaluate.Poller
	distributor *distribute.Reconciler
	braker      *brake.Reconciler
	statuses    *status.Reconciler
}

// add adds the controllers to the manager, in the order of the data flow.
func (c *controllers) add(ctx context.Context, mgr mcmanager.Manager) error {
	local := mgr.GetLocalManager()
	// (0) Secret → spoke
	if err := c.members.SetupWithManager(local); err != nil {
		return err
	}
	// (1) Deployment → AlertRule
	if err := c.generator.SetupWithManager(mgr, c.provider); err != nil {
		return err
	}
	// (2) AlertRule → PrometheusRule
	if err := mgr.Add(c.poller); err != nil {
		return fmt.Errorf("setting up the polls of evaluators: %w", err)
	}
	if err := c.distributor.SetupWithManager(ctx, mgr, c.provider); err != nil {
		return err
	}
	// before the deletions of (1) and (2)
	if err := c.braker.SetupWithManager(local); err != nil {
		return err
	}
	// (3) verdicts → status
	if err := c.statuses.SetupWithManager(local); err != nil {
		return err
	}
	if err := countFleet(local, c.provider, c.statuses, c.poller); err != nil {
		return err
	}
	if err := local.Add(c.counter); err != nil {
		return fmt.Errorf("setting up the counts of workloads: %w", err)
	}
	return (&status.TemplateReconciler{Client: local.GetClient(), Validator: c.statuses.Validator, Summaries: c.counter}).SetupWithManager(local)
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
