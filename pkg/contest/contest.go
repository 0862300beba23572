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
	memory = 10 * time.Minute
	// maxQuiet and maxWatch bound for how long a write has to stand before the object is not
	// shown as contested any more: for longer than those before it, since what is shown would
	// change in every round. An opponent that waits longer each time, as another manager does,
	// lets each write stand for about twice as long as the one before.
	maxQuiet = 30 * time.Second
	maxWatch = 150 * time.Second
	// settled is within which time after the end of a contest nothing of it is shown any more.
	// Where writes stand for long, the delay is shorter for that: there are few anyway.
	settled = 4*time.Minute + 45*time.Second
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
}

// Write is one that is to be made, or was.
type Write struct {
	Object
	// Rule is the AlertRule that it is made for.
	Rule types.NamespacedName
	// Meant is a digest of what the object is meant to be, or Absent.
	Meant string
	// Gone tells that the object is not there now.
	Gone bool
}

// Turn is the answer to whether a write may be made.
type Turn struct {
	// Wait is for how long to wait with it, or 0.
	Wait time.Duration
	// News tells that there is another undo to wait for. It is the time to find out who made it.
	News bool
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
	// peaceful are the writes of which none was undone, by spoke and by a hash of the object:
	// there are many after a start.
	peaceful map[string]map[uint64]peaceful
	disputes map[Object]*dispute
	// byRule are the disputes that may be shown.
	byRule map[types.NamespacedName]map[Object]*dispute
	swept  time.Duration
}

type peaceful struct {
	meant uint64
	at    time.Duration
}

// dispute is an object of which a write was undone. Times are counted from the start.
type dispute struct {
	rule  types.NamespacedName
	meant uint64
	// undos is how often a write was undone, and lost tells that the last one is.
	undos int
	lost  bool
	// wrote is when the last write was made, and next when the next one may be.
	wrote, next time.Duration
	// stood is the longest time that a write has stood since the object is contested.
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
		peaceful: map[string]map[uint64]peaceful{}, disputes: map[Object]*dispute{}, byRule: map[types.NamespacedName]map[Object]*dispute{},
	}
}

// Ask tells whether a write may be made now. It has to be asked before every write.
func (w *Writes) Ask(write Write) Turn {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.now()
	d := w.disputeLocked(write.Object, w.hash(write.Meant), now)
	if d == nil {
		return Turn{}
	}
	news := !d.lost
	if news {
		if d.undos >= shownFrom {
			d.stood = max(d.stood, now-d.wrote)
		}
		w.undoneLocked(d, now)
		w.tellLocked(write, d)
	}
	wait := max(d.next-now, 0)
	return Turn{Wait: wait, News: news && wait > 0}
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
		if w.peaceful[write.Spoke] == nil {
			w.peaceful[write.Spoke] = map[uint64]peaceful{}
		}
		w.peaceful[write.Spoke][w.key(write.Object)] = peaceful{meant: meant, at: now}
		return
	}
	d.meant, d.lost, d.wrote, d.mark = meant, false, now, w.markOf(answer)
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

// ForgetSpoke forgets what was written for a spoke that is gone.
func (w *Writes) ForgetSpoke(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.peaceful, name)
	for o, d := range w.disputes {
		if o.Spoke == name {
			w.endLocked(o, d)
		}
	}
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
	p, ok := w.peaceful[o.Spoke][key]
	if !ok || p.meant != meant || now-p.at >= w.intervals.Of(memory) {
		return nil
	}
	delete(w.peaceful[o.Spoke], key)
	d := &dispute{meant: p.meant, wrote: p.at}
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
	return min(doubled, w.intervals.Of(maxDelay), w.intervals.Of(settled)-w.watch(d))
}

// quiet is how long a write has to stand for the object not to be shown as contested.
func (w *Writes) quiet(d *dispute) time.Duration {
	return max(min(3*w.delay(d), w.intervals.Of(maxQuiet)), w.watch(d))
}

func (w *Writes) watch(d *dispute) time.Duration {
	return min(5*d.stood/2, w.intervals.Of(maxWatch))
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
	for spoke, writes := range w.peaceful {
		for key, p := range writes {
			if now-p.at >= w.intervals.Of(memory) {
				delete(writes, key)
			}
		}
		if len(writes) == 0 {
			delete(w.peaceful, spoke)
		}
	}
	return now
}

func (w *Writes) key(o Object) uint64      { return maphash.Comparable(w.seed, o) }
func (w *Writes) hash(meant string) uint64 { return maphash.String(w.seed, meant) }
