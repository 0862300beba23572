package spoke

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/rulefleet/rulefleet/pkg/metrics"
)

// probeKey marks a context whose requests are the probe's: they pass an open circuit.
type probeKey struct{}

// asProbe marks the requests made with a context as the probe's. Their outcome is for
// whoever probes to count.
func asProbe(ctx context.Context) context.Context { return context.WithValue(ctx, probeKey{}, true) }

// observer is a transport that tells a Breaker and a counter of every request, and
// sends none but the probe's while the circuit is shut.
type observer struct {
	next    http.RoundTripper
	breaker *Breaker
	// gate holds writes while the spoke's identity is in doubt; nil for none.
	gate *gate
	// base is the path that all of the API server's begin with.
	base    string
	count   func(verb, code string)
	secrets [][]byte
	// limits bound the answers, and tooLarge is told of one that is; nil for nobody.
	limits   Limits
	tooLarge func(*TooLargeError)
}

// RoundTrip implements http.RoundTripper.
func (o *observer) RoundTrip(req *http.Request) (*http.Response, error) {
	probe, aside := req.Context().Value(probeKey{}) != nil, req.Context().Value(asideKey{}) != nil
	if !probe {
		if err := o.breaker.pass(req.Context()); err != nil {
			if req.Body != nil {
				_ = req.Body.Close() // as a transport has to
			}
			return nil, err
		}
	}
	verb := metrics.VerbProbe
	switch {
	case aside:
		verb = metrics.VerbAsk
	case !probe:
		verb = metrics.Verb(req, o.base)
	}
	resp, began, err := o.gate.send(req, metered{next: paced{o.next}, limits: o.limits, tell: o.tooLarge}, aside)
	if !probe { // a read of the identity has the context of the write that waits for it
		ended(req.Context(), began, resp, err)
	}
	switch {
	case err == nil:
		o.count(verb, metrics.Code(resp.StatusCode))
		if !aside {
			o.answered(resp, probe)
		}
		redact(resp, o.secrets)
	case errors.Is(err, context.Canceled):
		// The operator gave up (it stops, or the spoke is disengaged), not the spoke.
		o.count(verb, metrics.CodeCanceled)
	case isUnsent(err):
		// The next probe reads the identity as well, and counts.
		o.count(verb, metrics.CodeError)
	default:
		o.count(verb, metrics.CodeError)
		if err = o.breaker.hung(req.Method, began, err); !probe && !aside && !isHang(err) {
			o.breaker.Observe(false)
		}
	}
	return resp, err
}

// paced is a transport whose answers may be bounded by how fast they come.
type paced struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b paced) RoundTrip(req *http.Request) (*http.Response, error) {
	if a, ok := req.Context().Value(inflowKey{}).(*inflow); ok {
		return a.send(b.next, req)
	}
	return b.next.RoundTrip(req) //nolint:wrapcheck // a transport is transparent
}

// answered tells the circuit of an answer.
func (o *observer) answered(resp *http.Response, probe bool) {
	if resp.StatusCode == http.StatusTooManyRequests {
		o.breaker.Throttle(retryAfter(resp.Header, time.Now()))
	}
	// client-go would wait within the request, with a worker, and try again up to ten
	// times. To wait is the circuit's part, for all requests at once.
	resp.Header.Del("Retry-After")
	switch code := resp.StatusCode; {
	case probe:
	case unavailable(code):
		o.breaker.Observe(false)
	case code == http.StatusTooManyRequests, code == http.StatusUnauthorized, code >= http.StatusInternalServerError:
		// It says nothing of whether the spoke works: one rule's admission webhook may
		// fail with a 500, and a whole API server, too. The probe tells the two apart.
	default:
		o.breaker.Observe(true)
	}
}

// WrappedRoundTripper lets client-go find the transport beneath.
func (o *observer) WrappedRoundTripper() http.RoundTripper { return o.next }

// retryAfter reads for how long a server wants to be left alone: in seconds or, as a
// proxy may say it, until a date. It is 0 where that can't be told.
func retryAfter(h http.Header, now time.Time) time.Duration {
	value := h.Get("Retry-After")
	if seconds, err := strconv.ParseInt(value, 10, 32); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if date, err := http.ParseTime(value); err == nil {
		return date.Sub(now)
	}
	return 0
}

// unavailable tells of an answer that a proxy gives in place of an API server that
// does not.
func unavailable(code int) bool {
	return code == http.StatusBadGateway || code == http.StatusServiceUnavailable || code == http.StatusGatewayTimeout
}

// basePath returns the path in a server's address: that of a proxy in front of it.
func basePath(server string) string {
	u, err := url.Parse(server)
	if err != nil {
		return "" // there is no connection to it, then
	}
	return u.Path
}
