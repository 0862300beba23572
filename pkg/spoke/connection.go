package spoke

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/client/versioned"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/version"
	authorization "k8s.io/client-go/kubernetes/typed/authorization/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/connrotation"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/continuity"
	"github.com/rulefleet/rulefleet/pkg/metrics"
	"github.com/rulefleet/rulefleet/pkg/spoke/kubeconfig"
)

const (
	// requestTimeout bounds a single read while the spoke sends nothing.
	requestTimeout = 5 * time.Second
	// syncTimeout is how long the first list of a kind may make no progress.
	syncTimeout = time.Minute
	// refusedTimeout is how long the spoke may refuse the first list of a kind, for which the account has the permission.
	// A permission that was just granted takes moments to reach all API servers of the spoke.
	refusedTimeout = 10 * time.Second
	// probeInterval is the time between two probes of a spoke that answers. Together with probeRetry it bounds
	// how long an outage goes unnoticed: until three consecutive probes fail, 22 s at most.
	probeInterval = 5 * time.Second
	// probeRetry is the time after a failed probe, until the circuit opens.
	probeRetry = 500 * time.Millisecond
	// recheckInterval is the time between two rechecks. Together with a probeInterval it is below the 30 s
	// within which a change must show.
	recheckInterval = 18 * time.Second
	// throttleShown is how long a spoke may throttle before its status shows it.
	throttleShown = 10 * time.Second
	// throttledProbe is the longest time between two probes of a spoke that throttles.
	throttledProbe = 30 * time.Second
	// lastAnswer is how long a connection that is no longer in use stays open for answers: slightly longer than
	// a write may take.
	lastAnswer = 20 * time.Second
)

// The errors about values of a kubeconfig that are checked when its connection is created.
var (
	errCredential = &kubeconfig.RefusedError{Message: "the credential or the CA in the kubeconfig is not valid; create the kubeconfig again"}
	errAddress    = &kubeconfig.RefusedError{Field: "cluster.server", Message: "is not a valid address; write it as https://host:port"}
)

// connection is the connection to a spoke with one kubeconfig. run opens and maintains it until its context
// ends.
type connection struct {
	name string
	log  logr.Logger
	cfg  *rest.Config
	// credential is what the present credential says about itself. The Provider's lock guards it.
	credential kubeconfig.Credential
	authority  *authority
	http       *http.Client
	// lookout probes the version over its own connection, because a probe over http would wait behind lists. The
	// identity is read over http.
	lookout *lookout
	conns   *connrotation.Dialer
	// received is the number of bytes received over all connections. It is allocated separately, because the
	// dialer refers to it and outlives the connection (see disconnect).
	received *atomic.Int64
	// together bounds the answers that are read at the same time.
	together *together
	// account counts the memory that the connection uses.
	account *account
	// paces bounds how fast the watches are read.
	paces paces
	// clock is what is known of the spoke's clock.
	clock Clock
	// reads are the lists of the latest session.
	reads   *readings
	server  *url.URL
	probes  rest.Interface
	reviews authorization.SelfSubjectRulesReviewInterface
	// accounts requests tokens.
	accounts typedcorev1.ServiceAccountsGetter
	breaker  *breaker
	gate     *gate
	kick     chan struct{} // the circuit changed, the spoke was restored, or rekind
	// rekind means that templates may name other kinds of workloads than before.
	rekind atomic.Bool
	p      *Provider
	// restores limits how often a session is opened again because the spoke was restored.
	restores flowcontrol.RateLimiter
	// excess is what exceeded a limit in this session.
	excess excess

	seen Observation
	// choose decides which evaluators are chosen; nil for none.
	choose Choose
	// evaluated is the identity of the cluster to which seen.Evaluators belong.
	evaluated string
}

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

func (p *Provider) newConnection(name string, cfg *rest.Config) (*connection, error) {
	c := &connection{
		name: name, p: p, cfg: cfg, credential: kubeconfig.CredentialOf(cfg), kick: make(chan struct{}, 1),
		log: p.log.WithValues("cluster", name), restores: newRestores(), reads: newReadings(), together: newTogether(p.opts.Limits),
		received: &atomic.Int64{},
	}
	c.account = p.memory.account(c.tooMuch)
	c.breaker = newBreaker(func() {
		p.circuit(c)
		c.look()
	})
	c.gate = &gate{spoke: name, read: c.readIdentity, alarm: c.breaker.Trip}
	// There is no client-side rate limit: the queue bounds the requests in flight, and API priority and fairness
	// in the spoke does the rest.
	cfg.QPS = -1
	cfg.WarningHandlerWithContext = rest.NoWarnings{} // they would be logged, however large
	cfg.UserAgent = p.opts.UserAgent
	c.authority = authorityOf(cfg)
	c.conns = connrotation.NewDialer(counted(cfg.Dial, c.received))
	cfg.Dial = c.gate.dialer(c.conns.DialContext)
	var err error
	if c.lookout, err = newLookout(c.observed(cfg, true)); err != nil {
		return nil, errCredential
	}
	cfg = c.observed(cfg, false)
	c.cfg = cfg
	if c.http, err = newHTTPClient(cfg, true); err != nil {
		return nil, errCredential
	}
	// A redirect would send the credential to a server of the spoke's choice.
	c.http.CheckRedirect = noRedirect
	if c.probes, err = newRESTClient(cfg, c.http); err != nil {
		return nil, errAddress
	}
	if c.server, err = serverOf(cfg); err != nil {
		return nil, errAddress
	}
	reviews, err := authorization.NewForConfigAndClient(cfg, c.http)
	if err != nil {
		return nil, errAddress
	}
	c.reviews = reviews.SelfSubjectRulesReviews()
	if c.accounts, err = typedcorev1.NewForConfigAndClient(cfg, c.http); err != nil {
		return nil, errAddress
	}
	return c, nil
}

// observed returns a configuration whose requests are counted and go through the circuit breaker and the gate. apart
// means that no writes are sent over its connections.
func (c *connection) observed(cfg *rest.Config, apart bool) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return &observer{next: next, breaker: c.breaker, gate: c.gate, apart: apart, base: basePath(cfg.Host), authority: c.authority, limits: c.p.opts.Limits, together: c.together, account: c.account, paces: &c.paces, tooLarge: c.tooMuch, clock: &c.clock, count: func(verb, code string) {
			metrics.SpokeRequests.WithLabelValues(verb, code).Inc()
		}}
	})
	// Wrap is outermost, because an error that it returns says nothing about the spoke.
	cfg.Wrap(c.p.opts.Wrap)
	return cfg
}

// run opens the connection, publishes each session that works, and maintains it.
func (c *connection) run(ctx context.Context) {
	defer c.disconnect()
	defer c.breaker.Stop()
	for backoff := c.backoff(); ctx.Err() == nil; {
		s, err := c.open(ctx)
		if errors.Is(err, errHandedOver) {
			return
		}
		if err != nil {
			c.failed(ctx, err, backoff)
			continue
		}
		wanted, err := c.p.publish(ctx, c, s)
		if !wanted {
			s.stop()
			return
		}
		if err != nil {
			s.stop()
			c.failed(ctx, err, backoff)
			continue
		}
		backoff = c.backoff()
		c.seen.Counts = s.tally.first(c.reads.bounds.counts(), time.Now())
		c.connected()
		if err = c.tend(ctx, s); err == nil { // the connection ends
			s.stop()
			return
		}
		c.end(s)
		if !c.anew(ctx, err) {
			c.failed(ctx, err, backoff)
		}
	}
}

// disconnect closes the connections that only this connection uses, after a delay for answers that are under
// way.
func (c *connection) disconnect() {
	c.account.close()
	for _, client := range []*http.Client{c.http, c.lookout.http} {
		transport := client.Transport // Client.CloseIdleConnections does not look through wrappers
		utilnet.CloseIdleConnectionsFor(transport)
		// By then the watches and most requests have ended.
		time.AfterFunc(time.Second, func() { utilnet.CloseIdleConnectionsFor(transport) })
	}
	time.AfterFunc(lastAnswer, c.conns.CloseAll)
}

// failed shows why there is no session, and waits until the next attempt.
func (c *connection) failed(ctx context.Context, err error, backoff *wait.Backoff) {
	if ctx.Err() != nil {
		return
	}
	finding := disconnected(err)
	switch finding.Reason {
	case v1alpha1.ReasonDuplicateCluster:
		c.seen.Identity = "" // it belongs to the other spoke
	case v1alpha1.ReasonIdentityChanged:
		c.seen.Identity = "" // it is not confirmed yet
		c.p.disown(c)
		if changed, ok := errors.AsType[*IdentityError](err); ok {
			c.p.strayed(c, changed.Is)
		}
	}
	c.observe(finding)
	left, _ := c.breaker.Throttled()
	if tooLarge(err) != nil { // the end of the session has changed the circuit
		select {
		case <-c.kick:
		default:
		}
	}
	c.await(ctx, max(backoff.Step(), min(left, c.every(throttledProbe))))
	// The address may lead to another server by now, and a connection that is kept does not.
	for _, client := range []*http.Client{c.http, c.lookout.http} {
		utilnet.CloseIdleConnectionsFor(client.Transport)
	}
}

// end ends a session that must not be served any more.
func (c *connection) end(s *session) {
	c.breaker.Trip() // stops the writes of workers as well
	c.p.withdraw(c.name, s)
	s.stop()
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

// tend maintains a session until its context ends. An error means that the session must not be served any more.
func (c *connection) tend(ctx context.Context, s *session) error {
	work, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer c.excess.during(cancel)()
	if err := c.tended(work, s); err != nil {
		return err
	}
	if ctx.Err() == nil {
		return c.excess.err()
	}
	return nil
}

// tended does the work of tend. Its context also ends when the spoke exceeds a limit.
func (c *connection) tended(ctx context.Context, s *session) error {
	backoff := c.backoff()
	delay, probed, recheck := wait.Jitter(c.every(probeInterval/2), 0.1), time.Now(), time.Now().Add(c.every(recheckInterval))
	var rechecked time.Time
	for c.await(ctx, delay) {
		if err := c.unfit(s); err != nil {
			return err
		}
		if delay = c.holdOff(probed); delay > 0 {
			continue
		}
		probed = time.Now()
		err := c.checkup(ctx, s)
		switch {
		case ctx.Err() != nil:
			continue // ends
		case isIdentity(err):
			return err
		case err != nil:
			delay = c.missed(err, backoff)
			continue
		}
		backoff, delay = c.backoff(), wait.Jitter(c.every(probeInterval), 0.1)
		if now := time.Now(); c.recheckDue(s, now.After(recheck), now.Sub(rechecked) >= c.every(probeInterval/2)) {
			recheck, rechecked = now.Add(c.every(recheckInterval)), now
			better, err := c.recheck(ctx, s)
			if better {
				err = c.renew(ctx, s)
			}
			switch {
			case ctx.Err() != nil:
				continue // ends
			case err != nil:
				return err
			}
		}
		if s.refused != nil { // until the next recheck
			c.observe(disconnected(s.refused))
			continue
		}
		if counts, news := s.tally.next(c.reads.bounds.counts(), time.Now(), c.every(firstInterval)); news {
			c.seen.Counts = counts
		}
		c.connected()
	}
	return nil
}

// recheckDue reports whether to recheck the spoke now. late means that the last recheck was recheckInterval ago. again is
// false shortly after a recheck: if its requests opened the circuit, the next probe comes at once, and closes it.
func (c *connection) recheckDue(s *session, late, again bool) bool {
	return !c.breaker.Blocked() && (late || (again && !s.served) || c.rekind.Swap(false))
}

// checkup probes the spoke. After an outage it confirms the identity before anything else is sent.
func (c *connection) checkup(ctx context.Context, s *session) error {
	ctx = asProbe(ctx)
	if err := c.probe(ctx); err != nil {
		return err
	}
	open := c.breaker.Open()
	if open || c.gate.inDoubt() {
		if err := c.identify(ctx, s.identity); err != nil {
			return err
		}
	}
	if open {
		c.breaker.Close()
	} else {
		c.breaker.Probed(true)
	}
	return nil
}

// missed counts a failed probe, and returns the time until the next one. A single failure may be chance, so it
// shows only when the circuit is open.
func (c *connection) missed(err error, backoff *wait.Backoff) time.Duration {
	if apierrors.IsTooManyRequests(err) {
		c.observe(throttled)
		return probeRetry
	}
	c.breaker.Probed(false)
	if !c.breaker.Open() {
		return probeRetry
	}
	c.observe(disconnected(err))
	return backoff.Step()
}

// holdOff returns how long the spoke's Retry-After also blocks the probe, and shows it if that lasts.
func (c *connection) holdOff(probed time.Time) time.Duration {
	left, lasted := c.breaker.Throttled()
	if left == 0 {
		return 0
	}
	shown := c.every(throttleShown)
	if lasted >= shown {
		c.observe(throttled)
	}
	return max(0, min(left, c.every(throttledProbe)-time.Since(probed), shown))
}

// await waits for the next probe or a change of the circuit. It returns false when the connection is to end.
func (c *connection) await(ctx context.Context, delay time.Duration) bool {
	select {
	case <-ctx.Done():
	case <-c.kick:
	case <-time.After(delay):
	}
	return ctx.Err() == nil
}

// recheck detects changes in a spoke that answers: whether it is still the same cluster, and whether the
// watched kinds may still be read, because a refused watch retries silently. better means that more can be read than
// before, or that other kinds of workloads are to be read. The error is an IdentityError.
func (c *connection) recheck(ctx context.Context, s *session) (better bool, err error) {
	switch err := c.identify(ctx, s.identity); {
	case isIdentity(err):
		return false, err
	case drips(err):
		s.refused = err // until the next recheck
		return false, nil
	}
	kinds := c.wantedKinds()
	granted, err := c.review(ctx, kinds)
	if drips(err) {
		s.refused = err // until the next recheck
	}
	if err != nil {
		return false, nil //nolint:nilerr // no answer; the next probe shows it
	}
	c.seen.Writes = granted.writes()
	c.discover(ctx, s)
	if !c.mayRead(ctx, s, granted) {
		return false, nil
	}
	s.readable = c.readable(ctx, s, granted, kinds)
	better = !slices.Equal(s.readable, s.kinds)
	if err = granted.lack(readsRules); err == nil {
		err = s.confirm(ctx, monitoringv1.PrometheusRuleName, c.tryRules(ctx, s))
	}
	switch {
	case err == nil:
		c.seen.Served = served(nil)
		return better || s.lacked || !s.served, nil
	case answered(err):
		c.seen.Served = served(err)
		s.lacked = true
	}
	return better, nil
}

// renew engages a session again after more, or other kinds of workloads, can be read. What its cache holds already is
// not read again.
func (c *connection) renew(ctx context.Context, s *session) error {
	before, lacked := s.kinds, s.lacked || !s.served
	err := c.syncProbed(s, func(ctx context.Context, s *session) error {
		if err := c.syncKinds(ctx, s, s.readable); err != nil || s.served {
			return err
		}
		return c.syncRules(ctx, s)
	})
	if isIdentity(err) || tooLarge(err) != nil || s.guard.Err() != nil {
		return err
	}
	if whole := err == nil && s.served; whole {
		s.lacked = false
	} else {
		lacked = false // Served shows it, or the next probe; the session is served as before
	}
	if !lacked && slices.Equal(before, s.kinds) {
		return nil
	}
	if _, err := c.p.publish(ctx, c, s); err != nil {
		return err
	}
	c.dropKinds(ctx, s, before)
	return nil
}

// mayRead reports whether Deployments and Namespaces may be read: from the granted permissions or, if the
// spoke does not report them, by reading.
func (c *connection) mayRead(ctx context.Context, s *session, granted grants) bool {
	s.refused = granted.lack(readsWorkloads)
	for _, o := range []client.Object{WorkloadMetadata(v1alpha1.DeploymentKind), NamespaceMetadata()} {
		if granted.known || s.refused != nil {
			break
		}
		if err := c.tryList(ctx, s.cluster, o.GetObjectKind().GroupVersionKind()); answered(err) {
			s.refused = err
		}
	}
	s.lacked = s.lacked || s.refused != nil
	return s.refused == nil
}

// probe reads the version, which every account may read by default. A refusal counts as an answer.
func (c *connection) probe(ctx context.Context) error {
	ctx, cancel := c.patient(ctx)
	defer cancel()
	body, err := bodyOf(ctx, c.lookout.Get().AbsPath("/version"))
	if err != nil {
		if apierrors.IsForbidden(err) {
			c.seen.Contact = time.Now()
			return nil
		}
		return fmt.Errorf("reading the Kubernetes version: %w", err)
	}
	var v version.Info
	if err := json.Unmarshal(body, &v); err != nil || v.GitVersion == "" {
		return fmt.Errorf("reading the Kubernetes version: %w", errNotKubernetes)
	}
	c.seen.Version, c.seen.Contact = Clip(v.GitVersion, maxVersion), time.Now()
	return nil
}

// identify reads the identity of the cluster, the UID of namespace kube-system. It must equal the known one,
// if there is one.
func (c *connection) identify(ctx context.Context, was string) error {
	is, err := c.gate.learn(ctx)
	if err != nil {
		return err
	}
	if was != "" && is != was {
		return &IdentityError{Spoke: c.name, Was: was, Is: is}
	}
	c.seen.Identity = is
	return nil
}

// connected sets Connected to True, unless the spoke throttles.
func (c *connection) connected() {
	if _, lasted := c.breaker.Throttled(); lasted >= c.every(throttleShown) {
		c.observe(throttled)
		return
	}
	text := "the spoke answers"
	if again := c.reads.again(); again != "" {
		text += "; " + again
	}
	if late := c.paces.late(time.Now()); late != "" {
		text += "; " + late
	}
	c.observe(Finding{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonConnected, Message: text})
}

func (c *connection) observe(f Finding) {
	switch was := c.seen.Connected; {
	case was.Status == f.Status && was.Reason == f.Reason:
		if f.Reason == v1alpha1.ReasonUnreachable || (f.Reason == v1alpha1.ReasonTooLarge && sameButNumbers(f.Message, was.Message)) {
			// The text of the same outage differs between attempts, for example by a port.
			f.Message = was.Message
		}
	case f.Status == metav1.ConditionTrue:
		c.log.Info("spoke connected", "version", c.seen.Version, "rulesServed", c.seen.Served.Status)
	default:
		c.log.Info("Rulefleet cannot manage the rules in the spoke", "reason", f.Reason, "message", f.Message)
	}
	c.seen.Connected = f
	c.p.observe(c, c.seen)
}

// every scales an interval.
func (c *connection) every(d time.Duration) time.Duration { return c.p.opts.Intervals.Of(d) }

// backoff is the delay between two probes of a spoke that does not answer: at most 20 s, so that a recovery is
// noticed within 30 s.
func (c *connection) backoff() *wait.Backoff {
	return &wait.Backoff{Duration: c.every(time.Second), Factor: 2, Jitter: 0.2, Steps: 100, Cap: c.every(16 * time.Second)}
}
