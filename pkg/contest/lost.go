package contest

import (
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rulefleet/rulefleet/pkg/live"
)

// refusedFrom is the number of consecutive writes, each based on another version of the object, that must be
// refused because another client was faster, for the object to count as contested. refusedWithin is the maximum time
// between two of them.
const (
	refusedFrom   = 5
	refusedWithin = 30 * time.Second
)

// refusal counts consecutive writes that were refused. base is the version on which the last one was based.
type refusal struct {
	n    int
	base uint64
	at   time.Duration
}

// Lost records that a write based on a version was refused because another client was faster, and returns how long to
// delay the next attempt: 0 if the object is not contested. An opponent may always be faster, so that no write ever
// succeeds: this counts as a contest, too.
func (w *Writes) Lost(write Write, base string) Turn {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.now()
	d := w.disputes[write.Object]
	contested := d != nil && d.lost && d.undos >= shownFrom
	if !contested {
		if !w.alwaysLocked(write.Object, w.hash(base), now) {
			return Turn{}
		}
		if d == nil {
			// Only clients that have written it since count.
			d = &dispute{wrote: now, mark: mark{at: metav1.NewTime(w.clock.Now().Add(-w.intervals.Of(refusedWithin)))}}
			w.disputes[write.Object] = d
		}
		d.meant, d.definition, d.undos, d.faster = w.hash(write.Meant), write.Definition, max(d.undos, shownFrom-1), true
	}
	w.undoneLocked(d, now)
	if !contested {
		w.tellLocked(write, d)
	}
	d.until = d.next + w.intervals.Of(late)
	return Turn{Wait: d.next - now, News: !contested}
}

// alwaysLocked counts a refused write, and reports whether there were so many that the object is contested. A second
// write based on the same version only shows that the cache is behind.
func (w *Writes) alwaysLocked(o Object, base uint64, now time.Duration) bool {
	last, again := w.refusals[o]
	switch {
	case !again || now-last.at >= w.intervals.Of(refusedWithin):
		last = refusal{n: 1}
	case last.base != base:
		last.n++
	}
	last.base, last.at = base, now
	w.refusals[o] = last
	if last.n < refusedFrom {
		return false
	}
	delete(w.refusals, o)
	return true
}

// LostTo is Lost for callers that have the object with its managedFields. tell is called with a message when the object
// begins to count as contested.
func (w *Writes) LostTo(write Write, base string, found metav1.Object, tell func(message string)) time.Duration {
	turn := w.Lost(write, base)
	if turn.News {
		if found != nil {
			w.Blame(write.Object, found)
		}
		tell(w.Message(write.Object))
	}
	return turn.Wait
}

// Refused records that a creation was refused, so that a missing object is not taken for the work of an opponent. If it
// exists, the cache was wrong: nobody undid the last write. If the API server does not serve the kind, or is deleting it,
// the object went with its kind: the deletion of a CustomResourceDefinition also deletes what an apply creates meanwhile.
func (w *Writes) Refused(write Write, err error) {
	if !write.Gone {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	d := w.disputes[write.Object]
	switch {
	case unserved(err):
		delete(w.peaceful[write.scope()], w.key(write.Object))
		w.endLocked(write.Object, d)
	case apierrors.IsAlreadyExists(err) && d != nil && d.lost && d.gone:
		d.lost, d.undos, d.stood = false, d.undos-1, d.stoodBefore
		if d.undos < shownFrom {
			w.hideLocked(write.Object, d)
		}
	}
}

// unserved reports whether the error of a creation says that the kind is not served, or is being deleted.
func unserved(err error) bool {
	if apierrors.IsMethodNotSupported(err) || live.Terminating(err) {
		return true
	}
	var answer apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &answer) {
		return false
	}
	status := answer.Status()
	body, unexpected := live.Unexpected(status)
	if unexpected && body != live.NotServed {
		return false
	}
	return status.Details == nil || status.Details.Kind != "namespaces"
}
