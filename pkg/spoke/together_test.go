package spoke

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"
)

// Answers that are within their bounds each can be too large together: then one more waits until one was read, and the
// session goes on.
func TestTogether(t *testing.T) {
	const mebibyte = 1 << 20
	large := `{"a":"` + strings.Repeat("x", 3*mebibyte/2) + `"}`
	for name, tc := range map[string]struct {
		body  string
		limit int // of answers at the same time
		waits bool
		apart func(context.Context) context.Context
	}{
		"bytes":                 {body: large, limit: 15, waits: true},
		"small ones":            {body: `{"a":"b"}`, limit: 1000},
		"pages of lists":        {body: large, limit: 20, apart: func(ctx context.Context) context.Context { return context.WithValue(ctx, inflowKey{}, &inflow{}) }},
		"behind the API server": {body: large, limit: 20, apart: aside},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				together := newTogether(Limits{})
				type answer struct {
					io.Closer
					err chan error
				}
				read := func(ctx context.Context) answer {
					t.Helper()
					if tc.apart != nil {
						ctx = tc.apart(ctx)
					}
					body := answerOf(ctx, t, together, tc.body)
					a := answer{body, make(chan error, 1)}
					go func() {
						_, err := io.Copy(io.Discard, body)
						a.err <- err
					}()
					synctest.Wait()
					return a
				}
				done := func(what string, a answer, want error) {
					t.Helper()
					synctest.Wait()
					select {
					case err := <-a.err:
						if !errors.Is(err, want) {
							t.Errorf("%s: %v", what, err)
						}
					default:
						t.Errorf("%s waits", what)
					}
				}
				var open []answer
				for range tc.limit {
					open = append(open, read(t.Context()))
					done("an answer", open[len(open)-1], nil)
				}
				if tc.waits {
					ctx, cancel := context.WithCancel(t.Context())
					ends, closes, another := read(ctx), read(t.Context()), read(t.Context())
					cancel()
					done("one that ends", ends, context.Canceled)
					_ = closes.Close()
					done("one that is closed", closes, http.ErrBodyReadAfterClose)
					if len(another.err) > 0 {
						t.Error("one more does not wait")
					}
					_ = open[0].Close()
					_ = open[0].Close()
					done("one more, when another was read", another, nil)
					open = append(open[1:], ends, another)
				}
				for _, a := range open {
					_ = a.Close()
				}
				if len(together.parts) > 0 {
					t.Errorf("%d are held", len(together.parts))
				}
			})
		})
	}
}

// Answers that wait for each other are all read in the end.
func TestTogetherGoesOn(t *testing.T) {
	const bytes = 3 << 19
	together, body := newTogether(Limits{}), `{"a":"`+strings.Repeat("x", bytes)+`"}`
	var reading sync.WaitGroup
	for range 16 {
		answer := answerOf(t.Context(), t, together, body)
		reading.Go(func() {
			defer func() { _ = answer.Close() }()
			half := &io.LimitedReader{R: answer, N: bytes / 2}
			for _, part := range []io.Reader{half, answer} {
				if _, err := io.Copy(io.Discard, iotest.HalfReader(part)); err != nil {
					t.Error(err)
				}
			}
			together.mu.Lock()
			defer together.mu.Unlock()
			held := int64(0)
			for _, part := range together.parts {
				held += part.bytes
			}
			if held > DefaultMaxMemory/2 {
				t.Errorf("held are %d bytes", held)
			}
		})
	}
	reading.Wait()
}

// Of a spoke, one large event is decoded at a time, however slowly another one arrives. Small ones do not wait.
func TestLargeEventsTakeTurns(t *testing.T) {
	large := `{"a":"` + strings.Repeat("x", largeEvent) + `"}`
	const small = `{"a":"b"}`
	for name, tc := range map[string]struct {
		first, second string
		over          func(body io.ReadCloser) // what happens after the first event was read
		waits         time.Duration
	}{
		"the first is decoded":     {large, large, func(body io.ReadCloser) { go func() { _, _ = body.Read(make([]byte, 1)) }() }, 0},
		"the first is closed":      {large, large, func(body io.ReadCloser) { _ = body.Close() }, 0},
		"the first is stuck":       {large, large, nil, eventTime},
		"a small one":              {large, small, nil, 0},
		"after a small one":        {small, large, nil, 0},
		"while one arrives":        {large[:len(large)-1], large, nil, 0},
		"small ones, taken in one": {large, strings.Repeat(small, 10), nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ps := &paces{}
				open := func() (*io.PipeWriter, io.ReadCloser) {
					r, w := io.Pipe()
					next := metered{paces: ps, tell: func(e *TooLargeError) { t.Errorf("the session ends: %v", e) }, next: roundTrip(func(*http.Request) (*http.Response, error) {
						return &http.Response{StatusCode: http.StatusOK, Body: r}, nil
					})}
					resp, err := next.RoundTrip(get(t.Context(), t, "https://spoke/api/v1/namespaces?watch=true"))
					if err != nil {
						t.Fatal(err)
					}
					return w, resp.Body
				}
				read := func(w io.Writer, body io.Reader, event string) <-chan error {
					done := make(chan error, 1)
					go func() { _, _ = io.WriteString(w, event) }()
					go func() {
						_, err := io.ReadFull(body, make([]byte, len(event)))
						done <- err
					}()
					synctest.Wait()
					return done
				}
				w, body := open()
				other, otherBody := open()
				defer func() { _, _, _, _ = w.Close(), body.Close(), other.Close(), otherBody.Close() }()
				if err := <-read(w, body, tc.first); err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				second := read(other, otherBody, tc.second)
				if waits := len(second) == 0; waits != (tc.over != nil || tc.waits > 0) {
					t.Errorf("the second waits: %v", waits)
				}
				if tc.over != nil {
					tc.over(body)
				}
				if err := <-second; err != nil {
					t.Error(err)
				}
				if took := time.Since(began); took != tc.waits {
					t.Errorf("the second waited for %v", took)
				}
			})
		})
	}
}

// Of a spoke, one large answer is decoded at a time, until its caller has used it. Small ones do not wait.
func TestLargeAnswersTakeTurns(t *testing.T) {
	text, values := `{"a":"`+strings.Repeat("x", largeAnswer)+`"}`, `[`+strings.Repeat("0,", largeValues)+`0]`
	for name, tc := range map[string]struct {
		first, second string
		waits         bool
	}{
		"texts":             {text, text, true},
		"values":            {values, values, true},
		"a small one":       {text, `{}`, false},
		"after a small one": {`{}`, text, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ps := &paces{}
				read := func(body string) (done <-chan error, used context.CancelFunc) {
					caller, used := context.WithCancel(t.Context())
					next := metered{paces: ps, caller: caller, next: roundTrip(func(*http.Request) (*http.Response, error) {
						return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(body))}, nil
					})}
					read := make(chan error, 1)
					go func() {
						resp, err := next.RoundTrip(get(t.Context(), t, "https://spoke/apis/x/y"))
						if err == nil {
							_, err = io.Copy(io.Discard, resp.Body)
							_ = resp.Body.Close()
						}
						read <- err
					}()
					synctest.Wait()
					return read, used
				}
				first, used := read(tc.first)
				second, usedToo := read(tc.second)
				defer usedToo()
				if waits := len(second) == 0; waits != tc.waits || len(first) == 0 {
					t.Errorf("the first waits: %v, the second: %v", len(first) == 0, waits)
				}
				used()
				for _, err := range []error{<-first, <-second} {
					if err != nil {
						t.Error(err)
					}
				}
			})
		})
	}
}

// While large answers wait for each other, a probe is answered.
func TestSmallAnswersDoNotWait(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	together := newTogether(Limits{})
	var small partOf
	for _, err := range []error{
		together.take(ended, &partOf{}, 1), together.take(ended, &partOf{}, together.others),
		together.take(ended, &small, maxSmall/2), together.take(ended, &small, maxSmall/2),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	if err := together.take(ended, &small, 1); err == nil {
		t.Error("one that is no longer small does not wait")
	}
}

// Of an answer that is not read, a spoke can send only a little.
func TestUnreadAnswersAreBounded(t *testing.T) {
	window := make(chan uint32, 1)
	server := httptest.NewUnstartedServer(nil)
	server.TLS = &tls.Config{NextProtos: []string{"h2"}}
	server.Config.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){"h2": func(_ *http.Server, conn *tls.Conn, _ http.Handler) {
		begin := make([]byte, len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")+9) // and the header of the frame SETTINGS
		_, err := io.ReadFull(conn, begin)
		settings := make([]byte, binary.BigEndian.Uint16(begin[len(begin)-8:]))
		_, err2 := io.ReadFull(conn, settings)
		if err := errors.Join(err, err2); err != nil {
			t.Error(err)
		}
		for setting := range slices.Chunk(settings, 6) {
			if binary.BigEndian.Uint16(setting) == 4 { // SETTINGS_INITIAL_WINDOW_SIZE
				window <- binary.BigEndian.Uint32(setting[2:])
			}
		}
		close(window)
	}}
	server.StartTLS()
	defer server.Close()
	c, err := newHTTPClient(&rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}, true)
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := c.Transport.RoundTrip(get(t.Context(), t, server.URL)); err == nil {
		_ = resp.Body.Close()
		t.Fatal("there is an answer")
	}
	if got := <-window; got == 0 || got > 1<<20 {
		t.Errorf("it can send %d bytes", got)
	}
}

// answerOf returns the body of an answer to a write.
func answerOf(ctx context.Context, t *testing.T, together *together, body string) io.ReadCloser {
	t.Helper()
	next := metered{together: together, tell: func(e *TooLargeError) { t.Errorf("the session ends: %v", e) }, next: roundTrip(func(req *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader(body)), Request: req}, nil
	})}
	req := get(ctx, t, "https://spoke/apis/x/y")
	req.Method = http.MethodPut
	resp, err := next.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	return resp.Body
}
