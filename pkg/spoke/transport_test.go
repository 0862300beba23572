package spoke

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// outcome is what became of one request.
type outcome string

const (
	answer  outcome = "an answer"
	failure outcome = "a failure"
	neither outcome = "neither"
)

func TestObserver(t *testing.T) {
	code := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	silent := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	for name, tc := range map[string]struct {
		handler http.HandlerFunc
		ctx     func(*testing.T) context.Context
		want    outcome
		class   string
	}{
		"200":               {handler: code(200), want: answer, class: "200"},
		"201":               {handler: code(201), want: answer, class: "201"},
		"302":               {handler: code(302), want: answer, class: "302"},
		"400":               {handler: code(400), want: answer, class: "400"},
		"401":               {handler: code(401), want: neither, class: "401"},
		"403":               {handler: code(403), want: answer, class: "403"},
		"404":               {handler: code(404), want: answer, class: "404"},
		"409":               {handler: code(409), want: answer, class: "409"},
		"422":               {handler: code(422), want: answer, class: "422"},
		"429":               {handler: code(429), want: neither, class: "429"},
		"500":               {handler: code(500), want: neither, class: "500"},
		"a code of its own": {handler: code(799), want: neither, class: "other"},
		"502":               {handler: code(502), want: failure, class: "502"},
		"503":               {handler: code(503), want: failure, class: "503"},
		"504":               {handler: code(504), want: failure, class: "504"},
		"silence":           {handler: silent, ctx: deadline, want: failure, class: "error"},
		"no HTTP":           {handler: garbage, want: failure, class: "error"},
		"a cut line":        {handler: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, want: failure, class: "error"},
		"given up":          {handler: silent, ctx: canceled, want: neither, class: "canceled"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(tc.handler)
			t.Cleanup(server.Close)
			check(t, server.URL, tc.ctx, tc.want, tc.class)
		})
	}
	t.Run("refused", func(t *testing.T) {
		server := httptest.NewServer(code(200))
		server.Close()
		check(t, server.URL, nil, failure, "error")
	})
	t.Run("accepted, and not read from", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		check(t, "http://"+l.Addr().String(), deadline, failure, "error")
	})
}

func deadline(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

func canceled(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(10*time.Millisecond, cancel)
	return ctx
}

func garbage(w http.ResponseWriter, _ *http.Request) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	_, _ = conn.Write([]byte("SSH-2.0-OpenSSH_9.9\r\n"))
	_ = conn.Close()
}

// check makes a request through an observer, and checks the effect on its circuit: one more failure would open
// it, unless an answer came in between.
func check(t *testing.T, url string, limit func(*testing.T) context.Context, want outcome, class string) {
	t.Helper()
	b := newBreaker(func() {})
	for range breakerThreshold - 1 {
		b.Observe(false)
	}
	var counted []string
	// The end of any httptest.Server closes the idle connections of http.DefaultTransport.
	own := &http.Transport{}
	t.Cleanup(own.CloseIdleConnections)
	o := &observer{next: own, breaker: b, count: func(verb, code string) { counted = append(counted, verb+" "+code) }}
	ctx := t.Context()
	if limit != nil {
		ctx = limit(t)
	}
	resp, err := o.RoundTrip(get(ctx, t, url))
	if err == nil {
		_ = resp.Body.Close()
	}
	if (err != nil) != (class == "error" || class == "canceled") {
		t.Errorf("the error is %v", err)
	}
	if !slices.Equal(counted, []string{"get " + class}) {
		t.Errorf("counted as %v, want get %s", counted, class)
	}
	opened := b.Open()
	b.Observe(false)
	got := answer
	switch {
	case opened:
		got = failure
	case b.Open():
		got = neither
	}
	if got != want {
		t.Errorf("taken for %s, want %s", got, want)
	}
}

func get(ctx context.Context, t *testing.T, url string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// The probe counts the outcome of its own requests.
func TestObserverOfTheProbe(t *testing.T) {
	for _, code := range []int{200, 500, 503} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			b := newBreaker(func() {})
			for range breakerThreshold - 1 {
				b.Observe(false)
			}
			o := &observer{breaker: b, count: func(string, string) {}, next: respond(code, "")}
			resp, err := o.RoundTrip(get(asProbe(t.Context()), t, "https://spoke"))
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if b.Open() {
				t.Errorf("%d opened the circuit", code)
			}
			b.Observe(false)
			if !b.Open() {
				t.Errorf("%d is taken for an answer", code)
			}
			// The circuit is open, and the probe passes.
			if resp, err = o.RoundTrip(get(asProbe(t.Context()), t, "https://spoke")); err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if !b.Open() {
				t.Errorf("%d closed the circuit", code)
			}
		})
	}
}

// respond is a transport that answers with a code.
func respond(code int, retryAfter string) roundTrip {
	return func(req *http.Request) (*http.Response, error) {
		w := httptest.NewRecorder()
		if retryAfter != "" {
			w.Header().Set("Retry-After", retryAfter)
		}
		w.WriteHeader(code)
		resp := w.Result()
		resp.Request = req
		return resp, nil
	}
}

// A spoke that throttles gets no requests until its Retry-After has passed, and no worker waits for that
// within client-go.
func TestObserverThrottles(t *testing.T) {
	for name, tc := range map[string]struct {
		code  int
		after string
		want  time.Duration
	}{
		"seconds":        {code: 429, after: "60", want: time.Minute},
		"none":           {code: 429, want: time.Second},
		"zero":           {code: 429, after: "0", want: time.Second},
		"below zero":     {code: 429, after: "-5", want: time.Second},
		"too long":       {code: 429, after: "86400", want: maxThrottle},
		"out of bounds":  {code: 429, after: "99999999999999999999", want: time.Second},
		"garbage":        {code: 429, after: "soon", want: time.Second},
		"a date":         {code: 429, after: "Sat, 01 Jan 2000 00:00:40 GMT", want: 40 * time.Second},
		"a date gone by": {code: 429, after: "Sat, 01 Jan 1999 00:00:40 GMT", want: time.Second},
		"not throttled":  {code: 503, after: "60"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // its time begins in 2000
				b := newBreaker(func() {})
				o := &observer{breaker: b, count: func(string, string) {}, next: respond(tc.code, tc.after)}
				resp, err := o.RoundTrip(get(t.Context(), t, "https://spoke"))
				if err != nil {
					t.Fatal(err)
				}
				_ = resp.Body.Close()
				if left, _ := b.Throttled(); left != tc.want || b.Blocked() != (tc.want > 0) {
					t.Errorf("throttled for %v, blocked: %v, want %v", left, b.Blocked(), tc.want)
				}
				if got := resp.Header.Get("Retry-After"); got != "" {
					t.Errorf("client-go is told to try again after %s", got)
				}
				time.Sleep(tc.want) //nolint:forbidigo // the test's own time
				synctest.Wait()
				if b.Blocked() {
					t.Error("shut still")
				}
				b.Stop()
			})
		})
	}
}

// client-go would retry a request with a Retry-After up to ten times within the request.
func TestThrottledRequestReturns(t *testing.T) {
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.Header().Set("Retry-After", "2")
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	t.Cleanup(server.Close)
	c, err := NewProvider(Options{}).newConnection("s", &rest.Config{Host: server.URL, Dial: (&net.Dialer{}).DialContext})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.breaker.Stop)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, want := range []error{nil, errThrottled} {
		err = c.probes.Get().AbsPath("/api").Do(ctx).Error()
		if finding := disconnected(err); finding.Reason != v1alpha1.ReasonThrottled || (want != nil && !errors.Is(err, want)) {
			t.Errorf("got %v: %+v", err, finding)
		}
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("asked %d times", n)
	}
	// The probe is sent nevertheless.
	if err := c.probe(asProbe(ctx)); disconnected(err).Reason != v1alpha1.ReasonThrottled || asked.Load() != 2 {
		t.Errorf("got %v, asked %d times", err, asked.Load())
	}
}

// A request of an informer that waits at the gate ends with its context, and closes its body.
func TestObserverAtTheGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(func() {})
		b.Trip()
		sent := 0
		o := &observer{breaker: b, count: func(string, string) {}, next: roundTrip(func(*http.Request) (*http.Response, error) {
			sent++
			return nil, io.EOF
		})}
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), informerKey{}, true))
		body := &closing{}
		result := make(chan error)
		go func() {
			req := get(ctx, t, "https://spoke")
			req.Body = body
			_, err := o.RoundTrip(req) //nolint:bodyclose // there is none
			result <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-result; !errors.Is(err, context.Canceled) || sent != 0 || !body.closed {
			t.Errorf("got %v, %d requests were sent, the body was closed: %v", err, sent, body.closed)
		}
	})
}

type closing struct {
	io.Reader
	closed bool
}

func (c *closing) Close() error { c.closed = true; return nil }

func TestObserverKeepsTheError(t *testing.T) {
	failed := errors.New("no route")
	o := &observer{
		next:    roundTrip(func(*http.Request) (*http.Response, error) { return nil, failed }),
		breaker: newBreaker(func() {}), count: func(string, string) {},
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://spoke", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	//nolint:bodyclose // there is none
	if _, err := o.RoundTrip(req); !errors.Is(err, failed) {
		t.Errorf("got %v", err)
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
