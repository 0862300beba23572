package brake

import "time"

// Beware notes that a spoke is another cluster than before, or that a person confirmed its cluster. Until the
// span is over, every deletion there needs an acknowledgement, even the first few, because objects that are
// missing may be in the other cluster. Earlier deletions and releases concerned the former cluster and are
// forgotten.
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

// beware forgets all released deletions, and holds all deletions until a time, including those that are held
// already.
func (l *ledger) beware(until time.Time) {
	l.wary, l.doubted = until, until
	if l.tripped() {
		l.until, l.due = l.wary, l.wary
		l.each(func(_, _ key, e *entry) {
			if !e.suspect {
				e.until = l.wary
			}
		})
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

// Recall restores what was held for a spoke when the operator stopped: until the span is over, every deletion
// there needs an acknowledgement. Otherwise each restart would release some deletions. Suspects alone do not
// cause this, because they are detected again. identified is when the spoke became another cluster or was
// confirmed, or zero: for the rest of the span after that, Beware applies. It is called before the first Ask.
func (b *Brake) Recall(name string, shown *Held, identified time.Time) {
	if left := identified.Add(b.span).Sub(b.clock.Now()); left > 0 {
		b.beware(name, min(left, b.span)) // it may come from another clock
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

// whyAll says why all deletions are held, whatever their number, and what else can be done about it. Both are
// empty if the number is the cause.
func (l *ledger) whyAll(now time.Time) (why, remedy string) {
	switch {
	case now.Before(l.doubted):
		return "the identity of the cluster changed or was recorded again",
			"restore the former kubeconfig if the spoke is the wrong cluster"
	case now.Before(l.wary):
		return "the manager was restarted while deletions were held", ""
	}
	return "", ""
}
