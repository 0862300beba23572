package spoke

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/url"
	"sort"
	"sync"
	"time"

	"github.com/go-logr/logr"
	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/client/versioned"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/transport"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/interval"
	"github.com/rulefleet/rulefleet/pkg/live"
	"github.com/rulefleet/rulefleet/pkg/metrics"
)

// Options are what a Provider needs to know.
type Options struct {
	// HubID is the id of this hub: of its own PrometheusRules alone the contents are cached.
	HubID string
	// Stands tells whether an object stands for an AlertRule of this hub: rule.StandsFor. Only those are
	// counted. Nil is every one with the hub's label.
	Stands func(o metav1.Object) bool
	// UserAgent is how the operator presents itself to spokes.
	UserAgent string
	// Allow is what kubeconfigs may have that is refused otherwise.
	Allow Allowances
	// EvaluatorNamespaces are the namespaces of the spokes whose Prometheus and ThanosRulers may
	// be chosen to evaluate the rules; none for all.
	EvaluatorNamespaces []string
	// OperatorNamespaces are those in which prometheus-operator runs, where it does not run in
	// that of the evaluator.
	OperatorNamespaces []string
	// Intervals scales the time between two looks at a spoke.
	Intervals interval.Scale
	// Limits bound what a spoke may make the manager hold.
	Limits Limits
	// Wrap is put around every transport to a spoke; nil for none.
	Wrap transport.WrapperFunc
	// Log is the logger.
	Log logr.Logger
}

// Spoke is an engaged spoke, as the controllers work with it.
type Spoke struct {
	// Name is the spoke's name.
	Name string
	// Reader reads the spoke's cache. What it returns is shared: copy before changing.
	Reader client.Reader
	// Live reads the spoke itself, past the cache: Deployments' and Namespaces' metadata, and
	// PrometheusRules.
	Live *live.Reader
	// Identity tells whether the spoke still is the cluster that was engaged.
	Identity Identity
	// Rules writes PrometheusRules, past the cache.
	Rules monitoring.Interface
	// RulesServed tells whether the spoke serves PrometheusRules. If not, they are
	// not in the cache, and Reader refuses to read them; WhyNot tells why.
	RulesServed bool
	WhyNot      Finding
	// Since is when the spoke was engaged.
	Since time.Time

	// Behind asks what is behind the API server at Server: its answers say nothing about that.
	Behind *http.Client
	Server *url.URL

	allow   Allowance
	patient func(context.Context) (context.Context, context.CancelFunc)
}

// Provider is the multicluster.Provider of registered spokes. Each has a goroutine
// of its own, rooted in the manager's context; no call here waits on a spoke.
type Provider struct {
	opts Options
	log  logr.Logger
	// started is closed when Start has the manager's context.
	started chan struct{}
	base    context.Context
	// pages bounds the lists of all spokes together.
	pages *pageBudget
	aware multicluster.Aware
	// ready counts the controllers that have not started yet.
	ready sync.WaitGroup

	mu       sync.RWMutex
	entries  map[string]*entry
	indexes  []index
	changed  func(name string, after time.Duration)
	circuits []*Queue
	// answering are the controllers whose requests to spokes say how many keys may be in flight.
	answering map[string]bool
	// settle decides which evaluators of a spoke are chosen, and records it.
	settle func(ctx context.Context, name, identity string, before Evaluators, look look) ([]v1alpha1.Evaluator, error)
	// evaluated is told of spokes whose evaluators have changed.
	evaluated []func(name string)
	// removed is told of spokes that are not registered any more.
	removed []func(name string)
	// identified is told of spokes that became other clusters, or were confirmed.
	identified []func(name string)
	// restored is told of spokes that were restored from a backup.
	restored []func(name string)
	members  members
	leaving  map[string]*departure
}

// entry is all that is known of one registered spoke.
type entry struct {
	hash    [sha256.Size]byte // of the kubeconfig that current or pending has
	current *registration     // published; nil before the first success
	pending *registration     // not published yet
	cluster cluster.Cluster   // current's session
	spoke   *Spoke            // current's session, for controllers
	open    bool              // current's circuit
	back    time.Time         // when it last closed
	seen    *Observation      // by current, or by pending before the first success
	fault   string            // what is wrong with pending, where current is in use
	// evaluators are as current last read them. They are known before its session is engaged: the
	// rules that this brings are to have the labels that they need.
	evaluators Evaluators
}

// registration is one kubeconfig's connection, and how to end it.
type registration struct {
	conn       *connection
	cancel     context.CancelFunc
	kubeconfig []byte
}

type index struct {
	obj   client.Object
	field string
	fn    client.IndexerFunc
}

var _ multicluster.ProviderRunnable = &Provider{}
var _ multicluster.Provider = &Provider{}

// NewProvider returns a Provider without spokes.
func NewProvider(o Options) *Provider {
	return &Provider{
		pages: &pageBudget{most: fleetPages}, opts: o, log: o.Log, started: make(chan struct{}), entries: map[string]*entry{}, members: newMembers(),
		leaving: map[string]*departure{}, answering: map[string]bool{}, changed: func(string, time.Duration) {}, settle: seenAlone,
	}
}

// follow makes a queue follow the circuits of the spokes.
func (p *Provider) follow(q *Queue) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.circuits = append(p.circuits, q)
}

// OnChange sets the function that is told when something else is to be shown of a spoke,
// and how long that may wait. It has to return at once.
func (p *Provider) OnChange(fn func(name string, after time.Duration)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.changed = fn
}

// Changed tells that something is to be shown of a spoke that others have seen.
func (p *Provider) Changed(name string) { p.tell(name, 0) }

// ChangedSoon is Changed for what comes in numbers: it may wait for more.
func (p *Provider) ChangedSoon(name string) { p.tell(name, gather) }

// gather is how long what is to be shown may wait for more of it.
const gather = 2 * time.Second

func (p *Provider) tell(name string, after time.Duration) {
	p.mu.RLock()
	changed := p.changed
	p.mu.RUnlock()
	changed(name, after)
}

// Start implements multicluster.ProviderRunnable: it lets spokes be engaged until
// ctx ends.
func (p *Provider) Start(ctx context.Context, aware multicluster.Aware) error {
	p.ready.Wait()
	p.base, p.aware = ctx, aware
	close(p.started)
	<-ctx.Done()
	return nil
}

// Get implements multicluster.Provider.
func (p *Provider) Get(_ context.Context, name multicluster.ClusterName) (cluster.Cluster, error) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if e, ok := p.entries[name.String()]; ok && e.cluster != nil {
		return e.cluster, nil
	}
	return nil, multicluster.ErrClusterNotFound
}

// IndexField implements multicluster.Provider. Fields have to be indexed before the
// first spoke is registered; an index on PrometheusRules takes part where they are served.
func (p *Provider) IndexField(_ context.Context, obj client.Object, field string, fn client.IndexerFunc) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.entries) > 0 {
		return fmt.Errorf("indexing %T by %s: a spoke is already registered", obj, field)
	}
	p.indexes = append(p.indexes, index{obj: obj, field: field, fn: fn})
	return nil
}

// Spoke returns an engaged spoke, or nil if there is none of that name.
func (p *Provider) Spoke(name string) *Spoke {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if e, ok := p.entries[name]; ok {
		return e.spoke
	}
	return nil
}

// Spokes returns the engaged spokes, in order of their names.
func (p *Provider) Spokes() []*Spoke {
	p.mu.RLock()
	defer p.mu.RUnlock()
	out := make([]*Spoke, 0, len(p.entries))
	for _, e := range p.entries {
		if e.spoke != nil {
			out = append(out, e.spoke)
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out
}

// Away tells whether an engaged spoke does not answer at present.
func (p *Provider) Away(name string) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	e, ok := p.entries[name]
	return ok && e.open
}

// AwaySince tells whether an engaged spoke did not answer at some time since another one.
func (p *Provider) AwaySince(name string, since time.Time) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	e, ok := p.entries[name]
	return ok && (e.open || e.back.After(since))
}

// Queues returns what waits in the queues of the controllers that work on spokes.
func (p *Provider) Queues() []metrics.Queue {
	p.mu.RLock()
	queues := p.circuits
	p.mu.RUnlock()
	out := make([]metrics.Queue, 0, len(queues))
	for _, q := range queues {
		out = append(out, q.depth())
	}
	return out
}

// RulesServed is a filter for watches of PrometheusRules.
func (p *Provider) RulesServed(name multicluster.ClusterName, _ cluster.Cluster) bool {
	s := p.Spoke(name.String())
	return s != nil && s.RulesServed
}

// Observation returns what was last seen of a registered spoke, or nil if nothing
// was yet.
func (p *Provider) Observation(name string) *Observation {
	p.mu.RLock()
	defer p.mu.RUnlock()
	e, ok := p.entries[name]
	if !ok {
		return nil
	}
	seen := e.observation()
	if seen != nil {
		seen.IdentityTime = p.members.changed[name]
	}
	return seen
}

// Register makes a spoke of that name be served by a kubeconfig. It waits for
// nothing but the start of the operator itself; Observation tells how far it got. A
// kubeconfig in place of another one takes over when it works, and not before. The
// error is a RefusedError: then the connection, if there is one, stays as it is.
func (p *Provider) Register(ctx context.Context, name string, kubeconfig []byte) error {
	select {
	case <-p.started:
	case <-ctx.Done():
		return fmt.Errorf("waiting for the controllers to start: %w", ctx.Err())
	}
	hash := sha256.Sum256(kubeconfig)
	p.mu.RLock()
	e, ok := p.entries[name]
	same := ok && e.hash == hash
	p.mu.RUnlock()
	if same {
		return nil
	}
	cfg, err := RESTConfig(kubeconfig, p.opts.Allow.Of(name))
	if err != nil {
		return err
	}
	conn, err := p.newConnection(name, cfg)
	if err != nil {
		return err
	}
	run, cancel := context.WithCancel(p.base)
	p.mu.Lock()
	if e = p.entries[name]; e == nil {
		e = &entry{}
		p.entries[name] = e
	}
	if e.pending != nil {
		e.pending.cancel()
	}
	e.hash, e.pending, e.fault = hash, &registration{conn: conn, cancel: cancel, kubeconfig: kubeconfig}, ""
	p.members.released.Delete(name)
	delete(p.members.found, name)
	if e.current == nil {
		e.seen, e.evaluators = nil, Evaluators{} // by the one before
	}
	p.mu.Unlock()
	go conn.run(run)
	return nil
}

// Remove disengages a spoke. Nothing in the spoke is changed.
func (p *Provider) Remove(name string) {
	p.mu.Lock()
	e, ok := p.entries[name]
	delete(p.entries, name)
	circuits := p.circuits
	p.mu.Unlock()
	if !ok {
		return
	}
	for _, r := range []*registration{e.current, e.pending} {
		if r == nil {
			continue
		}
		r.cancel()
	}
	e.uncount()
	for _, q := range circuits {
		q.ForgetSpoke(multicluster.ClusterName(name))
	}
	p.tellRemoved(name)
}

func (p *Provider) tellRemoved(name string) {
	p.mu.RLock()
	removed := p.removed
	p.mu.RUnlock()
	for _, fn := range removed {
		fn(name)
	}
}

// OnRemoved adds a function that is told when a spoke is not registered any more, and again
// when its SpokeCluster is gone: by then, no worker that had it in hand remembers anything. It
// has to return at once.
func (p *Provider) OnRemoved(fn func(name string)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.removed = append(p.removed, fn)
}

// uncount takes an entry out of the metrics.
func (e *entry) uncount() {
	if e.open {
		metrics.OpenCircuits.Dec()
	}
	if e.spoke != nil {
		metrics.EngagedSpokes.Dec()
	}
}

// publish engages a session of a connection. It tells false when the connection is
// not wanted any more.
func (p *Provider) publish(ctx context.Context, c *connection, s *session) (bool, error) {
	p.mu.Lock()
	e, ok := p.entries[c.name]
	if !ok || ctx.Err() != nil || !e.has(c) {
		p.mu.Unlock()
		return false, nil //nolint:nilerr // that ctx ended is the reason, and no error
	}
	if err := p.admitLocked(c.name, c.seen.Identity); err != nil {
		p.mu.Unlock()
		return true, err
	}
	p.becomeLocked(c.name, c.seen.Identity)
	var old *registration
	if e.pending != nil && e.pending.conn == c {
		old, e.current, e.pending, e.fault = e.current, e.pending, nil, ""
	}
	if e.spoke == nil {
		metrics.EngagedSpokes.Inc()
	}
	e.cluster, e.evaluators = s.cluster, c.seen.Evaluators
	e.spoke = &Spoke{
		Name: c.name, Reader: s.cluster.GetClient(), Live: live.New(s.cluster.GetAPIReader(), clock.RealClock{}).Within(c.patient), Identity: c.gate, Rules: s.rules, RulesServed: s.served, WhyNot: c.seen.Served, Since: time.Now(),
		Behind: newAsker(c.http, &c.received), Server: c.server, allow: p.opts.Allow.Of(c.name), patient: c.patient,
	}
	p.mu.Unlock()

	p.tellPredecessors(c.name)
	p.circuit(c)
	// All caches have synced, so Engage returns soon; the session's own context ends
	// what it starts.
	err := p.aware.Engage(s.ctx, multicluster.ClusterName(c.name), s.cluster)
	if old != nil {
		old.cancel()
	}
	if err != nil {
		p.withdraw(c.name, s)
		return true, fmt.Errorf("engaging the spoke: %w", err)
	}
	return true, nil
}

// withdraw takes a session back that could not be engaged: nothing may work on it
// once it has ended.
func (p *Provider) withdraw(name string, s *session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e, ok := p.entries[name]; ok && e.cluster == s.cluster {
		e.cluster, e.spoke = nil, nil
		metrics.EngagedSpokes.Dec()
	}
}

// observation is what current, or the first connection, saw, with what is wrong with
// the one that is to replace it.
func (e *entry) observation() *Observation {
	if e.seen == nil {
		return nil
	}
	seen := *e.seen
	switch {
	case e.fault == "":
	case seen.Connected.Status == metav1.ConditionTrue:
		seen.Connected.Message = Clip(lastGood+"the new one: "+e.fault, maxMessage)
	default:
		seen.Connected.Message = Clip(seen.Connected.Message+"; the new kubeconfig: "+e.fault, maxMessage)
	}
	return &seen
}

func (e *entry) has(c *connection) bool {
	return (e.current != nil && e.current.conn == c) || (e.pending != nil && e.pending.conn == c)
}

// circuit brings the queues in line with a connection's circuit. That of a
// connection that is not in use yet is nobody's business. The queues are told with
// the lock held, so that two changes can't arrive in the wrong order; they don't wait.
func (p *Provider) circuit(c *connection) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e, ok := p.entries[c.name]
	open := c.breaker.Shut()
	if !ok || e.current == nil || e.current.conn != c || e.open == open {
		return
	}
	e.open = open
	if open {
		metrics.OpenCircuits.Inc()
	} else {
		metrics.OpenCircuits.Dec()
		e.back = time.Now()
	}
	for _, q := range p.circuits {
		q.SetCircuit(multicluster.ClusterName(c.name), open)
	}
}

// connecting shows how far a connection is whose first session is being opened. A spoke that is
// served meanwhile is connected.
func (p *Provider) connecting(c *connection, f Finding) {
	p.mu.RLock()
	seen := Observation{}
	e, ok := p.entries[c.name]
	if ok && e.seen != nil {
		seen = *e.seen
	}
	served := ok && e.spoke != nil
	p.mu.RUnlock()
	if served {
		return
	}
	seen.Connected = f
	p.observe(c, seen)
}

// observe keeps what a connection saw, and tells of it if it is news.
func (p *Provider) observe(c *connection, seen Observation) {
	p.mu.Lock()
	e, ok := p.entries[c.name]
	if !ok || !e.has(c) {
		p.mu.Unlock()
		return
	}
	was := e.observation()
	if e.pending != nil && e.pending.conn == c && e.spoke != nil && e.seen != nil {
		// The last good connection stays in use while the new one is not good.
		e.fault = seen.Connected.Message
	} else {
		e.seen = &seen
	}
	is := e.observation()
	news := was == nil || !was.equal(*is)
	others := false
	if e.current == nil || e.current.conn == c {
		others = e.spoke != nil && !e.evaluators.relevant().equal(seen.Evaluators.relevant())
		e.evaluators = seen.Evaluators
	}
	changed, evaluated := p.changed, p.evaluated
	p.mu.Unlock()
	if news {
		changed(c.name, 0)
	}
	if others {
		for _, fn := range evaluated {
			fn(c.name)
		}
	}
}

// Evaluators returns the Prometheus and ThanosRuler objects of a registered spoke, as they were
// last read.
func (p *Provider) Evaluators(name string) Evaluators {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if e, ok := p.entries[name]; ok {
		return e.evaluators
	}
	return Evaluators{}
}

// OnEvaluators adds a function that is told when the evaluators of an engaged spoke have
// changed. It has to return at once.
func (p *Provider) OnEvaluators(fn func(name string)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.evaluated = append(p.evaluated, fn)
}

// applyIndexes adds the indexes of one kind to a cache. Adding one starts the
// kind's informer, which is why it waits until the kind is known to be served.
func (p *Provider) applyIndexes(ctx context.Context, cl cluster.Cluster, kind schema.GroupVersionKind) error {
	p.mu.RLock()
	indexes := p.indexes
	p.mu.RUnlock()
	for _, i := range indexes {
		if gvk, err := cl.GetClient().GroupVersionKindFor(i.obj); err != nil || gvk != kind {
			continue
		}
		if err := cl.GetFieldIndexer().IndexField(ctx, i.obj, i.field, i.fn); err != nil {
			return fmt.Errorf("indexing %T by %s: %w", i.obj, i.field, err)
		}
	}
	return nil
}
