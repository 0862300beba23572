// Package leader lets one replica at a time work. A Lease on the hub says which one; a
// Fence keeps a replica that has lost it, and may not know, from writing anything more.
//
// client-go's leader election alone does not: a process that was frozen past its lease
// goes on where it stood, and its workers write until the election notices.
package leader

import (
	"errors"
	"io"
	"net/http"
	"regexp"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// ErrNotLeading is what a write gets from a replica that does not lead.
var ErrNotLeading = errors.New("write not sent: this replica does not hold the lease")

// ErrLost says that this replica led, and the lease is another's now.
var ErrLost = errors.New("this replica lost the lease to another one; it exits, and starts again as a standby")

// Fence stands before every write of a replica, to the hub and to spokes. It is open
// from the first time the lease was got, for as long as the last renewal is younger than
// the deadline, which is shorter than the lease. A nil Fence is always open: without
// leader election there is nobody to be in the way of.
type Fence struct {
	// clock goes by the monotonic clock, and wall by that which people set. The former
	// stands still while a machine is suspended, and the latter may be set back.
	clock, wall clock.PassiveClock
	deadline    time.Duration
	lost        chan struct{}

	mu sync.Mutex
	// renewed is when the last renewal that succeeded was sent; nil before the first.
	renewed *moment
	// term is the number of the lease's holders when it was got.
	term int
	// closed is for good: the lease was released, or is another replica's.
	closed bool
}

// NewFence returns a fence that is closed until the lease is got.
func NewFence(c clock.PassiveClock, deadline time.Duration) *Fence {
	return &Fence{clock: c, wall: c, deadline: deadline, lost: make(chan struct{})}
}

// Lost is closed when another replica was seen to hold the lease that this one held.
func (f *Fence) Lost() <-chan struct{} {
	if f == nil {
		return nil
	}
	return f.lost
}

// Check tells whether a write may be sent now.
func (f *Fence) Check() error {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed || f.renewed == nil || f.now().since(*f.renewed) >= f.deadline {
		return ErrNotLeading
	}
	return nil
}

// moment is a time by either clock.
type moment struct{ clock, wall time.Time }

func (f *Fence) now() moment { return moment{clock: f.clock.Now(), wall: f.wall.Now().Round(0)} }

// since is the time by whichever clock says more.
func (m moment) since(earlier moment) time.Duration {
	return max(m.clock.Sub(earlier.clock), m.wall.Sub(earlier.wall))
}

// held tells whether the lease was got ever, and in which term.
func (f *Fence) held() (term int, ever bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.term, f.renewed != nil
}

// renew notes that the lease was got or renewed by a request that was sent then.
func (f *Fence) renew(sent moment, term int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.renewed, f.term = &sent, term
}

// Close closes the fence for good: this replica writes nothing any more.
func (f *Fence) Close() {
	if f != nil {
		f.release()
	}
}

// release closes the fence for good.
func (f *Fence) release() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
}

// lose closes the fence for good, and tells so.
func (f *Fence) lose() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	select {
	case <-f.lost:
	default:
		close(f.lost)
	}
}

// Wrap returns a transport that sends writes as long as the fence is open, and all else
// always.
func (f *Fence) Wrap(next http.RoundTripper) http.RoundTripper {
	if f == nil {
		return next
	}
	return &transport{fence: f, next: next}
}

type transport struct {
	fence *Fence
	next  http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if !writes(req) {
		return t.next.RoundTrip(req)
	}
	if err := t.fence.Check(); err != nil {
		if req.Body != nil {
			_ = req.Body.Close()
		}
		return nil, err
	}
	return t.next.RoundTrip(t.guarded(req))
}

// WrappedRoundTripper lets client-go find the transport beneath.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }

// guarded returns the request with a body that is not read once the fence is closed. The
// body is read when there is a connection to send it by, which may take longer than the
// lease lasts; without it, the API server does nothing.
func (t *transport) guarded(req *http.Request) *http.Request {
	if req.Body == nil || req.Body == http.NoBody {
		return req
	}
	guarded := req.WithContext(req.Context()) // a copy: requests are not the transport's to change
	guarded.Body = &body{ReadCloser: req.Body, fence: t.fence}
	if again := req.GetBody; again != nil {
		guarded.GetBody = func() (io.ReadCloser, error) {
			b, err := again()
			if err != nil {
				return nil, err
			}
			return &body{ReadCloser: b, fence: t.fence}, nil
		}
	}
	return guarded
}

type body struct {
	io.ReadCloser
	fence *Fence
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	if err := b.fence.Check(); err != nil {
		return 0, err
	}
	return b.ReadCloser.Read(p)
}

// questions are the kinds that are asked by creating one: who is it, and what may it do. A standby asks
// them of itself, and of those who read its metrics.
var questions = regexp.MustCompile(`/apis/(authorization|authentication)\.k8s\.io/v[0-9a-z]+/((self)?subject(access|rules)?|token)reviews$`)

// writes tells whether a request could change something.
func writes(req *http.Request) bool {
	switch req.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, "":
		return false
	case http.MethodPost:
		return !questions.MatchString(req.URL.Path)
	}
	return true
}
