package spoke

import (
	"bytes"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

const (
	// eventSpan is the time over which the events of a watch are counted, and maxEvents and
	// maxEventBytes are the most within it. A rollout of all Deployments of a large spoke is less.
	eventSpan     = 5 * time.Second
	maxEvents     = 10_000
	maxEventBytes = 32 << 20
	// eventTime is for how long an event of a watch may be on its way: an API server sends it in one go.
	eventTime = 20 * time.Second
)

// meter counts JSON as it is read. It is no parser, and takes the same time for whatever it is
// given: it counts what decides how much memory the decoded objects take.
type meter struct {
	bounds
	what string
	// part tells that fewer objects can be asked for.
	part bool

	read, values, items int64
	depth, deepest      int
	quoted, escaped     bool
}

// add counts some more, up to the end of a value that is nothing within another one. It returns how
// much that was, and whether the value has ended.
func (m *meter) add(p []byte) (n int, ended bool, err *TooLargeError) {
	for n < len(p) && !ended {
		switch {
		case m.escaped:
			m.escaped = false
			n++
		case m.quoted:
			n += m.text(p[n:])
		default:
			ended = m.mark(p[n])
			n++
		}
	}
	m.read += int64(n)
	return n, ended, m.exceeded()
}

// text counts a part of a text, and returns how long that is.
func (m *meter) text(p []byte) int {
	p = p[:min(len(p), 512)] // it is looked through twice
	end := bytes.IndexByte(p, '"')
	if end >= 0 {
		p = p[:end]
	}
	if i := bytes.IndexByte(p, '\\'); i >= 0 {
		m.escaped = true
		return i + 1
	}
	if end >= 0 {
		m.quoted = false
		return end + 1
	}
	return len(p)
}

// mark counts a byte that is not within a text. It tells whether a value ends with it.
func (m *meter) mark(c byte) (ended bool) {
	switch c {
	case '"':
		m.quoted = true
	case ',':
		m.values++
		if m.depth == 2 {
			m.items++
		}
	case '{', '[':
		m.values++
		m.depth++
		m.deepest = max(m.deepest, m.depth)
	case '}', ']':
		if m.depth > 0 {
			m.depth--
			return m.depth == 0
		}
	}
	return false
}

// exceeded says which bound is passed, or nil.
func (m *meter) exceeded() *TooLargeError {
	e := &TooLargeError{What: m.what, part: m.part}
	switch {
	case m.bytes > 0 && m.read > m.bytes:
		e.Value, e.Bound, e.Unit, e.Flag = m.read, m.bytes, "bytes", m.flag
	case m.bounds.values > 0 && m.values > m.bounds.values:
		e.Value, e.Bound, e.Unit = m.values, m.bounds.values, "values"
	case m.bounds.items > 0 && m.items > m.bounds.items:
		e.Value, e.Bound, e.Unit = m.items, m.bounds.items, "objects"
		if e.Bound != maxShort {
			e.Flag = objectsFlag
		}
	case m.bounds.values > 0 && m.deepest > maxNesting: // where it is decoded as JSON
		e.Value, e.Bound, e.Unit, e.part = int64(m.deepest), maxNesting, "levels", false
	default:
		return nil
	}
	return e
}

// next begins the next value.
func (m *meter) next() {
	*m = meter{bounds: m.bounds, what: m.what, part: m.part}
}

// metered is a transport that counts what is read of every answer, after it was decompressed, and
// ends the answer where a bound is passed. It is the one place where answers of a spoke are bounded.
type metered struct {
	next   http.RoundTripper
	limits Limits
	// tell is told of an answer that is too large, unless whoever asked can ask for less of it; nil
	// for nobody.
	tell func(*TooLargeError)
}

// RoundTrip implements http.RoundTripper.
func (t metered) RoundTrip(req *http.Request) (*http.Response, error) {
	aside := req.Context().Value(asideKey{}) != nil
	if !aside {
		req = asJSON(req)
	}
	resp, err := t.next.RoundTrip(req)
	if err != nil || resp.Body == nil {
		return resp, err //nolint:wrapcheck // a transport is transparent
	}
	if !aside && resp.StatusCode < http.StatusMultipleChoices {
		if resp.Header == nil {
			resp.Header = http.Header{}
		}
		// Whatever the spoke calls it. Else it would choose the decoder, such as that of YAML.
		resp.Header.Set("Content-Type", "application/json")
	}
	m := &meter{bounds: t.limits.answerTo(req, resp.StatusCode), what: answerName(req)}
	m.part = pageOf(req) != nil && req.URL.Query().Get("limit") != "1"
	tell := t.tell
	if aside || tell == nil || (req.Method != http.MethodGet && resp.StatusCode >= http.StatusBadRequest) {
		tell = func(*TooLargeError) {} // it concerns the request alone
	}
	body := &meteredBody{ReadCloser: resp.Body, meter: m, page: pageOf(req), tell: tell}
	resp.Body = body
	if req.URL.Query().Get("watch") == "" {
		return resp, nil
	}
	body.slow = newOverdue(m.what, body.ReadCloser, tell) // the context of a watch does not end
	if resp.StatusCode == http.StatusOK {
		resp.Body = &eventBody{meteredBody: body, what: "the events of " + req.URL.Path}
	} else {
		body.slow.start()
	}
	return resp, nil
}

// asJSON returns a request that asks for JSON and nothing else: how much memory an answer takes is
// known of JSON alone.
func asJSON(req *http.Request) *http.Request {
	accept := req.Header.Get("Accept")
	if accept == "" || accept == "application/json" {
		return req
	}
	kept := slices.DeleteFunc(strings.Split(accept, ","), func(part string) bool {
		media, _, err := mime.ParseMediaType(part)
		return err != nil || (media != "application/json" && media != "*/*")
	})
	if len(kept) == 0 {
		kept = []string{"application/json"}
	}
	req = utilnet.CloneRequest(req)
	req.Header.Set("Accept", strings.Join(kept, ","))
	return req
}

// meteredBody is the body of an answer.
type meteredBody struct {
	io.ReadCloser
	meter *meter
	// page is the page of a list that it is; nil for none.
	page *inflow
	tell func(*TooLargeError)
	// slow ends what does not come to its end; nil where the context of the request does.
	slow *overdue
	// over is why it ended.
	over error
}

// Read implements io.Reader.
func (b *meteredBody) Read(p []byte) (int, error) {
	if b.over != nil {
		return 0, b.over
	}
	n, err := b.ReadCloser.Read(p)
	for rest := p[:n]; len(rest) > 0; {
		used, _, excess := b.meter.add(rest)
		if excess != nil {
			return 0, b.end(excess)
		}
		rest = rest[used:]
	}
	if b.page != nil {
		if busy := b.page.share.take(int64(n)); busy != nil {
			b.over = busy
			return 0, busy
		}
	}
	return n, b.slow.why(err)
}

// Close implements io.Closer.
func (b *meteredBody) Close() error {
	b.slow.stop()
	return b.ReadCloser.Close() //nolint:wrapcheck // a body is transparent
}

// end ends the answer.
func (b *meteredBody) end(excess *TooLargeError) error {
	b.over = excess
	if b.page == nil { // else less can be asked for
		b.tell(excess)
	}
	return excess
}

// eventBody is the body of a watch. Its bounds are those of each event, and how many there are.
type eventBody struct {
	*meteredBody
	what string

	since         time.Time
	count, passed int64
}

// Read implements io.Reader.
func (b *eventBody) Read(p []byte) (int, error) {
	if b.over != nil {
		return 0, b.over
	}
	n, err := b.ReadCloser.Read(p)
	before := b.count
	if excess := b.add(p[:n], time.Now()); excess != nil {
		return 0, b.end(excess)
	}
	if b.count != before {
		b.slow.stop()
	}
	if b.meter.depth > 0 {
		b.slow.start()
	}
	return n, b.slow.why(err)
}

// add counts what was read at some time.
func (b *eventBody) add(p []byte, now time.Time) *TooLargeError {
	if now.Sub(b.since) >= eventSpan {
		b.since, b.count, b.passed = now, 0, 0
	}
	b.passed += int64(len(p))
	for len(p) > 0 {
		n, ended, excess := b.meter.add(p)
		if excess != nil {
			return excess
		}
		if ended {
			b.count++
			b.meter.next()
		}
		p = p[n:]
	}
	within := "within " + eventSpan.String()
	switch {
	case b.count > maxEvents:
		return &TooLargeError{What: b.what, Value: b.count, Bound: maxEvents, Unit: "events " + within}
	case b.passed > maxEventBytes:
		return &TooLargeError{What: b.what, Value: b.passed, Bound: maxEventBytes, Unit: "bytes " + within}
	}
	return nil
}

// overdue ends an answer, or an event of a watch, that has begun and does not come to its end. A nil
// one does nothing.
type overdue struct {
	late *TooLargeError
	fire func()

	mu    sync.Mutex
	timer *time.Timer
	fired bool
}

// newOverdue returns one for a body. It tells when it has ended that.
func newOverdue(what string, body io.Closer, tell func(*TooLargeError)) *overdue {
	o := &overdue{late: &TooLargeError{What: what, Value: int64(eventTime / time.Second), Bound: int64(eventTime / time.Second), Unit: "seconds without completing"}}
	o.fire = func() {
		o.mu.Lock()
		o.fired = true
		o.mu.Unlock()
		tell(o.late)
		_ = body.Close()
	}
	return o
}

// start notes that something has begun, unless it has already.
func (o *overdue) start() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.timer == nil {
		o.timer = time.AfterFunc(eventTime, o.fire)
	}
}

// stop notes that it has come to its end.
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

// why returns the error by which a body ended.
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
