// Package leader lets only one replica at a time work. A Lease on the hub names it. A Fence stops all writes
// of a replica that has lost the lease, even if it does not know yet.
//
// client-go's leader election alone is not enough: a process that was frozen past its lease continues, and its
// workers write until the election notices.
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

// ErrNotLeading is the error of a write by a replica that does not lead.
var ErrNotLeading = errors.New("write not sent: this replica does not hold the lease")

// ErrLost says that this replica led and lost the lease to another one.
var ErrLost = errors.New("this replica lost the lease to another one; it exits, and starts again as a standby")

// Fence controls every write of a replica, to the hub and to spokes. It is open once the lease has been
// acquired, while the last renewal is younger than the deadline, which is shorter than the lease.
type Fence struct {
	// clock is the monotonic clock, and wall the one that people set. The former stops while a machine is
	// suspended, and the latter may be set back.
	clock, wall clock.PassiveClock
	deadline    time.Duration
	// open means that there is no lease.
	open bool
	lost chan struct{}

	mu sync.Mutex
	// renewed is when the last successful renewal was sent; nil before the first.
	renewed *moment
	// term is the number of transitions of the lease when it was acquired.
	term int
	// former is when a former leader renewed the lease for the last time, and acquired when this replica took it.
	former, acquired time.Time
	// closed is permanent: the lease was released, or another replica has it.
	closed bool
}

// NewFence returns a fence that is closed until the lease is acquired.
func NewFence(c clock.PassiveClock, deadline time.Duration) *Fence {
	return &Fence{clock: c, wall: c, deadline: deadline, lost: make(chan struct{})}
}

// NewOpenFence returns a fence that is open until Close, for operation without leader election.
func NewOpenFence() *Fence {
	return &Fence{open: true, lost: make(chan struct{})}
}

// Lost returns a channel that is closed when another replica has taken the lease from this one.
func (f *Fence) Lost() <-chan struct{} {
	return f.lost
}

// check returns an error if writes may not be sent now.
func (f *Fence) check() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed || !f.open && (f.renewed == nil || f.now().since(*f.renewed) >= f.deadline) {
		return ErrNotLeading
	}
	return nil
}

// Expired reports whether the lease was acquired and then not renewed within the deadline.
func (f *Fence) Expired() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.open && f.renewed != nil && f.now().since(*f.renewed) >= f.deadline
}

// moment is a time by both clocks.
type moment struct{ clock, wall time.Time }

func (f *Fence) now() moment { return moment{clock: f.clock.Now(), wall: f.wall.Now().Round(0)} }

// since is the longer time by the two clocks.
func (m moment) since(earlier moment) time.Duration {
	return max(m.clock.Sub(earlier.clock), m.wall.Sub(earlier.wall))
}

// held returns whether the lease was ever acquired, and its term.
func (f *Fence) held() (term int, ever bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.term, f.renewed != nil
}

// Former returns when a former leader renewed or released the lease for the last time, according to the lease,
// and when this replica acquired it. Both are zero before that, and if there was no lease.
func (f *Fence) Former() (renewed, acquired time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.former, f.acquired
}

// succeed records the last renewal by a former leader when the lease is acquired.
func (f *Fence) succeed(former time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !former.IsZero() {
		f.former, f.acquired = former, f.now().wall
	}
}

// renew records that the lease was acquired or renewed by a request sent at that time.
func (f *Fence) renew(sent moment, term int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.renewed, f.term = &sent, term
}

// Close closes the fence permanently.
func (f *Fence) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
}

// lose closes the fence permanently, and closes Lost.
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

// Wrap returns a transport that sends writes only while the fence is open. Other requests always pass.
func (f *Fence) Wrap(next http.RoundTripper) http.RoundTripper {
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
	if err := t.fence.check(); err != nil {
		if req.Body != nil {
			_ = req.Body.Close()
		}
		return nil, err
	}
	return t.next.RoundTrip(t.guarded(req))
}

// WrappedRoundTripper lets client-go find the inner transport.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }

// guarded returns the request with a body that can't be read once the fence is closed. The body is read when
// there is a connection, which may take longer than the lease lasts. Without the body, the API server does
// nothing.
func (t *transport) guarded(req *http.Request) *http.Request {
	if req.Body == nil || req.Body == http.NoBody {
		return req
	}
	guarded := req.WithContext(req.Context()) // a copy, because a transport must not change requests
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
	if err := b.fence.check(); err != nil {
		return 0, err
	}
	return b.ReadCloser.Read(p)
}

// questions matches the resources of reviews, which are created but change nothing. A standby uses them for
// itself and for readers of its metrics.
var questions = regexp.MustCompile(`/apis/(authorization|authentication)\.k8s\.io/v[0-9a-z]+/((self)?subject(access|rules)?|token)reviews$`)

// writes reports whether a request could change something.
func writes(req *http.Request) bool {
	switch req.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, "":
		return false
	case http.MethodPost:
		return !questions.MatchString(req.URL.Path)
	}
	return true
}
