package brake

import (
	"time"

	"github.com/rulefleet/rulefleet/pkg/spoke"
)

// Beware tells that a spoke is another cluster than before, or that a person confirmed which
// one it is. Until the span is over, nothing passes there without an acknowledgement, not
// even the first few: what is not where it was may be in the other cluster. What passed
// before, or was to pass, was about the former one.
func (b *Brake) Beware(name string) { b.beware(name, b.span) }

func (b *Brake) beware(name string, left time.Duration) {
	if b.span <= 0 {
		return
	}
	b.with(name, true, func(a *account, now time.Time) {
		for _, hop := range hops {
			a.ledger(hop, b.span).beware(now.Add(left))
		}
	})
}

// beware forgets all that was let go, and lets nothing go by the count until a time, what is held
// included.
func (l *ledger) beware(until time.Time) {
	l.wary = until
	if l.tripped() {
		l.until = l.wary
	}
	for owner, entries := range l.owners {
		for k, e := range entries {
			if e.cleared {
				l.drop(owner, k)
			}
		}
	}
	l.vouched = nil
	l.forgetGone()
}

// Recall tells, before anything is asked, what was held for a spoke when the operator
// ended: until the span is over, nothing passes there without an acknowledgement.
// Otherwise every restart would let some of it slip through. Suspects alone are no reason
// for that: they are found again. identified is when the spoke became another cluster, or was
// confirmed, or zero: what is left of the span after that counts as in Beware.
func (b *Brake) Recall(name string, shown *spoke.Held, identified time.Time) {
	if left := identified.Add(b.span).Sub(b.clock.Now()); left > 0 {
		b.beware(name, min(left, b.span)) // it may be the time of another clock
	}
	if shown == nil || (b.span <= 0 && shown.Suspects == 0) {
		return
	}
	b.with(name, true, func(a *account, now time.Time) {
		a.shown = shown
		a.recall(now, b.span)
	})
}

func (a *account) recall(now time.Time, span time.Duration) {
	a.settled = now.Add(settling)
	if a.shown == nil || a.shown.Count <= a.shown.Suspects {
		return
	}
	for _, hop := range hops {
		a.ledger(hop, span).wary = now.Add(span)
	}
}
