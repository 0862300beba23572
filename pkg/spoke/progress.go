package spoke

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

const (
	// leastRate is the rate in bytes per second above which a link counts as alive. A slow link is not an
	// outage.
	leastRate = 1000
	// stallWindow is how long the answer to a list may be slower than leastRate.
	stallWindow = 30 * time.Second
	// leastBody is how many bytes of an answer must arrive within two stallWindows, however busy the link is.
	leastBody = 100
	// fastLink is the rate of the link, in bytes per second, above which other traffic does not explain that an answer
	// makes no progress.
	fastLink = 32 << 10
	// readTimeout bounds a single read while data arrive. Without data, requestTimeout applies.
	readTimeout = 30 * time.Second
	// paceBeat is the interval at which the received bytes are checked.
	paceBeat = time.Second
)

// slowError says that an answer came too slowly.
type slowError struct {
	window time.Duration
	// unbegun means that the answer did not begin.
	unbegun bool
	// begun means that part of the answer arrived.
	begun bool
}

// Error implements error.
func (e *slowError) Error() string {
	if e.unbegun {
		return fmt.Sprintf("no answer began within %v", e.window)
	}
	return fmt.Sprintf("fewer than %d bytes per second arrived for %v", leastRate, e.window)
}

// Is makes it a timeout.
func (e *slowError) Is(target error) bool { return target == context.DeadlineExceeded }

// Transfer returns how long this many bytes may take at leastRate.
func Transfer(bytes int) time.Duration { return time.Duration(bytes) * time.Second / leastRate }

// pace checks that data keep arriving, by comparing the byte counts of the last beats. It counts beats rather
// than time, because a process that was stopped did not read.
type pace struct {
	beats   int   // of the window
	least   int64 // bytes in a window
	samples []int64
}

// trickles reports whether bytes arrived in several beats of the last window. The two parts of a TLS record may arrive in
// two.
func (p *pace) trickles() bool {
	beats := 0
	for i := 1; i < len(p.samples); i++ {
		if p.samples[i] > p.samples[i-1] {
			beats++
		}
	}
	return beats > 2
}

func newPace(window time.Duration, least int64) *pace {
	return &pace{beats: int(window / paceBeat), least: least}
}

// keeps records the number of bytes received. It returns false if too few arrived within the last window.
func (p *pace) keeps(total int64) bool {
	p.samples = append(p.samples, total)
	if len(p.samples) <= p.beats {
		return true
	}
	came := total - p.samples[0]
	p.samples = p.samples[1:]
	return came >= p.least
}

// inflow tracks the answer to one request. The transport fills it in, and ends the request when the answer is
// too slow: when less than leastRate arrives over the link for a window, or less than leastBody of the answer itself
// for two stallWindows. An evaluator's answer is also too slow if less than leastBody arrives within a window, in drips
// or while the link is fast.
//
// The answer itself can't be compared with leastRate. It may be compressed, and at that rate an HTTP/2 frame
// in two TLS records takes half a minute, in which nothing of it can be read.
type inflow struct {
	window time.Duration
	// link counts the bytes received over the connections to the spoke.
	link *atomic.Int64
	// single means that the answer is small, and may wait for others on a slow link.
	single bool
	// begins is the time within which the answer must begin, however busy the link is. Until then, its speed does
	// not count. 0 means no limit.
	begins time.Duration
	// share is the page's share of the memory for all pages, or nil.
	share *share
	// since is when the page was requested.
	since time.Time

	began      atomic.Bool // the request was sent
	answered   atomic.Bool // its answer has begun
	body       atomic.Int64
	compressed atomic.Bool
	success    atomic.Bool // its status is 200
	whole      atomic.Bool // it was read to its end
}

// unusable reports whether an answer with status 200 was read to its end. If there is an error nevertheless, the
// answer is not that of a Kubernetes API server.
func (i *inflow) unusable() bool { return i.success.Load() && i.whole.Load() }

type inflowKey struct{}

// patient returns a context for reads that a spoke answers at once. They end when nothing arrives from the
// spoke for requestTimeout. On a slow link, they wait for the data ahead of them.
func (c *connection) patient(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx = context.WithValue(ctx, inflowKey{}, &inflow{window: requestTimeout, link: c.received, single: true})
	return context.WithTimeout(ctx, readTimeout)
}

// Patient returns a context for a single read of the spoke that bypasses its cache. It ends when nothing
// arrives from the spoke for 5 s, and after 30 s in any case.
func (s *Spoke) Patient(ctx context.Context) (context.Context, context.CancelFunc) {
	if s.patient == nil {
		return context.WithTimeout(ctx, requestTimeout)
	}
	return s.patient(ctx)
}

// watch ends a request whose answer is too slow. Call done when the answer is complete.
func (i *inflow) watch(ctx context.Context) (watched context.Context, done context.CancelFunc) {
	watched, cancel := context.WithCancelCause(ctx)
	i.began.Store(true)
	alive := i.alive()
	alive()
	var late <-chan time.Time
	if i.begins > 0 {
		late = time.After(i.begins)
	}
	go func() {
		beat := time.NewTicker(paceBeat)
		defer beat.Stop()
		for {
			select {
			case <-watched.Done():
				return
			case <-late:
				if !i.answered.Load() {
					cancel(&slowError{window: i.begins, unbegun: true})
					return
				}
			case <-beat.C:
				if !alive() {
					cancel(&slowError{window: i.window})
					return
				}
			}
		}
	}()
	return watched, func() { cancel(nil) }
}

// alive returns a function that reports, once per beat, whether the answer is fast enough.
func (i *inflow) alive() func() bool {
	rate := func(of int64) int64 { return of * int64(i.window/time.Second) }
	link, fast := newPace(i.window, rate(leastRate)), newPace(i.window, rate(fastLink))
	body, recent := newPace(2*stallWindow, leastBody), newPace(i.window, leastBody)
	return func() bool {
		if i.begins > 0 && !i.answered.Load() {
			return true
		}
		total, read := i.link.Load(), i.body.Load()
		moves, quick, much := body.keeps(read), fast.keeps(total), recent.keeps(read)
		if i.begins > 0 {
			moves = moves && (much || (!recent.trickles() && !quick))
		}
		return link.keeps(total) && (moves || i.single)
	}
}

// send sends a request and watches its answer.
func (i *inflow) send(next http.RoundTripper, req *http.Request) (*http.Response, error) {
	ctx, done := i.watch(req.Context())
	resp, err := unswitched(next.RoundTrip(req.WithContext(ctx)))
	if err != nil {
		done()
		return nil, whyEnded(ctx, err)
	}
	i.answered.Store(true)
	i.compressed.Store(resp.Uncompressed)
	i.success.Store(resp.StatusCode == http.StatusOK)
	resp.Request = req // the end of ctx is not the end of the caller's context
	resp.Body = &measured{ReadCloser: resp.Body, inflow: i, ctx: ctx, done: done}
	return resp, nil
}

// whyEnded returns the error that ended a request. Only the context knows that the answer was too slow.
func whyEnded(ctx context.Context, err error) error {
	if slow, ok := errors.AsType[*slowError](context.Cause(ctx)); ok && errors.Is(err, context.Canceled) {
		return slow
	}
	return err
}

// measured is the body of an answer.
type measured struct {
	io.ReadCloser
	inflow *inflow
	ctx    context.Context
	done   context.CancelFunc
}

// Read implements io.Reader.
func (m *measured) Read(b []byte) (int, error) {
	n, err := m.ReadCloser.Read(b)
	m.inflow.body.Add(int64(n))
	if errors.Is(err, io.EOF) {
		m.inflow.whole.Store(true)
	} else if err != nil {
		err = whyEnded(m.ctx, err)
		if slow, ok := errors.AsType[*slowError](err); ok {
			err = &slowError{window: slow.window, begun: true}
		}
	}
	return n, err //nolint:wrapcheck // a transport is transparent
}

// Close implements io.Closer.
func (m *measured) Close() error {
	m.done()
	return m.ReadCloser.Close() //nolint:wrapcheck // a transport is transparent
}

type dialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// counted counts the bytes that a dialer's connections receive.
func counted(dial dialFunc, received *atomic.Int64) dialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &countedConn{Conn: conn, received: received}, nil
	}
}

type countedConn struct {
	net.Conn
	received *atomic.Int64
}

// Read implements net.Conn.
func (c *countedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.received.Add(int64(n))
	return n, err //nolint:wrapcheck // a connection is transparent
}

// HTTP/2 pings close a dead connection within the time that an outage may go unnoticed. At leastRate, the
// frames of a list are 16 s apart, so shorter pings would time out.
const (
	pingAfter   = 20 * time.Second
	pingTimeout = 5 * time.Second
)

// maxUnread bounds what a spoke can send of an answer before it is read, in bytes. Go's 4 MiB would be 256 MiB for as many
// answers as writes are in flight, while they wait for each other (together).
const maxUnread = 512 << 10

// newHTTPClient is rest.HTTPClientFor with a bound on headers, and with pings that suit a slow link; rest's own are
// configured only by environment variables.
func newHTTPClient(cfg *rest.Config, http2 bool) (*http.Client, error) {
	tls, err := rest.TLSConfigFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("reading the CA and the credential: %w", err)
	}
	transport, err := rest.HTTPWrappersForConfig(cfg, utilnet.SetOldTransportDefaults(&http.Transport{
		Proxy:               cfg.Proxy,
		DialContext:         cfg.Dial,
		TLSClientConfig:     tls,
		MaxIdleConnsPerHost: maxIdle,
		DisableCompression:  cfg.DisableCompression,
		ForceAttemptHTTP2:   http2,

		MaxResponseHeaderBytes: maxHeader,

		HTTP2: &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout, MaxReceiveBufferPerStream: maxUnread},
	}))
	if err != nil {
		return nil, fmt.Errorf("creating a client: %w", err)
	}
	return &http.Client{Transport: transport}, nil
}

// maxIdle is the value of client-go, for servers without HTTP/2.
const maxIdle = 25

// lookout is a client with its own connection over HTTP/1.1, so that a connection without an answer is not
// used again.
type lookout struct {
	rest.Interface
	http *http.Client
}

func newLookout(cfg *rest.Config) (*lookout, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.NextProtos = []string{"http/1.1"}
	c, err := newHTTPClient(cfg, false)
	if err != nil {
		return nil, fmt.Errorf("creating a client for probes: %w", err)
	}
	c.CheckRedirect = noRedirect
	r, err := newRESTClient(cfg, c)
	if err != nil {
		return nil, err
	}
	return &lookout{Interface: r, http: c}, nil
}

// newRESTClient returns a client for probes. That of client-go's discovery would decode a refusal in any format,
// whatever its Content-Type.
func newRESTClient(cfg *rest.Config, c *http.Client) (rest.Interface, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.GroupVersion, cfg.NegotiatedSerializer = &schema.GroupVersion{}, scheme.Codecs.WithoutConversion()
	r, err := rest.UnversionedRESTClientForConfigAndClient(cfg, c)
	if err != nil {
		return nil, fmt.Errorf("creating a client for probes: %w", err)
	}
	return r, nil
}

// bodyOf returns the body of the answer to a request. Raw alone returns a refusal without its message, which names the
// permission.
func bodyOf(ctx context.Context, r *rest.Request) ([]byte, error) {
	answer := r.Do(ctx)
	if err := answer.Error(); err != nil {
		return nil, err //nolint:wrapcheck // the caller says what is read
	}
	return answer.Raw() //nolint:wrapcheck // as above
}
