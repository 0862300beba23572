package brake

import "time"

// Beware tells that a spoke is another cluster than before, or that a person confirmed which
// one it is. Until the span is over, nothing passes there without an acknowledgement, not
// even the first few: what is not where it was may be in the other cluster. What passed
// before, or was to pass, was about the former one.
func (b *Brake) Beware(name string) {
	if b.span <= 0 {
		return
	}
	b.with(name, true, func(a *account, now time.Time) {
		for _, hop := range hops {
			a.ledger(hop, b.span).beware(now)
		}
	})
}

// beware forgets all that was let go, and lets nothing go by the count for a span, what is held
// included.
func (l *ledger) beware(now time.Time) {
	l.wary = now.Add(l.span)
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
