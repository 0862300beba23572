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

	"k8s.io/client-go/rest"
)

// Answers that are within their bounds each can be too large together: then one more waits until one was read, and the
// session goes on.
func TestTogether(t *testing.T) {
	const mebibyte = 1 << 20
	large, many := `{"a":"`+strings.Repeat("x", 3*mebibyte)+`"}`, `{"a":[`+strings.Repeat("0,", 100_000)+`0]}`
	for name, tc := range map[string]struct {
		body  string
		limit int // of answers at the same time
		waits bool
		// metadata means that only the metadata is requested.
		metadata bool
		apart    func(context.Context) context.Context
	}{
		"bytes":                 {body: large, limit: 7, waits: true},
		"values":                {body: many, limit: 3, waits: true},
		"large Deployments":     {body: strings.Repeat(large, 3), limit: 3, waits: true, metadata: true},
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
					body := answerOf(ctx, t, together, tc.body, tc.metadata)
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
				if together.held != (partOf{}) || len(together.parts) > 0 {
					t.Errorf("held are %+v", together.held)
				}
			})
		})
	}
}

// Answers that wait for each other are all read in the end.
func TestTogetherGoesOn(t *testing.T) {
	const bytes = 9 << 20
	together, body := newTogether(Limits{}), `{"a":"`+strings.Repeat("x", bytes)+`"}`
	var reading sync.WaitGroup
	for range 16 {
		answer := answerOf(t.Context(), t, together, body, true)
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
			if together.held.bytes > 2*DefaultMaxMemory/3 {
				t.Errorf("held are %d bytes", together.held.bytes)
			}
		})
	}
	reading.Wait()
}

// While large answers wait for each other, a probe is answered.
func TestSmallAnswersDoNotWait(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for what, fill := range map[string]func(t *together) (bytes, values int64){
		"bytes":  func(t *together) (bytes, values int64) { return t.others.bytes, 0 },
		"values": func(t *together) (bytes, values int64) { return 0, t.others.values },
	} {
		together := newTogether(Limits{})
		bytes, values := fill(together)
		var small partOf
		for _, err := range []error{
			together.take(ended, &partOf{}, 1, 1), together.take(ended, &partOf{}, bytes, values),
			together.take(ended, &small, maxSmall/2, 10), together.take(ended, &small, maxSmall/2, 10),
		} {
			if err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		if err := together.take(ended, &small, 1, 1); err == nil {
			t.Errorf("%s: one that is no longer small does not wait", what)
		}
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

// answerOf returns the body of an answer to a write, or to a read of metadata.
func answerOf(ctx context.Context, t *testing.T, together *together, body string, metadata bool) io.ReadCloser {
	t.Helper()
	next := metered{together: together, tell: func(e *TooLargeError) { t.Errorf("the session ends: %v", e) }, next: roundTrip(func(req *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader(body)), Request: req}, nil
	})}
	req := get(ctx, t, "https://spoke/apis/x/y")
	if req.Method = http.MethodPut; metadata {
		req.Method = http.MethodGet
		req.Header.Set("Accept", acceptMetadata)
	}
	resp, err := next.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	return resp.Body
}
