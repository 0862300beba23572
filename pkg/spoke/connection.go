package spoke

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/version"
	authorization "k8s.io/client-go/kubernetes/typed/authorization/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/connrotation"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/metrics"
	"github.com/rulefleet/rulefleet/pkg/spoke/kubeconfig"
)

const (
	// requestTimeout bounds a single read while the spoke sends nothing.
	requestTimeout = 5 * time.Second
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
