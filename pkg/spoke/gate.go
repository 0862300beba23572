package spoke

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"
)

// Identity verifies that a spoke is still the cluster that was engaged.
type Identity interface {
	// Settle reads the identity if it is in doubt, for example after a lost connection. Otherwise it sends no
	// request. It returns an error if the identity can't be read or has changed.
	Settle(ctx context.Context) error
	// Confirm always reads the identity. Its errors are those of Settle.
	Confirm(ctx context.Context) error
}

// gate controls all writes to a spoke. While the identity of the cluster is in doubt, it holds writes until
// the identity has been read again.
//
// Another cluster can answer at the same address after a connection was lost, and over a new connection.
// Behind a proxy, it can do so after a request without an answer, also if the HTTP client repeats it by itself,
// an answer that broke off, or an answer that says that there is no server (502, 503, 504). A write is held when
// its connection is known, which includes a connection dialed for the write or for a retry of the HTTP client.
//
// Two cases are not covered; recheck detects them later. A proxy that terminates TLS can switch to another
// cluster without any of these signs. Over HTTP/1.1, a write does not use the connection over which the
// identity was just read, so two clusters that answer alternately at the same address can be mixed up.
type gate struct {
	spoke string
	// read reads the identity, bypassing all caches. It is bounded.
	read func(ctx context.Context) (string, error)
	// alarm is called when the spoke is another cluster.
	alarm func()
	// reads makes all waiting writes share one read.
	reads singleflight.Group

	mu sync.Mutex
	// served is the identity of the cluster that is served, or "".
	served string
	// doubts counts the reasons for doubt. settled is the count when found was last read.
	doubts, settled uint64
	// failures are those reasons that are requests without a usable answer, and not only new or lost connections.
	failures uint64
	found    string
}

// attempts is how often the identity is read for one write, because a connection can be lost between the read
// and the write.
const attempts = 3

// errUnsettled is the error of a write that was not sent.
var errUnsettled = errors.New("the manager cannot verify that the spoke is still the same cluster, because connections to it are lost or requests time out too often; Rulefleet tries again. Check the network, and any load balancer in front of the spoke's API server, for connections that are closed")

// errUnserved is the error of a write that was not sent.
var errUnserved = errors.New("the identity of the spoke's cluster is not known yet; Rulefleet retries")

// unsentError is the error of a request that was not sent. An API server's answer to the read of the identity
// is not in its chain, because it is not an answer to the request.
type unsentError struct{ why error }

// Error implements error.
func (e *unsentError) Error() string { return e.why.Error() }

// Unwrap returns the cause.
func (e *unsentError) Unwrap() error {
	if answered(e.why) {
		return nil
	}
	return e.why
}

// serve sets the identity of the cluster that is served.
func (g *gate) serve(identity string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.served = identity
}

// doubt notes a request that failed, which is a reason for doubt.
func (g *gate) doubt() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.doubts++
	g.failures++
}

// failed returns how many requests failed.
func (g *gate) failed() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.failures
}

// inDoubt reports whether there was a reason for doubt since the identity was last read.
func (g *gate) inDoubt() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.inDoubtLocked()
}

func (g *gate) inDoubtLocked() bool {
	return g.served == "" || g.found != g.served || g.settled != g.doubts
}

// Settle implements Identity.
func (g *gate) Settle(ctx context.Context) error {
	if !g.inDoubt() {
		return nil
	}
	return g.shared(ctx)
}

// Confirm implements Identity.
func (g *gate) Confirm(ctx context.Context) error {
	is, err := g.learn(asProbe(ctx))
	if err != nil {
		return fmt.Errorf("verifying that spoke %s is still the same cluster: %w", g.spoke, err)
	}
	g.mu.Lock()
	was := g.served
	g.mu.Unlock()
	switch was {
	case is:
		return nil
	case "":
		return errUnserved
	}
	g.alarm()
	return &IdentityError{Spoke: g.spoke, Was: was, Is: is}
}

// shared is Confirm, once for all concurrent callers.
func (g *gate) shared(ctx context.Context) error {
	outcome := g.reads.DoChan("", func() (any, error) { return nil, g.Confirm(context.WithoutCancel(ctx)) })
	select {
	case o := <-outcome:
		return o.Err //nolint:wrapcheck // it is Confirm's
	case <-ctx.Done():
		return fmt.Errorf("verifying that spoke %s is still the same cluster: %w", g.spoke, ctx.Err())
	}
}

// inquiry is a read of the identity. The last connection that it got is the one that was answered.
type inquiry struct {
	gate *gate
	// The gate's lock guards these.
	line   *line
	doubts uint64
}

// learn reads the identity, and records the connection over which it was answered.
func (g *gate) learn(ctx context.Context) (string, error) {
	r := &inquiry{gate: g}
	is, err := g.read(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: r.got}))
	if err != nil {
		return "", err
	}
	r.found(is)
	return is, nil
}

func (r *inquiry) got(info httptrace.GotConnInfo) {
	l, _ := lineOf(info.Conn)
	r.gate.mu.Lock()
	defer r.gate.mu.Unlock()
	r.line, r.doubts = l, r.gate.doubts
}

// found records the identity that was read.
func (r *inquiry) found(identity string) {
	r.gate.mu.Lock()
	defer r.gate.mu.Unlock()
	if r.line != nil {
		r.line.identity = identity
	}
	r.gate.found, r.gate.settled = identity, r.doubts
}

// hold returns when a write may be sent over a connection. The error says why it may not.
func (g *gate) hold(ctx context.Context, l *line, multiplexed bool) error {
	if !multiplexed {
		if !g.inDoubt() {
			return nil
		}
		// These reads are not shared, because no other read is as recent. A proxy may close the connection after each
		// answer, so that doubt never ends, but it does not let a request fail each time.
		for range attempts {
			before := g.failed()
			if err := g.Confirm(ctx); err != nil || g.failed() == before {
				return err
			}
		}
		return errUnsettled
	}
	for range attempts {
		if g.knows(l) {
			return nil
		}
		if err := g.shared(ctx); err != nil {
			return err
		}
	}
	if g.knows(l) {
		return nil
	}
	return errUnsettled
}

// knows reports whether the other end of a connection is known to be the served cluster.
func (g *gate) knows(l *line) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.inDoubtLocked() && l != nil && l.identity == g.served
}

// send sends a request, holding writes as needed, and looks for reasons for doubt in the outcome. Answers from
// behind the API server give none. A request that is sent apart, over a connection without writes, gives the
// same reasons, but for a new connection. began is when the request was released.
func (g *gate) send(req *http.Request, next http.RoundTripper, aside, apart bool) (resp *http.Response, began time.Time, err error) {
	began = time.Now()
	if g == nil {
		resp, err = next.RoundTrip(req)
		return resp, began, err //nolint:wrapcheck // a transport is transparent
	}
	ctx, cancel := context.WithCancel(req.Context())
	h := &handling{gate: g, req: req, aside: aside, apart: apart, cancel: cancel}
	trace := &httptrace.ClientTrace{GotConn: h.got, GotFirstResponseByte: h.begins}
	resp, err = next.RoundTrip(req.WithContext(httptrace.WithClientTrace(ctx, trace)))
	if released := h.released.Load(); released != nil {
		began = *released
	}
	if err != nil {
		cancel()
		if unsent := h.unsent.Load(); unsent != nil {
			return nil, began, unsent
		}
		if !h.abandoned() {
			g.doubt()
		}
		return nil, began, err //nolint:wrapcheck // a transport is transparent
	}
	if !aside && unavailable(resp.StatusCode) {
		g.doubt()
	}
	resp.Body = &answerBody{ReadCloser: resp.Body, abandoned: h.abandoned, broke: sync.OnceFunc(g.doubt), done: cancel}
	return resp, began, nil
}

// handling tracks the connection of a request.
type handling struct {
	gate   *gate
	req    *http.Request
	aside  bool
	apart  bool
	cancel context.CancelFunc
	// line is the last connection that the request got.
	line   atomic.Pointer[line]
	unsent atomic.Pointer[unsentError]
	// released is when a write was released.
	released atomic.Pointer[time.Time]
}

// got holds a write once it has its connection.
func (h *handling) got(info httptrace.GotConnInfo) {
	l, multiplexed := lineOf(info.Conn)
	h.gate.use(l, h)
	if h.line.Swap(l) != nil {
		h.gate.doubt() // the HTTP client repeats the request, because it got no answer
	}
	if !writes(h.req) {
		return
	}
	err := h.gate.hold(h.req.Context(), l, multiplexed)
	if err == nil {
		h.gate.sends(l, h)
		h.released.Store(new(time.Now()))
		return
	}
	h.unsent.Store(&unsentError{fmt.Errorf("not sent: %w", err)})
	// HTTP/2 sends nothing for a request whose context has ended.
	h.cancel()
	if !multiplexed {
		_ = info.Conn.Close() // HTTP/1.1 can't send on a closed connection
	}
}

// begins notes that the answer begins.
func (h *handling) begins() {
	h.gate.mu.Lock()
	defer h.gate.mu.Unlock()
	if l := h.line.Load(); l != nil {
		l.unanswered = nil
	}
}

// abandoned reports whether the caller ended the request for a reason of its own. A timeout is not one: the API server
// did not answer, and another one may do so next. A timeout of a request to a server behind the API server says nothing
// about the API server.
func (h *handling) abandoned() bool {
	if h.aside {
		return h.req.Context().Err() != nil
	}
	return errors.Is(context.Cause(h.req.Context()), context.Canceled)
}

// writes reports whether a request could change something. A review of permissions is a POST but changes
// nothing.
func writes(req *http.Request) bool {
	switch req.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, "":
		return false
	}
	return !strings.HasSuffix(req.URL.Path, "/selfsubjectrulesreviews")
}

// answerBody is the body of an answer.
type answerBody struct {
	io.ReadCloser

	abandoned func() bool
	closed    atomic.Bool
	broke     func()
	done      func()
}

// Read implements io.Reader.
func (a *answerBody) Read(p []byte) (int, error) {
	n, err := a.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) && !a.abandoned() && !a.closed.Load() {
		a.broke()
	}
	return n, err //nolint:wrapcheck // a body is transparent
}

// Close implements io.Closer.
func (a *answerBody) Close() error {
	a.closed.Store(true)
	defer a.done()
	return a.ReadCloser.Close() //nolint:wrapcheck // a body is transparent
}

// line is a network connection to a spoke.
type line struct {
	net.Conn

	gate *gate
	// used means that a request was sent over it, ended that no further one will be, apart that nothing is written over it.
	used, ended, apart bool
	// identity is the identity read over this connection.
	identity string
	// unanswered is the last request if its answer has not begun. The gate's lock guards these five fields.
	unanswered *handling
}

// use notes that a request goes over a connection. The first request is a reason for doubt. Dialing alone is
// not: the HTTP client dials for several requests at once and uses one of the connections. Nor is a connection apart,
// over which nothing is written.
func (g *gate) use(l *line, h *handling) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !h.apart && (l == nil || !l.used) {
		g.doubts++
	}
	if l == nil {
		return
	}
	l.used, l.apart = true, h.apart
	if !writes(h.req) {
		l.unanswered = h
	}
}

// sends notes that a write, which was held until now, is sent over a connection.
func (g *gate) sends(l *line, h *handling) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if l != nil {
		l.unanswered = h
	}
}

// lose notes that a connection is lost, or closed by the client itself. A connection apart says nothing between its
// requests: a proxy may close it after each of them. A loss before an answer is a request that failed, and counts at once:
// the HTTP client then repeats the request by itself, possibly after a long time.
func (g *gate) lose(l *line, closed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	failed := l.unanswered != nil && !l.unanswered.abandoned()
	silent := !l.used || (l.apart && !failed)
	if !silent && !l.ended {
		g.doubts++
		if failed && !closed { // otherwise the request ends with an error
			g.failures++
		}
	}
	l.ended = true
}

// dialer wraps a dial function so that the gate learns of lost connections.
func (g *gate) dialer(dial func(ctx context.Context, network, address string) (net.Conn, error)) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &line{Conn: conn, gate: g}, nil
	}
}

// lineOf returns the line beneath a connection, and whether the connection carries concurrent requests.
func lineOf(conn net.Conn) (l *line, multiplexed bool) {
	for {
		switch c := conn.(type) {
		case *line:
			return c, multiplexed
		case *tls.Conn:
			multiplexed = multiplexed || c.ConnectionState().NegotiatedProtocol == "h2"
			conn = c.NetConn()
		default:
			return nil, multiplexed
		}
	}
}

// Read implements net.Conn.
func (l *line) Read(p []byte) (int, error) {
	n, err := l.Conn.Read(p)
	l.failed(err)
	return n, err //nolint:wrapcheck // a connection is transparent
}

// Write implements net.Conn.
func (l *line) Write(p []byte) (int, error) {
	n, err := l.Conn.Write(p)
	l.failed(err)
	return n, err //nolint:wrapcheck // a connection is transparent
}

// failed notes that the connection is lost, unless its user's deadline interrupted it.
func (l *line) failed(err error) {
	var timeout net.Error
	if err != nil && !(errors.As(err, &timeout) && timeout.Timeout()) {
		l.gate.lose(l, false)
	}
}

// Close implements net.Conn.
func (l *line) Close() error {
	l.gate.lose(l, true)
	return l.Conn.Close() //nolint:wrapcheck // a connection is transparent
}
