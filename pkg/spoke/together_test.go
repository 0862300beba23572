package spoke

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
)

// Answers that are within their bounds each can be too large together, until one of them was read.
func TestTogether(t *testing.T) {
	const mebibyte = 1 << 20
	large, many := `{"a":"`+strings.Repeat("x", 3*mebibyte)+`"}`, `{"a":[`+strings.Repeat("0,", 100_000)+`0]}`
	for name, tc := range map[string]struct {
		body  string
		limit int // of answers at the same time
		unit  string
		apart func(context.Context) context.Context
	}{
		"bytes":                 {body: large, limit: 10, unit: "bytes"},
		"values":                {body: many, limit: 7, unit: "JSON values"},
		"small ones":            {body: `{"a":"b"}`, limit: 1000},
		"pages of lists":        {body: large, limit: 20, apart: func(ctx context.Context) context.Context { return context.WithValue(ctx, inflowKey{}, &inflow{}) }},
		"behind the API server": {body: large, limit: 20, apart: aside},
	} {
		t.Run(name, func(t *testing.T) {
			var told *TooLargeError
			next := metered{together: newTogether(Limits{}), tell: func(e *TooLargeError) { told = e }, next: roundTrip(func(req *http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader(tc.body)), Request: req}, nil
			})}
			answer := func() (io.Closer, error) {
				t.Helper()
				req := get(t.Context(), t, "https://spoke/apis/x/y")
				req.Method = http.MethodPut
				if tc.apart != nil {
					req = req.WithContext(tc.apart(req.Context()))
				}
				resp, err := next.RoundTrip(req)
				if err != nil {
					t.Fatal(err)
				}
				_, err = io.Copy(io.Discard, resp.Body)
				return resp.Body, err
			}
			var open []io.Closer
			for range tc.limit {
				body, err := answer()
				if err != nil || told != nil {
					t.Fatalf("the %dth: %v", len(open)+1, err)
				}
				open = append(open, body)
			}
			if tc.unit != "" {
				body, err := answer()
				if excess := tooLarge(err); excess == nil || excess != told || excess.Unit != tc.unit || excess.Value <= excess.Bound {
					t.Fatalf("one more: %v, told %v", err, told)
				}
				_ = body.Close()
				told = nil
				_ = open[0].Close()
				_ = open[0].Close()
				if body, err = answer(); err != nil {
					t.Errorf("after one was read: %v", err)
				}
				open = append(open[1:], body)
			}
			for _, body := range open {
				_ = body.Close()
			}
			if held := next.together.held; held != (partOf{}) {
				t.Errorf("held are %+v", held)
			}
		})
	}
}
