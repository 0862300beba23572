package spoke

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/client/versioned"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/continuity"
)

// session is one cluster.Cluster of a connection, with what the cluster serves.
type session struct {
	ctx     context.Context
	cluster cluster.Cluster
	rules   monitoring.Interface
	served  bool
	// identity is the identity of the cluster.
	identity string
	// kinds are the kinds of workloads, beside Deployments, that the cache holds.
	kinds []v1alpha1.WorkloadKind
	// refused is the reason why Deployments or Namespaces could not be read at the last recheck.
	refused error
	// lacked reports that a watched kind could not be read at the last recheck.
	lacked bool
	// readable are the kinds of workloads, beside Deployments, that are wanted and could be read at the last recheck.
	readable []v1alpha1.WorkloadKind
	// unread are the kinds of workloads that are wanted and can't be read.
	unread map[v1alpha1.WorkloadKind]unread
	stop   context.CancelFunc
	// disengage ends the present engagement.
	disengage context.CancelFunc
	tally     tally
	// guard detects that the spoke was restored and the cache must not be used any more.
	guard *continuity.Guard
	// catalog is the discovery of the spoke. unserved are the resources that it lacks.
	catalog  catalog
	unserved map[string]bool
	// left has the flags of each prometheus-operator as they were last read.
	left map[types.UID]left
}

// open creates a session. Each read that can fail is first tried with a deadline, so that its error can be
// shown. An informer would retry it forever.
func (c *connection) open(ctx context.Context) (*session, error) {
	c.excess.begin()
	c.account.begin()
	opening, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer c.excess.during(cancel)()
	s, err := c.opened(ctx, opening)
	excess := tooLarge(context.Cause(opening))
	if _, duplicate := errors.AsType[*duplicateError](err); err == nil || excess == nil || duplicate || isIdentity(err) || errors.Is(err, errHandedOver) {
		return s, err
	}
	return nil, excess
}

// opened does the work of open. Its reads end with the context opening, and the session with ctx.
func (c *connection) opened(ctx, opening context.Context) (*session, error) {
	if err := c.probe(asProbe(opening)); err != nil {
		return nil, err
	}
	guard := continuity.NewGuard(c.look, c.patient)
	cl, err := c.cluster(guard)
	if err != nil {
		return nil, err
	}
	rules, err := monitoring.NewForConfigAndClient(c.cfg, c.http)
	if err != nil {
		return nil, fmt.Errorf("creating a client for PrometheusRules: %w", err)
	}
	if err := c.identify(asProbe(opening), ""); err != nil {
		return nil, err
	}
	if err := c.p.admit(c.name, c.seen.Identity); err != nil {
		return nil, err
	}
	c.gate.serve(c.seen.Identity)
	c.breaker.Close()
	if c.handOver(opening) {
		return nil, errHandedOver
	}
	sctx, cancel := context.WithCancel(ctx)
	kept := c.reads.bounds.charge
	stop := func() { cancel(); kept.Close() }
	s := &session{ctx: sctx, cluster: cl, rules: rules, identity: c.seen.Identity, stop: stop, guard: guard, catalog: c.catalog()}
	if err := c.syncProbed(s, c.sync); err != nil {
		stop()
		return nil, err
	}
	// The evaluators must be known before the session is served: rules are pushed with the labels that they
	// require.
	c.discover(opening, s)
	if err := c.prove(sctx); err != nil {
		stop()
		return nil, err
	}
	return s, nil
}

// syncProbed calls a function that fills caches, and cancels it when three consecutive probes fail. An informer would
// retry its first list for a minute, and an outage must show sooner.
func (c *connection) syncProbed(s *session, fill func(context.Context, *session) error) error {
	ctx, cancel := context.WithCancelCause(s.ctx)
	defer c.excess.during(cancel)()
	var probing sync.WaitGroup
	probing.Go(func() {
		if err := c.probeOn(ctx, s); err != nil {
			cancel(err)
		}
	})
	probing.Go(func() { c.tellProgress(ctx) })
	err := fill(ctx, s)
	cause := context.Cause(ctx)
	cancel(nil)
	probing.Wait()
	if err != nil && cause != nil && s.ctx.Err() == nil {
		return cause
	}
	return err
}

// probeOn probes the spoke until ctx ends. It returns an IdentityError, the error of the third consecutive probe that
// failed, or a RestoredError if the session is served.
func (c *connection) probeOn(ctx context.Context, s *session) error {
	delay, failed := c.every(probeInterval), 0
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(delay):
		}
		// A successful checkup also closes the circuit, which the session's own requests may have opened.
		err := c.checkup(ctx, s)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // the caller no longer waits
		case s.disengage != nil && s.guard.Err() != nil: // it is served, but must not be any more
			return s.guard.Err()
		case err == nil || apierrors.IsTooManyRequests(err):
			delay, failed = c.every(probeInterval), 0
			continue
		case isIdentity(err):
			return err
		}
		delay, failed = probeRetry, failed+1
		if failed == breakerThreshold {
			return err
		}
	}
}

// cluster creates the clients and the cache of a session.
func (c *connection) cluster(g *continuity.Guard) (cluster.Cluster, error) {
	c.reads = newReadings()
	c.reads.bounds = c.listBounds(c.tooMuch)
	cl, err := cluster.New(c.cfg, func(o *cluster.Options) {
		o.Scheme = Scheme
		o.HTTPClient = c.http
		o.Cache = cacheOptions(c.p.opts.HubID, c.reads.informer(c, g, trimListed(c.p.opts.HubID)))
		o.MapperProvider = func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return restMapper(), nil }
	})
	if err != nil {
		return nil, fmt.Errorf("creating a client: %w", err)
	}
	return cl, nil
}

// sync starts the session's cache and waits for it until ctx ends.
func (c *connection) sync(ctx context.Context, s *session) error {
	go func() {
		if err := s.cluster.Start(s.ctx); err != nil {
			c.log.Error(err, "the cache of the spoke stopped")
		}
	}()
	// GetInformer waits for its informer only when the cache runs.
	if !s.cluster.GetCache().WaitForCacheSync(ctx) {
		return fmt.Errorf("starting the cache: %w", ctx.Err())
	}
	kinds := c.wantedKinds()
	granted, err := c.review(ctx, kinds)
	if err != nil {
		return err
	}
	if err := granted.lack(readsWorkloads); err != nil {
		return err
	}
	c.seen.Writes = granted.writes()
	if err := c.syncKind(ctx, s.cluster, WorkloadMetadata(v1alpha1.DeploymentKind), nil); err != nil {
		return err
	}
	if err := c.syncKind(ctx, s.cluster, NamespaceMetadata(), nil); err != nil {
		return err
	}
	if err := c.syncKinds(ctx, s, c.readable(ctx, s, granted, kinds)); err != nil {
		return err
	}
	if err := granted.lack(readsRules); err != nil {
		c.seen.Served = served(err)
		return nil
	}
	return c.syncRules(ctx, s)
}

// syncRules starts the informer of PrometheusRules, if the spoke serves them.
func (c *connection) syncRules(ctx context.Context, s *session) error {
	err := s.confirm(ctx, monitoringv1.PrometheusRuleName, c.syncKind(ctx, s.cluster, &monitoringv1.PrometheusRule{}, c.p.opts.ours))
	// An informer that did not sync in time looks like a timeout of the API server.
	if err != nil && (!answered(err) || apierrors.IsTimeout(err)) {
		return err
	}
	s.served = err == nil
	c.seen.Served = served(err)
	return nil
}

// syncKind starts an informer, and waits until its first list is complete and all of it is counted. For ours, see
// holdings.counting.
func (c *connection) syncKind(ctx context.Context, cl cluster.Cluster, o client.Object, ours func(metav1.Object) bool) error {
	gvk, err := cl.GetClient().GroupVersionKindFor(o)
	if err != nil {
		return fmt.Errorf("%T: %w", o, err)
	}
	if err := c.tryList(ctx, cl, gvk); err != nil {
		return err
	}
	if err := c.p.applyIndexes(ctx, cl, gvk); err != nil {
		return err
	}
	ctx, cancel := c.reads.bound(ctx, gvk)
	defer cancel()
	informer, err := cl.GetCache().GetInformer(ctx, o)
	if err != nil {
		// The informer would block every later wait for this cache.
		_ = cl.GetCache().RemoveInformer(context.WithoutCancel(ctx), o)
		if why := context.Cause(ctx); errors.Is(why, context.DeadlineExceeded) || refuses(why) {
			err = why // controller-runtime's looks like another answer of the spoke
		}
		return fmt.Errorf("listing %ss: %w", gvk.Kind, err)
	}
	told, err := informer.AddEventHandler(c.reads.bounds.counting(gvk.Kind, ours))
	if err != nil {
		return fmt.Errorf("counting %ss: %w", gvk.Kind, err)
	}
	if !toolscache.WaitForCacheSync(ctx.Done(), told.HasSynced) {
		return fmt.Errorf("counting %ss: %w", gvk.Kind, ctx.Err())
	}
	return nil
}

// tryList reads one object of a kind, bypassing the cache.
func (c *connection) tryList(ctx context.Context, cl cluster.Cluster, gvk schema.GroupVersionKind) error {
	ctx, cancel := c.patient(ctx)
	defer cancel()
	_, err := listOne(ctx, cl.GetAPIReader(), gvk)
	return err
}

// listOne reads one object of a kind. The list also has the resourceVersion of the kind, and the number of other objects.
func listOne(ctx context.Context, reader client.Reader, gvk schema.GroupVersionKind) (*metav1.PartialObjectMetadataList, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
	if err := reader.List(ctx, list, client.Limit(1)); err != nil {
		return nil, fmt.Errorf("listing %ss: %w", gvk.Kind, err)
	}
	return list, nil
}
