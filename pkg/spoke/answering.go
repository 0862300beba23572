package spoke

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rulefleet/rulefleet/pkg/spoke/queue"
)

// Answering returns a reconciler whose requests to spokes decide how many keys of a lane may be in flight in
// the controller's queue. A reconcile without requests has no effect on that. Without Answering, the duration
// and failures of reconciles decide.
func (p *Provider) Answering(controller string, r reconcile.TypedReconciler[queue.Request]) reconcile.TypedReconciler[queue.Request] {
	p.mu.Lock()
	p.answering[controller] = true
	p.mu.Unlock()
	return reconcile.TypedFunc[queue.Request](func(ctx context.Context, req queue.Request) (reconcile.Result, error) {
		if q := p.queue(controller); q != nil {
			ctx = q.Flight(ctx, req)
		}
		return r.Reconcile(ctx, req)
	})
}

func (p *Provider) answers(controller string) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.answering[controller]
}

// queue returns the queue of a controller, or nil before it has started.
func (p *Provider) queue(controller string) *queue.Queue {
	p.mu.RLock()
	defer p.mu.RUnlock()
	for _, q := range p.circuits {
		if q.Name() == controller {
			return q
		}
	}
	return nil
}

// HangError says that a write got no answer while the spoke answered other requests.
type HangError struct {
	// After is how long the write waited for the answer.
	After time.Duration
	Err   error
}

// Error implements error.
func (e *HangError) Error() string {
	return fmt.Sprintf("the write got no answer within %s, but the API server answers other requests: %v", e.After.Round(time.Second), e.Err)
}

// Unwrap returns the error of client-go.
func (e *HangError) Unwrap() error { return e.Err }

// hung returns a HangError for a write that timed out although the spoke answered another request well after
// the write was sent. Any other error it returns as it is.
func (b *breaker) hung(method string, began time.Time, err error) error {
	if !errors.Is(err, context.DeadlineExceeded) || method == http.MethodGet {
		return err
	}
	took := time.Since(began)
	if b.answeredSince(began.Add(took / 2)) {
		return &HangError{After: took, Err: err}
	}
	return err
}

// answeredSince reports whether the spoke has answered a request since t.
func (b *breaker) answeredSince(t time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.answered.After(t)
}

func isHang(err error) bool {
	_, ok := errors.AsType[*HangError](err)
	return ok
}
