package spoke

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/rulefleet/rulefleet/pkg/metrics"
	"github.com/rulefleet/rulefleet/pkg/spoke/queue"
)

// probeKey marks a context whose requests are probes, which pass an open circuit.
type probeKey struct{}

// asProbe marks the requests of a context as probes. The prober counts their outcome.
func asProbe(ctx context.Context) context.Context { return context.WithValue(ctx, probeKey{}, true) }

// informerKey marks a context whose requests are those of an informer, which wait while the circuit is shut.
type informerKey struct{}

// asInformer marks the requests of a ListerWatcher as those of an informer.
func asInformer(lw toolscache.ListerWatcher) toolscache.ListerWatcherWithContext {
	inner := toolscache.ToListerWatcherWithContext(lw)
	mark := func(ctx context.Context) context.Context { return context.WithValue(ctx, informerKey{}, true) }
	return &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return inner.ListWithContext(mark(ctx), options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return inner.WatchWithContext(mark(ctx), options)
		},
	}
}

// observer is a transport that reports every request to a breaker and a counter, and sends only probes while
// the circuit is shut.
type observer struct {
	next    http.RoundTripper
	breaker *breaker
	// gate holds writes while the identity is in doubt; it may be nil. apart means that its writes use other connections.
	gate  *gate
	apart bool
	// base is the path prefix of the API server.
	base  string
	count func(verb, code string)
	// authority is the credential, which is redacted; it may be nil.
	authority *authority
	// limits bound the answers. tooLarge is called for an answer above them; it may be nil.
	limits   Limits
	together *together
	account  *account
	paces    *paces
	tooLarge func(*TooLargeError)
	// clock is what is known of the spoke's clock; it may be nil.
	clock *Clock
}

// RoundTrip implements http.RoundTripper.
func (o *observer) RoundTrip(req *http.Request) (*http.Response, error) {
	probe, aside := req.Context().Value(probeKey{}) != nil, req.Context().Value(asideKey{}) != nil
	if !probe {
		if err := o.breaker.pass(req.Context()); err != nil {
			if req.Body != nil {
				_ = req.Body.Close() // as RoundTripper requires
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
	asked := time.Now()
	resp, began, err := o.gate.send(req, metered{next: paced{o.next}, limits: o.limits, together: o.together, account: o.account, paces: o.paces, caller: req.Context(), tell: o.tooLarge}, aside, o.apart)
	if !probe { // a read of the identity has the context of the write that waits for it
		queue.Ended(req.Context(), began, resp, err)
	}
	switch {
	case err == nil:
		o.count(verb, metrics.Code(resp.StatusCode))
		if !aside {
			o.answered(resp, asked, probe)
		}
		redact(resp, o.authority.secrets())
	case errors.Is(err, context.Canceled):
		// The operator canceled the request because it stops or disengages the spoke.
		o.count(verb, metrics.CodeCanceled)
	case errors.As(err, new(*unsentError)):
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

// paced is a transport whose answers may have a minimum speed.
type paced struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b paced) RoundTrip(req *http.Request) (*http.Response, error) {
	if a, ok := req.Context().Value(inflowKey{}).(*inflow); ok {
		return a.send(b.next, req)
	}
	return unswitched(b.next.RoundTrip(req))
}

// errSwitched says that a server answers with another protocol, for which nobody asked.
var errSwitched = errors.New("the answer is 101 (Switching Protocols), and Rulefleet did not ask for another protocol; check which server answers")

// unswitched refuses an answer that would hand over the connection: the context of the request no longer ends the
// reading of its body.
func unswitched(resp *http.Response, err error) (*http.Response, error) {
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		return resp, err //nolint:wrapcheck // a transport is transparent
	}
	_ = resp.Body.Close()
	return nil, errSwitched
}

// answered reports an answer to the circuit.
func (o *observer) answered(resp *http.Response, asked time.Time, probe bool) {
	if resp.StatusCode == http.StatusTooManyRequests {
		o.breaker.Throttle(retryAfter(resp.Header, time.Now()))
	}
	// client-go would wait and retry up to ten times within the request, which blocks a worker. The circuit
	// waits instead, for all requests.
	resp.Header.Del("Retry-After")
	switch code := resp.StatusCode; {
	case probe:
		if o.clock != nil && code == http.StatusOK {
			o.clock.Saw(resp.Header, asked, time.Now())
		}
	case unavailable(code):
		o.breaker.Observe(false)
	case code == http.StatusTooManyRequests, code == http.StatusUnauthorized, code >= http.StatusInternalServerError:
		// These answers do not show whether the spoke works: an admission webhook may fail with a 500, and so may
		// a whole API server. The probe distinguishes the two.
	default:
		o.breaker.Observe(true)
	}
}

// WrappedRoundTripper lets client-go find the inner transport.
func (o *observer) WrappedRoundTripper() http.RoundTripper { return o.next }

// retryAfter parses Retry-After: seconds or, from some proxies, a date. It returns 0 if there is none.
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

// unavailable reports whether a proxy answers because the API server does not.
func unavailable(code int) bool {
	return code == http.StatusBadGateway || code == http.StatusServiceUnavailable || code == http.StatusGatewayTimeout
}

// basePath returns the path of a server's address, which is that of a proxy in front of it.
func basePath(server string) string {
	u, err := url.Parse(server)
	if err != nil {
		return "" // no connection is possible then
	}
	return u.Path
}
