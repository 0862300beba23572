package spoke

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/client/versioned"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/connrotation"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/metrics"
)

const (
	// requestTimeout bounds a single read of a spoke.
	requestTimeout = 5 * time.Second
	// syncTimeout bounds the first list of a kind, which is large in a large spoke.
	syncTimeout = time.Minute
	// probeInterval is the time between two probes of a spoke that answers.
	probeInterval = 10 * time.Second
	// lastAnswer is how long an answer is waited for on a connection that is not in use
	// any more: as long as a write may take, and a little.
	lastAnswer = 20 * time.Second
	// recheckInterval is the time between two looks at whether what is watched may
	// still be read.
	recheckInterval = time.Minute
)

// connection is one kubeconfig's way to a spoke. run opens it and tends it until
// its context ends.
type connection struct {
	name    string
	log     logr.Logger
	cfg     *rest.Config
	http    *http.Client
	conns   *connrotation.Dialer
	probes  rest.Interface
	breaker *Breaker
	kick    chan struct{} // the circuit changed: probe now
	p       *Provider

	seen Observation
}

// session is one cluster.Cluster of a connection, with what it was found to serve.
type session struct {
	ctx     context.Context
	cluster cluster.Cluster
	rules   monitoring.Interface
	served  bool
	stop    context.CancelFunc
	tally   tally
}

func (p *Provider) newConnection(name string, cfg *rest.Config) (*connection, error) {
	c := &connection{
		name: name, p: p, cfg: cfg, kick: make(chan struct{}, 1),
		log: p.log.WithValues("cluster", name),
	}
	c.breaker = NewBreaker(func() {
		p.circuit(c)
		select {
		case c.kick <- struct{}{}:
		default:
		}
	})
	// No client-side rate limit: the number of requests in flight per spoke is
	// bounded by the queue, and the spoke's priority and fairness does the rest.
	cfg.QPS = -1
	cfg.UserAgent = p.opts.UserAgent
	c.conns = connrotation.NewDialer(cfg.Dial)
	cfg.Dial = c.conns.DialContext
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return &observer{next: next, breaker: c.breaker, count: func(method, code string) {
			metrics.SpokeRequests.WithLabelValues(method, code).Inc()
		}}
	})
	// Outermost, for what it refuses says nothing about the spoke.
	cfg.Wrap(p.opts.Wrap)
	var err error
	if c.http, err = rest.HTTPClientFor(cfg); err != nil {
		return nil, refuse("", "the credential or the CA in it can't be used")
	}
	// A redirect would carry the credential to wherever the spoke says.
	c.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	d, err := discovery.NewDiscoveryClientForConfigAndClient(cfg, c.http)
	if err != nil {
		return nil, refuse("cluster.server", "is no usable address")
	}
	c.probes = d.RESTClient()
	return c, nil
}

// run opens the connection, publishes every session that works, and tends it.
func (c *connection) run(ctx context.Context) {
	defer c.disconnect()
	var live *session
	defer func() {
		if live != nil {
			live.stop()
		}
	}()
	backoff := newBackoff()
	for ctx.Err() == nil {
		next, err := c.open(ctx)
		if err == nil {
			var wanted bool
			if wanted, err = c.p.publish(ctx, c, next); !wanted {
				next.stop()
				return
			}
		}
		if err != nil {
			if next != nil {
				next.stop()
			}
			if ctx.Err() != nil {
				return
			}
			finding := disconnected(err)
			switch finding.Reason {
			case v1alpha1.ReasonDuplicateCluster:
				c.seen.Identity = "" // the other spoke's
			case v1alpha1.ReasonIdentityChanged:
				c.seen.Identity = "" // not the spoke's yet
				c.p.disown(c)
			}
			c.observe(finding)
			c.await(ctx, backoff.Step())
			continue
		}
		if live != nil {
			live.stop()
		}
		live, backoff = next, newBackoff()
		c.seen.Counts = live.tally.first(time.Now())
		c.connected()
		c.tend(ctx, live)
	}
}

// disconnect closes the connections to the spoke that this one alone has. What is on its
// way is still answered, if that is soon.
func (c *connection) disconnect() {
	transport := c.http.Transport // Client.CloseIdleConnections does not look through wrappers
	utilnet.CloseIdleConnectionsFor(transport)
	// By then the watches have ended, and most of all else.
	time.AfterFunc(time.Second, func() { utilnet.CloseIdleConnectionsFor(transport) })
	time.AfterFunc(lastAnswer, c.conns.CloseAll)
}

// open makes a session: every read that can fail is tried first with a deadline,
// so that its error can be told, before an informer is left to retry it for ever.
func (c *connection) open(ctx context.Context) (*session, error) {
	if err := c.probe(ctx); err != nil {
		return nil, err
	}
	cl, err := cluster.New(c.cfg, func(o *cluster.Options) {
		o.Scheme = Scheme
		o.HTTPClient = c.http
		o.Cache = cacheOptions(c.p.opts.HubID)
		o.MapperProvider = func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return restMapper(), nil }
	})
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	rules, err := monitoring.NewForConfigAndClient(c.cfg, c.http)
	if err != nil {
		return nil, fmt.Errorf("making a client for PrometheusRules: %w", err)
	}
	if err := c.identify(ctx, cl); err != nil {
		return nil, err
	}
	if err := c.p.admit(c.name, c.seen.Identity); err != nil {
		return nil, err
	}
	sctx, stop := context.WithCancel(ctx)
	s := &session{ctx: sctx, cluster: cl, rules: rules, stop: stop}
	if err := c.sync(sctx, s); err != nil {
		stop()
		return nil, err
	}
	return s, nil
}

// sync starts the session's cache and waits for it.
func (c *connection) sync(ctx context.Context, s *session) error {
	go func() {
		if err := s.cluster.Start(ctx); err != nil {
			c.log.Error(err, "the spoke's cache ended")
		}
	}()
	// Before the cache runs, GetInformer would not wait for its informer.
	if !s.cluster.GetCache().WaitForCacheSync(ctx) {
		return fmt.Errorf("starting the cache: %w", ctx.Err())
	}
	if err := c.syncKind(ctx, s.cluster, DeploymentMetadata(), s.tally.deployments()); err != nil {
		return err
	}
	if err := c.syncKind(ctx, s.cluster, NamespaceMetadata(), nil); err != nil {
		return err
	}
	err := c.syncKind(ctx, s.cluster, &monitoringv1.PrometheusRule{}, s.tally.rules(c.p.opts.HubID))
	// An informer that did not sync in time is told as a timeout of the API's.
	if err != nil && (!answered(err) || apierrors.IsTimeout(err)) {
		return err
	}
	s.served = err == nil
	c.seen.Served = served(err)
	return nil
}

// syncKind starts an informer and waits for its first list, and until counter has
// been told of all of it.
func (c *connection) syncKind(ctx context.Context, cl cluster.Cluster, o client.Object, counter toolscache.ResourceEventHandler) error {
	gvk, err := cl.GetClient().GroupVersionKindFor(o)
	if err != nil {
		return fmt.Errorf("%T: %w", o, err)
	}
	if err := tryList(ctx, cl, gvk); err != nil {
		return err
	}
	if err := c.p.applyIndexes(ctx, cl, gvk); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	informer, err := cl.GetCache().GetInformer(ctx, o)
	if err != nil {
		// Left alone it would hold up every later wait for this cache.
		_ = cl.GetCache().RemoveInformer(context.WithoutCancel(ctx), o)
		return fmt.Errorf("listing %ss: %w", gvk.Kind, err)
	}
	if counter == nil {
		return nil
	}
	told, err := informer.AddEventHandler(counter)
	if err != nil {
		return fmt.Errorf("counting %ss: %w", gvk.Kind, err)
	}
	if !toolscache.WaitForCacheSync(ctx.Done(), told.HasSynced) {
		return fmt.Errorf("counting %ss: %w", gvk.Kind, ctx.Err())
	}
	return nil
}

// tryList reads one object of a kind, past the cache.
func tryList(ctx context.Context, cl cluster.Cluster, gvk schema.GroupVersionKind) error {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if err := cl.GetAPIReader().List(ctx, list, client.Limit(1)); err != nil {
		return fmt.Errorf("listing %ss: %w", gvk.Kind, err)
	}
	return nil
}

// tend watches over a session until its context ends, or a better one can be had.
func (c *connection) tend(ctx context.Context, s *session) {
	backoff := newBackoff()
	delay, recheck := wait.Jitter(probeInterval/2, 0.1), time.Now().Add(recheckInterval)
	for c.await(ctx, delay) {
		err := c.probe(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && (answered(err) || c.breaker.Open()):
			c.observe(disconnected(err))
			delay = backoff.Step()
			continue
		case err != nil:
			delay = time.Second
			continue
		}
		backoff, delay = newBackoff(), wait.Jitter(probeInterval, 0.1)
		if now := time.Now(); !s.served || now.After(recheck) {
			recheck = now.Add(recheckInterval)
			reopen, err := c.recheck(ctx, s)
			if reopen || ctx.Err() != nil {
				return
			}
			if err != nil {
				c.observe(disconnected(err))
				continue
			}
		}
		if counts, news := s.tally.next(time.Now()); news {
			c.seen.Counts = counts
		}
		c.connected()
	}
}

// await waits for the time of the next probe, or for the circuit to change. It tells
// false when the connection is to end.
func (c *connection) await(ctx context.Context, delay time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-c.kick:
		return true
	case <-time.After(delay):
		return true
	}
}

// recheck finds out whether what is watched may still be read: a watch that is
// refused retries in silence. It tells to reopen when PrometheusRules are served now,
// and were not before. The error is an answer that refuses what a spoke can't do
// without.
func (c *connection) recheck(ctx context.Context, s *session) (reopen bool, err error) {
	for _, o := range []client.Object{DeploymentMetadata(), NamespaceMetadata()} {
		if err := tryList(ctx, s.cluster, o.GetObjectKind().GroupVersionKind()); err != nil && answered(err) {
			return false, err
		}
	}
	err = tryList(ctx, s.cluster, ruleKind)
	if err == nil || answered(err) {
		c.seen.Served = served(err)
	}
	return err == nil && !s.served, nil
}

// probe asks for the version, which every account may read by default. An answer
// that refuses it is an answer.
func (c *connection) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	body, err := c.probes.Get().AbsPath("/version").Do(ctx).Raw()
	if err != nil {
		if apierrors.IsForbidden(err) {
			c.seen.Contact = time.Now()
			return nil
		}
		return fmt.Errorf("asking for the version: %w", err)
	}
	var v version.Info
	if err := json.Unmarshal(body, &v); err != nil || v.GitVersion == "" {
		return errNotKubernetes
	}
	c.seen.Version, c.seen.Contact = Clip(v.GitVersion, maxVersion), time.Now()
	return nil
}

// identify reads the cluster's identity: the UID of its namespace kube-system.
func (c *connection) identify(ctx context.Context, cl cluster.Cluster) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	ns := NamespaceMetadata()
	if err := cl.GetAPIReader().Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, ns); err != nil {
		return fmt.Errorf("reading the namespace %s: %w", metav1.NamespaceSystem, err)
	}
	if !uid.MatchString(string(ns.UID)) {
		return fmt.Errorf("reading the namespace %s: %w", metav1.NamespaceSystem, errNotKubernetes)
	}
	c.seen.Identity = string(ns.UID)
	return nil
}

// connected tells that all is well.
func (c *connection) connected() {
	c.observe(Finding{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonConnected, Message: "the spoke answers"})
}

func (c *connection) observe(f Finding) {
	switch was := c.seen.Connected; {
	case was.Status == f.Status && was.Reason == f.Reason:
		if f.Reason == v1alpha1.ReasonUnreachable {
			// The words of the same outage differ from try to try, by a port say.
			f.Message = was.Message
		}
	case f.Status == metav1.ConditionTrue:
		c.log.Info("the spoke is connected", "version", c.seen.Version, "rulesServed", c.seen.Served.Status)
	default:
		c.log.Info("the spoke can't be served", "reason", f.Reason, "message", f.Message)
	}
	c.seen.Connected = f
	c.p.observe(c, c.seen)
}

// newBackoff is the delay between two probes of a spoke that does not answer.
func newBackoff() *wait.Backoff {
	return &wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.2, Steps: 100, Cap: maxBackoff * 4 / 5}
}
