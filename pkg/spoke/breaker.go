package spoke

import (
	"context"
	"errors"
	"sync"
	"time"
)

const (
	// breakerThreshold is the number of consecutive failures that opens a spoke's circuit.
	breakerThreshold = 3
	// maxThrottle bounds the Retry-After of a spoke.
	maxThrottle = 5 * time.Minute
)

// breaker is the circuit breaker of a spoke. While the circuit is open, only probes are sent.
//
// It opens after consecutive requests without an answer, or consecutive probes that failed in any way. Only
// the prober closes it, because any other answer that arrives may belong to an earlier request. A refusal
// (403, 404, 409) is an answer.
//
// A spoke that throttles (429) also gets only probes until its Retry-After has passed.
type breaker struct {
	onChange func()

	mu       sync.Mutex
	failures int // consecutive failures of any request
	probes   int // consecutive failures of the probe
	open     bool
	// until is the end of the spoke's Retry-After. since is when the spoke began to throttle every request.
	until, since time.Time
	timer        *time.Timer
	// answered is when the spoke last answered a request or a probe.
	answered time.Time
	// passable is closed when requests may be sent again; nil while they may.
	passable chan struct{}
}

// newBreaker returns a closed circuit. onChange is called after every change, without a lock, and must return
// soon.
func newBreaker(onChange func()) *breaker {
	return &breaker{onChange: onChange}
}

// Blocked reports whether only probes may be sent: the circuit is open, or the spoke throttles.
func (b *breaker) Blocked() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.passable != nil
}

// Open reports whether the circuit is open.
func (b *breaker) Open() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.open
}

// Observe counts the outcome of a request other than a probe.
func (b *breaker) Observe(answered bool) {
	b.update(func(now time.Time) {
		if !answered {
			b.fail()
			return
		}
		b.failures = 0
		b.relent(now)
	})
}

// Probed counts the outcome of a probe. It never closes the circuit.
func (b *breaker) Probed(well bool) {
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

// Close closes the circuit. Call it after a probe has confirmed the identity of the cluster.
func (b *breaker) Close() {
	b.update(func(now time.Time) {
		b.failures, b.probes, b.open = 0, 0, false
		b.relent(now)
	})
}

// Trip opens the circuit at once, because the cluster must not be served.
func (b *breaker) Trip() {
	b.update(func(time.Time) { b.open = true })
}

// Throttle notes that the spoke answered 429 with this Retry-After.
func (b *breaker) Throttle(d time.Duration) {
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

// Throttled returns the rest of the spoke's Retry-After, and since when it has throttled every request.
func (b *breaker) Throttled() (left, lasted time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if !now.Before(b.until) {
		return 0, 0
	}
	return b.until.Sub(now), now.Sub(b.since)
}

// Stop stops the timer.
func (b *breaker) Stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stopTimer()
}

func (b *breaker) stopTimer() {
	if b.timer != nil {
		b.timer.Stop()
	}
}

func (b *breaker) fail() {
	b.failures++
	b.open = b.open || b.failures >= breakerThreshold
}

// relent notes an answer, which ends a series of throttled requests. An answer before the end of Retry-After
// belongs to an earlier request and does not count.
func (b *breaker) relent(now time.Time) {
	b.answered = now
	if !now.Before(b.until) {
		b.since = time.Time{}
	}
}

// update changes the circuit, and calls onChange if requests are now blocked or allowed again.
func (b *breaker) update(change func(now time.Time)) {
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

// errBlocked is the error of a request that was not sent.
var errBlocked = errors.New("request not sent: the spoke does not answer; only probes are sent until it does")

// errThrottled is the error of a request that was not sent to a spoke that throttles.
var errThrottled = errors.New("request not sent: the spoke answers 429 (Too Many Requests); only probes are sent until its Retry-After has passed")

// pass returns when a request may be sent. A request of an informer (see asInformer) waits: the informer's own retries
// would back off too far, and its watch would be back long after the spoke. All others fail at once.
func (b *breaker) pass(ctx context.Context) error {
	waits := ctx.Value(informerKey{}) != nil
	for {
		b.mu.Lock()
		passable, open := b.passable, b.open
		b.mu.Unlock()
		switch {
		case passable == nil:
			return nil
		case !waits && open:
			return errBlocked
		case !waits:
			return errThrottled
		}
		select {
		case <-passable:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
