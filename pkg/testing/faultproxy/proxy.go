// Package faultproxy is a proxy in front of a real API server that injects faults. Tests use it to make a
// cluster slow, broken or wrong in one respect, and to stop the operator between a request and its answer.
package faultproxy

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/rulefleet/rulefleet/pkg/testing/controlplane"
)

// Proxy is an HTTPS reverse proxy on a loopback address. Its methods are safe for
// concurrent use.
type Proxy struct {
	token  string
	server *httptest.Server
	link   *link

	mu       sync.Mutex
	upstream http.Handler
	fault    Fault
	points   []*point
	conns    map[net.Conn]bool
	count    int
	closed   bool
	// era ends, by end, with the watches that began in it.
	era context.Context
	end context.CancelFunc
}

// Start starts a proxy. Requests must have the token, and are forwarded with the kubeconfig.
func Start(kubeconfig []byte, token string) (*Proxy, error) {
	p := &Proxy{token: token, fault: Pass, conns: map[net.Conn]bool{}, link: newLink()}
	p.era, p.end = context.WithCancel(context.Background())
	if err := p.Exchange(kubeconfig); err != nil {
		return nil, err
	}
	p.server = httptest.NewUnstartedServer(p)
	p.server.Listener = &listener{Listener: p.server.Listener, link: p.link}
	p.server.EnableHTTP2 = true
	p.server.Config.ErrorLog = log.New(io.Discard, "", 0) // broken connections are its purpose
	p.server.Config.ConnContext = p.connected
	p.server.StartTLS()
	return p, nil
}

// Exchange makes the proxy forward new requests with another kubeconfig. Requests in flight are not affected;
// EndWatches and Sever end them.
func (p *Proxy) Exchange(kubeconfig []byte) error {
	cfg, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		return fmt.Errorf("reading the kubeconfig: %w", err)
	}
	transport, err := rest.TransportFor(cfg)
	if err != nil {
		return fmt.Errorf("creating the way upstream: %w", err)
	}
	target, err := url.Parse(cfg.Host)
	if err != nil {
		return fmt.Errorf("reading the address of the API server: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.upstream = p.reverse(target, transport)
	return nil
}

// reverse forwards requests and streams their answers.
func (p *Proxy) reverse(target *url.URL, transport http.RoundTripper) http.Handler {
	return &httputil.ReverseProxy{
		Transport:     transport,
		FlushInterval: -1,
		ErrorLog:      log.New(io.Discard, "", 0),
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Header.Del("Authorization")
		},
		ModifyResponse: func(resp *http.Response) error {
			if p.reached(resp.Request, true) {
				return nil
			}
			_ = resp.Body.Close()
			return http.ErrAbortHandler
		},
		// There is no answer: the client sees a reset stream.
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
}

// URL is the proxy's address.
func (p *Proxy) URL() string { return p.server.URL }

// Kubeconfig returns a kubeconfig that leads to the proxy, with its token.
func (p *Proxy) Kubeconfig() ([]byte, error) {
	const name = "proxy"
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.server.Certificate().Raw})
	server := &clientcmdapi.Cluster{Server: p.URL(), CertificateAuthorityData: ca}
	return controlplane.EncodeKubeconfig(name, server, name, &clientcmdapi.AuthInfo{Token: p.token})
}

// Set sets the fault of all new requests.
func (p *Proxy) Set(f Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = f
}

// EndWatches ends the present watches, so that the next ones meet the fault.
func (p *Proxy) EndWatches() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end()
	p.era, p.end = context.WithCancel(context.Background())
}

// Requests returns the number of requests.
func (p *Proxy) Requests() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count
}

// Sever resets all connections.
func (p *Proxy) Sever() {
	p.mu.Lock()
	conns := p.conns
	p.conns = map[net.Conn]bool{}
	p.mu.Unlock()
	for conn := range conns {
		reset(conn)
	}
}

// Close ends the proxy and all its connections.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true // otherwise a client that watches again would block the shutdown
	p.end()
	p.mu.Unlock()
	p.server.CloseClientConnections()
	p.server.Close()
}

// connKey is the context key of a request's connection.
type connKey struct{}

func (p *Proxy) connected(ctx context.Context, conn net.Conn) context.Context {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns[conn] = true
	return context.WithValue(ctx, connKey{}, conn)
}

// reset closes a connection by RST, which loses data in flight.
func reset(conn net.Conn) {
	if over, ok := conn.(*tls.Conn); ok {
		conn = over.NetConn()
	}
	if over, ok := conn.(*linked); ok {
		over.cancel()
		conn = over.Conn
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

// ServeHTTP implements http.Handler.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "Bearer "+p.token {
		answer(w, http.StatusUnauthorized, "Unauthorized", "Unauthorized")
		return
	}
	p.mu.Lock()
	p.count++
	fault, era, closed := p.fault, p.era, p.closed
	p.mu.Unlock()
	if closed {
		panic(http.ErrAbortHandler)
	}
	if isWatch(r) {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(era, cancel)()
		r = r.WithContext(ctx)
	}
	fault(w, r, http.HandlerFunc(p.forward))
}

// forward forwards a request, unless a point ends it here.
func (p *Proxy) forward(w http.ResponseWriter, r *http.Request) {
	if !p.reached(r, false) {
		panic(http.ErrAbortHandler)
	}
	p.mu.Lock()
	upstream := p.upstream
	p.mu.Unlock()
	upstream.ServeHTTP(w, r)
}

// Point is a moment in the processing of a request.
type Point struct {
	// Method is the HTTP method.
	Method string
	// Resource is the plural, with the subresource after a slash: alertrules/status.
	Resource string
	// After means the moment after the API server has answered and before the answer is passed on. Otherwise it
	// is the moment before the request is forwarded.
	After bool
	// Skip is the number of matching requests to let pass first.
	Skip int
}

// point is a Point with its function.
type point struct {
	Point
	do   func() bool
	done chan struct{}
}

// At calls a function once, when a request first reaches a point. The function returns whether the request or
// its answer is passed on; otherwise the client's stream ends. The channel is closed when the function has
// returned.
func (p *Proxy) At(at Point, do func() (goOn bool)) <-chan struct{} {
	added := &point{Point: at, do: do, done: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.points = append(p.points, added)
	return added.done
}

// Forget removes the points that were not reached yet.
func (p *Proxy) Forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.points = nil
}

// reached calls the function of this point, if any, and reports whether to continue.
func (p *Proxy) reached(r *http.Request, after bool) bool {
	p.mu.Lock()
	var at *point
	for i, candidate := range p.points {
		if candidate.After != after || candidate.Method != r.Method || candidate.Resource != parse(r.URL.Path).resource {
			continue
		}
		if candidate.Skip > 0 {
			candidate.Skip--
			continue
		}
		at = candidate
		p.points = slices.Delete(p.points, i, i+1)
		break
	}
	p.mu.Unlock()
	if at == nil {
		return true
	}
	defer close(at.done)
	return at.do()
}

// Hold waits, or returns an error when the client gives up.
func Hold(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
