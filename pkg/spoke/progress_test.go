package spoke

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

func TestPace(t *testing.T) {
	const window = 30 * time.Second
	for name, tc := range map[string]struct {
		came func(second int64) int64 // until then
		dead int                      // the second after which it is dead; 0 is never
	}{
		"the least rate":            {came: func(s int64) int64 { return 1000 * s }},
		"a byte a second less":      {came: func(s int64) int64 { return 999 * s }, dead: 30},
		"nothing":                   {came: func(int64) int64 { return 0 }, dead: 30},
		"all at once, then nothing": {came: func(s int64) int64 { return 1e9 * min(s, 1) }, dead: 31},
		"in lumps":                  {came: func(s int64) int64 { return 16000 * (s / 16) }, dead: 30},
		"in lumps of twice as much": {came: func(s int64) int64 { return 32000 * (s / 16) }},
		"a pause":                   {came: func(s int64) int64 { return 2000 * (min(s, 100) + max(s-114, 0)) }},
		"a longer pause":            {came: func(s int64) int64 { return 2000 * (min(s, 100) + max(s-117, 0)) }, dead: 116},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPace(window, leastRate*int64(window/time.Second))
			dead := 0
			for s := 0; s < 300 && dead == 0; s++ {
				if !p.keeps(tc.came(int64(s))) {
					dead = s
				}
			}
			if dead != tc.dead {
				t.Errorf("it is dead after %d s, want %d", dead, tc.dead)
			}
			if len(p.samples) > 31 {
				t.Errorf("%d samples are kept", len(p.samples))
			}
		})
	}
}

// dripping is a body of which so many bytes come a second, until its request ends.
type dripping struct {
	ctx  context.Context
	rate int64
	link *atomic.Int64
	left int64

	begun bool
}

func (d *dripping) Read(b []byte) (int, error) {
	if d.left <= 0 {
		return 0, io.EOF
	}
	every, n := time.Second, d.rate
	if n == 0 {
		every = time.Hour
	}
	if !d.begun {
		d.begun, every = true, every-time.Millisecond // before a beat, and not with it
	}
	select {
	case <-d.ctx.Done():
		return 0, d.ctx.Err()
	case <-time.After(every):
	}
	d.link.Add(n)
	d.left -= n
	b = b[:min(n, int64(len(b)))]
	clear(b) // io.Discard shares its buffers
	return len(b), nil
}

func (d *dripping) Close() error { return nil }

// An answer is read while it makes progress, and no longer.
func TestInflow(t *testing.T) {
	const minute = time.Minute
	for name, tc := range map[string]struct {
		single      bool
		aside       bool  // an evaluator's
		silent      bool  // there is not even a header
		rate, total int64 // of the answer
		beside      int64 // what comes beside it in a second
		ends        time.Duration
		slow        bool
	}{
		"a list that is fast":                    {rate: 1 << 20, total: 1 << 20, ends: time.Second},
		"a list at the least rate":               {rate: 1000, total: 600_000, ends: 10 * minute},
		"a list that is slower":                  {rate: 900, total: 600_000, ends: 30 * time.Second, slow: true},
		"a list that hangs":                      {total: 1, ends: 30 * time.Second, slow: true},
		"a list without an answer":               {silent: true, ends: 30 * time.Second, slow: true},
		"a list that hangs beside events":        {total: 1, beside: 5000, ends: minute, slow: true},
		"a read without an answer":               {single: true, silent: true, ends: requestTimeout, slow: true},
		"a read whose answer hangs":              {single: true, total: 1, ends: requestTimeout, slow: true},
		"a read without an answer beside a list": {single: true, silent: true, beside: 1000, ends: readTimeout},
		"a read behind a list that is too slow":  {single: true, silent: true, beside: 900, ends: requestTimeout, slow: true},
		"a short list, slowly":                   {rate: 100, total: 2900, ends: 29 * time.Second},
		"an evaluator without an answer":         {aside: true, silent: true, ends: beginTimeout, slow: true},
		"an evaluator that hangs on a busy link": {aside: true, silent: true, beside: 5000, ends: beginTimeout, slow: true},
		"an evaluator's answer, slowly":          {aside: true, rate: 1000, total: 120_000, ends: 2 * minute},
		"an evaluator's answer that hangs":       {aside: true, total: 1, ends: askWindow, slow: true},
		"an evaluator's answer in drips":         {aside: true, rate: 1, total: 600_000, ends: askWindow, slow: true},
		"that beside events":                     {aside: true, rate: 1, total: 600_000, beside: 5000, ends: askWindow, slow: true},
		"one that hangs beside a fast list":      {aside: true, total: 1, beside: 1 << 20, ends: askWindow, slow: true},
		"one that hangs beside a slow list":      {aside: true, total: 1, beside: 2000, ends: minute, slow: true},
		"a list in drips beside events":          {rate: 1, total: 600_000, beside: 5000, ends: minute, slow: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &connection{received: &atomic.Int64{}}
				i := &inflow{window: stallWindow, link: c.received}
				ctx, cancel := context.WithValue(t.Context(), inflowKey{}, i), context.CancelFunc(func() {})
				if tc.single {
					ctx, cancel = c.patient(t.Context())
				}
				defer cancel()
				beside, stop := context.WithCancel(t.Context())
				defer stop()
				go func() {
					for beside.Err() == nil {
						select {
						case <-beside.Done():
						case <-time.After(time.Second):
							c.received.Add(tc.beside)
						}
					}
				}()
				time.Sleep(time.Millisecond) //nolint:forbidigo // of the bubble's clock: beats come after what they look at
				next := roundTrip(func(req *http.Request) (*http.Response, error) {
					if tc.silent {
						<-req.Context().Done()
						return nil, req.Context().Err()
					}
					return &http.Response{StatusCode: 200, Request: req, Body: &dripping{ctx: req.Context(), rate: tc.rate, link: c.received, left: tc.total}}, nil
				})
				var sender http.RoundTripper = &observer{next: next, breaker: newBreaker(func() {}), count: func(_, _ string) {}}
				if tc.aside {
					sender = asker{next: sender, link: c.received}
				}
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://spoke/version", http.NoBody)
				if err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				resp, err := sender.RoundTrip(req)
				if err == nil {
					_, err = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
					if over := resp.Request.Context().Err(); over != nil {
						t.Errorf("the context of the answer's request: %v", over)
					}
				}
				took := time.Since(began)
				if took < tc.ends-time.Second || took > tc.ends+time.Second {
					t.Errorf("it took %v, want %v", took, tc.ends)
				}
				if _, slow := errors.AsType[*slowError](err); slow != tc.slow {
					t.Errorf("got %v", err)
				}
				if complete := tc.rate*int64(tc.ends/time.Second) >= tc.total && tc.total > 1; (err == nil) != complete {
					t.Errorf("got %v", err)
				}
				if err != nil && (!errors.Is(err, context.DeadlineExceeded) || disconnected(err).Reason != v1alpha1.ReasonUnreachable) {
					t.Errorf("it is no timeout: %v", err)
				}
			})
		})
	}
}

// A slow answer counts as a failure of the spoke; a canceled request does not.
func TestSlowAnswersOpenTheCircuit(t *testing.T) {
	for name, slow := range map[string]bool{"slow": true, "given up": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &connection{received: &atomic.Int64{}}
				b := newBreaker(func() {})
				o := &observer{breaker: b, count: func(_, _ string) {}, next: roundTrip(func(req *http.Request) (*http.Response, error) {
					<-req.Context().Done()
					return nil, req.Context().Err()
				})}
				for range breakerThreshold {
					parent, cancel := context.WithCancelCause(t.Context())
					if !slow {
						time.AfterFunc(time.Second, func() { cancel(errors.New("given up")) })
					}
					ctx, done := c.patient(parent)
					req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://spoke/apis", http.NoBody)
					if err != nil {
						t.Fatal(err)
					}
					if _, err := o.RoundTrip(req); err == nil { //nolint:bodyclose // there is none
						t.Error("it was answered")
					}
					done()
					cancel(nil)
				}
				if b.Open() != slow {
					t.Errorf("open: %v", b.Open())
				}
			})
		})
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// Probes have their own connection, and a new one after each probe without an answer. All received bytes are
// counted.
func TestLookout(t *testing.T) {
	conns := &crowd{open: map[net.Conn]bool{}}
	var protocol atomic.Value
	var silent atomic.Bool
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		protocol.Store(r.Proto)
		if silent.Load() {
			<-r.Context().Done()
			panic(http.ErrAbortHandler) // while a client closes a TLS connection, it still reads answers from it
		}
		_, _ = io.WriteString(w, `{"gitVersion":"v1.36.3"}`)
	}))
	server.EnableHTTP2 = true
	server.Config.ConnState = conns.note
	server.StartTLS()
	defer server.Close()
	c := connectWith(t, server, goodUser)
	defer c.disconnect()
	expect := func(want int) {
		t.Helper()
		if _, ever := conns.count(); ever != want {
			t.Errorf("there were %d connections, want %d", ever, want)
		}
	}
	if err := c.probes.Get().AbsPath("/apis").Do(t.Context()).Error(); err != nil || protocol.Load() != "HTTP/2.0" {
		t.Error(err, protocol.Load())
	}
	before := c.received.Load()
	for range 3 {
		if err := c.probe(t.Context()); err != nil || protocol.Load() != "HTTP/1.1" {
			t.Error(err, protocol.Load())
		}
	}
	expect(2)
	if came := c.received.Load() - before; before < 500 || came < 500 {
		t.Errorf("%d bytes came, and then %d", before, came)
	}
	silent.Store(true)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := c.probe(ctx); err == nil {
		t.Error("it was answered")
	}
	silent.Store(false)
	if err := c.probe(t.Context()); err != nil {
		t.Error(err)
	}
	expect(3)
}

// HTTP/2 pings close a dead connection, but not one on which frames arrive at leastRate.
func TestPings(t *testing.T) {
	const frame = 16 << 10
	if between := time.Second * frame / leastRate; pingAfter < between {
		t.Errorf("a ping is sent after %v, and there may be %v between two frames", pingAfter, between)
	}
	if dead := pingAfter + pingTimeout; dead >= 30*time.Second {
		t.Errorf("a dead connection is noticed after %v", dead)
	}
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	c := connectWith(t, server, goodUser)
	defer c.disconnect()
	transport := c.http.Transport
	for {
		wrapper, ok := transport.(utilnet.RoundTripperWrapper)
		if !ok {
			break
		}
		transport = wrapper.WrappedRoundTripper()
	}
	is, ok := transport.(*http.Transport)
	if !ok || is.HTTP2 == nil || is.HTTP2.SendPingTimeout != pingAfter || is.HTTP2.PingTimeout != pingTimeout {
		t.Errorf("the transport is %+v", transport)
	}
}
