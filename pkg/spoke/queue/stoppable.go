package queue

import (
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
)

// stoppable is a priority queue whose workers all end when it is shut down. With that of controller-runtime before 0.25, a
// getter that leaves because of the shutdown may still be counted as waiting. The queue then blocks, with its locks held, while
// it hands out the next key, and so does every worker that is done with a key
// (https://github.com/kubernetes-sigs/controller-runtime/issues/3538). The manager would wait for them for 30 s, and keep
// the Lease meanwhile.
type stoppable[T comparable] struct {
	priorityqueue.PriorityQueue[T]

	// turn lets one getter in at a time, so that none enters while another one leaves because of the shutdown.
	turn chan struct{}

	mu    sync.Mutex
	ended bool
}

func newStoppable[T comparable](name string, limiter workqueue.TypedRateLimiter[T], with ...priorityqueue.Opt[T]) *stoppable[T] {
	with = append(with, func(o *priorityqueue.Opts[T]) { o.RateLimiter = limiter })
	return &stoppable[T]{PriorityQueue: priorityqueue.New(name, with...), turn: make(chan struct{}, 1)}
}

// GetWithPriority implements priorityqueue.PriorityQueue.
func (q *stoppable[T]) GetWithPriority() (key T, priority int, shutdown bool) {
	q.turn <- struct{}{}
	defer func() { <-q.turn }()
	return q.PriorityQueue.GetWithPriority()
}

// Get implements workqueue.TypedInterface.
func (q *stoppable[T]) Get() (key T, shutdown bool) {
	key, _, shutdown = q.GetWithPriority()
	return key, shutdown
}

// Done implements workqueue.TypedInterface. Nothing needs to be done after the shutdown.
func (q *stoppable[T]) Done(key T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.ended {
		q.PriorityQueue.Done(key)
	}
}

// ShutDown implements workqueue.TypedInterface.
func (q *stoppable[T]) ShutDown() {
	q.mu.Lock()
	q.ended = true // before getters leave
	q.mu.Unlock()
	q.PriorityQueue.ShutDown()
}

// ShutDownWithDrain implements workqueue.TypedInterface. As in controller-runtime, it does not drain.
func (q *stoppable[T]) ShutDownWithDrain() { q.ShutDown() }

// reconcileTimeout bounds a reconcile of a controller of the hub.
const reconcileTimeout = time.Minute

// ControllerOptions returns the options of a controller of the hub's objects with a number of workers.
func ControllerOptions[T comparable](workers int) controller.TypedOptions[T] {
	return controller.TypedOptions[T]{
		MaxConcurrentReconciles: workers,
		RateLimiter:             Backoff[T](),
		ReconciliationTimeout:   reconcileTimeout,
		NewQueue: func(name string, limiter workqueue.TypedRateLimiter[T]) workqueue.TypedRateLimitingInterface[T] {
			return newStoppable(name, limiter)
		},
	}
}
