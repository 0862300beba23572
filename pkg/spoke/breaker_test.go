package spoke

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"
)

func TestBreaker(t *testing.T) {
	const yes, no = true, false
	for name, tc := range map[string]struct {
		answered []bool
		changes  []bool // what Open said at every change
	}{
		"nothing happened":               {},
		"two failures":                   {answered: []bool{no, no}},
		"three failures":                 {answered: []bool{no, no, no}, changes: []bool{true}},
		"more failures":                  {answered: []bool{no, no, no, no, no, no, no}, changes: []bool{true}},
		"an answer between the failures": {answered: []bool{no, no, yes, no, no, yes, no, no}},
		"answers":                        {answered: []bool{yes, yes}},
		"closed by one answer":           {answered: []bool{no, no, no, yes, yes}, changes: []bool{true, false}},
		"it counts anew after an answer": {answered: []bool{no, no, no, yes, no, no}, changes: []bool{true, false}},
		"opened twice":                   {answered: []bool{no, no, no, yes, no, no, no}, changes: []bool{true, false, true}},
	} {
		t.Run(name, func(t *testing.T) {
			var changes []bool
			var b *Breaker
			// Open would never return if the lock were held.
			b = NewBreaker(func() { changes = append(changes, b.Open()) })
			for _, answered := range tc.answered {
				b.Observe(answered)
			}
			if !slices.Equal(changes, tc.changes) {
				t.Errorf("changes to %v, want %v", changes, tc.changes)
			}
			if want := len(tc.changes)%2 == 1; b.Open() != want {
				t.Errorf("Open: %v, want %v", b.Open(), want)
			}
		})
	}
}

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
		"200":               {handler: code(200), want: answer, class: "2xx"},
		"201":               {handler: code(201), want: answer, class: "2xx"},
		"302":               {handler: code(302), want: answer, class: "3xx"},
		"400":               {handler: code(400), want: answer, class: "4xx"},
		"401":               {handler: code(401), want: answer, class: "Unauthorized"},
		"403":               {handler: code(403), want: answer, class: "Forbidden"},
		"404":               {handler: code(404), want: answer, class: "Not Found"},
		"409":               {handler: code(409), want: answer, class: "Conflict"},
		"422":               {handler: code(422), want: answer, class: "Unprocessable Entity"},
		"429":               {handler: code(429), want: answer, class: "Too Many Requests"},
		"500":               {handler: code(500), want: answer, class: "5xx"},
		"a code of its own": {handler: code(799), want: answer, class: "5xx"},
		"502":               {handler: code(502), want: failure, class: "5xx"},
		"503":               {handler: code(503), want: failure, class: "5xx"},
		"504":               {handler: code(504), want: failure, class: "5xx"},
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

// check makes requests through an observer, and looks at what its circuit made of
// them: by one more in a circuit that a failure would open, and by one in an open
// circuit that an answer would close.
func check(t *testing.T, url string, limit func(*testing.T) context.Context, want outcome, class string) {
	t.Helper()
	before, after := NewBreaker(func() {}), NewBreaker(func() {})
	for range breakerThreshold - 1 {
		before.Observe(false)
	}
	for range breakerThreshold {
		after.Observe(false)
	}
	for _, b := range []*Breaker{before, after} {
		var counted []string
		o := &observer{next: http.DefaultTransport, breaker: b, count: func(verb, code string) { counted = append(counted, verb+" "+code) }}
		ctx := t.Context()
		if limit != nil {
			ctx = limit(t)
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := o.RoundTrip(req)
		if err == nil {
			_ = resp.Body.Close()
		}
		if (err != nil) != (class == "error" || class == "canceled") {
			t.Errorf("the error is %v", err)
		}
		if !slices.Equal(counted, []string{"GET " + class}) {
			t.Errorf("counted as %v, want GET %s", counted, class)
		}
	}
	got := neither
	switch {
	case before.Open():
		got = failure
	case !after.Open():
		got = answer
	}
	if got != want {
		t.Errorf("taken for %s, want %s", got, want)
	}
}

func TestObserverKeepsTheError(t *testing.T) {
	failed := errors.New("no route")
	o := &observer{
		next:    roundTrip(func(*http.Request) (*http.Response, error) { return nil, failed }),
		breaker: NewBreaker(func() {}), count: func(string, string) {},
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
