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
	// probation is how long a spoke that was too large is watched before it is served again. Without it, a spoke
	// that repeatedly sends too much would be served, and shown as connected, for a moment each time.
	probation = 8 * time.Second
	// pageStuck is how long a page may take while the spoke is served from the cache that the page will renew.
	pageStuck = 15 * time.Second
)

// excess is the first limit that a session exceeded.
type excess struct {
	mu    sync.Mutex
	found *TooLargeError
	end   func(error)
	// wary means that the previous session exceeded a limit.
	wary bool
}

// begin starts a session.
func (x *excess) begin() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.found = nil
}

// err returns the first excess, or nil.
func (x *excess) err() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.found == nil {
		return nil
	}
	return x.found
}

// during makes tooMuch call end with an excess, in place of the function before, until over is called.
func (x *excess) during(end func(error)) (over func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	before := x.end
	x.end = end
	if x.found != nil {
		end(x.found)
	}
	return func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		if x.end = before; x.found != nil && before != nil {
			before(x.found)
		}
	}
}

// tooMuch notes that the spoke sent or holds too much, which ends its session. It does not block.
func (c *connection) tooMuch(found *TooLargeError) {
	x := &c.excess
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.found != nil {
		return
	}
	x.found, x.wary = found, true
	if x.end != nil {
		x.end(found)
	}
}

// prove watches a session of a spoke that was too large before, and returns an error if it still is.
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

// stuck returns an error if a list that will renew the cache makes no progress.
func (rs *readings) stuck() error {
	if rs == nil {
		return nil
	}
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for _, r := range rs.kinds {
		r.mu.Lock()
		stuck, slow := r.page != nil && r.page.body.Load() > 0 && time.Since(r.page.since) > pageStuck, r.slow
		unusable := r.unusable
		if time.Since(r.moved) < pageStuck {
			unusable = nil // one may be chance
		}
		r.mu.Unlock()
		switch {
		case stuck:
			return &stuckError{kind: r.kind}
		case slow != nil:
			return fmt.Errorf("the list of %ss could not be renewed: %w", r.kind, slow)
		case unusable != nil:
			return fmt.Errorf("the list of %ss could not be renewed: %w: %v", r.kind, errNotKubernetes, unusable) //nolint:errorlint // it is of a decoder
		}
	}
	return nil
}

// stuckError says that a page of a list was not complete in time.
type stuckError struct{ kind string }

// Error implements error.
func (e *stuckError) Error() string {
	return "the list of " + e.kind + "s could not be renewed: a page was not complete within " + pageStuck.String()
}

// Is makes it a timeout.
func (e *stuckError) Is(target error) bool { return target == context.DeadlineExceeded }

// unfit returns the reason, other than the identity, why a session must not be served any more.
func (c *connection) unfit(s *session) error {
	if err := c.excess.err(); err != nil {
		return err
	}
	if err := c.reads.stuck(); err != nil {
		return err
	}
	return s.guard.Err()
}

// drips reports whether an answer began and then came too slowly: the API server answers, but the answer is
// not usable.
func drips(err error) bool {
	slow, ok := errors.AsType[*slowError](err)
	return ok && slow.begun
}

// sameButNumbers reports whether two messages differ only in numbers.
func sameButNumbers(a, b string) bool {
	drop := func(r rune) rune {
		if r == ',' || (r >= '0' && r <= '9') {
			return -1
		}
		return r
	}
	return strings.Map(drop, a) == strings.Map(drop, b)
}
