package spoke

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"
	mccontroller "sigs.k8s.io/multicluster-runtime/pkg/controller"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

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
type WorkQueue = workqueue.TypedRateLimitingInterface[mcreconcile.Request]

// EventHandler handles the events of one kind of object in one cluster.
type EventHandler = handler.TypedEventHandler[client.Object, mcreconcile.Request]

// ControllerOptions are the options of every controller that works on spokes: a Queue that isolates the
// spokes, and a logger with the spoke's name. place returns the Lane of a key: see Queue.
func (p *Provider) ControllerOptions(name string, log logr.Logger, place func(mcreconcile.Request) queue.Lane) mccontroller.Options {
	log = log.WithValues("controller", name)
	return mccontroller.Options{
		MaxConcurrentReconciles: workers,
		ReconciliationTimeout:   reconcileTimeout,
		NewQueue: func(name string, _ workqueue.TypedRateLimiter[mcreconcile.Request]) WorkQueue {
			q := queue.New(queue.Options{Name: name, Workers: workers, Place: place, Answering: p.answers(name)})
			p.follow(q)
			return q
		},
		LogConstructor: func(req *mcreconcile.Request) logr.Logger {
			if req == nil {
				return log.V(1) // every engaged spoke starts several sources
			}
			return log.WithValues("cluster", req.ClusterName, "namespace", req.Namespace, "name", req.Name)
		},
	}
}

// Started is a source for a controller on the hub. It delays the engagement of spokes until the controller has
// started: a spoke that is engaged earlier ends the process if its cache does not sync.
func (p *Provider) Started() source.TypedSource[mcreconcile.Request] {
	p.ready.Add(1)
	return source.TypedFunc[mcreconcile.Request](func(context.Context, WorkQueue) error {
		p.ready.Done()
		return nil
	})
}

// Engaged is a source that calls a function whenever a spoke is engaged. The function enqueues the objects
// whose events on the hub came before that.
type Engaged func(ctx context.Context, spoke string, q WorkQueue)

// ForCluster implements TypedSource of multicluster-runtime.
func (e Engaged) ForCluster(name multicluster.ClusterName, _ cluster.Cluster) (source.TypedSource[mcreconcile.Request], bool, error) {
	return source.TypedFunc[mcreconcile.Request](func(ctx context.Context, q WorkQueue) error {
		go e(ctx, name.String(), q)
		return nil
	}), true, nil
}

// OnEvent returns a handler that calls fn with the versions of the object, newest first: two for an update,
// one for any other event.
func OnEvent(fn func(ctx context.Context, q WorkQueue, versions ...client.Object)) EventHandler {
	return handler.TypedFuncs[client.Object, mcreconcile.Request]{
		CreateFunc: func(ctx context.Context, e event.TypedCreateEvent[client.Object], q WorkQueue) { fn(ctx, q, e.Object) },
		UpdateFunc: func(ctx context.Context, e event.TypedUpdateEvent[client.Object], q WorkQueue) {
			fn(ctx, q, e.ObjectNew, e.ObjectOld)
		},
		DeleteFunc: func(ctx context.Context, e event.TypedDeleteEvent[client.Object], q WorkQueue) { fn(ctx, q, e.Object) },
	}
}

// Enqueue adds a key of a spoke to a queue with a priority.
func Enqueue(q WorkQueue, priority int, spoke string, key types.NamespacedName) {
	enqueue(q, spoke, key, priorityqueue.AddOpts{Priority: &priority})
}

// EnqueueAfter adds a key of a spoke to a queue after a delay, with the lowest priority.
func EnqueueAfter(q WorkQueue, spoke string, key types.NamespacedName, after time.Duration) {
	enqueue(q, spoke, key, priorityqueue.AddOpts{Priority: new(handler.LowPriority), After: after})
}

func enqueue(q WorkQueue, spoke string, key types.NamespacedName, o priorityqueue.AddOpts) {
	req := mcreconcile.Request{ClusterName: multicluster.ClusterName(spoke)}
	req.NamespacedName = key
	if pq, ok := q.(priorityqueue.PriorityQueue[mcreconcile.Request]); ok {
		pq.AddWithOpts(o, req)
		return
	}
	q.AddAfter(req, o.After) // at once where that is 0
}
