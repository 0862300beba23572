package queue

import "time"

const (
	// few is how many keys of a spoke may be in flight before its first answer.
	few = 8
	// slack is how much longer than usual a fast answer may take. The garbage collection of an API server, or of
	// this process, does not indicate a queue.
	slack = 100 * time.Millisecond
)

// ending is how a request, or a reconcile where those count, ended.
type ending int

const (
	// endAnswered is an answer of any kind, a refusal included.
	endAnswered ending = iota
	// endFailed is a timeout, a connection that broke, or a 5xx.
	endFailed
	// endThrottled is a 429.
	endThrottled
)

// window is how many keys of a lane may be in flight. It grows by one with each answer until it was too large
// once, then by half of few per round. It is halved when requests fail or the spoke throttles. It shrinks by a
// quarter, but not below its start, when even the fastest answer of a round was slower than answers with few
// keys in flight, because then the API server queues requests.
//
// A round has as many endings as the window had size when the round began.
type window struct {
	size int
	// start is the initial size, and floor the smallest size after failures.
	start, floor int
	// best is the duration of the fastest answer so far.
	best time.Duration
	// last is when the latest answer came, and shrunk when the window last shrank. Requests sent before that do
	// not count for its present size.
	last, shrunk time.Time
	// met means that it was too large once.
	met bool

	// The present round:
	length    int
	good, bad int
	fastest   time.Duration
	peak      int // most keys in flight
}

func newWindow(start, floor int) window {
	return window{size: start, start: start, floor: floor, length: start}
}

// anew returns the initial window.
func (w *window) anew() window { return newWindow(w.start, w.floor) }

// add counts an ending now of a request that took this long, with inFlight keys of the lane in flight.
func (w *window) add(e ending, took time.Duration, now time.Time, inFlight int) {
	w.peak = max(w.peak, inFlight)
	began := now.Add(-took)
	alone := !w.last.After(began) // no other answer came meanwhile
	if e == endAnswered {
		w.last = now
		if w.best == 0 || took < w.best {
			w.best = max(took, 1)
		}
	}
	if !began.After(w.shrunk) {
		return // the request was sent before the window shrank
	}
	switch {
	case e == endThrottled:
		w.shrink(w.size/2, 1, now)
	case e == endFailed && alone:
		w.shrink(w.size/2, w.floor, now)
	case e == endFailed:
		// Others get answers, so the fault may be this key's own, unless half of all fail.
		w.bad++
	default:
		w.answered(took)
	}
	if w.good+w.bad >= w.length {
		w.adjust(now)
	}
}

func (w *window) answered(took time.Duration) {
	if w.good == 0 || took < w.fastest {
		w.fastest = took
	}
	w.good++
	if !w.met && w.used() && w.fast(took) {
		w.size++
	}
}

// adjust ends a round.
func (w *window) adjust(now time.Time) {
	switch {
	case w.bad >= w.good:
		w.shrink(w.size/2, w.floor, now)
	case !w.fast(w.fastest):
		w.shrink(w.size*3/4, w.start, now)
	case w.met && w.used():
		w.size += few / 2
	}
	w.begin()
}

// begin begins a round.
func (w *window) begin() { w.length, w.good, w.bad, w.peak = w.size, 0, 0, 0 }

// used reports whether the window limits the lane: a child lane gets three quarters, and its child three
// quarters of that.
func (w *window) used() bool { return w.peak >= w.size/2 }

func (w *window) fast(took time.Duration) bool { return took <= 2*w.best+slack }

func (w *window) shrink(to, floor int, now time.Time) {
	// The size may already be below the floor.
	w.size = min(w.size, max(to, floor))
	w.met, w.shrunk = true, now
	w.begin()
}

// narrow reports whether the window is worth remembering.
func (w *window) narrow() bool { return w.met && w.size < w.start }

// proven reports whether there was any answer.
func (w *window) proven() bool { return !w.last.IsZero() }
