package spoke

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/client/versioned"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/rulefleet/rulefleet/pkg/continuity"
	"github.com/rulefleet/rulefleet/pkg/spoke/kubeconfig"
)

// site is a cluster at an address that can lead to another one.
type site struct {
	uid    types.UID
	server *httptest.Server

	mu     sync.Mutex
	first  http.HandlerFunc // answers before the site does, unless it is nil
	reads  int              // of the identity
	writes []string
	conns  map[string]bool // that requests came by
}

func newSite(t *testing.T, uid string, http2 bool) *site {
	t.Helper()
	s := &site{uid: types.UID(uid), conns: map[string]bool{}}
	s.server = httptest.NewUnstartedServer(s)
	s.server.EnableHTTP2 = http2
	s.server.Config.ErrorLog = log.New(io.Discard, "", 0) // connections are cut here
	s.server.StartTLS()
	t.Cleanup(s.server.Close)
	t.Cleanup(s.server.CloseClientConnections)
	return s
}

// ServeHTTP implements http.Handler.
func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	first := s.first
	s.conns[r.RemoteAddr] = true
	switch {
	case r.URL.Path == pathSystem:
		s.reads++
	case r.Method != http.MethodGet:
		s.writes = append(s.writes, r.Method)
	}
	s.mu.Unlock()
	if first != nil {
		first(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	switch {
	case r.URL.Path == pathSystem:
		ns := NamespaceMetadata()
		ns.Name, ns.UID = metav1.NamespaceSystem, s.uid
		_ = json.NewEncoder(w).Encode(ns)
	case r.Method == http.MethodGet:
		_, _ = w.Write([]byte(`{"gitVersion":"v1.36.3"}`))
	default:
		_, _ = io.Copy(w, r.Body)
	}
}

// answerBy makes another function answer requests; nil restores the site.
func (s *site) answerBy(first http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.first = first
}

// delay answers the next read of the identity only when a channel is closed.
func (s *site) delay(until <-chan struct{}) {
	s.answerBy(func(w http.ResponseWriter, _ *http.Request) {
		s.answerBy(nil)
		<-until
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"metadata": map[string]any{"uid": s.uid}})
	})
}

// seen returns the number of reads of the identity and the writes since the last call, and the total number of
// connections.
func (s *site) seen() (reads int, writes []string, conns int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	reads, writes, conns = s.reads, s.writes, len(s.conns)
	s.reads, s.writes = 0, nil
	return reads, writes, conns
}

// junction is an address that leads to one site or another, per connection.
type junction struct {
	listener net.Listener

	mu    sync.Mutex
	to    func() *site
	conns []net.Conn
}

func newJunction(t *testing.T, to *site) *junction {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	j := &junction{listener: l, to: func() *site { return to }}
	t.Cleanup(j.cut)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			j.mu.Lock()
			up, err := (&net.Dialer{}).Dial("tcp", j.to().server.Listener.Addr().String())
			if err == nil {
				j.conns = append(j.conns, conn, up)
				go func() { _, _ = io.Copy(up, conn); _ = up.Close() }()
				go func() { _, _ = io.Copy(conn, up); _ = conn.Close() }()
			}
			j.mu.Unlock()
		}
	}()
	return j
}

// lead has new connections lead to a site.
func (j *junction) lead(to *site) { j.by(func() *site { return to }) }

// by has a function say where a new connection leads.
func (j *junction) by(to func() *site) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.to = to
}

// cut ends all connections.
func (j *junction) cut() {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, conn := range j.conns {
		_ = conn.Close()
	}
	j.conns = nil
}

// crossing is a connection to a junction, which leads to the first of two sites.
type crossing struct {
	*connection
	*junction

	here, there *site
	rules       monitoring.Interface
}

func newCrossing(t *testing.T, http2 bool) *crossing {
	t.Helper()
	x := &crossing{here: newSite(t, "here", http2), there: newSite(t, "there", http2)}
	x.junction = newJunction(t, x.here)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: x.here.server.Certificate().Raw})
	cluster := "server: 'https://" + x.listener.Addr().String() + "', certificate-authority-data: " + b64(string(ca))
	cfg, err := kubeconfig.RESTConfig([]byte(kubeconfigText(cluster, goodUser)), kubeconfig.Allowance{Loopback: true})
	if err != nil {
		t.Fatal(err)
	}
	if x.connection, err = NewProvider(Options{}).newConnection("s", cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(x.hangUp)
	t.Cleanup(x.breaker.Stop)
	if x.rules, err = monitoring.NewForConfigAndClient(x.cfg, x.http); err != nil {
		t.Fatal(err)
	}
	if err := x.isStill(t.Context(), "here"); err != nil {
		t.Fatal(err)
	}
	x.here.seen()
	return x
}

func (x *crossing) hangUp() { x.connection.conns.CloseAll() }

// write sends a write, by a worker's deadline.
func (x *crossing) write(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	_, err := x.rules.MonitoringV1().PrometheusRules("shop").Create(ctx, &monitoringv1.PrometheusRule{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, metav1.CreateOptions{})
	return err
}

func (x *crossing) get(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	_, err := x.probes.Get().AbsPath("/version").MaxRetries(0).Do(asProbe(ctx)).Raw()
	return err
}

// lose cuts all connections.
func (x *crossing) lose(t *testing.T) {
	t.Helper()
	x.noticed(t, x.cut)
}

// noticed waits until the lost connection was detected: a write sent before that is lost with it.
func (x *crossing) noticed(t *testing.T, lose func()) {
	t.Helper()
	reasons := func() uint64 {
		x.gate.mu.Lock()
		defer x.gate.mu.Unlock()
		return x.gate.doubts
	}
	before := reasons()
	lose()
	err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, 5*time.Second, true, func(context.Context) (bool, error) { return reasons() > before, nil })
	if err != nil {
		t.Fatalf("nobody noticed: %v", err)
	}
}

// protocols are those that a spoke may speak: whether it is HTTP/2.
var protocols = map[string]bool{"HTTP2": true, "HTTP1": false}

// A write costs no other request while no connection is lost.
func TestGateCostsNothing(t *testing.T) {
	for protocol, http2 := range protocols {
		t.Run(protocol, func(t *testing.T) {
			x := newCrossing(t, http2)
			for range 5 {
				if err := errors.Join(x.write(t.Context()), x.get(t.Context()), x.gate.Settle(t.Context())); err != nil {
					t.Fatal(err)
				}
			}
			reads, writes, conns := x.here.seen()
			if reads != 0 || len(writes) != 5 || conns != 1 {
				t.Errorf("the identity was read %d times, and %d times written, over %d connections", reads, len(writes), conns)
			}
		})
	}
}

// After a connection was lost, the identity is read once for all waiting writes.
func TestGateReadsOnce(t *testing.T) {
	x := newCrossing(t, true)
	x.lose(t)
	release := make(chan struct{})
	x.here.delay(release)
	var g sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		g.Go(func() { errs[i] = x.write(t.Context()) })
	}
	time.AfterFunc(300*time.Millisecond, func() { close(release) })
	g.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if reads, writes, _ := x.here.seen(); reads != 1 || len(writes) != 8 {
		t.Errorf("the identity was read %d times for %d writes", reads, len(writes))
	}
	if err := x.write(t.Context()); err != nil {
		t.Fatal(err)
	}
	if reads, _, _ := x.here.seen(); reads != 0 {
		t.Errorf("then it was read %d times more", reads)
	}
}

// Another cluster answers at the same address: it gets no write, and the circuit opens.
func TestGateRefusesAnotherCluster(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, x *crossing){
		"all connections are cut": func(t *testing.T, x *crossing) { t.Helper(); x.lead(x.there); x.lose(t) },
		"the first read over the new one was no write": func(t *testing.T, x *crossing) {
			t.Helper()
			x.lead(x.there)
			x.lose(t)
			if err := x.get(t.Context()); err != nil {
				t.Fatal(err)
			}
		},
		// Over HTTP/2 with GOAWAY: requests in flight continue, and new ones dial.
		"the server shuts down in good order": func(t *testing.T, x *crossing) {
			t.Helper()
			begun, hang := make(chan struct{}), make(chan struct{})
			x.here.answerBy(func(http.ResponseWriter, *http.Request) { close(begun); <-hang })
			var watch sync.WaitGroup
			watch.Go(func() { _ = x.get(t.Context()) })
			t.Cleanup(watch.Wait)
			t.Cleanup(func() { close(hang) })
			<-begun
			x.here.answerBy(nil)
			x.lead(x.there)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second) // the client has the GOAWAY by then
			defer cancel()
			_ = x.here.server.Config.Shutdown(ctx)
		},
		"behind a proxy that says so": func(t *testing.T, x *crossing) {
			t.Helper()
			x.here.answerBy(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
			_ = x.get(t.Context())
			x.swap()
		},
		"behind a proxy that resets a stream": func(t *testing.T, x *crossing) {
			t.Helper()
			x.here.answerBy(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
			_ = x.get(t.Context())
			x.swap()
		},
		"behind a proxy that breaks off an answer": func(t *testing.T, x *crossing) {
			t.Helper()
			x.here.answerBy(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = w.Write([]byte("{"))
				_ = http.NewResponseController(w).Flush()
				panic(http.ErrAbortHandler)
			})
			if x.get(t.Context()) == nil {
				t.Error("the answer did not break off")
			}
			x.swap()
		},
	} {
		t.Run(name, func(t *testing.T) {
			for protocol, http2 := range protocols {
				t.Run(protocol, func(t *testing.T) {
					x := newCrossing(t, http2)
					change(t, x)
					err := x.write(t.Context())
					is, ok := errors.AsType[*IdentityError](err)
					if !ok || is.Was != "here" || is.Is != "there" || !strings.Contains(err.Error(), "not sent: ") {
						t.Errorf("got %v", err)
					}
					if !x.breaker.Open() {
						t.Error("the circuit is closed")
					}
					select {
					case <-x.kick:
					default:
						t.Error("the connection does not look")
					}
					if err := x.write(t.Context()); !errors.Is(err, errBlocked) {
						t.Errorf("the next write: %v", err)
					}
					for _, s := range []*site{x.here, x.there} {
						if _, writes, _ := s.seen(); len(writes) > 0 {
							t.Errorf("%s got %v", s.uid, writes)
						}
					}
				})
			}
		})
	}
}

// swap makes the first site answer as the other one over the same connections.
func (x *crossing) swap() {
	x.here.answerBy(func(w http.ResponseWriter, r *http.Request) { x.there.ServeHTTP(w, r) })
}

// A connection that is dialed while others are alive is not trusted either.
func TestGateKnowsConnectionsApart(t *testing.T) {
	x := newCrossing(t, true)
	x.lead(x.there)
	l, _ := lineOf(dialed(t, x))
	if x.gate.knows(l) || x.gate.inDoubt() {
		t.Error("a connection that is not used yet is a reason to doubt, or is trusted")
	}
	x.gate.use(l, handlingOf(t.Context(), x.gate))
	if x.gate.knows(l) || !x.gate.inDoubt() {
		t.Error("what was just dialed is trusted")
	}
	if err := x.gate.Settle(t.Context()); err != nil { // by the former connection
		t.Fatal(err)
	}
	if x.gate.knows(l) || x.gate.inDoubt() {
		t.Error("the identity was read over another connection")
	}
	if err := x.gate.hold(t.Context(), l, false); err != nil {
		t.Errorf("over HTTP/1.1, that has to do: %v", err)
	}
}

func dialed(t *testing.T, x *crossing) net.Conn {
	t.Helper()
	conn, err := x.cfg.Dial(t.Context(), "tcp", x.listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// A proxy that closes every connection after its answer works as well.
func TestGateWithoutKeepAlive(t *testing.T) {
	x := newCrossing(t, false)
	x.noticed(t, func() { x.here.server.Config.SetKeepAlivesEnabled(false) })
	for range 3 {
		if err := x.write(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	x.lead(x.there)
	if err := x.write(t.Context()); !isIdentity(err) {
		t.Errorf("got %v", err)
	}
	if _, writes, _ := x.there.seen(); len(writes) > 0 {
		t.Errorf("it got %v", writes)
	}
}

// The answer to the read of the identity is not taken for the answer to the write: a 404 would mean that the
// object is gone.
func TestGateHidesAnswers(t *testing.T) {
	for name, tc := range map[string]struct {
		code  int
		words string
	}{
		"forbidden": {code: 403, words: "kube-system"},
		"not found": {code: 404, words: "kube-system"},
		"an error":  {code: 500, words: "kube-system"},
	} {
		t.Run(name, func(t *testing.T) {
			for protocol, http2 := range protocols {
				t.Run(protocol, func(t *testing.T) {
					x := newCrossing(t, http2)
					x.here.answerBy(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(tc.code) })
					x.lose(t)
					err := x.write(t.Context())
					var status apierrors.APIStatus
					if err == nil || errors.As(err, &status) {
						t.Fatalf("got %v", err)
					}
					if !strings.Contains(err.Error(), "not sent: ") || !strings.Contains(err.Error(), tc.words) {
						t.Errorf("got %q", err)
					}
					if x.breaker.Open() {
						t.Error("the circuit opened")
					}
					x.here.answerBy(nil)
					if err := x.write(t.Context()); err != nil {
						t.Error(err)
					}
					if _, writes, _ := x.here.seen(); !slices.Equal(writes, []string{"POST"}) {
						t.Errorf("written: %v", writes)
					}
				})
			}
		})
	}
}

// A request that the caller gives up is no reason for doubt. One that gets no answer in time is, although its
// connection stays in use, unless something behind the API server has to answer it.
func TestGateAfterATimeout(t *testing.T) {
	for name, tc := range map[string]struct {
		end   func(context.Context) (context.Context, context.CancelFunc)
		reads int
	}{
		"timeout": {end: func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, time.Second)
		}, reads: 1},
		"stalled": {end: func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancelCause(ctx)
			timer := time.AfterFunc(time.Second, func() { cancel(errors.New("stalled")) })
			return ctx, func() { timer.Stop(); cancel(nil) }
		}, reads: 1},
		"given up": {end: func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			timer := time.AfterFunc(time.Second, cancel)
			return ctx, func() { timer.Stop(); cancel() }
		}},
		"behind the API server": {end: func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(aside(ctx), time.Second)
		}},
	} {
		for when, begins := range map[string]bool{"no answer": false, "no end": true} {
			t.Run(name+"/"+when, func(t *testing.T) {
				x := newCrossing(t, true)
				x.here.answerBy(func(w http.ResponseWriter, r *http.Request) {
					if begins {
						_, _ = w.Write([]byte("{"))
						_ = http.NewResponseController(w).Flush()
					}
					<-r.Context().Done()
				})
				ctx, cancel := tc.end(t.Context())
				defer cancel()
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, x.cfg.Host+"/hangs", http.NoBody)
				if err != nil {
					t.Fatal(err)
				}
				resp, err := x.http.Do(req)
				if err == nil {
					_, err = io.ReadAll(resp.Body)
					_ = resp.Body.Close()
				}
				if err == nil {
					t.Fatal("it was answered")
				}
				x.here.answerBy(nil)
				x.here.seen()
				if err := x.write(t.Context()); err != nil {
					t.Fatal(err)
				}
				if reads, writes, conns := x.here.seen(); reads != tc.reads || len(writes) != 1 || conns != 1 {
					t.Errorf("the identity was read %d times, and %d times written, over %d connections", reads, len(writes), conns)
				}
			})
		}
	}
}

// A write never waits longer than its own context lasts.
func TestGateIsBounded(t *testing.T) {
	for protocol, http2 := range protocols {
		t.Run(protocol, func(t *testing.T) {
			x := newCrossing(t, http2)
			hang := make(chan struct{})
			t.Cleanup(func() { close(hang) })
			x.here.answerBy(func(http.ResponseWriter, *http.Request) { <-hang })
			x.lose(t)
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			begin := time.Now()
			if err := x.write(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v", err)
			}
			if took := time.Since(begin); took > 3*time.Second {
				t.Errorf("it took %v", took)
			}
			if _, writes, _ := x.here.seen(); len(writes) > 0 {
				t.Errorf("written: %v", writes)
			}
		})
	}
}

// On a slow link, the read of the identity waits while data arrive, like all single reads.
func TestGateIsPatient(t *testing.T) {
	x := newCrossing(t, true)
	var page *inflow
	outer := x.http.Transport
	o, ok := outer.(*observer)
	for !ok {
		outer = outer.(utilnet.RoundTripperWrapper).WrappedRoundTripper()
		o, ok = outer.(*observer)
	}
	next := o.next
	o.next = roundTrip(func(req *http.Request) (*http.Response, error) {
		page, _ = req.Context().Value(inflowKey{}).(*inflow)
		if until, ok := req.Context().Deadline(); !ok || time.Until(until) < readTimeout-requestTimeout {
			t.Errorf("it may take until %v", until)
		}
		return next.RoundTrip(req)
	})
	if err := x.gate.Confirm(t.Context()); err != nil {
		t.Error(err)
	}
	if page == nil || !page.single || page.window != requestTimeout {
		t.Errorf("it is bounded by %+v", page)
	}
}

// Nothing is written before the cluster was identified. Reviews are not writes.
func TestGateBeforeTheFirstSession(t *testing.T) {
	x := newCrossing(t, true)
	x.gate.serve("")
	if err := x.write(t.Context()); !errors.Is(err, errUnserved) {
		t.Errorf("got %v", err)
	}
	if x.breaker.Open() {
		t.Error("the circuit opened")
	}
	x.here.seen()
	_, _ = x.review(t.Context(), nil) // which this server does not know
	if reads, sent, _ := x.here.seen(); reads > 0 || !slices.Equal(sent, []string{"POST"}) {
		t.Errorf("a review waits for the identity: it was read %d times, and sent were %v", reads, sent)
	}
}

// After a connection was lost, a probe reads the identity, although nothing is written.
func TestCheckupAfterALoss(t *testing.T) {
	x := newCrossing(t, true)
	cl, err := x.cluster(continuity.NewGuard(nil, nil))
	if err != nil {
		t.Fatal(err)
	}
	s := &session{cluster: cl, identity: "here"}
	for range 2 {
		x.lose(t)
		for n, want := range []int{1, 0, 0} {
			if err := x.checkup(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			if reads, _, _ := x.here.seen(); reads != want {
				t.Errorf("probe %d reads the identity %d times", n, reads)
			}
		}
	}
	x.lead(x.there)
	x.lose(t)
	if err := x.checkup(t.Context(), s); !isIdentity(err) {
		t.Errorf("got %v", err)
	}
}

// A connection to another cluster is not used again: the address may lead to the former cluster since.
func TestAddressLeadsBack(t *testing.T) {
	for name, http2 := range protocols {
		t.Run(name, func(t *testing.T) {
			x := newCrossing(t, http2)
			x.p.Known("s", "here")
			x.lead(x.there)
			x.lose(t)
			_, err := x.open(t.Context())
			if !isIdentity(err) {
				t.Fatalf("got %v", err)
			}
			x.lead(x.here)
			x.p.opts.Intervals = 0.1
			x.failed(t.Context(), err, x.backoff())
			if err := x.identify(t.Context(), "here"); err != nil {
				t.Error(err)
			}
		})
	}
}

// The same holds for the connection of probes, which the other cluster refuses.
func TestAddressOfProbesLeadsBack(t *testing.T) {
	x := newCrossing(t, false)
	x.lead(x.there)
	x.there.answerBy(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
	err := x.probe(t.Context())
	if err == nil {
		t.Fatal("the other cluster does not refuse probes")
	}
	x.lead(x.here)
	x.p.opts.Intervals = 0.1
	x.failed(t.Context(), err, x.backoff())
	if err := x.probe(t.Context()); err != nil {
		t.Error(err)
	}
}

// handlingOf returns the handling of a read.
func handlingOf(ctx context.Context, g *gate) *handling {
	return &handling{gate: g, req: httptest.NewRequestWithContext(ctx, http.MethodGet, "/version", http.NoBody)}
}

// A connection that was used and is lost is a reason for doubt. That of probes is one only if a probe is not answered. A
// request whose connection is lost before an answer has failed.
func TestGateOfLostConnections(t *testing.T) {
	for name, tc := range map[string]struct{ used, writes, apart, answered, ended, closed, want, failed bool }{
		"used":                         {used: true, answered: true, want: true},
		"not used":                     {},
		"without an answer":            {used: true, want: true, failed: true},
		"of a request that was ended":  {used: true, ended: true, want: true},
		"closed by the client":         {used: true, closed: true, want: true},
		"of a write that is held":      {used: true, writes: true, want: true},
		"of a probe that was answered": {used: true, apart: true, answered: true},
		"of a probe without an answer": {used: true, apart: true, want: true, failed: true},
		"of a probe that was ended":    {used: true, apart: true, ended: true},
	} {
		t.Run(name, func(t *testing.T) {
			x := newCrossing(t, false)
			l := &line{gate: x.gate}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			h := handlingOf(ctx, x.gate)
			h.apart = tc.apart
			if tc.writes {
				h.req.Method = http.MethodPost
			}
			h.line.Store(l)
			if tc.used {
				x.gate.use(l, h)
			}
			if tc.answered {
				h.begins()
			}
			if tc.ended {
				cancel()
			}
			if err := x.gate.Settle(t.Context()); err != nil {
				t.Fatal(err)
			}
			before := x.gate.failed()
			x.gate.lose(l, tc.closed)
			if is := x.gate.inDoubt(); is != tc.want {
				t.Errorf("the identity is in doubt: %v", is)
			}
			if failed := x.gate.failed() != before; failed != tc.failed {
				t.Errorf("a request failed: %v", failed)
			}
		})
	}
}

// The HTTP client repeats a probe whose connection is lost before an answer, over a new connection. Before and after that
// is answered, the identity is read before the next write.
func TestGateOfARepeatedProbe(t *testing.T) {
	for name, answers := range map[string]bool{"not answered": false, "answered": true} {
		t.Run(name, func(t *testing.T) {
			x := newCrossing(t, true)
			if err := errors.Join(x.probe(t.Context()), x.write(t.Context())); err != nil {
				t.Fatal(err)
			}
			x.here.seen()
			again, release := make(chan struct{}), make(chan struct{})
			answer := sync.OnceFunc(func() { close(release) })
			defer answer()
			x.here.answerBy(func(http.ResponseWriter, *http.Request) {
				x.here.answerBy(func(w http.ResponseWriter, r *http.Request) {
					x.here.answerBy(nil)
					close(again)
					<-release
					x.here.ServeHTTP(w, r)
				})
				panic(http.ErrAbortHandler)
			})
			probed := make(chan error, 1)
			go func() { probed <- x.probe(t.Context()) }()
			<-again
			if answers {
				answer()
				if err := <-probed; err != nil {
					t.Fatal(err)
				}
			}
			if err := x.write(t.Context()); err != nil {
				t.Fatal(err)
			}
			if reads, _, _ := x.here.seen(); reads != 1 {
				t.Errorf("the identity was read %d times", reads)
			}
		})
	}
}

// A proxy refuses a stream of HTTP/2: the HTTP client repeats the request over the same connection.
func TestGateOfARefusedStream(t *testing.T) {
	x := newCrossing(t, true)
	l := &line{gate: x.gate}
	for attempts, want := range map[int]bool{1: false, 2: true} {
		x.gate.use(l, handlingOf(t.Context(), x.gate))
		if err := x.gate.Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
		next := roundTrip(func(req *http.Request) (*http.Response, error) {
			for range attempts {
				httptrace.ContextClientTrace(req.Context()).GotConn(httptrace.GotConnInfo{Conn: l})
			}
			return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
		})
		resp, _, err := x.gate.send(httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api", http.NoBody), next, false, false)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if is := x.gate.inDoubt(); is != want {
			t.Errorf("after %d attempts, the identity is in doubt: %v", attempts, is)
		}
	}
}

// A request fails while the identity is read for a write: what was read may be older than the failure.
func TestGateOfAFailureMeanwhile(t *testing.T) {
	for protocol, http2 := range protocols {
		t.Run(protocol, func(t *testing.T) {
			x := newCrossing(t, http2)
			x.lose(t)
			reads, release := make(chan struct{}), make(chan struct{})
			x.here.answerBy(func(w http.ResponseWriter, _ *http.Request) {
				x.here.answerBy(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
				close(reads)
				<-release
				_ = json.NewEncoder(w).Encode(map[string]any{"metadata": map[string]any{"uid": x.here.uid}})
			})
			outcome := make(chan error, 1)
			go func() { outcome <- x.write(t.Context()) }()
			<-reads
			if x.get(t.Context()) == nil {
				t.Error("no request failed")
			}
			x.swap()
			close(release)
			if err := <-outcome; !isIdentity(err) {
				t.Errorf("got %v", err)
			}
			if _, writes, _ := x.there.seen(); len(writes) > 0 {
				t.Errorf("it got %v", writes)
			}
		})
	}
}

// Confirm reads the identity even if there is no doubt.
func TestGateConfirm(t *testing.T) {
	x := newCrossing(t, true)
	if err := x.gate.Confirm(t.Context()); err != nil {
		t.Fatal(err)
	}
	if reads, _, _ := x.here.seen(); reads != 1 {
		t.Errorf("it was read %d times", reads)
	}
	x.swap()
	if err := x.gate.Confirm(t.Context()); !isIdentity(err) || !x.breaker.Open() {
		t.Errorf("got %v; the circuit is open: %v", err, x.breaker.Open())
	}
}

// Connections of writes are lost repeatedly, while the address leads to two clusters alternately.
func TestGateUnderChurn(t *testing.T) {
	for protocol, http2 := range protocols {
		t.Run(protocol, func(t *testing.T) {
			x := newCrossing(t, http2)
			done := make(chan struct{})
			var churn sync.WaitGroup
			churn.Go(func() {
				for n := 0; ; n++ {
					select {
					case <-done:
						return
					case <-time.After(20 * time.Millisecond):
					}
					x.lead([]*site{x.here, x.there}[n%2])
					x.cut()
				}
			})
			var workers sync.WaitGroup
			sent := make([]int, 4)
			for w := range sent {
				workers.Go(func() {
					for range 10 {
						ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
						if x.write(ctx) == nil {
							sent[w]++
						}
						cancel()
						x.breaker.Close() // as the probe does it
					}
				})
			}
			workers.Wait()
			close(done)
			churn.Wait()
			_, here, _ := x.here.seen()
			_, there, _ := x.there.seen()
			t.Logf("%v were answered; here: %d, there: %d", sent, len(here), len(there))
			if len(there) > 0 && http2 {
				t.Errorf("%d writes went to the other cluster", len(there))
			}
		})
	}
}
