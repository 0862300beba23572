package metrics

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// Where a change comes from.
const (
	fromAlertRule  = "AlertRule"
	fromDeployment = "Deployment"
)

// Propagation measures how long changes take from their event to the spoke. It is told of
// a change when its event comes in, and of the write that ends it; whoever finds that there
// is nothing to write for it says so.
//
// The clock begins with the first event that is not dealt with yet: a second change on its
// way does not make the first look faster. A change that waits for a person (a namespace
// that is missing, a rule that is refused, a deletion that is held) is not measured.
// Neither is what happens without an event: the replay when a spoke is engaged, drift.
//
// A nil *Propagation measures nothing.
type Propagation struct {
	clock clock.PassiveClock

	mu sync.Mutex
	// deployments and rules are the changes on their way, by spoke.
	deployments map[string]map[types.NamespacedName]time.Time
	rules       map[string]map[types.NamespacedName]change
	// made has the time of the Deployment's event that an AlertRule was written for, until
	// the AlertRule's own event comes in.
	made map[types.NamespacedName]time.Time
}

// change is a change that is on its way.
type change struct {
	at   time.Time
	from string
}

// NewPropagation returns a Propagation with nothing on its way.
func NewPropagation(c clock.PassiveClock) *Propagation {
	return &Propagation{
		clock:       c,
		deployments: map[string]map[types.NamespacedName]time.Time{},
		rules:       map[string]map[types.NamespacedName]change{},
		made:        map[types.NamespacedName]time.Time{},
	}
}

// DeploymentChanged notes the event of a Deployment in a spoke.
func (p *Propagation) DeploymentChanged(spoke string, deployment types.NamespacedName) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	begin(p.deployments, spoke, deployment, p.clock.Now())
}

// RuleMade notes, before it is written, that an AlertRule is written for a Deployment.
func (p *Propagation) RuleMade(spoke string, deployment, rule types.NamespacedName) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if at, ok := p.deployments[spoke][deployment]; ok {
		p.made[rule] = at
	}
}

// RuleNotMade takes RuleMade back: the write failed.
func (p *Propagation) RuleNotMade(rule types.NamespacedName) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.made, rule)
}

// DeploymentDone notes that a Deployment has the AlertRules that it should have.
func (p *Propagation) DeploymentDone(spoke string, deployment types.NamespacedName) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	end(p.deployments, spoke, deployment)
}

// RuleChanged notes the event of an AlertRule, and the spokes that it concerns.
func (p *Propagation) RuleChanged(rule types.NamespacedName, spokes []string) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	c := change{at: p.clock.Now(), from: fromAlertRule}
	if at, ok := p.made[rule]; ok {
		c = change{at: at, from: fromDeployment}
		delete(p.made, rule)
	}
	for _, spoke := range spokes {
		begin(p.rules, spoke, rule, c)
	}
}

// RuleDone notes that there is nothing more to write to a spoke for an AlertRule's change,
// or nothing that is to be measured.
func (p *Propagation) RuleDone(spoke string, rule types.NamespacedName) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	end(p.rules, spoke, rule)
}

// Applied notes that an AlertRule was written to a spoke. away tells whether the spoke did
// not answer at some time since another one.
func (p *Propagation) Applied(spoke string, rule types.NamespacedName, away func(since time.Time) bool) {
	if p == nil {
		return
	}
	p.mu.Lock()
	c, ok := p.rules[spoke][rule]
	end(p.rules, spoke, rule)
	p.mu.Unlock()
	if !ok {
		return
	}
	interrupted := "false"
	if away(c.at) {
		interrupted = "true"
	}
	propagated.WithLabelValues(c.from, interrupted).Observe(p.clock.Since(c.at).Seconds())
}

// Forget drops what was on its way to a spoke, or came from it: it has left, or is engaged
// anew, which replays all that it needs.
func (p *Propagation) Forget(spoke string) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.deployments, spoke)
	delete(p.rules, spoke)
}

// begin keeps a value, unless there is one.
func begin[V any](m map[string]map[types.NamespacedName]V, spoke string, key types.NamespacedName, v V) {
	if m[spoke] == nil {
		m[spoke] = map[types.NamespacedName]V{}
	}
	if _, ok := m[spoke][key]; !ok {
		m[spoke][key] = v
	}
}

func end[V any](m map[string]map[types.NamespacedName]V, spoke string, key types.NamespacedName) {
	delete(m[spoke], key)
	if len(m[spoke]) == 0 {
		delete(m, spoke)
	}
}
