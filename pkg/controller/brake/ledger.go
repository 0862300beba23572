package brake

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/rulefleet/rulefleet/pkg/rule"
)

const (
	// free is the number of deletions within the span that are never held. part is the divisor of the spoke's
	// objects that are not held either.
	free = 20
	part = 4
	// recount is the minimum time between two counts of the objects in a spoke.
	recount = 10 * time.Second
	// vouchLife is how long a vouch lasts. If a spoke is away for longer, its deletions are counted when it is
	// back.
	vouchLife = 24 * time.Hour
	// suspectRetry is when to check a suspect again, in case an event was missed.
	suspectRetry = 10 * time.Minute
)

type key = rule.Key

// outcome is how the holding of deletions ended.
type outcome string

const (
	acknowledged outcome = "acknowledged" // by a person
	waited       outcome = "waited"       // the hold is over
	receded      outcome = "receded"      // too few are wanted now
	decided      outcome = "decided"      // the suspects were decided by others
)

// entry is a deletion that was not released by the count alone.
type entry struct {
	// cleared releases it whatever the count.
	cleared bool
	// suspect is held until a person acknowledges it.
	suspect bool
	// uid is that of the object, if the deletion is vouched for.
	uid types.UID
	// until is when a vouch ends, or when a deletion that is held because of the count is released.
	until time.Time
}

type passage struct {
	key key
	at  time.Time
}

// ledger records the deletions of one hop for one spoke, and decides which are released. It has no clock and
// no lock; the Brake has both.
type ledger struct {
	// span is how long deletions count, and how long they are held.
	span time.Duration
	// base is the number of objects in the spoke at the start of the span, if counted.
	base    int
	counted time.Time
	// gone are the deletions released or retried within the last span, in order of time.
	gone     []passage
	goneKeys sets.Set[key]
	// owners has the entries by the owner's key and the object's key.
	owners         map[key]map[key]*entry
	held, suspects int
	// until is when the last of the deletions held because of the count is released; zero if none is held.
	until time.Time
	// due is when the first of them may be released. Until then, they do not have to be looked at.
	due time.Time
	// wary is until when all deletions are held: before a restart there were held deletions, or the spoke became
	// another cluster. doubted is until when the cluster is the cause.
	wary, doubted time.Time
	// vouched are the vouches, in order of time.
	vouched []passage
	// ended is how the last holding ended.
	ended outcome
	// woken are the owners to reconcile again.
	woken []key
}

func newLedger(span time.Duration) *ledger {
	return &ledger{span: span, goneKeys: sets.New[key](), owners: map[key]map[key]*entry{}}
}

// limit is the number of deletions that are released within the span.
func (l *ledger) limit(now time.Time) int {
	if now.Before(l.wary) {
		return 0
	}
	return max(free, l.base/part)
}

func (l *ledger) tripped() bool { return !l.until.IsZero() }

// counting returns the number of deletions held because of the count. Suspects are not included: they may be
// held for long, and should not hold other deletions.
func (l *ledger) counting() int { return l.held - l.suspects }

// toCount reports whether the objects in the spoke have to be counted before a decision: once per span, and
// again when there may be so many more that nothing needs to be held.
func (l *ledger) toCount(now time.Time, owner key, wants []Deletion) bool {
	n := 0
	for _, d := range wants {
		if !d.Suspect && l.owners[owner][d.Key] == nil && !l.goneKeys.Has(d.Key) {
			n++
		}
	}
	age := now.Sub(l.counted)
	switch {
	case n == 0 || l.tripped() || l.span <= 0:
		return false
	case l.counted.IsZero() || age >= l.span:
		return true
	}
	return len(l.gone)+l.counting()+n > l.limit(now) && age >= recount
}

// count records the number of objects in the spoke. Those deleted within the span were there at its start; the
// cache may still show them.
func (l *ledger) count(now time.Time, holds sets.Set[key]) {
	l.base, l.counted = holds.Union(l.goneKeys).Len(), now
}

// ask returns the wanted deletions that are held, and when to ask again. It forgets deletions that the owner
// no longer wants, except those vouched for with the uid.
func (l *ledger) ask(now time.Time, owner key, wants []Deletion, uid types.UID) (held sets.Set[key], wait time.Duration) {
	l.forgetUnwanted(owner, wants, uid)
	l.roll(now)
	for _, d := range wants {
		left, ok := l.admit(now, owner, d)
		if ok {
			continue
		}
		if held.Len() == 0 || left < wait {
			wait = left
		}
		held = held.Union(sets.New(d.Key))
	}
	return held, wait
}

// admit reports whether a deletion is released and, if not, when to check again.
func (l *ledger) admit(now time.Time, owner key, d Deletion) (left time.Duration, ok bool) {
	e := l.owners[owner][d.Key]
	if e != nil && !e.cleared && e.suspect != d.Suspect {
		l.drop(owner, d.Key) // it is decided again
		l.ended, e = decided, nil
	}
	switch {
	case d.Suspect:
		return suspectRetry, l.admitSuspect(owner, d.Key, e)
	case e != nil && e.cleared:
		return 0, true
	case e != nil:
		return e.until.Sub(now), false
	case l.span <= 0: // nothing is counted
		return 0, true
	case l.goneKeys.Has(d.Key):
		l.retry(now, d.Key)
		return 0, true
	case !l.tripped() && len(l.gone)+l.counting() < l.limit(now):
		l.gone = append(l.gone, passage{d.Key, now})
		l.goneKeys.Insert(d.Key)
		return 0, true
	}
	// Another mass deletion while the first is held may be another mistake, and is held for as long.
	if !l.tripped() {
		l.due = now.Add(l.span)
	}
	l.until = now.Add(l.span)
	l.put(owner, d.Key, &entry{until: l.until})
	l.held++
	return l.span, false
}

// retry counts a released deletion from now on: the attempt before failed, so the object may be deleted only now.
func (l *ledger) retry(now time.Time, k key) {
	i := slices.IndexFunc(l.gone, func(p passage) bool { return p.key == k })
	l.gone = append(slices.Delete(l.gone, i, i+1), passage{k, now})
}

// admitSuspect reports whether a suspect is released: a person acknowledged it, or the previous hop vouches
// for it. A deletion that a person acknowledged before it became suspect had another cause.
func (l *ledger) admitSuspect(owner, k key, e *entry) bool {
	if e != nil && e.cleared && (e.suspect || e.uid != "") {
		return true
	}
	if e == nil || e.cleared {
		l.put(owner, k, &entry{suspect: true})
		l.held++
		l.suspects++
	}
	return false
}

func (l *ledger) put(owner, k key, e *entry) {
	if l.owners[owner] == nil {
		l.owners[owner] = map[key]*entry{}
	}
	l.owners[owner][k] = e
}

// drop forgets a deletion.
func (l *ledger) drop(owner, k key) {
	if e := l.owners[owner][k]; e != nil {
		if e.suspect && !e.cleared {
			l.ended = receded
		}
		l.clear(e)
		delete(l.owners[owner], k)
	}
	if len(l.owners[owner]) == 0 {
		delete(l.owners, owner)
	}
}

// clear releases a deletion.
func (l *ledger) clear(e *entry) {
	if e.cleared {
		return
	}
	e.cleared = true
	l.held--
	if e.suspect {
		l.suspects--
	}
}

// forgetUnwanted forgets deletions that an owner no longer wants.
func (l *ledger) forgetUnwanted(owner key, wants []Deletion, uid types.UID) {
	for k, e := range l.owners[owner] {
		vouched := uid != "" && e.uid == uid
		if !vouched && !slices.ContainsFunc(wants, func(d Deletion) bool { return d.Key == k }) {
			l.drop(owner, k)
		}
	}
}

// roll advances the span to now, and ends the hold when it is over.
func (l *ledger) roll(now time.Time) {
	old := 0
	for old < len(l.gone) && now.Sub(l.gone[old].at) >= l.span {
		l.goneKeys.Delete(l.gone[old].key)
		old++
	}
	l.gone = l.gone[old:]
	l.expireVouches(now)
	if l.tripped() {
		l.release(now)
	}
	switch {
	case !l.tripped():
	case len(l.gone)+l.counting() <= l.limit(now):
		l.each(func(owner, k key, e *entry) {
			if !e.suspect {
				l.drop(owner, k)
				l.woken = append(l.woken, owner)
			}
		})
		l.end(receded)
	}
}

// release releases the deletions that were held for the span.
func (l *ledger) release(now time.Time) {
	if now.Before(l.due) {
		return
	}
	l.due = l.until
	l.each(func(owner, _ key, e *entry) {
		switch {
		case e.suspect:
		case !now.Before(e.until):
			l.clear(e)
			l.woken = append(l.woken, owner)
		case e.until.Before(l.due):
			l.due = e.until
		}
	})
	if !now.Before(l.until) {
		l.end(waited)
		l.counted = time.Time{}
	}
}

// each calls a function for every held deletion. The function may drop it.
func (l *ledger) each(fn func(owner, k key, e *entry)) {
	for owner, entries := range l.owners {
		for k, e := range entries {
			if !e.cleared {
				fn(owner, k, e)
			}
		}
	}
}

func (l *ledger) end(how outcome) { l.until, l.ended = time.Time{}, how }

// forgetGone starts a new span: a person acknowledged deletions, or the spoke is another cluster.
func (l *ledger) forgetGone() {
	l.gone, l.goneKeys, l.counted = nil, sets.New[key](), time.Time{}
}

// acknowledge releases all deletions held because of the count, and the named suspects. It returns their
// number.
func (l *ledger) acknowledge(named sets.Set[string]) int {
	n := 0
	l.wary, l.doubted = time.Time{}, time.Time{}
	l.each(func(owner, k key, e *entry) {
		if e.suspect && !named.Has(k.Listed()) {
			return
		}
		l.clear(e)
		l.woken = append(l.woken, owner)
		n++
	})
	if n > 0 {
		l.end(acknowledged)
		l.forgetGone()
	}
	return n
}

// vouch releases the deletion of an object.
func (l *ledger) vouch(now time.Time, k key, uid types.UID) {
	l.expireVouches(now)
	l.drop(k, k)
	l.put(k, k, &entry{cleared: true, uid: uid, until: now.Add(vouchLife)})
	l.vouched = append(l.vouched, passage{k, now})
}

func (l *ledger) expireVouches(now time.Time) {
	for len(l.vouched) > 0 && now.Sub(l.vouched[0].at) >= vouchLife {
		k := l.vouched[0].key
		if e := l.owners[k][k]; e != nil && e.uid != "" && !now.Before(e.until) {
			l.drop(k, k)
		}
		l.vouched = l.vouched[1:]
	}
}

// withdraw withdraws a vouch.
func (l *ledger) withdraw(k key, uid types.UID) {
	if e := l.owners[k][k]; e != nil && e.uid == uid {
		l.drop(k, k)
	}
}

// takeWoken returns the owners to reconcile again.
func (l *ledger) takeWoken() []key {
	woken := l.woken
	l.woken = nil
	return woken
}

// names returns the sorted keys of the held suspects, or of the other held deletions.
func (l *ledger) names(suspect bool) (names []key) {
	l.each(func(_, k key, e *entry) {
		if e.suspect == suspect {
			names = append(names, k)
		}
	})
	slices.SortFunc(names, func(a, b key) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Kind, b.Kind))
	})
	return names
}
