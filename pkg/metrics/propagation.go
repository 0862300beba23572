package metrics

import (
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/rulefleet/rulefleet/pkg/rule"
)

// Propagation measures the time of changes from their event to the spoke. It is notified of a change
// when its event is received, and of the write that completes it, or that nothing has to be written.
//
// The clock starts with the first event that is not completed yet, so that a second change in the
// meantime does not shorten the time of the first. Changes that wait for the user (a missing
// namespace, a refused rule, a held deletion) are not measured. Writes without an event are not
// measured either: the replay when a spoke is engaged, and drift.
type Propagation struct {
	clock clock.PassiveClock

	mu sync.Mutex
	// workloads and rules are the changes in progress, by spoke.
	workloads map[string]map[rule.Key]time.Time
	rules     map[string]map[rule.Key]change
	// made is the change of the workload for which an AlertRule was written, until the AlertRule's own event is
	// received.
	made map[rule.Key]change
}

// change is a change in progress.
type change struct {
	at   time.Time
	from string
}

// NewPropagation returns a Propagation without changes in progress.
func NewPropagation(c clock.PassiveClock) *Propagation {
	return &Propagation{
		clock:     c,
		workloads: map[string]map[rule.Key]time.Time{},
		rules:     map[string]map[rule.Key]change{},
		made:      map[rule.Key]change{},
	}
}

// WorkloadChanged records the event of a workload in a spoke.
func (p *Propagation) WorkloadChanged(spoke string, workload rule.Key) {
	p.mu.Lock()
	defer p.mu.Unlock()
	begin(p.workloads, spoke, workload, p.clock.Now())
}

// RuleMade records, before the write, that an AlertRule is written for a workload.
func (p *Propagation) RuleMade(spoke string, workload, made rule.Key) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if at, ok := p.workloads[spoke][workload]; ok {
		p.made[made] = change{at: at, from: workload.Kind}
	}
}

// RuleNotMade reverts RuleMade after a failed write.
func (p *Propagation) RuleNotMade(key rule.Key) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.made, key)
}

// WorkloadDone records that a workload has its AlertRules.
func (p *Propagation) WorkloadDone(spoke string, workload rule.Key) {
	p.mu.Lock()
	defer p.mu.Unlock()
	end(p.workloads, spoke, workload)
}

// RuleChanged records the event of a source, and the spokes concerned.
func (p *Propagation) RuleChanged(key rule.Key, spokes []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := change{at: p.clock.Now(), from: key.Kind}
	if of, ok := p.made[key]; ok {
		c = of
		delete(p.made, key)
	}
	for _, spoke := range spokes {
		begin(p.rules, spoke, key, c)
	}
}

// RuleDone records that nothing more has to be written to a spoke for a source's change, or
// nothing that is measured.
func (p *Propagation) RuleDone(spoke string, key rule.Key) {
	p.mu.Lock()
	defer p.mu.Unlock()
	end(p.rules, spoke, key)
}

// Applied records that a source was written to a spoke. away reports whether the spoke did not
// answer at some time since the given one.
func (p *Propagation) Applied(spoke string, key rule.Key, away func(since time.Time) bool) {
	p.mu.Lock()
	c, ok := p.rules[spoke][key]
	end(p.rules, spoke, key)
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

// Forget drops the changes to and from a spoke that has left, or that is engaged again, which replays
// everything that it needs.
func (p *Propagation) Forget(spoke string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.workloads, spoke)
	delete(p.rules, spoke)
}

// begin stores a value, unless there is one.
func begin[K comparable, V any](m map[string]map[K]V, spoke string, key K, v V) {
	if m[spoke] == nil {
		m[spoke] = map[K]V{}
	}
	if _, ok := m[spoke][key]; !ok {
		m[spoke][key] = v
	}
}

func end[K comparable, V any](m map[string]map[K]V, spoke string, key K) {
	delete(m[spoke], key)
	if len(m[spoke]) == 0 {
		delete(m, spoke)
	}
}
