package spoke

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/rulefleet/rulefleet/pkg/spoke/queue"
)

const (
	// workers is the number of concurrent reconciles of a controller over all spokes. It is high because workers
	// mostly wait for spokes.
	workers = 128
	// reconcileTimeout bounds one reconcile, with all its requests.
	reconcileTimeout = time.Minute
)

// WorkQueue is a controller's queue as sources and handlers see it.
type WorkQueue = workqueue.TypedRateLimitingInterface[queue.Request]

// EventHandler handles the events of one kind of object in one cluster.
type EventHandler = handler.TypedEventHandler[client.Object, queue.Request]

// ControllerOptions are the options of every controller that works on spokes: a Queue that isolates the
// spokes, and a logger with the spoke's name. place returns the Lane of a key: see Queue.
func (p *Provider) ControllerOptions(name string, log logr.Logger, place func(queue.Request) queue.Lane) controller.TypedOptions[queue.Request] {
	log = log.WithValues("controller", name)
	return controller.TypedOptions[queue.Request]{
		MaxConcurrentReconciles: workers,
		ReconciliationTimeout:   reconcileTimeout,
		NewQueue: func(name string, _ workqueue.TypedRateLimiter[queue.Request]) WorkQueue {
			q := queue.New(queue.Options{Name: name, Workers: workers, Place: place, Answering: p.answers(name)})
			p.follow(q)
			return q
		},
		LogConstructor: func(req *queue.Request) logr.Logger {
			if req == nil {
				return log.V(1) // every engaged spoke starts several sources
			}
			return log.WithValues("cluster", req.ClusterName, "kind", req.Kind, "namespace", req.Namespace, "name", req.Name)
		},
	}
}

// Started is a source for a controller on the hub. It delays the engagement of spokes until the controller has
// started: a spoke that is engaged earlier ends the process if its cache does not sync.
func (p *Provider) Started() source.TypedSource[queue.Request] {
	p.ready.Add(1)
	return source.TypedFunc[queue.Request](func(context.Context, WorkQueue) error {
		p.ready.Done()
		return nil
	})
}

// Engaged is a source that calls a function whenever a spoke is engaged. The function enqueues the objects
// whose events on the hub came before that.
type Engaged func(ctx context.Context, spoke string, q WorkQueue)

// ForCluster implements TypedSource of multicluster-runtime.
func (e Engaged) ForCluster(name multicluster.ClusterName, _ cluster.Cluster) (source.TypedSource[queue.Request], bool, error) {
	return source.TypedFunc[queue.Request](func(ctx context.Context, q WorkQueue) error {
		go e(ctx, name.String(), q)
		return nil
	}), true, nil
}

// OnEvent returns a handler that calls fn with the versions of the object, newest first: two for an update,
// one for any other event.
func OnEvent(fn func(ctx context.Context, q WorkQueue, versions ...client.Object)) EventHandler {
	return handler.TypedFuncs[client.Object, queue.Request]{
		CreateFunc: func(ctx context.Context, e event.TypedCreateEvent[client.Object], q WorkQueue) { fn(ctx, q, e.Object) },
		UpdateFunc: func(ctx context.Context, e event.TypedUpdateEvent[client.Object], q WorkQueue) {
			fn(ctx, q, e.ObjectNew, e.ObjectOld)
		},
		DeleteFunc: func(ctx context.Context, e event.TypedDeleteEvent[client.Object], q WorkQueue) { fn(ctx, q, e.Object) },
	}
}

// Enqueue adds a key to a queue with a priority.
func Enqueue(q WorkQueue, priority int, req queue.Request) {
	enqueue(q, req, priorityqueue.AddOpts{Priority: &priority})
}

// EnqueueAfter adds a key to a queue after a delay, with the lowest priority.
func EnqueueAfter(q WorkQueue, req queue.Request, after time.Duration) {
	enqueue(q, req, priorityqueue.AddOpts{Priority: new(handler.LowPriority), After: after})
}

func enqueue(q WorkQueue, req queue.Request, o priorityqueue.AddOpts) {
	if pq, ok := q.(priorityqueue.PriorityQueue[queue.Request]); ok {
		pq.AddWithOpts(o, req)
		return
	}
	q.AddAfter(req, o.After) // at once where that is 0
}
