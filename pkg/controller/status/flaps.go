package status

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
)

// The Board limits how often a spoke changes the rows of rules back and forth, for example by the labels of a namespace,
// because each change is a write on the hub. The states of a rule on its way, and changes of the rule, are not limited.
// Of a row that waits, only the newest version is reported. The namespaces of the spoke take turns, so that one that
// changes all the time delays the rows of no other.
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

// history is that of a row in one generation of its rule.
type history struct {
	// states are those that were reported, the last one at the end.
	states []rowState
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

// admitLocked reports whether a row may be reported now. Otherwise it is reported later.
func (b *Board) admitLocked(key rule.Key, of types.UID, row *v1alpha1.ClusterStatus) bool {
	s := b.spokeLocked(string(row.Name))
	v, now := s.verdicts[key], time.Now()
	if !v.continues(of, row) || !v.isReturn(row) {
		return true
	}
	// Rows that wait have their turn first.
	if (s.again == nil || v.returns < freeReturns) && v.mayReturn(s.bucket, now) {
		return true
	}
	if v.held == nil {
		v.heldFor = now
	}
	held := *row
	v.held = &held
	b.againLaterLocked(s)
	return false
}

// continues reports whether a row is about the same generation of the same AlertRule.
func (v *verdict) continues(of types.UID, row *v1alpha1.ClusterStatus) bool {
	return v != nil && !v.leftover && v.of == of && v.row.ObservedGeneration == row.ObservedGeneration
}

// isReturn reports whether a row returns to a former state, or changes within a state. The number of firing alerts is
// limited elsewhere.
func (v *verdict) isReturn(row *v1alpha1.ClusterStatus) bool {
	state := rowState{row.Phase, row.Reason}
	if len(v.states) > 0 && v.states[len(v.states)-1] == state {
		now, last := *row, v.row
		now.Firing, last.Firing = 0, 0
		return !equality.Semantic.DeepEqual(now, last)
	}
	return slices.Contains(v.states, state)
}

// mayReturn reports whether a return may be reported now, and counts it.
func (h *history) mayReturn(bucket *rate.Limiter, now time.Time) bool {
	if now.Sub(h.since) >= flapMemory {
		h.returns, h.since = 0, now
	}
	if h.returns >= freeReturns && !bucket.AllowN(now, 1) {
		return false
	}
	h.returns++
	return true
}

func (h *history) reported(row *v1alpha1.ClusterStatus) {
	state := rowState{row.Phase, row.Reason}
	h.states = append(slices.DeleteFunc(h.states, func(s rowState) bool { return s == state }), state)
	h.held = nil
}

func (b *Board) againLaterLocked(s *reported) {
	if s.again == nil {
		s.again = time.AfterFunc(flapRetry, func() { b.again(s) })
	}
}

// again reports the rows that may be reported now.
func (b *Board) again(s *reported) {
	b.release(func() (free []waitingRow) {
		if b.spokes[s.name] != s {
			return nil // it is gone
		}
		s.again = nil
		now, served := time.Now(), map[string]int{}
		for _, w := range s.waiting() {
			if !w.mayReturn(s.bucket, now) {
				served[w.namespace] = s.served[w.namespace]
				continue
			}
			s.turn++
			s.served[w.namespace] = s.turn
			free = append(free, w)
		}
		s.served = served
		if len(served) > 0 {
			b.againLaterLocked(s)
		}
		return free
	})
}

// release reports rows that have waited.
func (b *Board) release(which func() []waitingRow) {
	b.mu.Lock()
	rows := which()
	rows = slices.DeleteFunc(rows, func(w waitingRow) bool { return !b.recordLocked(w.key, w.of, *w.held, false) })
	b.mu.Unlock()
	for _, w := range rows {
		b.Notify(w.key)
	}
}

// renew forgets the history of a spoke that was changed on the hub, and reports the rows that wait.
func (b *Board) renew(name string) {
	b.release(func() []waitingRow {
		s := b.spokes[name]
		if s == nil {
			return nil
		}
		waiting := s.waiting()
		for _, v := range s.verdicts {
			v.history = history{held: v.held}
		}
		return waiting
	})
}

// waitingRow is a row that waits.
type waitingRow struct {
	*verdict
	key       rule.Key
	namespace string
	// round is how many rows of its namespace are before it.
	round int
}

// waiting returns the rows that wait in the order of their turns: one of each namespace after the other, beginning with
// the namespace that was served the longest ago, and the row of it that has waited the longest.
func (s *reported) waiting() []waitingRow {
	var out []waitingRow
	for key, v := range s.verdicts {
		if v.held != nil {
			out = append(out, waitingRow{verdict: v, key: key, namespace: namespaceIn(key, v.held)})
		}
	}
	slices.SortFunc(out, func(a, b waitingRow) int {
		return cmp.Or(a.heldFor.Compare(b.heldFor), cmp.Compare(a.key.Namespace, b.key.Namespace), cmp.Compare(a.key.Name, b.key.Name), cmp.Compare(a.key.Kind, b.key.Kind))
	})
	rounds := map[string]int{}
	for i := range out {
		out[i].round = rounds[out[i].namespace]
		rounds[out[i].namespace]++
	}
	slices.SortStableFunc(out, func(a, b waitingRow) int {
		return cmp.Or(cmp.Compare(a.round, b.round), cmp.Compare(s.served[a.namespace], s.served[b.namespace]), cmp.Compare(a.namespace, b.namespace))
	})
	return out
}

// namespaceIn returns the namespace of a rule in the spoke, or that of its AlertRule if it has none there.
func namespaceIn(key rule.Key, row *v1alpha1.ClusterStatus) string {
	if namespace, _, ok := strings.Cut(row.Rule, "/"); ok {
		return namespace
	}
	return key.Namespace
}
