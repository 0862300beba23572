package queue

import (
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
)

// stoppable is a priority queue that lets all workers end when it is shut down. In controller-runtime 0.24.1, a getter that
// returns because of the shutdown is still counted as waiting. The queue can then block while it hands out the next key. It
// holds its locks, so every worker that calls Done blocks too
// (https://github.com/kubernetes-sigs/controller-runtime/issues/3538). The manager would wait 30 s for these workers, and
// keep the Lease. Remove this type with controller-runtime 0.25, which multicluster-runtime 0.24 does not allow yet.
type stoppable[T comparable] struct {
	priorityqueue.PriorityQueue[T]

	// turn admits one getter at a time. Otherwise a getter could wait for a lock that the blocked queue holds.
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
