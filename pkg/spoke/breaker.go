package spoke

import (
	"context"
	"errors"
	"net/http"
	"sync"
)

// breakerThreshold is the number of failures in a row, with no success between
// them, that opens a spoke's circuit (DESIGN §3.1).
const breakerThreshold = 3

// Breaker is a spoke's circuit. It is closed while the spoke answers. Failures to
// get an answer in a row open it, and from then on nothing but the probe is sent,
// until any request is answered again.
//
// An answer that refuses (403, 404, 409) is an answer.
type Breaker struct {
	onChange func()

	mu       sync.Mutex
	failures int
	open     bool
}

// NewBreaker returns a closed circuit. onChange is called after every change, with
// no lock held, and has to return soon.
func NewBreaker(onChange func()) *Breaker {
	return &Breaker{onChange: onChange}
}

// Open tells whether the circuit is open.
func (b *Breaker) Open() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.open
}

// Observe counts the outcome of one request: whether the spoke answered.
func (b *Breaker) Observe(answered bool) {
	b.mu.Lock()
	was := b.open
	if answered {
		b.failures, b.open = 0, false
	} else {
		b.failures++
		b.open = b.open || b.failures >= breakerThreshold
	}
	changed := b.open != was
	b.mu.Unlock()
	if changed {
		b.onChange()
	}
}

// observer is a transport that tells a Breaker and a counter of every request.
type observer struct {
	next    http.RoundTripper
	breaker *Breaker
	count   func(verb, code string)
}

// RoundTrip implements http.RoundTripper.
func (o *observer) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := o.next.RoundTrip(req)
	switch {
	case err == nil:
		o.count(req.Method, statusClass(resp.StatusCode))
		o.breaker.Observe(!unavailable(resp.StatusCode))
	case errors.Is(err, context.Canceled):
		// The operator gave up (it stops, or the spoke is disengaged), not the spoke.
		o.count(req.Method, "canceled")
	default:
		o.count(req.Method, "error")
		o.breaker.Observe(false)
	}
	return resp, err
}

// WrappedRoundTripper lets client-go find the transport beneath.
func (o *observer) WrappedRoundTripper() http.RoundTripper { return o.next }

// unavailable tells of an answer that a proxy gives in place of an API server that
// does not.
func unavailable(code int) bool {
	return code == http.StatusBadGateway || code == http.StatusServiceUnavailable || code == http.StatusGatewayTimeout
}

// statusClass keeps the cardinality of the metric bounded whatever a spoke answers.
func statusClass(code int) string {
	switch code {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusConflict,
		http.StatusUnprocessableEntity, http.StatusTooManyRequests:
		return http.StatusText(code)
	}
	switch code / 100 {
	case 2:
		return "2xx"
	case 3:
		return "3xx"
	case 4:
		return "4xx"
	default:
		return "5xx"
	}
}
