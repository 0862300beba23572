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

// Identity tells whether a spoke still is the cluster that was engaged.
type Identity interface {
	// Settle reads the identity, if there has been a reason to doubt it since it was last
	// read: a connection that was lost, say. Without one it sends no request. The error
	// tells that the identity can't be read, or is another one.
	Settle(ctx context.Context) error
	// Confirm reads the identity. The error is that of Settle.
	Confirm(ctx context.Context) error
}

// gate stands before all writes to a spoke. While there is a reason to doubt that the spoke
// still is the cluster that is served, it holds them until the identity was read again.
//
// Another cluster can answer at the same address after a connection was lost, and over one that is new. So
// can one behind a proxy, after a request that got no answer, an answer that broke off, or
// one that says that there is no server (502, 503, 504). A write is held when it is known
// which connection it goes over, so that one that is dialed for the write, or for its
// repetition by the HTTP client, counts as well.
//
// Two things are not covered. A proxy that ends TLS can pass requests on to another cluster
// without any of these signs: recheck finds that out. And over HTTP/1.1, a write does not go
// over the connection by which the identity was read a moment before, so two clusters
// that answer in turns at the same address can be mixed up until recheck.
type gate struct {
	spoke string
	// read reads the identity, past all caches. It is bounded.
	read func(ctx context.Context) (string, error)
	// alarm is called when the spoke turns out to be another cluster.
	alarm func()
	// reads has one read serve all writes that wait for it.
	reads singleflight.Group

	mu sync.Mutex
	// served is the identity of the cluster that is served, or "".
	served string
	// doubts counts the reasons to doubt, and settled are those from before the identity
	// was last read as found.
	doubts, settled uint64
	found           string
}

// attempts is how often the identity is read for one write. A connection can be lost
// between the read and the write.
const attempts = 3

// errUnsettled is why a write was not sent.
var errUnsettled = errors.New("connections to the spoke are lost too often to verify that it is still the same cluster")

// errUnserved is why a write was not sent.
var errUnserved = errors.New("the identity of the spoke's cluster is not known yet")

// unsentError is why a request was not sent. It is no answer to the request, so that an API
// server's answer to the read of the identity is not in its chain.
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

func isUnsent(err error) bool {
	_, ok := errors.AsType[*unsentError](err)
	return ok
}

// serve sets the identity of the cluster that is served.
func (g *gate) serve(identity string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.served = identity
}

// doubt notes that another cluster may answer from now on.
func (g *gate) doubt() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.doubts++
}

// inDoubt tells whether there was a reason to doubt since the identity was last read.
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

// shared is Confirm, once for all who wait at the same time.
func (g *gate) shared(ctx context.Context) error {
	outcome := g.reads.DoChan("", func() (any, error) { return nil, g.Confirm(context.WithoutCancel(ctx)) })
	select {
	case o := <-outcome:
		return o.Err //nolint:wrapcheck // it is Confirm's
	case <-ctx.Done():
		return fmt.Errorf("verifying that spoke %s is still the same cluster: %w", g.spoke, ctx.Err())
	}
}

// inquiry is a read of the identity. The last connection that it got is the one by which
// it was answered.
type inquiry struct {
	gate *gate

	mu     sync.Mutex
	line   *line
	doubts uint64
}

// learn reads the identity, and notes by which connection it was answered.
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
	r.gate.mu.Lock()
	doubts := r.gate.doubts
	r.gate.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.line, _ = lineOf(info.Conn)
	r.doubts = doubts
}

// found notes the identity that was read.
func (r *inquiry) found(identity string) {
	r.mu.Lock()
	line, doubts := r.line, r.doubts
	r.mu.Unlock()
	r.gate.mu.Lock()
	defer r.gate.mu.Unlock()
	if line != nil {
		line.identity = identity
	}
	r.gate.found, r.gate.settled = identity, doubts
}

// hold returns when a write may be sent over a connection, or why it may not.
func (g *gate) hold(ctx context.Context, l *line, multiplexed bool) error {
	if !multiplexed {
		if !g.inDoubt() {
			return nil
		}
		// Not shared: nobody else's read is as recent. A proxy may close the connection
		// after each answer, so that there never is no doubt.
		return g.Confirm(ctx)
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

// knows tells whether the cluster that is served is known to be at the other end of a
// connection.
func (g *gate) knows(l *line) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.inDoubtLocked() && l != nil && l.identity == g.served
}

// send sends a request, a write when it may be sent, and looks for reasons to doubt in
// what becomes of it. What somebody behind the API server answers is none. began is when the
// request was not held any more.
func (g *gate) send(req *http.Request, next http.RoundTripper, aside bool) (resp *http.Response, began time.Time, err error) {
	began = time.Now()
	if g == nil {
		resp, err = next.RoundTrip(req)
		return resp, began, err //nolint:wrapcheck // a transport is transparent
	}
	ctx, cancel := context.WithCancel(req.Context())
	h := &handling{gate: g, req: req, cancel: cancel}
	resp, err = next.RoundTrip(req.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: h.got})))
	if released := h.released.Load(); released != nil {
		began = *released
	}
	if err != nil {
		cancel()
		if unsent := h.unsent.Load(); unsent != nil {
			return nil, began, unsent
		}
		if req.Context().Err() == nil {
			g.doubt()
		}
		return nil, began, err //nolint:wrapcheck // a transport is transparent
	}
	if !aside && unavailable(resp.StatusCode) {
		g.doubt()
	}
	resp.Body = &answerBody{ReadCloser: resp.Body, ctx: req.Context(), broke: sync.OnceFunc(g.doubt), done: cancel}
	return resp, began, nil
}

// handling is how a request gets its connection.
type handling struct {
	gate   *gate
	req    *http.Request
	cancel context.CancelFunc
	unsent atomic.Pointer[unsentError]
	// released is when a write was not held any more.
	released atomic.Pointer[time.Time]
}

// got holds a write that has its connection.
func (h *handling) got(info httptrace.GotConnInfo) {
	l, multiplexed := lineOf(info.Conn)
	h.gate.use(l)
	if !writes(h.req) {
		return
	}
	err := h.gate.hold(h.req.Context(), l, multiplexed)
	if err == nil {
		h.released.Store(new(time.Now()))
		return
	}
	h.unsent.Store(&unsentError{fmt.Errorf("not sent: %w", err)})
	// Of a request whose context has ended, HTTP/2 sends nothing.
	h.cancel()
	if !multiplexed {
		_ = info.Conn.Close() // and HTTP/1.1 can't
	}
}

// writes tells whether a request could change something. The review of what the account
// may do is asked for by creating one.
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

	ctx    context.Context //nolint:containedctx // the request's
	closed atomic.Bool
	broke  func()
	done   func()
}

// Read implements io.Reader.
func (a *answerBody) Read(p []byte) (int, error) {
	n, err := a.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) && a.ctx.Err() == nil && !a.closed.Load() {
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

// line is a connection of the network's to a spoke.
type line struct {
	net.Conn

	gate *gate
	// used tells that a request was sent, and ended that no other will be.
	used, ended bool
	// identity is that of the cluster at the other end, as far as it was read over this
	// connection. The gate's lock guards these three.
	identity string
}

// use notes that a request goes over a connection. The first is a reason to doubt. That it was
// dialed is none yet: the HTTP client dials for several requests at once, and uses one.
func (g *gate) use(l *line) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if l == nil || !l.used {
		g.doubts++
	}
	if l != nil {
		l.used = true
	}
}

// lose notes that a connection is lost.
func (g *gate) lose(l *line) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if l.used && !l.ended {
		g.doubts++
	}
	l.ended = true
}

// dialer returns a function that dials as another does, and tells the gate of connections
// that are lost.
func (g *gate) dialer(dial func(ctx context.Context, network, address string) (net.Conn, error)) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &line{Conn: conn, gate: g}, nil
	}
}

// lineOf returns the connection that another one is made of, and whether it carries more
// than one request at a time.
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

// failed tells of a connection that is lost. One that a deadline of its user's has interrupted
// is not.
func (l *line) failed(err error) {
	var timeout net.Error
	if err != nil && !(errors.As(err, &timeout) && timeout.Timeout()) {
		l.gate.lose(l)
	}
}

// Close implements net.Conn.
func (l *line) Close() error {
	l.gate.lose(l)
	return l.Conn.Close() //nolint:wrapcheck // a connection is transparent
}
