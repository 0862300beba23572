package spoke

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// watchOf opens a watch of a path that sends this body, and returns it.
func watchOf(ctx context.Context, t *testing.T, ps *paces, path string, body io.Reader) io.ReadCloser {
	t.Helper()
	next := metered{tell: func(e *TooLargeError) { t.Errorf("the session ends: %v", e) }, paces: ps, next: roundTrip(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(body)}, nil
	})}
	resp, err := next.RoundTrip(get(ctx, t, "https://spoke"+path+"?watch=true"))
	if err != nil {
		t.Fatal(err)
	}
	return resp.Body
}

// read reads until ctx ends, and returns the number of bytes.
func read(t *testing.T, body io.ReadCloser) int64 {
	t.Helper()
	n, err := io.Copy(io.Discard, body)
	if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
		t.Errorf("the watch ended: %v", err)
	}
	_ = body.Close()
	return n
}

// A watch that is too fast is read more slowly, and does not end. Neither a second watch of the same kind nor a new
// one is faster, and a watch of another kind is not affected.
func TestWatchesAreSlowed(t *testing.T) {
	const (
		span  = time.Minute
		spans = int64(span/eventSpan) + 1 // the first of them at once
	)
	empty, dense := `{"type":"ADDED"}`, `{"a":[`+strings.Repeat(`0,`, 1000)+`0]}`
	large := `{"a":"` + strings.Repeat("x", 1<<20) + `"}`
	for name, tc := range map[string]struct {
		event string
		most  int64 // bytes that may be read within span
	}{
		"too many events":      {empty, spans * maxEvents * int64(len(empty))},
		"too many bytes":       {large, spans * maxEventBytes},
		"too many JSON values": {dense, spans * maxEventValues * int64(len(dense)) / 1002},
	} {
		for _, watches := range []int{1, 3} {
			t.Run(name+", "+strings.Repeat("i", watches), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					ctx, cancel := context.WithTimeout(t.Context(), span)
					defer cancel()
					ps := &paces{}
					counts := make(chan int64, watches)
					for range watches {
						go func() { counts <- read(t, watchOf(ctx, t, ps, "/apis/apps/v1/deployments", endless(tc.event))) }()
					}
					time.Sleep(lateShown / 2) //nolint:forbidigo // of the bubble's clock
					if got := ps.late(time.Now()); got != "" {
						t.Errorf("it is shown too soon: %s", got)
					}
					time.Sleep(lateShown) //nolint:forbidigo // of the bubble's clock
					if got := ps.late(time.Now()); !strings.HasPrefix(got, "changes of deployments arrive late, because there are too many: at most 10,000 of them, 32 MiB and 2,097,152 JSON values are read within 5s") {
						t.Errorf("it is shown as %q", got)
					}
					began := time.Now()
					other := `{"type":"ADDED","object":{}}`
					calm := watchOf(ctx, t, ps, "/api/v1/namespaces", strings.NewReader(strings.Repeat(other, maxEvents)))
					if _, err := io.Copy(io.Discard, calm); err != nil || time.Since(began) > 0 {
						t.Errorf("another watch: %v after %v", err, time.Since(began))
					}
					_ = calm.Close()
					total := int64(0)
					for range watches {
						total += <-counts
					}
					if slack := int64(watches * eventStep * 2); total > tc.most+slack || total < tc.most*9/10 {
						t.Errorf("%d bytes were read, and %d may be", total, tc.most)
					}
					again, stop := context.WithTimeout(t.Context(), time.Second)
					defer stop()
					if n := read(t, watchOf(again, t, ps, "/apis/apps/v1/deployments", endless(tc.event))); n > tc.most/10 {
						t.Errorf("a new watch read %d bytes within a second", n)
					}
					time.Sleep(lateOver) //nolint:forbidigo // of the bubble's clock
					if got := ps.late(time.Now()); got != "" {
						t.Errorf("it is still shown: %s", got)
					}
				})
			})
		}
	}
}

// A watch that waits ends as soon as it is closed.
func TestSlowedWatchesCanBeClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body := watchOf(t.Context(), t, &paces{}, "/apis/apps/v1/deployments", endless("{}"))
		done := make(chan time.Time)
		go func() {
			read(t, body)
			done <- time.Now()
		}()
		time.Sleep(7 * time.Second) //nolint:forbidigo // of the bubble's clock
		began := time.Now()
		_ = body.Close()
		if took := (<-done).Sub(began); took > 0 {
			t.Errorf("it took %v", took)
		}
	})
}

// A tenant's burst of changes does not end the session. The status says so if it lasts.
func TestLateChangesAreShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &connection{name: "s", breaker: newBreaker(func() {}), reads: newReadings(), received: &atomic.Int64{}, p: NewProvider(Options{}), log: logr.Discard()}
		p := c.paces.of("/apis/monitoring.coreos.com/v1/prometheusrules")
		for range 4 {
			p.read(time.Now(), 0, maxEventBytes, 0)
			p.read(time.Now(), 0, maxEventBytes, 0)
			time.Sleep(eventSpan) //nolint:forbidigo // of the bubble's clock
		}
		c.connected()
		if f := c.seen.Connected; f.Status != "True" || f.Reason != v1alpha1.ReasonConnected || !strings.HasPrefix(f.Message, "the spoke answers; changes of prometheusrules arrive late") {
			t.Errorf("it is shown as %+v", f)
		}
	})
}
