package spoke

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// A spoke may send back the credential; it must never be shown.
func TestCredentialIsRedacted(t *testing.T) {
	for name, tc := range map[string]struct {
		code int
		body string
		want string
	}{
		"repeated":        {code: http.StatusBadGateway, body: "Bearer " + canary + ", " + canary + "!", want: "Bearer [redacted], [redacted]!"},
		"nothing of it":   {code: http.StatusForbidden, body: "no", want: "no"},
		"empty":           {code: http.StatusNotFound},
		"in what is read": {code: http.StatusOK, body: canary, want: canary}, // objects are theirs
	} {
		t.Run(name, func(t *testing.T) {
			resp := &http.Response{StatusCode: tc.code, Header: http.Header{"Content-Length": {"9"}}, Body: io.NopCloser(strings.NewReader(tc.body))}
			redact(resp, [][]byte{[]byte(canary)})
			got, err := io.ReadAll(resp.Body)
			if err != nil || string(got) != tc.want {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
	t.Run("cut in the middle", func(t *testing.T) {
		body := strings.Repeat("x", maxErrorBody-len(canary)/2) + canary
		resp := &http.Response{StatusCode: http.StatusBadGateway, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}
		redact(resp, [][]byte{[]byte(canary)})
		if got, err := io.ReadAll(resp.Body); err != nil || strings.Trim(string(got), "x") != "" || len(got) < maxErrorBody/2 {
			t.Errorf("%d bytes, %v", len(got), err)
		}
	})
}

// A proxy in front of a spoke that sends back the request.
func TestCredentialIsNotShown(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		http.Error(w, "can't forward "+req.Header.Get("Authorization"), http.StatusBadGateway)
	}))
	defer server.Close()
	c := connectWith(t, server, goodUser)
	defer c.disconnect()
	err := c.probe(asProbe(t.Context()))
	if err == nil || strings.Contains(err.Error(), canary) || strings.Contains(disconnected(err).Message, canary) {
		t.Errorf("got %v", err)
	}
}
