package spoke

import (
	"context"
	"errors"
	"sync"
	"time"
)

const (
	// breakerThreshold is the number of failures in a row, with no success between
	// them, that opens a spoke's circuit.
	breakerThreshold = 3
	// maxThrottle bounds for how long a spoke may ask to be left alone.
	maxThrottle = 5 * time.Minute
)

// Breaker is a spoke's circuit. While it is shut, nothing but the probe is sent.
//
// It opens after requests in a row that got no answer, or after probes in a row that
// failed in any way. Only who probes closes it: any other answer that comes in then is to
// a request from before. An answer that refuses (403, 404, 409) is an answer.
//
// Beside that, a spoke that says when it wants to be asked again (429) is left alone
// until then.
type Breaker struct {
	onChange func()

	mu       sync.Mutex
	failures int // of any request, in a row
	probes   int // of the probe, in a row
	open     bool
	// until is when a spoke that throttles may be asked again, and since is when it
	// began to throttle without having answered between.
	until, since time.Time
	timer        *time.Timer
	// answered is when the spoke last answered, a probe included.
	answered time.Time
	// passable is closed when the circuit is not shut any more; nil while it is not.
	passable chan struct{}
}

// NewBreaker returns a closed circuit. onChange is called after every change, with
// no lock held, and has to return soon.
func NewBreaker(onChange func()) *Breaker {
	return &Breaker{onChange: onChange}
}

// Shut tells whether nothing but the probe is to be sent: the circuit is open, or the
// spoke throttles.
func (b *Breaker) Shut() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.passable != nil
}

// Open tells whether the circuit is open.
func (b *Breaker) Open() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.open
}

// Observe counts the outcome of a request that is not the probe: whether the spoke
// answered.
func (b *Breaker) Observe(answered bool) {
	b.update(func(now time.Time) {
		if !answered {
			b.fail()
			return
		}
		b.failures = 0
		b.relent(now)
	})
}

// Probed counts the outcome of a probe: whether all was well. It closes nothing.
func (b *Breaker) Probed(well bool) {
	b.update(func(now time.Time) {
		if well {
			b.failures, b.probes = 0, 0
			b.relent(now)
			return
		}
		b.probes++
		b.open = b.open || b.probes >= breakerThreshold
		b.fail()
	})
}

// Close closes the circuit: the spoke was probed, and is the cluster that it was.
func (b *Breaker) Close() {
	b.update(func(now time.Time) {
		b.failures, b.probes, b.open = 0, 0, false
		b.relent(now)
	})
}

// Trip opens the circuit at once: what is there must not be served.
func (b *Breaker) Trip() {
	b.update(func(time.Time) { b.open = true })
}

// Throttle notes that the spoke wants to be left alone for a while.
func (b *Breaker) Throttle(d time.Duration) {
	d = min(max(d, time.Second), maxThrottle)
	b.update(func(now time.Time) {
		if b.since.IsZero() {
			b.since = now
		}
		if until := now.Add(d); until.After(b.until) {
			b.until = until
			b.stopTimer()
			b.timer = time.AfterFunc(d, func() { b.update(func(time.Time) {}) })
		}
	})
}

// Throttled tells for how long the spoke still wants to be left alone, and since when
// it does so without having answered between.
func (b *Breaker) Throttled() (left, lasted time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if !now.Before(b.until) {
		return 0, 0
	}
	return b.until.Sub(now), now.Sub(b.since)
}

// Stop ends what runs in the background.
func (b *Breaker) Stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stopTimer()
}

func (b *Breaker) stopTimer() {
	if b.timer != nil {
		b.timer.Stop()
	}
}

func (b *Breaker) fail() {
	b.failures++
	b.open = b.open || b.failures >= breakerThreshold
}

// relent notes an answer, which ends a row of throttled requests. An answer within the time that the spoke
// gave is to a request that was sent before.
func (b *Breaker) relent(now time.Time) {
	b.answered = now
	if !now.Before(b.until) {
		b.since = time.Time{}
	}
}

// update changes the circuit, and tells of it when that shut it or made it passable.
func (b *Breaker) update(change func(now time.Time)) {
	b.mu.Lock()
	now := time.Now()
	change(now)
	shut, was := b.open || now.Before(b.until), b.passable != nil
	switch {
	case shut && !was:
		b.passable = make(chan struct{})
	case !shut && was:
		close(b.passable)
		b.passable = nil
	}
	b.mu.Unlock()
	if shut != was {
		b.onChange()
	}
}

// errShut is why a request was not sent.
var errShut = errors.New("request not sent: the spoke does not answer; only probes are sent until it does")

// errThrottled is why a request was not sent to a spoke that throttles.
var errThrottled = errors.New("request not sent: the spoke answers 429 (Too Many Requests); no requests are sent until its Retry-After has passed")

// pass returns when a request may be sent. One that has a deadline is a worker's, which
// has better things to do than to wait. One that has none belongs to a watch: its own
// retries would back off further and further, and it would be back long after the spoke
// is.
func (b *Breaker) pass(ctx context.Context) error {
	_, impatient := ctx.Deadline()
	for {
		b.mu.Lock()
		passable, open := b.passable, b.open
		b.mu.Unlock()
		switch {
		case passable == nil:
			return nil
		case impatient && open:
			return errShut
		case impatient:
			return errThrottled
		}
		select {
		case <-passable:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
