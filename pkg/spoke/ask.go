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
	"github.com/rulefleet/rulefleet/pkg/spoke/kubeconfig"
)

// beginTimeout is the time within which an evaluator must begin its answer. It begins when the answer is
// complete, so the rest depends only on the link.
const beginTimeout = 10 * time.Second

// askWindow is how long the answer may then be slower than leastRate.
const askWindow = 8 * time.Second

// asideKey marks a context whose requests go to a server behind the spoke's API server.
type asideKey struct{}

// aside marks the requests of a context as answered by a server behind the API server, such as a Prometheus.
// An open circuit blocks them too, but their outcome does not count for the health of the spoke.
func aside(ctx context.Context) context.Context { return context.WithValue(ctx, asideKey{}, true) }

// asker is a transport that sends all requests aside. Large answers are allowed; only their speed is bounded.
type asker struct {
	next http.RoundTripper
	// link counts the bytes received.
	link *atomic.Int64
}

// WrappedRoundTripper lets client-go find the inner transport.
func (a asker) WrappedRoundTripper() http.RoundTripper { return a.next }

// RoundTrip implements http.RoundTripper.
func (a asker) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := context.WithValue(aside(req.Context()), inflowKey{}, &inflow{window: askWindow, link: a.link, begins: beginTimeout})
	return a.next.RoundTrip(req.WithContext(ctx)) //nolint:wrapcheck // a transport is transparent
}

// newAsker returns a client for servers behind the spoke's API server. It follows no redirects. link counts
// the bytes received from the spoke.
func newAsker(c *http.Client, link *atomic.Int64) *http.Client {
	return &http.Client{Transport: asker{next: c.Transport, link: link}, CheckRedirect: c.CheckRedirect}
}

// proxyURL returns the URL at which the API server proxies a Service. base is the part before /api, and
// service is scheme:name:port.
func proxyURL(base *url.URL, namespace, service, prefix string) *url.URL {
	return base.JoinPath("api", "v1", "namespaces", namespace, "services", service, "proxy", prefix)
}

// evaluatorURL is the field of a SpokeCluster with the address of an evaluator.
const evaluatorURL = "spec.evaluatorRefs.url"

// Asker returns a client for an evaluator of a spoke, and the part of its address before /api/v1. ref is the
// reference to the evaluator in the spoke's spec, or nil. The error says what to change.
func (s *Spoke) Asker(e *v1alpha1.Evaluator, ref *v1alpha1.EvaluatorReference) (*http.Client, *url.URL, error) {
	if ref == nil || ref.URL == "" {
		if e.Service == "" {
			return nil, nil, &kubeconfig.RefusedError{Message: e.Message}
		}
		return s.Behind, proxyURL(s.Server, e.Namespace, e.Service, e.RoutePrefix), nil
	}
	u, err := url.Parse(ref.URL)
	if err != nil || u.Host == "" || u.User != nil {
		return nil, nil, &kubeconfig.RefusedError{Field: evaluatorURL, Message: "is not a valid URL; write it like https://prometheus.example.com"}
	}
	proxy, dial, err := s.allow.Route(evaluatorURL, u)
	if err != nil {
		return nil, nil, err
	}
	return &http.Client{Transport: direct(proxy, dial), CheckRedirect: noRedirect}, u, nil
}

func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// direct is a transport to a server that the spec names. It keeps no connections, because it sends one request
// in 30 s.
func direct(proxy func(*http.Request) (*url.URL, error), dial dialFunc) http.RoundTripper {
	received := &atomic.Int64{}
	t := &http.Transport{
		Proxy: proxy, DialContext: counted(dial, received),
		DisableKeepAlives: true, TLSHandshakeTimeout: 10 * time.Second, ForceAttemptHTTP2: true, MaxResponseHeaderBytes: maxHeader,
	}
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
