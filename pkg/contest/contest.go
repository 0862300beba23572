// Package contest paces writes that somebody else undoes.
//
// Another controller may want an object to be something else than the operator does: a
// second hub with the same id, a policy engine, a GitOps tool. Each would write again as
// soon as it sees the other's write. So the first undo is put right at once, and from then
// on each waits longer than the one before.
package contest

import (
	"hash/maphash"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/rulefleet/rulefleet/pkg/interval"
)

const (
	// firstDelay is what the second undo waits. Each waits twice as long as the one before,
	// and maxDelay at most: that is how late the end of a contest is noticed.
	firstDelay = time.Second
	maxDelay   = 4 * time.Minute
	// memory is how long a write has to stand to be forgotten, with the undos before it.
	memory = 30 * time.Minute
	// minQuiet is for how long at least a write has to stand before the object is not shown as
	// contested any more, and twinQuiet is for how long where the opponent lets each write stand
	// for up to twice as long as the one before, as another manager does. See quiet.
	minQuiet  = 30 * time.Second
	twinQuiet = 150 * time.Second
	// settled is within which time after the end of a contest nothing of it is shown any more,
	// where no write stood for more than 4 minutes. The delay is shorter for that where writes
	// stand for long, but no shorter than slowDelay: an opponent can be slow once, and fast then.
	settled   = 4*time.Minute + 45*time.Second
	slowDelay = 15 * time.Second
	// late is how long a write may be overdue before the object is not shown as contested any
	// more: nobody wants it to be written, then.
	late = 30 * time.Second
	// sweepInterval is the least time between two looks for what is to be forgotten.
	sweepInterval = time.Minute
)

// shownFrom is the number of undos from which on an object is contested. One is drift.
const shownFrom = 2

// Absent is what a deletion means an object to be.
const Absent = "absent"

// Object is one that the operator writes.
type Object struct {
	// Spoke is the spoke that shows a contest. It is empty where none does.
	Spoke string
	// Kind is the object's.
	Kind string
	types.NamespacedName
	// Annotation is one that the operator takes off the object, or empty for all else that it
	// writes: an opponent may contest the one and not the other.
	Annotation string
}

// Write is one that is to be made, or was.
type Write struct {
	Object
	// Rule is the AlertRule that it is made for.
	Rule types.NamespacedName
	// Meant is a digest of what the object is meant to be, or Absent. For an annotation, it is
	// the value that is taken off.
	Meant string
	// Base is the resourceVersion on which the write is conditional, where it comes from a cache
	// that may not show the last write yet. Without it, that is for the caller to know.
	Base string
	// Gone tells that the object is not there now.
	Gone bool
}

// Turn is the answer to whether a write may be made.
type Turn struct {
	// Wait is for how long to wait with it, or 0.
	Wait time.Duration
	// News tells that there is another undo to wait for. It is the time to find out who made it.
	News bool
	// Behind tells that the cache does not show the last write yet. Its event is to be waited for.
	Behind bool
}

// Writes remembers the operator's own writes, to tell when they are undone. New makes one.
// Writes of one object must not overlap.
//
// The intended object counts, not the one that is found: another client may write something
// else each time. A write with another intention than before is made at once, because a
// person waits for it. It does not take the count back, or a contest would begin anew with
// each edit.
type Writes struct {
	clock     clock.PassiveClock
	intervals interval.Scale
	start     time.Time
	seed      maphash.Seed

	mu sync.Mutex
	// peaceful are the writes of which none was undone, by scope and by a hash of the object:
	// there are many after a start.
	peaceful map[scope]map[uint64]peaceful
	disputes map[Object]*dispute
	// byRule are the disputes that may be shown.
	byRule map[types.NamespacedName]map[Object]*dispute
	swept  time.Duration
}

// scope is what is forgotten together: what is written in and for a spoke, or its SpokeCluster.
type scope struct {
	spoke      string
	membership bool
}

func (o Object) scope() scope { return scope{o.Spoke, o.Kind == SpokeCluster} }

type peaceful struct {
	meant, base uint64
	at          time.Duration
}

// dispute is an object of which a write was undone. Times are counted from the start.
type dispute struct {
	rule        types.NamespacedName
	meant, base uint64
	// undos is how often a write was undone, and lost tells that the last one is.
	undos int
	lost  bool
	// wrote is when the last write was made, and next when the next one may be.
	wrote, next time.Duration
	// stood is the longest time that a write has stood since the first undo.
	stood time.Duration
	// until is when the object is not shown as contested any more.
	until  time.Duration
	absent bool
	gone   bool
	// mark is what the object was after the last write, and by is who undid it.
	mark mark
	by   writer
}

// New returns a Writes without any. intervals scales all delays.
func New(c clock.PassiveClock, intervals interval.Scale) *Writes {
	return &Writes{
		clock: c, intervals: intervals, start: c.Now(), seed: maphash.MakeSeed(),
		peaceful: map[scope]map[uint64]peaceful{}, disputes: map[Object]*dispute{}, byRule: map[types.NamespacedName]map[Object]*dispute{},
	}
}

// Ask tells whether a write may be made now. It has to be asked before every write.
func (w *Writes) Ask(write Write) Turn {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.now()
	if w.behindLocked(write) {
		return Turn{Behind: true}
	}
	d := w.disputeLocked(write.Object, w.hash(write.Meant), now)
	if d == nil {
		return Turn{}
	}
	news := !d.lost
	if news {
		if d.undos > 0 {
			d.stood = max(d.stood, now-d.wrote)
		}
		w.undoneLocked(d, now)
		w.tellLocked(write, d)
	}
	wait := max(d.next-now, 0)
	return Turn{Wait: wait, News: news && wait > 0}
}

// Yield is Ask for those who have found the object with its managedFields, or nil where it is
// gone. tell is told, with a message, of each undo that is to be waited for.
func (w *Writes) Yield(write Write, found metav1.Object, tell func(message string)) Turn {
	turn := w.Ask(write)
	if turn.News {
		if !write.Gone {
			w.Blame(write.Object, found)
		}
		tell(w.Message(write.Object))
	}
	return turn
}

// Blame finds out who undid the last write of an object, by what it is now.
func (w *Writes) Blame(o Object, found metav1.Object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if d := w.disputes[o]; d != nil {
		d.by = w.blame(d.mark, found)
	}
}

// Wrote notes that a write was made, and what the API server answered: nil for a deletion.
func (w *Writes) Wrote(write Write, answer metav1.Object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now, meant := w.now(), w.hash(write.Meant)
	d := w.disputes[write.Object]
	if d == nil || w.forgotten(d, now) {
		w.endLocked(write.Object, d)
		of := write.scope()
		if w.peaceful[of] == nil {
			w.peaceful[of] = map[uint64]peaceful{}
		}
		w.peaceful[of][w.key(write.Object)] = peaceful{meant: meant, base: w.hash(write.Base), at: now}
		return
	}
	d.meant, d.base, d.lost, d.wrote, d.mark = meant, w.hash(write.Base), false, now, w.markOf(answer)
	d.until = now + w.quiet(d)
}

// Lost notes that somebody else was faster, and returns for how long to wait with the next
// attempt: 0 where the object is not contested.
func (w *Writes) Lost(o Object) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	d := w.disputes[o]
	if d == nil || !d.lost || d.undos < shownFrom {
		return 0
	}
	now := w.now()
	w.undoneLocked(d, now)
	d.until = d.next + w.intervals.Of(late)
	return d.next - now
}

// Stands notes that an object is as it is meant to be, though the operator did not write it.
func (w *Writes) Stands(o Object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if d := w.disputes[o]; d != nil && d.lost {
		d.lost, d.wrote = false, w.now()
		d.until = d.wrote + w.quiet(d)
	}
}

// ForgetSpoke forgets what was written in a spoke and for it: it is another cluster now, or was
// restored, or is gone. Its SpokeCluster is the same one for that.
func (w *Writes) ForgetSpoke(name string) { w.forget(scope{spoke: name}) }

// ForgetMembership forgets what was written of a SpokeCluster that is gone.
func (w *Writes) ForgetMembership(name string) { w.forget(scope{spoke: name, membership: true}) }

func (w *Writes) forget(of scope) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.peaceful, of)
	for o, d := range w.disputes {
		if o.scope() == of {
			w.endLocked(o, d)
		}
	}
}

// behindLocked tells whether a write is based on the same version as the last one was.
func (w *Writes) behindLocked(write Write) bool {
	if write.Base == "" {
		return false
	}
	base := w.hash(write.Base)
	if d := w.disputes[write.Object]; d != nil {
		return d.base == base
	}
	p, ok := w.peaceful[write.scope()][w.key(write.Object)]
	return ok && p.base == base
}

// disputeLocked returns what is known of an object whose last write was meant to make the
// same of it, and is to be made again: it was undone. It returns nil where there is none.
func (w *Writes) disputeLocked(o Object, meant uint64, now time.Duration) *dispute {
	if d := w.disputes[o]; d != nil {
		if d.meant != meant || w.forgotten(d, now) {
			return nil
		}
		return d
	}
	key := w.key(o)
	p, ok := w.peaceful[o.scope()][key]
	if !ok || p.meant != meant || now-p.at >= w.intervals.Of(memory) {
		return nil
	}
	delete(w.peaceful[o.scope()], key)
	d := &dispute{meant: p.meant, base: p.base, wrote: p.at}
	w.disputes[o] = d
	return d
}

func (w *Writes) undoneLocked(d *dispute, now time.Duration) {
	d.lost = true
	d.undos++
	d.next = now + w.delay(d)
}

// delay is how long the last undo waits.
func (w *Writes) delay(d *dispute) time.Duration {
	if d.undos < shownFrom {
		return 0
	}
	doubled := w.intervals.Of(firstDelay << min(d.undos-shownFrom, 16))
	return min(doubled, w.intervals.Of(maxDelay), max(w.intervals.Of(settled)-w.quiet(d), w.intervals.Of(slowDelay)))
}

// quiet is how long a write has to stand for the object not to be shown as contested: longer
// than any before it, or what is shown would change in every round.
func (w *Writes) quiet(d *dispute) time.Duration {
	slack := max(w.intervals.Of(minQuiet), d.stood/8)
	return min(max(d.stood+slack, min(5*d.stood/2, w.intervals.Of(twinQuiet))), w.intervals.Of(memory))
}

func (w *Writes) forgotten(d *dispute, now time.Duration) bool {
	if d.lost {
		return now-d.next >= w.intervals.Of(memory) // nobody wanted to write it since
	}
	return now-d.wrote >= w.intervals.Of(memory)
}

// tellLocked has an undo shown, unless it is the first.
func (w *Writes) tellLocked(write Write, d *dispute) {
	w.hideLocked(write.Object, d)
	d.rule, d.absent, d.gone, d.by = write.Rule, write.Meant == Absent, write.Gone, writer{}
	if d.undos < shownFrom {
		return
	}
	d.until = d.next + w.intervals.Of(late)
	if w.byRule[d.rule] == nil {
		w.byRule[d.rule] = map[Object]*dispute{}
	}
	w.byRule[d.rule][write.Object] = d
}

func (w *Writes) hideLocked(o Object, d *dispute) {
	delete(w.byRule[d.rule], o)
	if len(w.byRule[d.rule]) == 0 {
		delete(w.byRule, d.rule)
	}
}

func (w *Writes) endLocked(o Object, d *dispute) {
	if d != nil {
		delete(w.disputes, o)
		w.hideLocked(o, d)
	}
}

// now returns the time since the start, and forgets what is not needed any more. The time
// is the monotonic one: a clock that is set neither begins nor ends a contest.
func (w *Writes) now() time.Duration {
	now := w.clock.Now().Sub(w.start)
	if now-w.swept < w.intervals.Of(sweepInterval) {
		return now
	}
	w.swept = now
	for o, d := range w.disputes {
		if w.forgotten(d, now) {
			w.endLocked(o, d)
		}
	}
	for of, writes := range w.peaceful {
		for key, p := range writes {
			if now-p.at >= w.intervals.Of(memory) {
				delete(writes, key)
			}
		}
		if len(writes) == 0 {
			delete(w.peaceful, of)
		}
	}
	return now
}

func (w *Writes) key(o Object) uint64      { return maphash.Comparable(w.seed, o) }
func (w *Writes) hash(meant string) uint64 { return maphash.String(w.seed, meant) }
