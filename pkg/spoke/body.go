package spoke

import (
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"sync"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

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
