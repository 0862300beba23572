package status

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

const (
	// freeReturns is how often a row may return to a former state within flapMemory before that is limited: a
	// Prometheus is restarted, or a namespace is labeled by mistake.
	freeReturns = 2
	flapMemory  = time.Hour
	// flapBurst is the burst of a spoke, in seconds.
	flapBurst = 10
	// flapRetry is when the rows that wait are looked at again.
	flapRetry = time.Second
)

// flaps limits how often a spoke changes the rows of rules back and forth, for example by the labels of a namespace,
// because each change is a write on the hub. The states of a rule on its way, and changes of the rule, are not limited.
// Of a row that waits, only the newest version is reported. The namespaces of the spoke take turns, so that one that
// changes all the time delays the rows of no other.
type flaps struct {
	// rate is the number of such changes per second and spoke.
	rate int
	// release reports a row that has waited. It is called with the lock, so that a newer row is reported after it, and
	// returns at once.
	release func(types.NamespacedName, types.UID, v1alpha1.ClusterStatus)

	mu     sync.Mutex
	spokes map[string]*flapping
}

// flapping is one spoke.
type flapping struct {
	bucket *rate.Limiter
	rows   map[types.NamespacedName]*flappingRow
	timer  *time.Timer // nil unless rows wait
	// turn counts the rows that waited and were released. last is the turn of each namespace that still has rows that
	// wait.
	turn int
	last map[string]int
}

// flappingRow is the history of a row in one generation of its rule.
type flappingRow struct {
	of         types.UID // of the AlertRule
	generation int64
	// states are those that were reported, the last one at the end, and last is the row.
	states []rowState
	last   v1alpha1.ClusterStatus
	// returns is the number of changes since then that were not new.
	returns int
	since   time.Time
	// held waits since a time.
	held    *v1alpha1.ClusterStatus
	heldFor time.Time
}

type rowState struct {
	phase  v1alpha1.Phase
	reason string
}

func newFlaps(perSecond int, release func(types.NamespacedName, types.UID, v1alpha1.ClusterStatus)) *flaps {
	return &flaps{rate: perSecond, release: release, spokes: map[string]*flapping{}}
}

// admit reports whether a row may be reported now. Otherwise it is released later.
func (f *flaps) admit(key types.NamespacedName, of types.UID, row *v1alpha1.ClusterStatus) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.spokes[string(row.Name)]
	if s == nil {
		s = &flapping{bucket: rate.NewLimiter(rate.Limit(f.rate), flapBurst*f.rate), rows: map[types.NamespacedName]*flappingRow{}, last: map[string]int{}}
		f.spokes[string(row.Name)] = s
	}
	r := s.rows[key]
	if r == nil || r.of != of || r.generation != row.ObservedGeneration {
		r = &flappingRow{of: of, generation: row.ObservedGeneration}
		s.rows[key] = r
	}
	now := time.Now()
	// Rows that wait have their turn first.
	if r.isReturn(row) && (s.timer != nil && r.returns >= freeReturns || !r.mayReturn(s.bucket, now)) {
		if r.held == nil {
			r.heldFor = now
		}
		held := *row
		r.held = &held
		if s.timer == nil {
			s.timer = time.AfterFunc(flapRetry, func() { f.again(string(row.Name), s) })
		}
		return false
	}
	r.reported(row)
	return true
}

// isReturn reports whether a row returns to a former state, or changes within a state. The number of firing alerts is
// limited elsewhere.
func (r *flappingRow) isReturn(row *v1alpha1.ClusterStatus) bool {
	state := rowState{row.Phase, row.Reason}
	if len(r.states) > 0 && r.states[len(r.states)-1] == state {
		now, last := *row, r.last
		now.Firing, last.Firing = 0, 0
		return !equality.Semantic.DeepEqual(now, last)
	}
	return slices.Contains(r.states, state)
}

// mayReturn reports whether a return may be reported now, and counts it.
func (r *flappingRow) mayReturn(bucket *rate.Limiter, now time.Time) bool {
	if now.Sub(r.since) >= flapMemory {
		r.returns, r.since = 0, now
	}
	if r.returns >= freeReturns && !bucket.AllowN(now, 1) {
		return false
	}
	r.returns++
	return true
}

func (r *flappingRow) reported(row *v1alpha1.ClusterStatus) {
	state := rowState{row.Phase, row.Reason}
	r.states = append(slices.DeleteFunc(r.states, func(s rowState) bool { return s == state }), state)
	r.last, r.held = *row, nil
}

// again releases the rows that may be reported now.
func (f *flaps) again(name string, s *flapping) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.spokes[name] != s {
		return // it is gone
	}
	s.timer = nil
	now, last := time.Now(), map[string]int{}
	for _, w := range s.waiting() {
		if !w.mayReturn(s.bucket, now) {
			last[w.namespace] = s.last[w.namespace]
			continue
		}
		s.turn++
		s.last[w.namespace] = s.turn
		row := *w.held
		w.reported(&row)
		f.release(w.key, w.of, row)
	}
	s.last = last
	if len(last) > 0 {
		s.timer = time.AfterFunc(flapRetry, func() { f.again(name, s) })
	}
}

// waitingRow is a row that waits.
type waitingRow struct {
	*flappingRow
	key       types.NamespacedName
	namespace string
	// round is how many rows of its namespace are before it.
	round int
}

// waiting returns the rows that wait in the order of their turns: one of each namespace after the other, beginning with
// the namespace that was served the longest ago, and the row of it that has waited the longest.
func (s *flapping) waiting() []waitingRow {
	var out []waitingRow
	for key, r := range s.rows {
		if r.held != nil {
			out = append(out, waitingRow{flappingRow: r, key: key, namespace: namespaceIn(key, r.held)})
		}
	}
	slices.SortFunc(out, func(a, b waitingRow) int {
		return cmp.Or(a.heldFor.Compare(b.heldFor), cmp.Compare(a.key.Namespace, b.key.Namespace), cmp.Compare(a.key.Name, b.key.Name))
	})
	rounds := map[string]int{}
	for i := range out {
		out[i].round = rounds[out[i].namespace]
		rounds[out[i].namespace]++
	}
	slices.SortStableFunc(out, func(a, b waitingRow) int {
		return cmp.Or(cmp.Compare(a.round, b.round), cmp.Compare(s.last[a.namespace], s.last[b.namespace]), cmp.Compare(a.namespace, b.namespace))
	})
	return out
}

// namespaceIn returns the namespace of a rule in the spoke, or that of its AlertRule if it has none there.
func namespaceIn(key types.NamespacedName, row *v1alpha1.ClusterStatus) string {
	if namespace, _, ok := strings.Cut(row.Rule, "/"); ok {
		return namespace
	}
	return key.Namespace
}

// renew forgets what is known of a spoke that was changed on the hub, and releases the rows that wait.
func (f *flaps) renew(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.spokes[name]
	if s == nil {
		return
	}
	for key, r := range s.rows {
		if r.held != nil {
			f.release(key, r.of, *r.held)
		}
	}
	clear(s.rows)
}

// forget drops a rule in a spoke, or in all of them if spoke is "".
func (f *flaps) forget(key types.NamespacedName, spoke string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, s := range f.spokes {
		if spoke == "" || spoke == name {
			delete(s.rows, key)
		}
	}
}

// forgetSpoke drops a spoke.
func (f *flaps) forgetSpoke(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s := f.spokes[name]; s != nil && s.timer != nil {
		s.timer.Stop()
	}
	delete(f.spokes, name)
}
