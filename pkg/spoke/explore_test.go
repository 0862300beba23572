// Schedules can be repeated: see exploreSpoke.
//go:debug randseednop=0

package spoke

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	cryptorand "crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"math/big"
	"math/rand" //nolint:depguard // client-go's jitter uses its global source
	"net"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/rulefleet/rulefleet/pkg/testing/explore"
)

// In a bubble, whose clock begins in the year 2000, an informer's errors would wait for those outside.
func init() {
	outside := utilruntime.ErrorHandlers
	utilruntime.ErrorHandlers = []utilruntime.ErrorHandler{ //nolint:reassign // before any informer reads it
		func(ctx context.Context, err error, msg string, keysAndValues ...any) {
			if time.Now().Year() < 2020 {
				return
			}
			for _, handle := range outside {
				handle(ctx, err, msg, keysAndValues...)
			}
		},
	}
}

// exploration is a Provider with a spoke whose address breaks, and leads to another cluster, at random.
type exploration struct {
	*explore.Script

	p *Provider
	c *connection
	// here is the cluster that is served. there is another one.
	here, there *standIn
	// http2 reports whether the address speaks HTTP/2. If it is proxied, each request leads to the present cluster;
	// otherwise, a connection leads to one cluster until it is lost.
	http2, proxied bool
	server         *http.Server
	accepts        acceptor
	stop           context.CancelFunc

	mu        sync.Mutex
	to        *standIn      // to which the address leads
	fault     string        // of requests
	of        string        // which requests: see hits
	dialing   string        // what is wrong with new connections
	changed   chan struct{} // is closed when any of these changes
	wires     []*wire
	requests  []time.Time // of the last minute
	reads     int         // of the identity
	doubt     string      // why it has to be read before the next write, or ""
	since     time.Time   // when the doubt began
	throttled time.Time   // until when it is, by Retry-After
	engaged   int
	violation string

	// answered is the number of reads whose answer was sent, and opened the same when the circuit was last open, or -1.
	answered, opened int
}

// wire is the server's end of a connection.
type wire struct {
	net.Conn

	to *standIn
	// reads is how often the identity had been read when it was dialed. identified means that it was read over it.
	reads      int
	identified bool
}

type wireKey struct{}

// acceptor is a listener in memory.
type acceptor struct {
	conns chan net.Conn
	done  chan struct{}
	close func()
}

func newAcceptor() acceptor {
	done := make(chan struct{})
	return acceptor{conns: make(chan net.Conn), done: done, close: sync.OnceFunc(func() { close(done) })}
}

// Accept implements net.Listener.
func (a acceptor) Accept() (net.Conn, error) {
	select {
	case c := <-a.conns:
		return c, nil
	case <-a.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (a acceptor) Close() error { a.close(); return nil }

// Addr implements net.Listener.
func (a acceptor) Addr() net.Addr { return &net.UnixAddr{Name: "memory"} }

// certificate is that of the address, which clients do not check. Its kind of key needs the least time.
var certificate = sync.OnceValue(func() tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), cryptorand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	cert, err := x509.CreateCertificate(cryptorand.Reader, template, template, key.Public(), key)
	if err != nil {
		panic(err)
	}
	return tls.Certificate{Certificate: [][]byte{cert}, PrivateKey: key}
})

func exploreSpoke(s *explore.Script) *exploration {
	e := &exploration{Script: s, accepts: newAcceptor(), changed: make(chan struct{}), opened: -1}
	e.http2, e.proxied = rapid.Bool().Draw(s.T, "HTTP/2"), rapid.Bool().Draw(s.T, "proxied")
	rand.Seed(rapid.Int64().Draw(s.T, "jitter")) //nolint:staticcheck // see the import
	stands := func(uid types.UID) *standIn {
		return &standIn{uid: uid, version: "1000", grants: []authorizationv1.ResourceRule{allowed("*", "*", "*")}}
	}
	e.here, e.there = stands("here"), stands("there")
	e.to = e.here
	e.server = &http.Server{
		Handler: e, ErrorLog: log.New(io.Discard, "", 0), ReadHeaderTimeout: time.Minute,
		// A ticket would wait for a client that waits as well, because a pipe has no buffer.
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate()}, SessionTicketsDisabled: true, MinVersion: tls.VersionTLS13},
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			return context.WithValue(ctx, wireKey{}, wireOf(conn))
		},
	}
	cfg := &rest.Config{Host: "http://spoke:6443", Dial: e.dial}
	serve := func() { _ = e.server.Serve(e.accepts) }
	if e.http2 {
		cfg.Host, cfg.TLSClientConfig.Insecure = "https://spoke:6443", true
		serve = func() { _ = e.server.ServeTLS(e.accepts, "", "") }
	}
	go serve()
	e.p = NewProvider(Options{})
	e.p.aware = e
	var err error
	if e.c, err = e.p.newConnection("s", cfg); err != nil {
		e.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	e.stop = cancel
	e.p.entries["s"] = &entry{pending: &registration{conn: e.c, cancel: cancel}}
	go e.c.run(ctx)
	e.recovers(recovery)
	return e
}

func wireOf(conn net.Conn) *wire {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	return conn.(*wire)
}

// end ends everything.
func (e *exploration) end() {
	e.set(func() { e.fault, e.dialing = "", "" })
	e.stop()
	_ = e.server.Close()
	e.accepts.close()
	time.Sleep(2 * time.Minute) //nolint:forbidigo // of the bubble's clock
	synctest.Wait()
}

// remaining returns another goroutine of this bubble that still runs, or "".
func remaining() string {
	text := make([]byte, 64<<10)
	n := runtime.Stack(text, true)
	for n == len(text) { // it is cut off
		text = make([]byte, 2*n)
		n = runtime.Stack(text, true)
	}
	stacks := strings.Split(string(text[:n]), "\n\n")
	_, bubble, _ := strings.Cut(stacks[0], ", ")
	bubble, _, _ = strings.Cut(bubble, "]")
	for _, stack := range stacks[1:] {
		if head, _, _ := strings.Cut(stack, "\n"); strings.HasSuffix(head, bubble+"]:") && !strings.Contains(stack, "\ntesting/synctest.") && !strings.Contains(stack, "\ninternal/synctest.") {
			return stack
		}
	}
	return ""
}

// The text of runtime.Stack says which goroutines are in a bubble.
func TestRemaining(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if stack := remaining(); stack != "" {
			t.Errorf("this should not run: %s", stack)
		}
		release := make(chan struct{})
		go func() { <-release }()
		synctest.Wait()
		if stack := remaining(); !strings.Contains(stack, "TestRemaining") {
			t.Errorf("got %q", stack)
		}
		close(release)
		synctest.Wait()
		if stack := remaining(); stack != "" {
			t.Errorf("this has ended: %s", stack)
		}
	})
}

// Engage implements multicluster.Aware.
func (e *exploration) Engage(context.Context, multicluster.ClusterName, cluster.Cluster) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.engaged++
	return nil
}

// set changes what is wrong.
func (e *exploration) set(change func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	change()
	close(e.changed)
	e.changed = make(chan struct{})
}

func (e *exploration) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	e.mu.Lock()
	for e.dialing == "hangs" {
		changed := e.changed
		e.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		e.mu.Lock()
	}
	if e.dialing == "refused" {
		e.mu.Unlock()
		return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	}
	near, far := net.Pipe()
	w := &wire{Conn: far, to: e.to, reads: e.reads}
	e.wires = append(e.wires, w)
	e.mu.Unlock()
	select {
	case e.accepts.conns <- w:
		return near, nil
	case <-e.accepts.done:
		return nil, net.ErrClosed
	}
}

// faults are what may be wrong with requests. Those that are marked are reasons to read the identity again.
var faults = map[string]bool{"no answer": false, "truncated": true, truncatedOnce: true, "503": true, "500": false, "429": false, "403": false, slow: false}

const (
	// truncatedOnce hits one request.
	truncatedOnce = "truncated once"
	// slow delays the answer by slowness.
	slow, slowness = "slow", 3 * time.Second
)

// scopes are the requests that a fault may hit.
var scopes = []string{"all", "all but probes", "probes", "identity", "lists", "writes"}

// hits reports whether the present fault hits a request.
func (e *exploration) hits(r *http.Request) bool {
	probe, identity := r.URL.Path == pathVersion, r.URL.Path == pathSystem
	switch e.of {
	case "all but probes":
		return !probe
	case "probes":
		return probe
	case "identity":
		return identity
	case "lists":
		return !probe && !identity && !writes(r)
	case "writes":
		return writes(r)
	}
	return true
}

// ServeHTTP implements http.Handler.
func (e *exploration) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	line, _ := r.Context().Value(wireKey{}).(*wire)
	body, err := io.ReadAll(r.Body) // until then, the server does not notice that the client has given up
	if err != nil {
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	e.mu.Lock()
	to := line.to
	if e.proxied {
		to = e.to
	}
	e.arrived(r, line, to)
	for e.fault == "no answer" && e.hits(r) && (!e.proxied || e.to == to) {
		changed := e.changed
		e.mu.Unlock()
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
		e.mu.Lock()
	}
	fault := ""
	switch {
	case e.proxied && e.to != to:
		fault = "truncated"
	case e.hits(r):
		fault = e.fault
	}
	read := (fault == "" || fault == slow) && r.URL.Path == pathSystem
	switch {
	case faults[fault]:
		e.doubtIs(fmt.Sprintf("%s %s was answered by %s", r.Method, r.URL.Path, fault))
	case fault == "429":
		e.throttled = time.Now().Add(throttle)
	case read:
		e.reads++
		e.doubt, line.identified = "", true
	}
	if fault == truncatedOnce {
		e.fault = ""
	}
	e.mu.Unlock()
	if fault == slow {
		time.Sleep(slowness) //nolint:forbidigo // of the bubble's clock
	}
	if read {
		e.mu.Lock()
		e.answered++
		e.mu.Unlock()
	}
	e.answer(w, r, to, fault)
}

// throttle is the Retry-After.
const throttle = 20 * time.Second

func (e *exploration) answer(w http.ResponseWriter, r *http.Request, to *standIn, fault string) {
	switch code, _ := strconv.Atoi(fault); {
	case fault == "truncated", fault == truncatedOnce:
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, `{"kind":`)
		panic(http.ErrAbortHandler)
	case code != 0:
		w.Header().Set("Retry-After", strconv.Itoa(int(throttle.Seconds())))
		w.WriteHeader(code)
	case writes(r):
		w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
		_, _ = io.Copy(w, r.Body)
	default:
		to.ServeHTTP(w, r)
	}
}

// doubtIs notes a reason to read the identity before the next write.
func (e *exploration) doubtIs(why string) { e.doubt, e.since = why, time.Now() }

// maxRequests is how many requests in a minute are not too many, and maxCalm how many when all is well.
const maxRequests, maxCalm = 400, 80

// arrived checks a request.
func (e *exploration) arrived(r *http.Request, line *wire, to *standIn) {
	now := time.Now()
	e.requests = append(slices.DeleteFunc(e.requests, func(at time.Time) bool { return now.Sub(at) >= time.Minute }), now)
	switch {
	case e.violation != "":
	case len(e.requests) > maxRequests:
		e.violation = fmt.Sprintf("%d requests in a minute", len(e.requests))
	case !writes(r):
	case to != e.here:
		e.violation = "a rule is written to another cluster"
	case e.http2 && !line.identified:
		e.violation = "a rule is written over a connection over which the identity was not read"
	case e.reads == line.reads:
		e.violation = "a rule is written over a new connection, and the identity was not read since it was opened"
	case e.doubt != "" && now.After(e.since): // what arrives in the same moment was sent before
		e.violation = "a rule is written, and the identity was not read since " + e.doubt
	}
}

// pass lets time pass, and checks what must hold at any time.
func (e *exploration) pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // of the bubble's clock
	synctest.Wait()
	e.mu.Lock()
	violation, answered := e.violation, e.answered
	e.mu.Unlock()
	switch open := e.c.breaker.Open(); {
	case violation != "":
		e.Violation("%s", violation)
	case open:
		e.opened = answered
	case e.opened == answered && e.p.Spoke("s") != nil:
		e.Violation("the circuit is closed, and the identity was not read")
	default:
		e.opened = -1
	}
}

// recovery is how long it may take to notice that a spoke answers again.
const recovery = 30 * time.Second

// recovers checks that the spoke is served within a time: it is engaged, its circuit is closed, and writes succeed.
func (e *exploration) recovers(within time.Duration) {
	for end := time.Now().Add(within); ; e.pass(time.Second) {
		err := e.write()
		if err == nil && !e.p.Away("s") {
			return
		}
		if time.Now().After(end) {
			e.Violation("all is well, and the spoke is not served after %v: away is %v, %v; the status is %+v", within, e.p.Away("s"), err, e.p.Observation("s"))
		}
	}
}

var errNotEngaged = errors.New("it is not engaged")

// write sends a write as a worker does.
func (e *exploration) write() error {
	s := e.p.Spoke("s")
	if s == nil {
		return errNotEngaged
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, err := s.Rules.MonitoringV1().PrometheusRules("shop").Create(ctx, &monitoringv1.PrometheusRule{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, metav1.CreateOptions{})
	return err //nolint:wrapcheck // it is the API server's
}

// check repairs everything, and checks that the spoke is served again, and left alone.
func (e *exploration) check() {
	e.Say("nothing is broken any more")
	e.set(func() { e.fault, e.dialing = "", "" })
	if e.to == e.there {
		e.lead(e.here, true)
	}
	e.recovers(recovery + max(0, time.Until(e.throttled)))
	e.pass(time.Minute)
	engaged := e.engaged
	e.pass(time.Minute)
	if e.engaged != engaged {
		e.Violation("all is well, and it is engaged again %d times in a minute", e.engaged-engaged)
	}
	if n := len(e.requests); n > maxCalm {
		e.Violation("all is well, and there are %d requests in a minute", n)
	}
	if seen := e.p.Observation("s"); seen.Connected.Status != metav1.ConditionTrue || seen.Identity != "here" {
		e.Violation("all is well, and the status is %+v", seen)
	}
}

// broken returns what is wrong at present.
func (e *exploration) broken() []string {
	var out []string
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.fault != "" { // the server ends one that lasts for one answer
		out = append(out, e.fault)
	}
	if e.dialing != "" {
		out = append(out, "dialing "+e.dialing)
	}
	if e.to == e.there {
		out = append(out, "another cluster")
	}
	if e.p.Spoke("s") == nil {
		out = append(out, "no session")
	}
	return out
}

// The operations.

func (e *exploration) requestsFail(*rapid.T) {
	fault := rapid.SampledFrom(slices.Sorted(maps.Keys(faults))).Draw(e.T, "fault")
	of := rapid.SampledFrom(scopes).Draw(e.T, "of")
	e.Say("from now on: %s, to %s", fault, of)
	e.set(func() { e.fault, e.of = fault, of })
}

func (e *exploration) dialsFail(*rapid.T) {
	how := rapid.SampledFrom([]string{"hangs", "refused"}).Draw(e.T, "how")
	e.Say("from now on, dialing: %s", how)
	e.set(func() { e.dialing = how })
}

func (e *exploration) faultsEnd(*rapid.T) {
	e.mu.Lock()
	none := e.fault == "" && e.dialing == ""
	e.mu.Unlock()
	if none {
		e.Skip("there is none")
	}
	e.Say("requests are answered again")
	e.set(func() { e.fault, e.dialing = "", "" })
}

func (e *exploration) connectionsAreLost(*rapid.T) {
	all := rapid.Bool().Draw(e.T, "all")
	e.Say("connections are lost; all: %v", all)
	e.cut(all)
}

// cut closes all connections, or the oldest one.
func (e *exploration) cut(all bool) {
	e.mu.Lock()
	lost := e.wires
	if !all {
		lost = lost[:min(len(lost), 1)]
	}
	e.wires = slices.Clone(e.wires[len(lost):])
	if all {
		e.doubtIs("all connections were lost")
	}
	e.mu.Unlock()
	for _, w := range lost {
		_ = w.Close()
	}
	e.pass(time.Millisecond)
}

// addressMoves makes the address lead to the other cluster.
func (e *exploration) addressMoves(*rapid.T) {
	to, cut := e.there, !e.http2 || rapid.Bool().Draw(e.T, "connections are lost")
	if e.to == e.there {
		to = e.here
	}
	if e.proxied && e.doubt == "" {
		e.Skip("nobody could notice")
	}
	e.Say("the address leads to the cluster with the identity %s; connections are lost: %v", to.uid, cut || e.proxied)
	e.lead(to, cut)
}

// lead makes the address lead to a cluster. A proxy keeps the connections to itself.
func (e *exploration) lead(to *standIn, cut bool) {
	e.set(func() { e.to = to })
	if cut && !e.proxied {
		e.cut(true)
	}
	e.pass(time.Millisecond)
}

func (e *exploration) isRestored(*rapid.T) {
	e.Say("the cluster is restored from a backup")
	e.here.set(func(s *standIn) {
		version, _ := strconv.Atoi(s.version)
		s.version = strconv.Itoa(version - 10)
	})
}

func (e *exploration) workersWrite(*rapid.T) {
	if e.p.Spoke("s") == nil {
		e.Skip("it is not engaged")
	}
	n := rapid.IntRange(1, 3).Draw(e.T, "writes")
	e.Say("workers write %d rules", n)
	for range n {
		go func() { _ = e.write() }()
	}
}

func (e *exploration) timePasses(*rapid.T) {
	d := rapid.SampledFrom([]time.Duration{time.Second, 6 * time.Second, 25 * time.Second, 2 * time.Minute}).Draw(e.T, "time")
	e.Say("%v pass", d)
	e.pass(d)
}

// TestExplore runs random schedules of faults between the manager and a spoke, and checks what must hold at any time and
// after all is well again: see explore.Run.
func TestExplore(t *testing.T) {
	certificate()
	explore.Run(t, 20, func(s *explore.Script) {
		e := exploreSpoke(s)
		defer e.end() // or a failure is not printed
		e.Steps(map[string]func(*rapid.T){
			"fail": e.requestsFail, "dialsFail": e.dialsFail, "faultsEnd": e.faultsEnd, "lose": e.connectionsAreLost, "move": e.addressMoves,
			"restore": e.isRestored, "write": e.workersWrite, "writeMore": e.workersWrite, "time": e.timePasses, "timeToo": e.timePasses,
		}, e.broken, func() { e.pass(time.Millisecond) })
		e.check()
		e.end()
		if stack := remaining(); stack != "" {
			e.Violation("the connection has ended, and this still runs: %s", stack)
		}
	})
}
