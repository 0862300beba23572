package queue

import (
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/rulefleet/rulefleet/pkg/metrics"
)

const (
	// minBackoff and maxBackoff bound the delay before a failed key is retried.
	minBackoff = 50 * time.Millisecond
	maxBackoff = 30 * time.Second
	// Behind is the priority of a key that failed or was refused: it comes after all others of its lane.
	Behind = -1000
	// ahead is the priority of a granted key on its way through the priority queue.
	ahead = 1000
)

// Backoff returns the delays before failed keys are retried.
func Backoff[T comparable]() workqueue.TypedRateLimiter[T] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[T](minBackoff, maxBackoff)
}

// Queue is a controller's priority queue that shares its workers among the spokes, the namespaces of each
// spoke, and the namespaces of the hub. Keys that may not be handed out yet are parked. Their turn comes when
// others are done, when answers show that the spoke can take more, or when its circuit closes.
//
// It wraps controller-runtime's priority queue. One goroutine takes every key that is ready out of that queue,
// so that waiting keys are known even when no worker is free. A key whose turn comes later goes through the
// queue once more, because the queue locks keys in flight.
type Queue struct {
	priorityqueue.PriorityQueue[Request]
	name string
	// place and answers are Place and Answering of the Options.
	place   func(Request) Lane
	answers bool

	mu    sync.Mutex
	lanes *lanes
	// granted are the keys whose turn it is, with their priorities, on their way through the priority queue.
	// handed are those that wait for the next worker.
	granted map[Request]int
	handed  []parkedKey
	ended   bool
	// news is signaled when handed has a key or the queue has ended.
	news *sync.Cond
}

// Options are the options of a Queue.
type Options struct {
	// Name is the name of the controller, and Workers the number of its workers.
	Name    string
	Workers int
	// Place returns the lane of a key. It is called without a lock, and must not wait. Nil places a key by its
	// namespace.
	Place func(Request) Lane
	// Answering means that the requests of a Flight decide how many keys of a lane may be in flight. Otherwise
	// the duration and failures of reconciles do.
	Answering bool
}

// New returns a Queue for a controller.
func New(o Options) *Queue {
	if o.Place == nil {
		o.Place = func(req Request) Lane { return Lane{Namespace: req.Namespace} }
	}
	q := &Queue{
		PriorityQueue: newStoppable(o.Name, Backoff[Request]()),
		name:          o.Name,
		place:         o.Place,
		answers:       o.Answering,
		lanes:         newLanes(o.Workers),
		granted:       map[Request]int{},
	}
	q.news = sync.NewCond(&q.mu)
	go q.dispatch()
	return q
}

// dispatch takes keys out of the priority queue, and hands them to workers or parks them.
func (q *Queue) dispatch() {
	for {
		req, priority, shutdown := q.PriorityQueue.GetWithPriority()
		if shutdown {
			break
		}
		q.mu.Lock()
		_, granted := q.granted[req]
		known := granted || q.lanes.has(req)
		q.mu.Unlock()
		var in Lane
		if !known {
			in = q.place(req)
		}
		q.take(req, priority, in)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ended = true
	q.news.Broadcast()
}

// take hands a key to a worker if it is its turn, and parks it otherwise.
func (q *Queue) take(req Request, priority int, in Lane) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if was, ok := q.granted[req]; ok {
		delete(q.granted, req)
		q.handLocked(req, was)
		return
	}
	if q.lanes.put(req, priority, in, time.Now()) {
		metrics.ParkedKeys.WithLabelValues(q.name).Inc()
	}
	if !q.grantLocked(&req) {
		q.PriorityQueue.Done(req)
	}
}

// grantLocked grants every key whose turn it is. It reports whether held is among them, which the priority
// queue has already handed out.
func (q *Queue) grantLocked(held *Request) (isHeld bool) {
	for {
		req, priority, ok := q.lanes.next(time.Now())
		if !ok {
			return isHeld
		}
		metrics.ParkedKeys.WithLabelValues(q.name).Dec()
		if held != nil && req == *held {
			isHeld = true
			q.handLocked(req, priority)
			continue
		}
		q.granted[req] = priority
		q.PriorityQueue.AddWithOpts(priorityqueue.AddOpts{Priority: new(ahead)}, req)
	}
}

func (q *Queue) handLocked(req Request, priority int) {
	q.handed = append(q.handed, parkedKey{req: req, priority: priority})
	q.news.Signal()
}

// GetWithPriority blocks until a key may be handed out.
func (q *Queue) GetWithPriority() (Request, int, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.handed) == 0 && !q.ended {
		q.news.Wait()
	}
	if q.ended {
		return Request{}, 0, true
	}
	k := q.handed[0]
	q.handed = q.handed[1:]
	return k.req, k.priority, false
}

// Get is GetWithPriority without the priority.
func (q *Queue) Get() (Request, bool) {
	req, _, shutdown := q.GetWithPriority()
	return req, shutdown
}

// AddWithOpts adds keys. Failed keys, which the controller adds with a backoff, come after all others of their
// lanes.
func (q *Queue) AddWithOpts(o priorityqueue.AddOpts, reqs ...Request) {
	if o.RateLimited {
		o.Priority = new(Behind)
		q.failed(reqs)
	}
	q.PriorityQueue.AddWithOpts(o, reqs...)
}

// AddRateLimited adds a key that failed.
func (q *Queue) AddRateLimited(req Request) {
	q.AddWithOpts(priorityqueue.AddOpts{RateLimited: true}, req)
}

func (q *Queue) failed(reqs []Request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, req := range reqs {
		if f := q.lanes.flights[req]; f != nil {
			f.failed = true
		}
	}
}

// count reports to the lanes how a request of a key in flight ended.
func (q *Queue) count(req Request, e ending, took time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.lanes.count(req, e, took, time.Now())
	q.grantLocked(nil)
}

// behind returns the keys that wait in the namespace of a key in flight; see lanes.behind.
func (q *Queue) behind(req Request) []Request {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.lanes.behind(req)
}

// Done ends the flight of a key, which makes room for the next.
func (q *Queue) Done(req Request) {
	q.mu.Lock()
	now := time.Now()
	if f := q.lanes.flights[req]; f != nil && !q.answers {
		e := endAnswered
		if f.failed {
			e = endFailed
		}
		q.lanes.count(req, e, now.Sub(f.began), now)
	}
	q.lanes.done(req, now)
	q.grantLocked(nil)
	q.mu.Unlock()
	q.PriorityQueue.Done(req) // the key may be handed out again from now on
}

// SetCircuit parks a spoke's keys when its circuit opens, and releases them when it closes.
func (q *Queue) SetCircuit(name multicluster.ClusterName, open bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.lanes.shut(name, open, time.Now())
	q.grantLocked(nil)
}

// ForgetSpoke drops the parked keys of a spoke that is gone.
func (q *Queue) ForgetSpoke(name multicluster.ClusterName) {
	q.mu.Lock()
	defer q.mu.Unlock()
	metrics.ParkedKeys.WithLabelValues(q.name).Sub(float64(q.lanes.forget(name, time.Now())))
	q.grantLocked(nil)
}

// Name returns the name of the controller.
func (q *Queue) Name() string { return q.name }

// Depth returns how many keys of each spoke are in flight or parked, and how long keys of the slowest spoke
// have waited.
func (q *Queue) Depth() metrics.Queue {
	q.mu.Lock()
	defer q.mu.Unlock()
	spokes := q.lanes.root.children
	out := metrics.Queue{Controller: q.name, Depths: make(map[string]int, len(spokes))}
	for name, l := range spokes {
		if keys := l.inFlight + l.waiting; keys > 0 {
			out.Depths[name] = keys
		}
		if !l.behind.IsZero() {
			out.Backlog = max(out.Backlog, time.Since(l.behind))
		}
	}
	return out
}

// InFlight returns the number of keys of a spoke that are handed out.
func (q *Queue) InFlight(name multicluster.ClusterName) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	if l, ok := q.lanes.root.children[name.String()]; ok {
		return l.inFlight
	}
	return 0
}
