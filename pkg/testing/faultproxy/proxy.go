// Package faultproxy stands in front of a real API server and misbehaves as it is told
// to: it is how tests make a cluster slow, broken or lying while all that it says else
// is true, and how they stop the operator between a request and its answer.
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

// Start starts a proxy. Requests have to bear the token; they go to where the
// kubeconfig says, as its user.
func Start(kubeconfig []byte, token string) (*Proxy, error) {
	p := &Proxy{token: token, fault: Pass, conns: map[net.Conn]bool{}, link: newLink()}
	p.era, p.end = context.WithCancel(context.Background())
	if err := p.Exchange(kubeconfig); err != nil {
		return nil, err
	}
	p.server = httptest.NewUnstartedServer(p)
	p.server.Listener = &listener{Listener: p.server.Listener, link: p.link}
	p.server.EnableHTTP2 = true
	p.server.Config.ErrorLog = log.New(io.Discard, "", 0) // connections that break are what it is for
	p.server.Config.ConnContext = p.connected
	p.server.StartTLS()
	return p, nil
}

// Exchange has every request from now on go to where another kubeconfig says, as its user. What is
// under way stays where it is: EndWatches and Sever end it.
func (p *Proxy) Exchange(kubeconfig []byte) error {
	cfg, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		return fmt.Errorf("reading the kubeconfig: %w", err)
	}
	transport, err := rest.TransportFor(cfg)
	if err != nil {
		return fmt.Errorf("making the way upstream: %w", err)
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

// reverse forwards requests and what comes back, as it comes.
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
		// There is no answer: the client sees that its stream was reset.
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
}

// URL is the proxy's address.
func (p *Proxy) URL() string { return p.server.URL }

// Kubeconfig returns a kubeconfig that leads to the proxy, with its token.
func (p *Proxy) Kubeconfig() ([]byte, error) {
	const name = "proxy"
	cfg := clientcmdapi.NewConfig()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.server.Certificate().Raw})
	cfg.Clusters[name] = &clientcmdapi.Cluster{Server: p.URL(), CertificateAuthorityData: ca}
	cfg.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: p.token}
	cfg.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	cfg.CurrentContext = name
	out, err := clientcmd.Write(*cfg)
	if err != nil {
		return nil, fmt.Errorf("writing the kubeconfig of a proxy: %w", err)
	}
	return out, nil
}

// Set makes every request from now on meet a fault.
func (p *Proxy) Set(f Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = f
}

// EndWatches ends the watches that there are, so that those that follow meet the fault.
func (p *Proxy) EndWatches() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end()
	p.era, p.end = context.WithCancel(context.Background())
}

// Requests returns how many requests there were.
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
	p.closed = true // or a client that watches again would keep the server
	p.end()
	p.mu.Unlock()
	p.server.CloseClientConnections()
	p.server.Close()
}

// connKey is where a request's context has its connection.
type connKey struct{}

func (p *Proxy) connected(ctx context.Context, conn net.Conn) context.Context {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns[conn] = true
	return context.WithValue(ctx, connKey{}, conn)
}

// reset closes a connection by RST: what is under way on it is lost.
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

// forward sends a request on, unless a point has it end here.
func (p *Proxy) forward(w http.ResponseWriter, r *http.Request) {
	if !p.reached(r, false) {
		panic(http.ErrAbortHandler)
	}
	p.mu.Lock()
	upstream := p.upstream
	p.mu.Unlock()
	upstream.ServeHTTP(w, r)
}

// Point is a moment in the life of a request.
type Point struct {
	// Method is the HTTP method.
	Method string
	// Resource is the plural, and with a slash the subresource: alertrules/status.
	Resource string
	// After is the moment when the API server has answered, and the answer was not passed
	// on yet. Else it is the moment before the request is forwarded.
	After bool
	// Skip is how many requests of that kind to let pass before.
	Skip int
}

// point is a Point with what to do there.
type point struct {
	Point
	do   func() bool
	done chan struct{}
}

// At calls a function when a request first comes to a point, and once. It tells
// whether the request, or its answer, goes on from there; otherwise the client sees its
// stream end. The channel is closed when the function has returned.
func (p *Proxy) At(at Point, do func() (goOn bool)) <-chan struct{} {
	added := &point{Point: at, do: do, done: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.points = append(p.points, added)
	return added.done
}

// Forget takes back what At was told and was not reached yet.
func (p *Proxy) Forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.points = nil
}

// reached calls what is to be called at this point, and tells whether to go on.
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

// hold waits for a while, or until the client gives up, which it tells.
func hold(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
