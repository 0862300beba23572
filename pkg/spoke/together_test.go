package spoke

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
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
