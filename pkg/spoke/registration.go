package spoke

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/rulefleet/rulefleet/pkg/live"
	"github.com/rulefleet/rulefleet/pkg/metrics"
	"github.com/rulefleet/rulefleet/pkg/spoke/kubeconfig"
)

// entry is the state of one registered spoke.
type entry struct {
	hash    [sha256.Size]byte // of the kubeconfig of pending, or else of current
	current *registration     // published; nil before the first success
	pending *registration     // not published yet
	cluster cluster.Cluster   // current's session
	spoke   *Spoke            // current's session, for controllers
	open    bool              // current's circuit
	back    time.Time         // when it last closed
	seen    *Observation      // by current, or by pending before the first success
	fault   string            // what is wrong with pending while current is in use
	// evaluators are those that current last read. They are known before the session is engaged, so that rules
	// are pushed with the labels that they require.
	evaluators Evaluators
}

// registration is the connection of one kubeconfig.
type registration struct {
	conn       *connection
	cancel     context.CancelFunc
	kubeconfig []byte
}

// Register serves a spoke with a kubeconfig. It waits only for the start of the operator; Observation shows
// the progress. A new kubeconfig replaces the previous one once it works. If it is refused, Register returns the
// condition Connected, and an existing connection stays in use. choose decides which evaluators of the spoke are
// chosen; nil chooses none.
func (p *Provider) Register(ctx context.Context, name string, data []byte, choose Choose) (*Finding, error) {
	select {
	case <-p.started:
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for the controllers to start: %w", ctx.Err())
	}
	hash := sha256.Sum256(data)
	p.mu.RLock()
	e, ok := p.entries[name]
	same := ok && e.hash == hash
	p.mu.RUnlock()
	if same {
		return nil, nil
	}
	cfg, err := kubeconfig.RESTConfig(data, p.opts.Allow.Of(name))
	if err != nil {
		return refused(err)
	}
	conn, err := p.newConnection(name, cfg)
	if err != nil {
		return refused(err)
	}
	conn.choose = choose
	run, cancel := context.WithCancel(p.base)
	p.mu.Lock()
	if e = p.entries[name]; e == nil {
		e = &entry{}
		p.entries[name] = e
	}
	if e.pending != nil {
		e.pending.cancel()
	}
	e.hash, e.pending, e.fault = hash, &registration{conn: conn, cancel: cancel, kubeconfig: data}, ""
	p.members.released.Delete(name)
	delete(p.members.found, name)
	if e.current == nil {
		e.seen, e.evaluators = nil, Evaluators{} // from the previous kubeconfig
	}
	p.mu.Unlock()
	go conn.run(run)
	return nil, nil
}

// refused returns the condition Connected for a kubeconfig that is refused, and any other error as it is.
func refused(err error) (*Finding, error) {
	if _, is := errors.AsType[*kubeconfig.RefusedError](err); !is {
		return nil, err
	}
	finding := disconnected(err)
	return &finding, nil
}

// Remove disengages a spoke. It changes nothing in the spoke.
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
	left := p.life.Left
	p.mu.RUnlock()
	for _, fn := range left {
		fn(name)
	}
}

// uncount removes an entry from the metrics.
func (e *entry) uncount() {
	if e.open {
		metrics.OpenCircuits.Dec()
	}
	if e.spoke != nil {
		metrics.EngagedSpokes.Dec()
	}
}

// publish engages a session, and ends its former engagement, if there is one. It returns false if the connection is no
// longer wanted.
func (p *Provider) publish(ctx context.Context, c *connection, s *session) (bool, error) {
	p.mu.Lock()
	e, ok := p.entries[c.name]
	if !ok || ctx.Err() != nil || !e.has(c) {
		p.mu.Unlock()
		return false, nil //nolint:nilerr // the end of ctx is not an error
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
		Name: c.name, Reader: s.cluster.GetClient(), Live: live.New(leanReader{s.cluster.GetAPIReader()}, clock.RealClock{}).Within(c.patient), Identity: c.gate, Rules: s.rules, RulesServed: s.served, WhyNot: c.seen.Served, Since: time.Now(),
		Behind: newAsker(c.http, c.received), Server: c.server, accounts: c.accounts, past: s.cluster.GetAPIReader(), allow: p.opts.Allow.Of(c.name), patient: c.patient, Clock: &c.clock, memory: c.account, Kinds: s.kinds,
	}
	p.mu.Unlock()

	p.tellPredecessors(c.name)
	p.circuit(c)
	if s.disengage != nil {
		s.disengage()
	}
	var engaged context.Context
	engaged, s.disengage = context.WithCancel(s.ctx)
	// All caches have synced, so Engage returns soon. The engagement's own context ends what it starts.
	err := p.aware.Engage(engaged, multicluster.ClusterName(c.name), s.cluster)
	if old != nil {
		old.cancel()
	}
	if err != nil {
		p.withdraw(c.name, s)
		return true, fmt.Errorf("starting the controllers for the spoke: %w", err)
	}
	return true, nil
}

// withdraw removes a session that could not be engaged, so that nothing works on it after its end.
func (p *Provider) withdraw(name string, s *session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e, ok := p.entries[name]; ok && e.cluster == s.cluster {
		e.cluster, e.spoke = nil, nil
		metrics.EngagedSpokes.Dec()
	}
}

// observation is the observation of current or, before the first success, of pending, with the fault of a
// pending replacement.
func (e *entry) observation() *Observation {
	if e.seen == nil {
		return nil
	}
	seen := *e.seen
	switch {
	case e.fault == "":
	case seen.Connected.Status == metav1.ConditionTrue:
		seen.Connected = Unused(e.fault)
	default:
		seen.Connected.Message = Clip(seen.Connected.Message+"; the new kubeconfig does not work either: "+e.fault, MaxMessage)
	}
	return &seen
}

func (e *entry) has(c *connection) bool {
	return (e.current != nil && e.current.conn == c) || (e.pending != nil && e.pending.conn == c)
}

// circuit applies a connection's circuit to the queues, if the connection is in use. It holds the lock, so
// that two changes arrive in order; the queues do not wait.
func (p *Provider) circuit(c *connection) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e, ok := p.entries[c.name]
	open := c.breaker.Blocked()
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

// connecting shows the progress of a connection whose first session is being opened, unless the spoke is
// already served.
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

// observe records an observation of a connection, and reports it if it changed.
func (p *Provider) observe(c *connection, seen Observation) {
	p.mu.Lock()
	e, ok := p.entries[c.name]
	if !ok || !e.has(c) {
		p.mu.Unlock()
		return
	}
	seen.Credential = c.credential
	was := e.observation()
	if e.pending != nil && e.pending.conn == c && e.spoke != nil && e.seen != nil {
		// The last good connection stays in use until the new one works.
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
	evaluated := p.life.Evaluators
	p.mu.Unlock()
	if news {
		p.Changed(c.name)
	}
	if others {
		for _, fn := range evaluated {
			fn(c.name)
		}
	}
}
