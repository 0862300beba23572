package spoke

import (
	"io"
	"sync"
	"time"
)

// eventTime is how long an event of a watch may be slower than leastRate. An API server sends it at once, but anyone who
// can write objects in the spoke can make them large, and the link may be slow.
const eventTime = 20 * time.Second

// overdue ends an answer or an event of a watch that has begun and does not complete in time, unless enough of it
// arrives. A nil overdue does nothing.
type overdue struct {
	late *TooLargeError
	fire func()
	// goesOn is called when the time is over, but enough has arrived; it may be nil.
	goesOn func()

	mu sync.Mutex
	// timer was started at since.
	timer *time.Timer
	since time.Time
	// read is how many bytes have arrived since then.
	read  int
	fired bool
}

// newOverdue returns an overdue for a body. It calls tell when it ends the body.
func newOverdue(what string, body io.Closer, tell func(*TooLargeError)) *overdue {
	o := &overdue{late: &TooLargeError{What: what, late: true}}
	o.fire = func() {
		if o.again() {
			return
		}
		tell(o.late)
		_ = body.Close()
	}
	return o
}

// start starts the time, unless it is running.
func (o *overdue) start() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.timer == nil {
		o.begin()
	}
}

func (o *overdue) begin() {
	o.read, o.since, o.timer = 0, time.Now(), time.AfterFunc(eventTime, o.fire)
}

// add notes bytes that arrived.
func (o *overdue) add(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.read += n
}

// again reports whether the time was stopped, or started again, or whether it is to start again because enough has
// arrived.
func (o *overdue) again() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.timer == nil, time.Since(o.since) < eventTime:
		return true
	case o.read < leastRate*int(eventTime/time.Second):
		o.fired = true
		return false
	}
	o.begin()
	if o.goesOn != nil {
		o.goesOn()
	}
	return true
}

// stop stops the time.
func (o *overdue) stop() {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.timer != nil {
		o.timer.Stop()
		o.timer = nil
	}
}

// why returns the error that ended a body.
func (o *overdue) why(err error) error {
	if o == nil || err == nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.fired {
		return o.late
	}
	return err
}
