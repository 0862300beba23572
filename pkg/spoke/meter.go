package spoke

import (
	"bytes"
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// eventTime is how long an event of a watch may be slower than leastRate. An API server sends it at once, but anyone who
// can write objects in the spoke can make them large, and the link may be slow.
const eventTime = 20 * time.Second

// meter counts JSON while it is read. It does not parse, and takes the same time for any input. It counts what
// determines the memory of the decoded objects, and leaves out what is nested deeper than keptNesting and, of metadata,
// what is in the lists unusedLists.
type meter struct {
	bounds
	what string
	// part means that a request for fewer objects is possible. dense means that the caller can do without an object that
	// has too many values. metadata means that the answer only has the metadata of objects.
	part, dense, metadata bool

	// decoded is how many bytes are not left out.
	read, decoded, values, items int64
	depth, deepest               int
	quoted, escaped              bool
	// last is the beginning of the last text, with its quote at the end. named means that only a colon has followed it.
	last  []byte
	named bool
	// unused is the depth of a list of unusedLists that is being read, or 0.
	unused int
}

// largeEvent and largeEventValues are the size of an event or a page that is decoded alone, in bytes and JSON values.
// largeAnswer and largeValues are that of another such answer, of which up to 64 may be decoded at once: usual ones have
// a few kilobytes.
const largeEvent, largeEventValues, largeAnswer, largeValues = 256 << 10, 1 << 14, 64 << 10, 2048

// unusedLists are lists in the metadata of objects that nobody uses. They can be much larger than what is used.
var unusedLists = []string{`ownerReferences"`, `managedFields"`}

// add counts input up to the end of a top-level value. It returns the number of bytes counted, and whether the
// value has ended. It moves the bytes that are kept to the front of p, and returns their number.
func (m *meter) add(p []byte) (n, kept int, ended bool, err *TooLargeError) {
	for n < len(p) && !ended {
		from, depth := n, m.depth
		switch {
		case m.escaped:
			m.escaped = false
			n++
		case m.quoted:
			n += m.text(p[n:])
			m.note(p[from:n])
		default:
			ended = m.mark(p[n])
			n++
		}
		if m.bounds.values == 0 || min(depth, m.depth) <= m.keeps() { // otherwise it is not decoded, or shallow enough
			kept += move(p, kept, from, n)
		}
	}
	m.read += int64(n)
	m.decoded += int64(kept)
	return n, kept, ended, m.exceeded()
}

// move moves p[from:end] to p[to:], and returns its length.
func move(p []byte, to, from, end int) int {
	if to < from {
		copy(p[to:], p[from:end])
	}
	return end - from
}

// text counts part of a string and returns its length.
func (m *meter) text(p []byte) int {
	p = p[:min(len(p), 512)] // the loop goes over it twice
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

// keeps returns the depth of JSON that is kept.
func (m *meter) keeps() int {
	if m.unused > 0 {
		return min(m.unused, keptNesting)
	}
	return keptNesting
}

// note notes part of a string.
func (m *meter) note(p []byte) {
	if m.metadata && len(m.last) < 20 {
		m.last = append(m.last, p[:min(len(p), 20)]...)
	}
}

// names notes a byte outside strings, before it is counted.
func (m *meter) names(c byte) {
	switch c {
	case '"':
		m.last, m.named = m.last[:0], false
	case ':':
		m.named = true
	case ' ', '\t', '\r', '\n':
	case '[':
		if m.named && m.unused == 0 && slices.Contains(unusedLists, string(m.last)) {
			m.unused = m.depth
		}
		m.named = false
	default:
		m.named = false
	}
}

// mark counts a byte outside strings. It reports whether a top-level value ends with it.
func (m *meter) mark(c byte) (ended bool) {
	if m.metadata {
		m.names(c)
	}
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
			if m.depth == m.unused {
				m.unused = 0
			}
			return m.depth == 0
		}
	}
	return false
}

// exceeded returns the bound that is exceeded, or nil.
func (m *meter) exceeded() *TooLargeError {
	e := &TooLargeError{What: m.what, part: m.part}
	switch {
	case m.bytes > 0 && m.read > m.bytes:
		e.Value, e.Bound, e.Unit, e.Flag = m.read, m.bytes, "bytes", m.flag
	case m.bounds.decoded > 0 && m.decoded > m.bounds.decoded:
		e.Value, e.Bound, e.Unit, e.Flag = m.decoded, m.bounds.decoded, "bytes", decodedFlag
	case m.bounds.values > 0 && m.values > m.bounds.values:
		e.Value, e.Bound, e.Unit, e.part = m.values, m.bounds.values, "JSON values", m.part || m.dense
	case m.bounds.items > 0 && m.items > m.bounds.items:
		e.Value, e.Bound, e.Unit = m.items, m.bounds.items, "objects"
		if e.Bound != maxShort {
			e.Flag = objectsFlag
		} else {
			e.part = false // the limit was ignored
		}
	case m.bounds.values > 0 && m.deepest > maxNesting: // if it is decoded as JSON
		e.Value, e.Bound, e.Unit, e.part = int64(m.deepest), maxNesting, "levels of JSON", false
	default:
		return nil
	}
	return e
}

// large reports whether an answer takes much memory while it is decoded.
func (m *meter) large() bool { return m.decoded > largeAnswer || m.values > largeValues }

// largeEvent is like large, for an event or a page. Fewer of them are decoded at the same time, so the threshold is higher.
func (m *meter) largeEvent() bool { return m.decoded > largeEvent || m.values > largeEventValues }

// cost estimates the memory that an answer takes while it is decoded, in bytes: the answer, its texts in the objects, and
// what values become, which is at most a map or a small struct each.
func (m *meter) cost() int64 { return 3*m.decoded + 200*m.values }

// next starts the next value.
func (m *meter) next() {
	*m = meter{bounds: m.bounds, what: m.what, part: m.part, dense: m.dense, metadata: m.metadata, last: m.last[:0]}
}

// metered is a transport that counts the decompressed bytes of every answer, and ends the answer when it
// exceeds a bound. All answers of a spoke are bounded here.
type metered struct {
	next   http.RoundTripper
	limits Limits
	// together bounds the answers that are read at the same time; it may be nil.
	together *together
	// account counts what is kept of them; it may be nil.
	account *account
	// paces bounds how fast watches are read, and lets one large answer be decoded at a time; it may be nil. caller is the
	// context of the caller, which ends when the answer is no longer used. That of the request ends when it was read.
	paces  *paces
	caller context.Context
	// tell is called for an answer that is too large, unless the caller can ask for a smaller one. It may be
	// nil.
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
	if !aside {
		if resp.Header == nil {
			resp.Header = http.Header{}
		}
		resp.Header.Set("Content-Type", contentType(resp))
	}
	m := &meter{bounds: t.limits.answerTo(req, resp), what: answerName(req, resp.StatusCode)}
	m.part, m.dense, m.metadata = canBeSmaller(req), req.Context().Value(partialKey{}) != nil, ofMetadata(req)
	tell := t.tell
	if aside || tell == nil || req.Context().Value(spareKey{}) != nil || (req.Method != http.MethodGet && resp.StatusCode >= http.StatusBadRequest) {
		tell = func(*TooLargeError) {} // only this request is affected
	}
	body := &meteredBody{ReadCloser: resp.Body, meter: m, page: pageOf(req), tell: tell, request: req.Context(), account: t.account}
	resp.Body = body
	switch {
	case req.URL.Query().Get("watch") != "":
		t.watch(req, resp, body)
	case !aside && body.page == nil:
		t.share(body)
	}
	return resp, nil
}

// watch bounds the events of a watch, or its refusal, also in time: the context of a watch has no deadline.
func (t metered) watch(req *http.Request, resp *http.Response, body *meteredBody) {
	body.slow = newOverdue(body.meter.what, body.ReadCloser, func(e *TooLargeError) {
		if req.Context().Err() == nil { // otherwise nobody reads it, which is not the spoke's fault
			body.tell(e)
		}
	})
	if resp.StatusCode != http.StatusOK {
		body.slow.start()
		return
	}
	events := newEventBody(req, body, t.paces, t.account)
	body.slow.goesOn = events.pace.large
	resp.Body = events
}

// share bounds a single answer together with others.
func (t metered) share(body *meteredBody) {
	body.together, body.charge, body.caller = t.together, t.account.charge(), t.caller
	if t.paces != nil && t.caller != nil {
		body.turn = &t.paces.turn
	}
}

// canBeSmaller reports whether a list can be requested with fewer objects.
func canBeSmaller(req *http.Request) bool {
	limit := req.URL.Query().Get("limit")
	return limit != "" && limit != "1" && req.URL.Query().Get("watch") == ""
}

const typeJSON = "application/json"

// contentType returns how an answer is read. The spoke's Content-Type would choose another decoder: in YAML, 64 KiB can
// stand for gigabytes. A refusal that is not JSON, such as that of a proxy, is read as text.
func contentType(resp *http.Response) string {
	media, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if resp.StatusCode < http.StatusMultipleChoices || (err == nil && media == typeJSON) {
		return typeJSON
	}
	return "text/plain"
}

// asJSON returns a request that accepts only JSON, because memory is estimated only for JSON.
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
	// page is the page of a list in the body, or nil.
	page *inflow
	// together bounds it with the others; held is its part, and charge counts it. request is the context of the request.
	together *together
	held     partOf
	charge   *Charge
	request  context.Context
	// account bounds the decoding of large answers of all spokes; it may be nil.
	account *account
	// whole means that the body was read to its end. client-go then reads it again.
	whole bool
	// turn lets one large answer or event of the spoke be decoded at a time, an answer until the context caller ends. It is nil
	// for others.
	turn    *together
	decoded partOf
	caller  context.Context
	tell    func(*TooLargeError)
	// slow ends a body that does not complete; nil if the context of the request does that.
	slow *overdue
	// over is the error that ended the body.
	over error
	// closing makes several calls of Close, which may be concurrent, count once.
	closing sync.Once
}

// Read implements io.Reader.
func (b *meteredBody) Read(p []byte) (int, error) { return untilKept(b.read, p) }

// untilKept reads again while everything that was read is left out.
func untilKept(read func([]byte) (int, error), p []byte) (n int, err error) {
	for again := true; again; again = n == 0 && err == nil && len(p) > 0 {
		n, err = read(p)
	}
	return n, err
}

func (b *meteredBody) read(p []byte) (int, error) {
	if b.over != nil {
		return 0, b.over
	}
	n, err := b.ReadCloser.Read(p)
	kept := 0
	for at := 0; at < n; {
		used, has, _, excess := b.meter.add(p[at:n])
		if excess != nil {
			return 0, b.end(excess)
		}
		kept += move(p, kept, at, at+has)
		at += used
	}
	if n > 0 {
		if err := b.together.take(b.request, &b.held, int64(kept)); err != nil {
			return 0, err
		}
		b.charge.Set(b.meter.decoded)
	}
	if b.page != nil {
		if b.over = b.page.share.take(int64(kept)); b.over != nil {
			return 0, b.over
		}
	}
	if errors.Is(err, io.EOF) && !b.whole {
		b.whole = true
		if err := b.arrived(); err != nil {
			return 0, err
		}
	}
	return kept, b.slow.why(err)
}

// arrived waits until the answer, which has arrived completely, may be decoded.
func (b *meteredBody) arrived() error {
	switch {
	case b.turn != nil && b.meter.large():
		return b.decode()
	case b.page != nil && b.meter.largeEvent():
		b.over = b.page.share.arrived(b.request, b.account, b.meter.cost())
	}
	return b.over
}

// decode waits for the turn to decode a large answer, which ends with the context of the caller.
func (b *meteredBody) decode() error {
	context.AfterFunc(b.caller, func() { b.turn.end(&b.decoded) })
	if err := b.turn.take(b.request, &b.decoded, maxSmall+1); err != nil {
		return err
	}
	done, err := b.account.decode(b.request, b.meter.cost())
	if err == nil {
		context.AfterFunc(b.caller, done)
	}
	return err
}

// Close implements io.Closer.
func (b *meteredBody) Close() error {
	b.closing.Do(func() {
		b.slow.stop()
		b.together.end(&b.held)
		b.charge.Close()
	})
	return b.ReadCloser.Close() //nolint:wrapcheck // a body is transparent
}

// end ends the answer with an error.
func (b *meteredBody) end(excess *TooLargeError) error {
	b.over = excess
	if b.page == nil && !excess.part { // otherwise a smaller page can be requested
		b.tell(excess)
	}
	return excess
}

// eventBody is the body of a watch. It bounds each event, and how fast they are read.
type eventBody struct {
	*meteredBody
	pace *eventPace
	// large means that a large event has ended since the last read. cost is the highest cost of these events, and decoded
	// returns the memory for it; nil for none.
	large   bool
	cost    int64
	decoded func()
	// largest is the size of the largest event, in bytes.
	largest int64
	// next is when the next read may begin. ctx ends when the body is closed.
	next  time.Time
	ctx   context.Context
	close context.CancelFunc
}

// eventBuffers is how many times the size of the largest event client-go's buffers have until the watch ends: there are two
// of them, and each doubles while it grows.
const eventBuffers = 4

func newEventBody(req *http.Request, body *meteredBody, ps *paces, account *account) *eventBody {
	b := &eventBody{meteredBody: body, pace: ps.of(req.URL.Path)}
	b.charge = account.charge()
	if ps != nil {
		b.turn = &ps.turn
	}
	b.ctx, b.close = context.WithCancel(req.Context())
	return b
}

// Read implements io.Reader.
func (b *eventBody) Read(p []byte) (int, error) { return untilKept(b.read, p) }

func (b *eventBody) read(p []byte) (int, error) {
	if b.over != nil {
		return 0, b.over
	}
	if b.large { // it is decoded, or would not be read further
		b.turn.release(&b.held)
		if b.decoded != nil {
			b.decoded()
		}
		b.large, b.cost, b.decoded = false, 0, nil
	}
	if err := pause(b.ctx, b.next); err != nil {
		return 0, b.slow.why(err)
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), eventStep)])
	b.slow.add(n)
	kept, events, values, excess := b.add(p[:n])
	if excess != nil {
		return 0, b.end(excess)
	}
	if b.largest > largeEvent {
		b.charge.Set(eventBuffers * b.largest)
	}
	b.next = b.pace.read(time.Now(), events, int64(n), values)
	if events > 0 {
		b.slow.stop()
	}
	if b.large {
		b.turn.await(b.ctx, &b.held, eventTime)
		if done, err := b.account.decode(b.ctx, b.cost); err == nil { // otherwise the watch has ended
			stop := context.AfterFunc(b.ctx, done)
			b.decoded = func() { stop(); done() }
		}
	}
	if b.meter.depth > 0 {
		b.slow.start()
	}
	return kept, b.slow.why(err)
}

// add counts bytes that were read. It returns how many of them are kept, and the number of events that ended with
// them, and of JSON values.
func (b *eventBody) add(p []byte) (kept int, events, values int64, excess *TooLargeError) {
	for at := 0; at < len(p); {
		before := b.meter.values
		used, has, ended, excess := b.meter.add(p[at:])
		if excess != nil {
			return 0, 0, 0, excess
		}
		kept += move(p, kept, at, at+has)
		at += used
		values += b.meter.values - before
		b.largest = max(b.largest, b.meter.decoded)
		if ended {
			events++
			if b.meter.largeEvent() {
				b.large, b.cost = true, max(b.cost, b.meter.cost())
			}
			b.meter.next()
		}
	}
	return kept, events, values, nil
}

// Close implements io.Closer. It may be called while a read waits, and more than once.
func (b *eventBody) Close() error {
	b.close()
	b.slow.stop()
	b.turn.end(&b.held)
	b.charge.Close()
	return b.ReadCloser.Close() //nolint:wrapcheck // a body is transparent
}

// overdue ends an answer or an event of a watch that has begun and does not complete in time, unless enough of it
// arrives. A nil overdue does nothing.
type overdue struct {
	late *TooLargeError
	fire func()
	// goesOn is called when the time is over, but enough has arrived; it may be nil.
	goesOn func()

	mu sync.Mutex
	// timer was started at since.
	timer *time.Timer
	since time.Time
	// read is how many bytes have arrived since then.
	read  int
	fired bool
}

// newOverdue returns an overdue for a body. It calls tell when it ends the body.
func newOverdue(what string, body io.Closer, tell func(*TooLargeError)) *overdue {
	o := &overdue{late: &TooLargeError{What: what, late: true}}
	o.fire = func() {
		if o.again() {
			return
		}
		tell(o.late)
		_ = body.Close()
	}
	return o
}

// start starts the time, unless it is running.
func (o *overdue) start() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.timer == nil {
		o.begin()
	}
}

func (o *overdue) begin() {
	o.read, o.since, o.timer = 0, time.Now(), time.AfterFunc(eventTime, o.fire)
}

// add notes bytes that arrived.
func (o *overdue) add(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.read += n
}

// again reports whether the time was stopped, or started again, or whether it is to start again because enough has
// arrived.
func (o *overdue) again() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.timer == nil, time.Since(o.since) < eventTime:
		return true
	case o.read < leastRate*int(eventTime/time.Second):
		o.fired = true
		return false
	}
	o.begin()
	if o.goesOn != nil {
		o.goesOn()
	}
	return true
}

// stop stops the time.
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

// why returns the error that ended a body.
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
