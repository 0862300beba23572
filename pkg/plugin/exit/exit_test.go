package exit

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// TestNoAnswer has API servers that do not answer: the failure is not that of a result that is not ready.
func TestNoAnswer(t *testing.T) {
	closed := httptest.NewServer(nil)
	closed.Close()
	silent, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	unknown := httptest.NewTLSServer(http.NotFoundHandler())
	defer unknown.Close()
	for name, tc := range map[string]struct {
		url  string
		next string
	}{
		"nobody listens":         {closed.URL, "cannot be reached"},
		"no answer in time":      {"http://" + silent.Addr().String(), "cannot be reached"},
		"an unknown certificate": {unknown.URL, "certificate authority in the kubeconfig"},
	} {
		t.Run(name, func(t *testing.T) {
			client := http.Client{Timeout: 50 * time.Millisecond}
			if strings.HasPrefix(tc.url, "https") {
				client.Timeout = 0
			}
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, tc.url, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			response, err := client.Do(request)
			if err == nil {
				_, _ = io.Copy(io.Discard, response.Body)
				t.Fatal(response.Body.Close())
			}
			if code, next := Of(fmt.Errorf("listing: %w", err)); code != Failed || !strings.Contains(next, tc.next) {
				t.Errorf("%v: %d, %q", err, code, next)
			}
		})
	}
	if code, _ := Of(fmt.Errorf("waiting: %w", context.DeadlineExceeded)); code != NotReady {
		t.Errorf("a wait that ends has the code %d", code)
	}
}
