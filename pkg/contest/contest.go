// Package contest slows down writes that another client keeps reverting.
//
// Another controller, such as a second hub with the same id, a policy engine or a GitOps tool, may want an
// object to be different. Each would write again as soon as it sees the other's write. So the first revert is
// corrected at once, and each further one waits longer.
package contest

import (
	"hash/maphash"
	"maps"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/rulefleet/rulefleet/pkg/interval"
	"github.com/rulefleet/rulefleet/pkg/rule"
)

const (
	// firstDelay is the delay after the second revert. Each further delay is twice as long, up to maxDelay,
	// which bounds how late the end of a contest is noticed.
	firstDelay = time.Second
	maxDelay   = 4 * time.Minute
	// memory is how long a write must last before it and its reverts are forgotten.
	memory = 30 * time.Minute
	// minQuiet is how long a write must last at least before the object is no longer shown as contested.
	// twinQuiet is that time for an opponent that waits up to twice as long before each revert, such as another
	// manager. See quiet.
	minQuiet  = 30 * time.Second
	twinQuiet = 150 * time.Second
	// hiddenAfter is the time after the end of a contest within which nothing of it is shown any more, if no write
	// lasted longer than 4 minutes. The delay is reduced for that when writes last long, but not below
	// slowDelay, because an opponent that is slow once can be fast later.
	hiddenAfter = 4*time.Minute + 45*time.Second
	slowDelay   = 15 * time.Second
	// late is how long a write may be overdue before the object is no longer shown as contested, because nobody
	// wants to write it.
	late = 30 * time.Second
	// sweepInterval is the minimum time between two sweeps of outdated data.
	sweepInterval = time.Minute
)

// shownFrom is the number of reverts from which an object counts as contested. A single one is drift.
const shownFrom = 2

// Absent is the intention of a deletion.
const Absent = "absent"

// Object is an object that the operator writes.
type Object struct {
	// Spoke is the spoke that shows the contest, or "".
	Spoke string
	// Kind is the object's.
	Kind string
	types.NamespacedName
	// Annotation is an annotation that the operator removes from the object, or "" for all other fields. An
	// opponent may contest only one of the two.
	Annotation string
	// Status means the status of the object, which other clients may contest alone.
	Status bool
}

// Write is a write of an object.
type Write struct {
	Object
	// Rule is the source for which it is made.
	Rule rule.Key
	// Meant is a digest of the intended object, or Absent. For an annotation, it is the value to remove.
	Meant string
	// Base identifies the version of the object on which the write is conditional, if that comes from a cache that may
	// not show the last write yet. Without it, the caller has to know.
	Base string
	// Definition is the UID of the CustomResourceDefinition of the object's kind; it may be empty. An object that was
	// written under another definition was deleted with it, which is not a revert.
	Definition types.UID
	// Gone means that the object does not exist at present.
	Gone bool
}

// Turn says whether a write may be made.
type Turn struct {
	// Wait is how long to delay it, or 0.
	Wait time.Duration
	// News means that there was another revert to wait for, so that its author should be determined.
	News bool
	// Behind means that the cache does not show the last write yet; wait for its event.
	Behind bool
}

// Writes records the operator's own writes, to detect reverts. Use New to create one. Writes of one object
// must not overlap.
//
// Only the intended object matters, not the one that is found, because another client may write something else
// each time. A write with a new intention is made at once, because a person waits for it. It does not reset
// the count, because then each edit would restart the contest.
type Writes struct {
	clock     clock.PassiveClock
	intervals interval.Scale
	start     time.Time
	seed      maphash.Seed

	mu sync.Mutex
	// peaceful are the writes that were never reverted, by scope and a hash of the object. There are many after
	// a start.
	peaceful map[scope]map[uint64]peaceful
	disputes map[Object]*dispute
	// refusals are the objects whose last writes were refused, and that are not contested.
	refusals map[Object]refusal
	// byRule are the disputes that may be shown.
	byRule map[rule.Key]map[Object]*dispute
	swept  time.Duration
}

// scope is a set of writes that are forgotten together: those in and for a spoke, or those of its
// SpokeCluster.
type scope struct {
	spoke      string
	membership bool
}

func (o Object) scope() scope { return scope{o.Spoke, o.Kind == SpokeCluster} }

// peaceful is a write that was never reverted. meant is a hash of the intention and the definition.
type peaceful struct {
	meant, base uint64
	at          time.Duration
}

// dispute is an object with a reverted write. Times are relative to the start.
type dispute struct {
	rule        rule.Key
	meant, base uint64
	// undos is the number of reverts, and lost means that the last write was reverted.
	undos int
	lost  bool
	// definition is the Definition of the last write.
	definition types.UID
	// wrote is the time of the last write, and next the earliest time of the next one.
	wrote, next time.Duration
	// stood is the longest time that a write lasted since the first revert, and stoodBefore is that without the last one.
	stood, stoodBefore time.Duration
	// until is when the object is no longer shown as contested.
	until  time.Duration
	absent bool
	gone   bool
	// faster means that no write succeeded, because the opponent was always faster.
	faster bool
	// mark describes the object after the last write, and by is the author of the last revert.
	mark mark
	by   writer
}

// New returns an empty Writes. intervals scales all delays.
func New(c clock.PassiveClock, intervals interval.Scale) *Writes {
	return &Writes{
		clock: c, intervals: intervals, start: c.Now(), seed: maphash.MakeSeed(),
		peaceful: map[scope]map[uint64]peaceful{}, disputes: map[Object]*dispute{}, refusals: map[Object]refusal{}, byRule: map[rule.Key]map[Object]*dispute{},
	}
}

// Ask says whether a write may be made now. Call it before every write.
func (w *Writes) Ask(write Write) Turn {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.now()
	if w.behindLocked(write) {
		return Turn{Behind: true}
	}
	d := w.disputeLocked(write, now)
	if d == nil {
		return Turn{}
	}
	news := !d.lost
	if news {
		d.stoodBefore = d.stood
		if d.undos > 0 {
			d.stood = max(d.stood, now-d.wrote)
		}
		w.undoneLocked(d, now)
		w.tellLocked(write, d)
	}
	wait := max(d.next-now, 0)
	return Turn{Wait: wait, News: news && wait > 0}
}

// Reverted reports whether a write repeats one that was reverted before. Like Ask, it ends a dispute of another
// definition.
func (w *Writes) Reverted(write Write) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.disputes[write.Object] != nil && w.disputeLocked(write, w.now()) != nil
}

// Yield is Ask for callers that have the object with its managedFields, or nil if it is gone. tell is called
// with a message for each revert to wait for.
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

// Blame determines from the present object which client reverted the last write.
func (w *Writes) Blame(o Object, found metav1.Object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if d := w.disputes[o]; d != nil {
		d.by = w.blame(o, d.mark, found)
	}
}

// Wrote records a write and the answer of the API server, which is nil for a deletion.
func (w *Writes) Wrote(write Write, answer metav1.Object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.now()
	delete(w.refusals, write.Object)
	d := w.disputes[write.Object]
	if d == nil || w.forgotten(d, now) {
		w.endLocked(write.Object, d)
		of := write.scope()
		if w.peaceful[of] == nil {
			w.peaceful[of] = map[uint64]peaceful{}
		}
		w.peaceful[of][w.key(write.Object)] = peaceful{meant: w.defined(write), base: w.hash(write.Base), at: now}
		return
	}
	d.meant, d.base, d.lost, d.faster, d.wrote, d.mark = w.hash(write.Meant), w.hash(write.Base), false, false, now, w.markOf(write.Object, answer)
	d.definition = write.Definition
	d.until = now + w.quiet(d)
}

// Stands records that an object has its intended state although the operator did not write it.
func (w *Writes) Stands(o Object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.refusals, o)
	if d := w.disputes[o]; d != nil && d.lost {
		d.lost, d.wrote = false, w.now()
		d.until = d.wrote + w.quiet(d)
	}
}

// ForgetSpoke drops the writes in and for a spoke that is another cluster now, was restored, or is gone. It
// keeps those of its SpokeCluster.
func (w *Writes) ForgetSpoke(name string) { w.forget(scope{spoke: name}) }

// ForgetMembership drops the writes of a SpokeCluster that is gone.
func (w *Writes) ForgetMembership(name string) { w.forget(scope{spoke: name, membership: true}) }

func (w *Writes) forget(of scope) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.peaceful, of)
	maps.DeleteFunc(w.refusals, func(o Object, _ refusal) bool { return o.scope() == of })
	for o, d := range w.disputes {
		if o.scope() == of {
			w.endLocked(o, d)
		}
	}
}

// behindLocked reports whether a write is based on the same version as the previous one.
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

// disputeLocked returns the dispute of an object for which the same intention has to be written again, which
// means a revert. It returns nil if there is none.
func (w *Writes) disputeLocked(write Write, now time.Duration) *dispute {
	o := write.Object
	if d := w.disputes[o]; d != nil {
		if d.definition != write.Definition {
			w.endLocked(o, d)
			return nil
		}
		if d.meant != w.hash(write.Meant) || w.forgotten(d, now) {
			return nil
		}
		return d
	}
	key := w.key(o)
	p, ok := w.peaceful[o.scope()][key]
	if !ok || p.meant != w.defined(write) || now-p.at >= w.intervals.Of(memory) {
		return nil
	}
	delete(w.peaceful[o.scope()], key)
	d := &dispute{meant: w.hash(write.Meant), base: p.base, wrote: p.at, definition: write.Definition}
	w.disputes[o] = d
	return d
}

func (w *Writes) undoneLocked(d *dispute, now time.Duration) {
	d.lost = true
	d.undos++
	d.next = now + w.delay(d)
}

// delay is how long to wait after the last revert.
func (w *Writes) delay(d *dispute) time.Duration {
	if d.undos < shownFrom {
		return 0
	}
	doubled := w.intervals.Of(firstDelay << min(d.undos-shownFrom, 16))
	return min(doubled, w.intervals.Of(maxDelay), max(w.intervals.Of(hiddenAfter)-w.quiet(d), w.intervals.Of(slowDelay)))
}

// quiet is how long a write must last before the object is no longer shown as contested. It is longer than any
// write lasted before, or the status would change in every round.
func (w *Writes) quiet(d *dispute) time.Duration {
	slack := max(w.intervals.Of(minQuiet), d.stood/8)
	return min(max(d.stood+slack, min(5*d.stood/2, w.intervals.Of(twinQuiet))), w.intervals.Of(memory))
}

func (w *Writes) forgotten(d *dispute, now time.Duration) bool {
	if d.lost {
		return now-d.next >= w.intervals.Of(memory) // nobody has wanted to write it since
	}
	return now-d.wrote >= w.intervals.Of(memory)
}

// tellLocked makes a revert be shown, unless it is the first.
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

// now returns the time since the start, and drops outdated data. It uses the monotonic clock, so that setting
// the clock neither starts nor ends a contest.
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
	maps.DeleteFunc(w.refusals, func(_ Object, r refusal) bool { return now-r.at >= w.intervals.Of(refusedWithin) })
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

// defined is a hash of the intention and the definition of a write.
func (w *Writes) defined(write Write) uint64 {
	return maphash.Comparable(w.seed, [2]string{string(write.Definition), write.Meant})
}
