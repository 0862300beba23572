package spoke

import "time"

const (
	// few is how many keys of a spoke may be in flight before anything was answered.
	few = 8
	// slack is by how much an answer may take longer than usual and still count as fast: the
	// garbage collection of an API server, or of this process, is no sign of a queue.
	slack = 100 * time.Millisecond
)

// ending is what became of a request, or of a reconcile where those count.
type ending int

const (
	// endAnswered is an answer of any kind, a refusal included.
	endAnswered ending = iota
	// endFailed is a timeout, a connection that broke, or a 5xx.
	endFailed
	// endThrottled is a 429.
	endThrottled
)

// window is how many keys of a lane may be in flight. Each answer lets one more be, until that was
// too many once; from then on, it is half of few more per round. It is halved when requests fail or
// the spoke throttles. It is a quarter less, but not less than at first, when even the fastest answer
// of a round took longer than answers do with few in flight: the API server lets requests wait for
// each other.
//
// A round is as many endings as the window allowed in flight when it began.
type window struct {
	size int
	// start is its size at first, and floor is where failures leave it.
	start, floor int
	// best is the fastest answer yet.
	best time.Duration
	// last is when the latest answer came, and shrunk when the window last shrank. What was
	// sent before that says nothing of its present size.
	last, shrunk time.Time
	// met tells that it was too large once.
	met bool

	// Of this round:
	length    int
	good, bad int
	fastest   time.Duration
	peak      int // the most in flight
}

func newWindow(start, floor int) window {
	return window{size: start, start: start, floor: floor, length: start}
}

// anew is the window as it was at first.
func (w *window) anew() window { return newWindow(w.start, w.floor) }

// add counts an ending that came now after some time, with inFlight keys of the lane in flight.
func (w *window) add(e ending, took time.Duration, now time.Time, inFlight int) {
	w.peak = max(w.peak, inFlight)
	began := now.Add(-took)
	alone := !w.last.After(began) // nothing was answered meanwhile
	if e == endAnswered {
		w.last = now
		if w.best == 0 || took < w.best {
			w.best = max(took, 1)
		}
	}
	if !began.After(w.shrunk) {
		return // it was sent when the window was another one
	}
	switch {
	case e == endThrottled:
		w.shrink(w.size/2, 1, now)
	case e == endFailed && alone:
		w.shrink(w.size/2, w.floor, now)
	case e == endFailed:
		// Others work, so that it may be this key's own fault, unless half of all fail.
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

// used tells whether the window is what limits the lane: one below it gets three quarters, and one
// below that three quarters of these.
func (w *window) used() bool { return w.peak >= w.size/2 }

func (w *window) fast(took time.Duration) bool { return took <= 2*w.best+slack }

func (w *window) shrink(to, floor int, now time.Time) {
	// It may be below the floor already.
	w.size = min(w.size, max(to, floor))
	w.met, w.shrunk = true, now
	w.begin()
}

// narrow tells whether the window is worth remembering.
func (w *window) narrow() bool { return w.met && w.size < w.start }

// proven tells whether anything was answered.
func (w *window) proven() bool { return !w.last.IsZero() }
