package spoke

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

const (
	// probation is for how long a spoke that was too large is watched before it is served again. It
	// is longer than eventSpan. Without it, a spoke that sends too much again and again would be
	// served, and shown as connected, for a moment each time.
	probation = 8 * time.Second
	// pageStuck is for how long a page may be on its way while the spoke is served from the cache
	// that the page is to renew.
	pageStuck = 15 * time.Second
)

// excess is what was found too large in a session.
type excess struct {
	mu    sync.Mutex
	found *TooLargeError
	end   func(error)
	// wary tells that the session before was too large.
	wary bool
}

// begin begins a session.
func (x *excess) begin() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.found = nil
}

// err returns what was found first, or nil.
func (x *excess) err() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.found == nil {
		return nil
	}
	return x.found
}

// during has a function called with what is found from now on, until the one that is returned is called.
func (x *excess) during(end func(error)) (over func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.end = end
	if x.found != nil {
		end(x.found)
	}
	return func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.end = nil
	}
}

// tooMuch notes that the spoke sent or holds too much: its session is to end.
func (c *connection) tooMuch(found *TooLargeError) {
	x := &c.excess
	x.mu.Lock()
	first := x.found == nil
	if first {
		x.found, x.wary = found, true
		if x.end != nil {
			x.end(found)
		}
	}
	x.mu.Unlock()
	if first {
		c.look()
	}
}

// prove watches a session of a spoke that was too large before, and returns an error when it still is.
func (c *connection) prove(ctx context.Context) error {
	x := &c.excess
	x.mu.Lock()
	wary := x.wary && x.found == nil
	x.mu.Unlock()
	if wary {
		ctx, cancel := context.WithTimeout(ctx, probation)
		over := x.during(func(error) { cancel() })
		<-ctx.Done()
		over()
		cancel()
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.found != nil {
		return x.found
	}
	x.wary = false
	return nil
}

// stuck returns an error when a list that is to renew the cache does not get any further.
func (rs *readings) stuck() error {
	if rs == nil {
		return nil
	}
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for _, r := range rs.kinds {
		r.mu.Lock()
		stuck, slow := r.page != nil && r.page.body.Load() > 0 && time.Since(r.page.since) > pageStuck, r.slow
		r.mu.Unlock()
		switch {
		case stuck:
			return &stuckError{kind: r.kind}
		case slow != nil:
			return fmt.Errorf("listing %ss again: %w", r.kind, slow)
		}
	}
	return nil
}

// stuckError says that a page of a list does not come to its end.
type stuckError struct{ kind string }

// Error implements error.
func (e *stuckError) Error() string {
	return "listing " + e.kind + "s again: a page was not complete within " + pageStuck.String()
}

// Is makes it a timeout.
func (e *stuckError) Is(target error) bool { return target == context.DeadlineExceeded }

// unfit returns why a session must not be served any more, other than for its identity.
func (c *connection) unfit(s *session) error {
	if err := c.excess.err(); err != nil {
		return err
	}
	if err := c.reads.stuck(); err != nil {
		return err
	}
	return s.guard.Err()
}

// drips tells of an answer that began to come, and then came too slowly: the API server answers, but
// not so that it could be used.
func drips(err error) bool {
	slow, ok := errors.AsType[*slowError](err)
	return ok && slow.begun
}

// sameButNumbers tells whether two messages differ in numbers alone.
func sameButNumbers(a, b string) bool {
	drop := func(r rune) rune {
		if r == ',' || (r >= '0' && r <= '9') {
			return -1
		}
		return r
	}
	return strings.Map(drop, a) == strings.Map(drop, b)
}
