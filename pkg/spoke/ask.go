package spoke

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// beginTimeout is within what time an evaluator has to begin its answer, which it does when it has all
// of it. How long the rest takes is up to the link.
const beginTimeout = 10 * time.Second

// asideKey marks a context whose requests are to somebody behind the spoke's API server.
type asideKey struct{}

// aside marks the requests made with a context as ones that somebody behind the API server
// answers, such as a Prometheus. They wait for a circuit that is open as all others do, and
// say nothing about the spoke.
func aside(ctx context.Context) context.Context { return context.WithValue(ctx, asideKey{}, true) }

// asker sends all requests aside. Their answers may be large: they are bounded by how fast they come.
type asker struct {
	next http.RoundTripper
	// link counts what is received.
	link *atomic.Int64
}

// WrappedRoundTripper lets client-go find the transport beneath.
func (a asker) WrappedRoundTripper() http.RoundTripper { return a.next }

// RoundTrip implements http.RoundTripper.
func (a asker) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := context.WithValue(aside(req.Context()), inflowKey{}, &inflow{window: stallWindow, link: a.link, begins: beginTimeout})
	return a.next.RoundTrip(req.WithContext(ctx)) //nolint:wrapcheck // a transport is transparent
}

// newAsker returns a client for what is behind the spoke's API server. As the client for that
// itself, it follows no redirect. link counts what the connections to the spoke have received.
func newAsker(c *http.Client, link *atomic.Int64) *http.Client {
	return &http.Client{Transport: asker{next: c.Transport, link: link}, CheckRedirect: c.CheckRedirect}
}

// ProxyURL returns where the API server passes requests on to a Service. base is everything
// before /api of its own, and service is scheme:name:port.
func proxyURL(base *url.URL, namespace, service, prefix string) *url.URL {
	return base.JoinPath("api", "v1", "namespaces", namespace, "services", service, "proxy", prefix)
}

// Asker returns a client to ask an evaluator of a spoke with, and everything before /api/v1
// in its address. ref is the reference to it in the spoke's spec, if there is one. The error
// says what to change.
func (s *Spoke) Asker(e *v1alpha1.Evaluator, ref *v1alpha1.EvaluatorReference) (*http.Client, *url.URL, error) {
	if ref == nil || ref.URL == "" {
		if e.Service == "" {
			return nil, nil, &RefusedError{Field: "spec.evaluatorRefs", Message: e.Message}
		}
		return s.Behind, proxyURL(s.Server, e.Namespace, e.Service, e.RoutePrefix), nil
	}
	u, err := url.Parse(ref.URL)
	if err != nil || u.Host == "" || u.User != nil {
		return nil, nil, &RefusedError{Field: "spec.evaluatorRefs.url", Message: "is not a valid URL; write it like https://prometheus.example.com"}
	}
	const field = "spec.evaluatorRefs.url"
	if err := s.allow.checkHost(field, u.Hostname()); err != nil {
		return nil, nil, err
	}
	return &http.Client{Transport: s.allow.direct(field, u), CheckRedirect: noRedirect}, u, nil
}

func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// direct is a transport to a server that a person named. It keeps no connection: one request is
// sent every half a minute.
func (a Allowance) direct(field string, server *url.URL) http.RoundTripper {
	t := &http.Transport{DisableKeepAlives: true, TLSHandshakeTimeout: 10 * time.Second, ForceAttemptHTTP2: true}
	t.Proxy, t.DialContext = a.route(server, nil)
	if own, err := fromEnvironment(&http.Request{URL: server}); err != nil || own == nil {
		t.DialContext = a.dialer(field)
	}
	received := &atomic.Int64{}
	t.DialContext = counted(t.DialContext, received)
	return asker{next: paced{t}, link: received}
}

// serverOf returns the address of a spoke's API server.
func serverOf(cfg *rest.Config) (*url.URL, error) {
	u, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("parsing the server address: %w", err)
	}
	u.Path = strings.TrimSuffix(u.Path, "/")
	return u, nil
}
