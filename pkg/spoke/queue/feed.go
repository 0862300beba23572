package queue

import (
	"context"
	"sync/atomic"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Feed passes what a component reports to the controller that works on it. What is sent before the controller has
// started is dropped, because the controller then starts with all its keys. The zero value is ready to use; nil
// drops everything.
type Feed[T any] struct{ to atomic.Pointer[func(T)] }

// Send passes a value on. It takes no lock, so call it without one.
func (f *Feed[T]) Send(v T) {
	if f == nil {
		return
	}
	if to := f.to.Load(); to != nil {
		(*to)(v)
	}
}

// Listen sets the receiver, of which there is one. It must return at once. Controllers use Source.
func (f *Feed[T]) Listen(fn func(T)) {
	if f != nil {
		f.to.Store(&fn)
	}
}

// Source returns a controller's source, which enqueues keys for every value that is sent.
func Source[R comparable, T any](f *Feed[T], enqueue func(q workqueue.TypedRateLimitingInterface[R], v T)) source.TypedSource[R] {
	return source.TypedFunc[R](func(_ context.Context, q workqueue.TypedRateLimitingInterface[R]) error {
		f.Listen(func(v T) { enqueue(q, v) })
		return nil
	})
}
