package brake

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
)

const (
	// free is how many deletions within the span of a ledger are never held, and part
	// is the part of what the spoke held, one in so many, that is not either.
	free = 20
	part = 4
	// recount is the least time between two counts of what a spoke holds.
	recount = 10 * time.Second
	// vouchLife is for how long a deletion is vouched for: a spoke that is away for
	// longer has it counted when it is back.
	vouchLife = 24 * time.Hour
	// suspectRetry is when to look again at a suspect. What ends it is an event; this is for
	// one that was missed.
	suspectRetry = 10 * time.Minute
)

// key is a namespace and a name on the hub.
type key = types.NamespacedName

// outcome is how the holding of deletions ended.
type outcome string

const (
	acknowledged outcome = "acknowledged" // by a person
	waited       outcome = "waited"       // for as long as they are held
	receded      outcome = "receded"      // too few are due any more
	decided      outcome = "decided"      // what was suspect was decided on meanwhile
)

// entry is a deletion that the count alone did not let go.
type entry struct {
	// cleared lets it pass, whatever the count. waited tells that time did, and no person:
	// then it does not let a suspect pass.
	cleared, waited bool
	// suspect is held on its own, until a person lets it go.
	suspect bool
	// uid is the object's, where a deletion is vouched for.
	uid types.UID
	// until is when a vouch ends.
	until time.Time
}

type passage struct {
	key key
	at  time.Time
}

// ledger is what is known of the deletions of one hop for one spoke. It decides
// which may go. It has no clock and no lock: the Brake has.
type ledger struct {
	// span is for how long deletions count, and for how long they are held.
	span time.Duration
	// base is what the spoke held at the start of the span, as far as that was counted.
	base    int
	counted time.Time
	// gone are the deletions within the last span that were let go, in order of time.
	gone     []passage
	goneKeys sets.Set[key]
	// owners have the entries, by the key whose reconcile asked and by the object.
	owners         map[key]map[key]*entry
	held, suspects int
	// until is when those that are held by the count go by themselves; zero while
	// none is.
	until time.Time
	// wary is until when nothing at all goes by the count: another life of the
	// operator, of which no ledger is left, held deletions when it ended, or the spoke
	// became another cluster.
	wary time.Time
	// vouched are those that were vouched for, in order of time.
	vouched []passage
	// ended tells how the last holding ended.
	ended outcome
	// woken are the owners to be looked at again.
	woken []key
}

func newLedger(span time.Duration) *ledger {
	return &ledger{span: span, goneKeys: sets.New[key](), owners: map[key]map[key]*entry{}}
}

// limit is how many deletions within the span are let go.
func (l *ledger) limit(now time.Time) int {
	if now.Before(l.wary) {
		return 0
	}
	return max(free, l.base/part)
}

func (l *ledger) tripped() bool { return !l.until.IsZero() }

// counting returns how many are held by the count. Suspects are none of them: they may wait
// for long, and what people delete meanwhile is not to wait with them.
func (l *ledger) counting() int { return l.held - l.suspects }

// toCount tells whether what the spoke holds has to be counted before the deletions
// can be decided on: once in a span, and again when it may have grown so much that
// there is no need to hold them.
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

// count notes what the spoke holds. What has gone within the span was there at its start.
func (l *ledger) count(now time.Time, holds int) {
	l.base, l.counted = holds+len(l.gone), now
}

// ask decides which of the deletions that an owner wants are held, and returns them
// with when to look at them again. What the owner wanted before and does not want any
// more is forgotten, but for what is vouched for by the uid.
func (l *ledger) ask(now time.Time, owner key, wants []Deletion, uid types.UID) (held sets.Set[key], wait time.Duration) {
	l.settle(owner, wants, uid)
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

// admit tells whether a deletion may go, and if not, when to look at it again.
func (l *ledger) admit(now time.Time, owner key, d Deletion) (left time.Duration, ok bool) {
	e := l.owners[owner][d.Key]
	if e != nil && !e.cleared && e.suspect != d.Suspect {
		l.drop(owner, d.Key) // it is judged anew
		l.ended, e = decided, nil
	}
	switch {
	case d.Suspect:
		return suspectRetry, l.admitSuspect(owner, d.Key, e)
	case e != nil && e.cleared:
		return 0, true
	case e != nil:
		return l.until.Sub(now), false
	case l.span <= 0, l.goneKeys.Has(d.Key): // nothing is counted, or it was let go, and is tried again
		return 0, true
	case !l.tripped() && len(l.gone)+l.counting() < l.limit(now):
		l.gone = append(l.gone, passage{d.Key, now})
		l.goneKeys.Insert(d.Key)
		return 0, true
	case !l.tripped():
		l.until = now.Add(l.span)
	}
	l.put(owner, d.Key, &entry{})
	l.held++
	return l.until.Sub(now), false
}

// admitSuspect tells whether a suspect may go: a person let it, or the hop before vouches for it.
func (l *ledger) admitSuspect(owner, k key, e *entry) bool {
	if e != nil && e.cleared && !e.waited {
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

// clear lets a deletion pass.
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

// settle forgets what an owner does not want to delete any more.
func (l *ledger) settle(owner key, wants []Deletion, uid types.UID) {
	for k, e := range l.owners[owner] {
		vouched := uid != "" && e.uid == uid
		if !vouched && !slices.ContainsFunc(wants, func(d Deletion) bool { return d.Key == k }) {
			l.drop(owner, k)
		}
	}
}

// roll moves the span on to now, and ends the holding where it is time.
func (l *ledger) roll(now time.Time) {
	old := 0
	for old < len(l.gone) && now.Sub(l.gone[old].at) >= l.span {
		l.goneKeys.Delete(l.gone[old].key)
		old++
	}
	l.gone = l.gone[old:]
	l.expireVouches(now)
	switch {
	case !l.tripped():
	case !now.Before(l.until):
		l.each(func(owner, _ key, e *entry) {
			if !e.suspect {
				l.clear(e)
				e.waited = true
				l.woken = append(l.woken, owner)
			}
		})
		l.end(waited)
		l.forgetGone()
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

// each calls a function for every deletion that is held. It may drop it.
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

// forgetGone starts a new span: what has gone was waited for, or acknowledged.
func (l *ledger) forgetGone() {
	l.gone, l.goneKeys, l.counted = nil, sets.New[key](), time.Time{}
}

// acknowledge lets all pass that the count holds, and the suspects that are named. It returns how
// many these are.
func (l *ledger) acknowledge(named sets.Set[string]) int {
	n := 0
	l.wary = time.Time{}
	l.each(func(owner, k key, e *entry) {
		if e.suspect && !named.Has(k.String()) {
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

// vouch lets the deletion of an object pass.
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

// withdraw takes a vouch back.
func (l *ledger) withdraw(k key, uid types.UID) {
	if e := l.owners[k][k]; e != nil && e.uid == uid {
		l.drop(k, k)
	}
}

// takeWoken returns the owners to be looked at again.
func (l *ledger) takeWoken() []key {
	woken := l.woken
	l.woken = nil
	return woken
}

// names returns what is held, in order: of suspects, or of all else.
func (l *ledger) names(suspect bool) (names []key) {
	l.each(func(_, k key, e *entry) {
		if e.suspect == suspect {
			names = append(names, k)
		}
	})
	slices.SortFunc(names, func(a, b key) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return names
}
