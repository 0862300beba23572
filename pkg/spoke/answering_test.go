package spoke

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rulefleet/rulefleet/pkg/spoke/queue"
)

// Only requests of a reconcile control how many keys may be in flight. After an answer, one more key may be, and
// after a failure, the next key waits until there are fewer.
func TestAnswering(t *testing.T) {
	const before = 4 // keys in flight
	for name, tc := range map[string]struct {
		code  int
		err   error
		probe bool
		// want is how many keys are in flight after one such request, and then how many after its reconcile.
		want, then int
	}{
		"an answer":   {code: 201, want: before + 1, then: before + 1},
		"a refusal":   {code: 403, want: before + 1, then: before + 1},
		"an error":    {code: 500, want: before, then: before - 1},
		"a proxy":     {code: 503, want: before, then: before - 1},
		"a timeout":   {err: context.DeadlineExceeded, want: before, then: before - 1},
		"a 429":       {code: 429, want: before, then: before - 1},
		"given up":    {err: context.Canceled, want: before, then: before},
		"no requests": {want: before, then: before},
		// The gate reads the identity with the context of the write that waits for it.
		"a read of the identity":  {code: 200, probe: true, want: before, then: before},
		"a read of it that fails": {err: context.DeadlineExceeded, probe: true, want: before, then: before},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := NewProvider(Options{})
				b := newBreaker(func() {})
				defer b.Stop()
				o := &observer{breaker: b, count: func(string, string) {}, next: roundTrip(func(req *http.Request) (*http.Response, error) {
					<-time.After(time.Millisecond)
					if tc.err != nil {
						return nil, tc.err
					}
					return respond(tc.code, "")(req)
				})}
				r := p.Answering("c", reconcile.TypedFunc[queue.Request](func(ctx context.Context, _ queue.Request) (reconcile.Result, error) {
					if tc.probe {
						ctx = asProbe(ctx)
					}
					if tc.code != 0 || tc.err != nil {
						ctx = context.WithValue(ctx, informerKey{}, true) // the second request waits for the end of the Retry-After
						if resp, err := o.RoundTrip(get(ctx, t, "https://spoke")); err == nil {
							_ = resp.Body.Close()
						}
					}
					return reconcile.Result{}, nil
				}))
				if !p.answers("c") || p.answers("other") {
					t.Error("it is not known whose requests count")
				}
				key := func(name string) queue.Request {
					req := queue.Request{ClusterName: "s"}
					req.Namespace, req.Name = "ns", name
					return req
				}
				if _, err := r.Reconcile(t.Context(), key("a")); err != nil { // the controller has no queue yet
					t.Error(err)
				}
				q := p.ControllerOptions("c", logr.Discard(), nil).NewQueue("c", nil).(*queue.Queue)
				defer q.ShutDown()
				for i := range 10 {
					q.Add(key(strconv.Itoa(i)))
				}
				req, _ := q.Get()
				queue.Ended(q.Flight(t.Context(), req), time.Now().Add(-time.Millisecond), &http.Response{StatusCode: http.StatusOK}, nil)
				synctest.Wait()
				if got := q.InFlight("s"); got != before {
					t.Fatalf("%d keys are in flight, want %d", got, before)
				}
				if _, err := r.Reconcile(t.Context(), req); err != nil {
					t.Error(err)
				}
				synctest.Wait()
				if got := q.InFlight("s"); got != tc.want {
					t.Errorf("%d keys are in flight, want %d", got, tc.want)
				}
				q.Done(req)
				synctest.Wait()
				if got := q.InFlight("s"); got != tc.then {
					t.Errorf("after the reconcile, %d keys are in flight, want %d", got, tc.then)
				}
			})
		})
	}
}

// A write without an answer does not count against a spoke that answers other requests.
func TestHung(t *testing.T) {
	for name, tc := range map[string]struct {
		method string
		// answer is when another request was answered, after the write was sent; negative for none.
		answer time.Duration
		err    error
		want   bool
	}{
		"others are answered until the end":   {method: http.MethodPost, answer: 14 * time.Second, want: true},
		"and past the middle":                 {method: http.MethodPut, answer: 8 * time.Second, want: true},
		"the spoke answers no more":           {method: http.MethodPost, answer: 7 * time.Second},
		"it answered nothing":                 {method: http.MethodDelete, answer: -1},
		"a read":                              {method: http.MethodGet, answer: 14 * time.Second},
		"it is no timeout":                    {method: http.MethodPost, answer: 14 * time.Second, err: errors.New("connection reset")},
		"a timeout of another kind of answer": {method: http.MethodPatch, answer: 14 * time.Second, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBreaker(func() {})
				for range breakerThreshold - 1 {
					b.Observe(false)
				}
				o := &observer{breaker: b, count: func(string, string) {}, next: roundTrip(func(req *http.Request) (*http.Response, error) {
					<-req.Context().Done()
					if tc.err != nil {
						return nil, tc.err
					}
					return nil, req.Context().Err()
				})}
				if tc.answer >= 0 {
					time.AfterFunc(tc.answer, func() { b.Probed(true) })
				}
				ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
				defer cancel()
				req, err := http.NewRequestWithContext(ctx, tc.method, "https://spoke", http.NoBody)
				if err != nil {
					t.Fatal(err)
				}
				resp, err := o.RoundTrip(req)
				if err == nil {
					_ = resp.Body.Close()
				}
				if isHang(err) != tc.want || (tc.err == nil && !errors.Is(err, context.DeadlineExceeded)) {
					t.Errorf("got %v", err)
				}
				for range breakerThreshold - 1 {
					b.Observe(false)
				}
				if b.Open() == tc.want {
					t.Errorf("it counts against the spoke: %v", b.Open())
				}
			})
		})
	}
}
