package spoke

import (
	"container/heap"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/rulefleet/rulefleet/pkg/metrics"
)

const (
	// minBackoff and maxBackoff bound the time until a failed key is tried again.
	minBackoff = 50 * time.Millisecond
	maxBackoff = 30 * time.Second
)

// Queue is a controller's priority queue that keeps spokes apart: at most limit
// keys of one spoke are handed out at a time, and none while its circuit is open.
// What may not be handed out is parked, once per key, and comes back in order of
// priority when a key of that spoke is done, or when its circuit closes.
//
// It wraps controller-runtime's priority queue, which does all the rest.
type Queue struct {
	priorityqueue.PriorityQueue[mcreconcile.Request]
	name  string
	limit int

	mu    sync.Mutex
	lanes map[multicluster.ClusterName]*lane
}

// lane is what a Queue knows of one spoke.
type lane struct {
	inFlight int
	open     bool // the circuit
	parked   parking
	// behind is since when keys have been waiting without an end though the circuit is
	// closed; zero when none does.
	behind time.Time
}

// NewQueue returns a Queue for the controller of that name.
func NewQueue(name string, limit int) *Queue {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[mcreconcile.Request](minBackoff, maxBackoff)
	return &Queue{
		PriorityQueue: priorityqueue.New(name, func(o *priorityqueue.Opts[mcreconcile.Request]) { o.RateLimiter = limiter }),
		name:          name,
		limit:         limit,
		lanes:         map[multicluster.ClusterName]*lane{},
	}
}

// GetWithPriority blocks until a key may be handed out.
func (q *Queue) GetWithPriority() (mcreconcile.Request, int, bool) {
	for {
		req, priority, shutdown := q.PriorityQueue.GetWithPriority()
		if shutdown || q.admit(req, priority) {
			return req, priority, shutdown
		}
		q.PriorityQueue.Done(req)
	}
}

// Get is GetWithPriority without the priority.
func (q *Queue) Get() (mcreconcile.Request, bool) {
	req, _, shutdown := q.GetWithPriority()
	return req, shutdown
}

// Done hands a key back, and makes room for the next of its spoke.
func (q *Queue) Done(req mcreconcile.Request) {
	q.PriorityQueue.Done(req)
	q.mu.Lock()
	l := q.lanes[req.ClusterName]
	l.inFlight--
	next := q.takeLocked(l, 1)
	q.tidyLocked(req.ClusterName, l)
	q.mu.Unlock()
	q.readd(next)
}

// SetCircuit parks a spoke's keys when its circuit opens, and lets them go when it
// closes.
func (q *Queue) SetCircuit(name multicluster.ClusterName, open bool) {
	q.mu.Lock()
	l := q.laneLocked(name)
	l.open = open
	// Each key that is done brings the next one along: as many as fit are enough.
	next := q.takeLocked(l, q.limit)
	q.tidyLocked(name, l)
	q.mu.Unlock()
	q.readd(next)
}

// ForgetSpoke drops what is parked of a spoke that is gone.
func (q *Queue) ForgetSpoke(name multicluster.ClusterName) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l, ok := q.lanes[name]
	if !ok {
		return
	}
	metrics.ParkedKeys.WithLabelValues(q.name).Sub(float64(l.parked.Len()))
	l.parked, l.open = parking{}, false
	q.tidyLocked(name, l)
}

// tidyLocked notes whether keys wait, and drops a lane that holds nothing.
func (q *Queue) tidyLocked(name multicluster.ClusterName, l *lane) {
	l.note()
	if l.inFlight == 0 && !l.open && l.parked.Len() == 0 {
		delete(q.lanes, name)
	}
}

// note notes since when keys wait.
func (l *lane) note() {
	switch {
	case l.open || l.parked.Len() == 0:
		l.behind = time.Time{}
	case l.behind.IsZero():
		l.behind = time.Now()
	}
}

// depth returns how many keys of each spoke are worked on or parked, and for how long those
// of the spoke that is longest behind wait.
func (q *Queue) depth() metrics.Queue {
	q.mu.Lock()
	defer q.mu.Unlock()
	out := metrics.Queue{Controller: q.name, Depths: make(map[string]int, len(q.lanes))}
	for name, l := range q.lanes {
		if keys := l.inFlight + l.parked.Len(); keys > 0 {
			out.Depths[name.String()] = keys
		}
		if !l.behind.IsZero() {
			out.Backlog = max(out.Backlog, time.Since(l.behind))
		}
	}
	return out
}

// Parked returns the number of parked keys of a spoke.
func (q *Queue) Parked(name multicluster.ClusterName) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	if l, ok := q.lanes[name]; ok {
		return l.parked.Len()
	}
	return 0
}

// InFlight returns the number of keys of a spoke that are handed out.
func (q *Queue) InFlight(name multicluster.ClusterName) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	if l, ok := q.lanes[name]; ok {
		return l.inFlight
	}
	return 0
}

func (q *Queue) laneLocked(name multicluster.ClusterName) *lane {
	l, ok := q.lanes[name]
	if !ok {
		l = &lane{}
		q.lanes[name] = l
	}
	return l
}

func (q *Queue) admit(req mcreconcile.Request, priority int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.laneLocked(req.ClusterName)
	if l.open || l.inFlight >= q.limit {
		if l.parked.put(req, priority) {
			metrics.ParkedKeys.WithLabelValues(q.name).Inc()
			l.note()
		}
		return false
	}
	l.inFlight++
	// Added again, it may come here before its turn among those that are parked.
	if l.parked.drop(req) {
		metrics.ParkedKeys.WithLabelValues(q.name).Dec()
		l.note()
	}
	return true
}

func (q *Queue) takeLocked(l *lane, n int) []parkedKey {
	var out []parkedKey
	for ; n > 0 && !l.open && l.parked.Len() > 0; n-- {
		out = append(out, l.parked.take())
	}
	metrics.ParkedKeys.WithLabelValues(q.name).Sub(float64(len(out)))
	return out
}

func (q *Queue) readd(keys []parkedKey) {
	for _, k := range keys {
		q.AddWithOpts(priorityqueue.AddOpts{Priority: &k.priority}, k.req)
	}
}

// parkedKey is a key that waits, with what decides when it is its turn.
type parkedKey struct {
	req      mcreconcile.Request
	priority int
	seq      uint64
}

// parking is a set of keys, ordered by priority and then by arrival.
type parking struct {
	keys []parkedKey
	at   map[mcreconcile.Request]int // index in keys
	seq  uint64
}

// put parks a key and tells whether it was not there before. A key that was keeps
// its place, unless it is more urgent now.
func (p *parking) put(req mcreconcile.Request, priority int) bool {
	if i, ok := p.at[req]; ok {
		if priority > p.keys[i].priority {
			p.keys[i].priority = priority
			heap.Fix(p, i)
		}
		return false
	}
	if p.at == nil {
		p.at = map[mcreconcile.Request]int{}
	}
	p.seq++
	heap.Push(p, parkedKey{req: req, priority: priority, seq: p.seq})
	return true
}

func (p *parking) take() parkedKey { return heap.Pop(p).(parkedKey) }

// drop takes a key out of turn, and tells whether it was there.
func (p *parking) drop(req mcreconcile.Request) bool {
	i, ok := p.at[req]
	if ok {
		heap.Remove(p, i)
	}
	return ok
}

// Len, Less, Swap, Push and Pop implement heap.Interface.
func (p *parking) Len() int { return len(p.keys) }

// Less implements heap.Interface.
func (p *parking) Less(i, j int) bool {
	if p.keys[i].priority != p.keys[j].priority {
		return p.keys[i].priority > p.keys[j].priority
	}
	return p.keys[i].seq < p.keys[j].seq
}

// Swap implements heap.Interface.
func (p *parking) Swap(i, j int) {
	p.keys[i], p.keys[j] = p.keys[j], p.keys[i]
	p.at[p.keys[i].req], p.at[p.keys[j].req] = i, j
}

// Push implements heap.Interface.
func (p *parking) Push(x any) {
	k := x.(parkedKey)
	p.at[k.req] = len(p.keys)
	p.keys = append(p.keys, k)
}

// Pop implements heap.Interface.
func (p *parking) Pop() any {
	last := len(p.keys) - 1
	k := p.keys[last]
	p.keys = p.keys[:last]
	delete(p.at, k.req)
	return k
}
