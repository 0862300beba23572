package spoke

import (
	"container/heap"
	"container/list"
	"math"
	"time"

	"k8s.io/utils/third_party/forked/golang/btree"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"
)

// remembered is for how long the small window of a lane without keys is kept: longer than failed
// keys stay away (maxBackoff), so that those of a namespace that hangs don't come back as many.
const remembered = 10 * time.Minute

// mostPerSpoke is how many keys of a spoke may be in flight. kube-apiserver takes 100 requests at a
// time over a connection, watches included. Beyond that the HTTP client opens another connection,
// for which the identity has to be read as well.
const mostPerSpoke = 64

// Lane says where a key of a spoke waits: with others of the same namespace of the spoke and,
// within that, with those of the same namespace of the hub.
type Lane struct {
	// Namespace is a namespace of the spoke.
	Namespace string
	// Origin is a namespace of the hub.
	Origin string
}

// lanes decide which key is worked on next. They are a tree: all workers, below them the spokes,
// below each the spoke's namespaces, and below each of these the hub's namespaces, where keys
// wait in order of priority and then of arrival. A key is handed out when it may be on every
// level; see lane.next.
//
// lanes hold no lock and start nothing. Every operation takes time in the logarithm of what waits,
// but forget, which takes a step for each key that it drops.
type lanes struct {
	root    *lane
	waiting map[mcreconcile.Request]*lane
	flights map[mcreconcile.Request]*flight
	// idle are lanes without keys that have a small window, the longest idle first.
	idle *list.List
	seq  uint64
	free *btree.FreeList[turn]
}

// flight is a key that was handed out.
type flight struct {
	lane  *lane
	began time.Time
	// failed tells that the controller is going to try it again.
	failed bool
}

// lane is a node of the tree.
type lane struct {
	name     string
	parent   *lane // nil for that of all workers
	window   window
	inFlight int
	// waiting is how many keys wait in it and below it.
	waiting int
	// shut is a spoke's whose circuit is open.
	shut bool
	// behind is since when keys of a spoke have been waiting without an end though the circuit is
	// closed; zero when none does.
	behind time.Time

	// children are the lanes below it, and ready those of them that have a key to hand out.
	children map[string]*lane
	ready    *btree.BTree[turn]
	// parked are the keys of a lane that has no others below it.
	parked parking

	turn   turn // as it is in parent's ready
	queued bool // it is in parent's ready
	served uint64
	// idle is its place in lanes.idle, and idleSince when it came there.
	idle      *list.Element
	idleSince time.Time
}

// turn decides which of the lanes on a level is next: that with the most urgent key; of those,
// that with the fewest keys in flight; and of those, that which was served the longest ago.
type turn struct {
	priority, inFlight int
	served             uint64
	lane               *lane
}

func (t turn) before(o turn) bool {
	switch {
	case t.priority != o.priority:
		return t.priority > o.priority
	case t.inFlight != o.inFlight:
		return t.inFlight < o.inFlight
	}
	return t.served < o.served
}

func newLanes(workers int) *lanes {
	return &lanes{
		root:    &lane{window: newWindow(workers, workers)},
		waiting: map[mcreconcile.Request]*lane{},
		flights: map[mcreconcile.Request]*flight{},
		idle:    list.New(),
		free:    btree.NewFreeList[turn](btree.DefaultFreeListSize),
	}
}

// has tells whether a key waits.
func (s *lanes) has(req mcreconcile.Request) bool { return s.waiting[req] != nil }

// put lets a key wait, and tells whether it did not before. One that waits already keeps its place,
// unless it is more urgent now. It must not be in flight.
func (s *lanes) put(req mcreconcile.Request, priority int, in Lane, now time.Time) bool {
	l := s.waiting[req]
	if l == nil {
		s.expire(now)
		l = s.child(s.child(s.spoke(req.ClusterName), in.Namespace), in.Origin)
		s.waiting[req] = l
		l.count(1)
	}
	added := l.parked.put(req, priority)
	s.refresh(l, now)
	return added
}

// next hands out the key whose turn it is, if there is one that may be.
func (s *lanes) next(now time.Time) (mcreconcile.Request, int, bool) {
	l := s.root
	for l.children != nil {
		if l = l.next(); l == nil {
			return mcreconcile.Request{}, 0, false
		}
	}
	if l == s.root {
		return mcreconcile.Request{}, 0, false // no key was ever here
	}
	k := l.parked.take()
	delete(s.waiting, k.req)
	l.count(-1)
	s.flights[k.req] = &flight{lane: l, began: now}
	for n := l; n != nil; n = n.parent {
		n.inFlight++
		s.seq++
		n.served = s.seq
	}
	s.refresh(l, now)
	return k.req, k.priority, true
}

// done takes a key back that was handed out.
func (s *lanes) done(req mcreconcile.Request, now time.Time) {
	f := s.flights[req]
	delete(s.flights, req)
	for n := f.lane; n != nil; n = n.parent {
		n.inFlight--
	}
	s.refresh(f.lane, now)
}

// count changes how many may be in flight in the lanes of a key in flight, by what became of it, or
// of one of its requests, after some time. That the spoke throttles says nothing of its namespaces.
func (s *lanes) count(req mcreconcile.Request, e ending, took time.Duration, now time.Time) {
	f := s.flights[req]
	if f == nil {
		return // an answer that came late
	}
	f.lane.feed(e, took, now)
	if e == endFailed {
		// Whatever else waited on a level has its turn before it.
		for n := f.lane; n.parent != nil; n = n.parent {
			s.seq++
			n.served = s.seq
		}
	}
	s.refresh(f.lane, now)
}

// feed tells the windows of a lane and of those above it how a request ended. None is larger than
// what it could get of the one above: what is kept for who comes there would be of no use otherwise.
func (l *lane) feed(e ending, took time.Duration, now time.Time) {
	if l.parent == nil {
		return
	}
	l.parent.feed(e, took, now)
	if e != endThrottled || l.parent.parent == nil {
		l.window.add(e, took, now, l.inFlight)
	}
	l.window.size = min(l.window.size, max(l.window.start, most(l.parent.window.size)))
}

// most is how much of a level one lane gets at most.
func most(of int) int { return (3*of + 1) / 4 }

// shut parks the keys of a spoke, or lets them go.
func (s *lanes) shut(name multicluster.ClusterName, shut bool, now time.Time) {
	l := s.spoke(name)
	l.shut = shut
	s.refresh(l, now)
}

// forget drops what waits of a spoke, with all that is known of it, and returns how many keys that
// were. What is in flight stays so.
func (s *lanes) forget(name multicluster.ClusterName, now time.Time) int {
	l := s.root.children[name.String()]
	if l == nil {
		return 0
	}
	dropped := l.waiting
	l.shut = false
	s.clear(l, now)
	return dropped
}

// clear drops what waits in a lane and below it, and all windows.
func (s *lanes) clear(l *lane, now time.Time) {
	l.window = l.window.anew()
	for _, c := range l.children {
		s.clear(c, now)
	}
	for _, k := range l.parked.keys {
		delete(s.waiting, k.req)
	}
	l.count(-l.parked.Len())
	l.parked = parking{}
	s.refresh(l, now)
}

// spoke returns the lane of a spoke, which is made when there is none.
func (s *lanes) spoke(name multicluster.ClusterName) *lane {
	return s.child(s.root, name.String())
}

func (s *lanes) child(l *lane, name string) *lane {
	c := l.children[name]
	if c == nil {
		if l.children == nil {
			l.children = map[string]*lane{}
			l.ready = btree.NewWithFreeList(8, turn.before, s.free)
		}
		s.seq++
		// Where a spoke's requests fail, a namespace may be the reason, and others have to get
		// through: it keeps a few.
		w := newWindow(few, few)
		if l != s.root {
			w = newWindow(most(l.window.start), 1)
		}
		c = &lane{name: name, parent: l, window: w, served: s.seq}
		l.children[name] = c
	}
	return c
}

// refresh puts a lane that changed, and those above it, where they belong on their level. Those
// that are not needed any more go.
func (s *lanes) refresh(l *lane, now time.Time) {
	for ; l.parent != nil; l = l.parent {
		if l.queued {
			l.parent.ready.Delete(l.turn)
		}
		var priority int
		if priority, l.queued = l.urgent(); l.queued {
			l.turn = turn{priority: priority, inFlight: l.inFlight, served: l.served, lane: l}
			l.parent.ready.ReplaceOrInsert(l.turn)
		}
		switch {
		case l.shut || l.waiting == 0:
			l.behind = time.Time{}
		case l.behind.IsZero():
			l.behind = now
		}
		s.tidy(l, now)
	}
}

// tidy drops a lane that nothing is known of. A small window is remembered for a while.
func (s *lanes) tidy(l *lane, now time.Time) {
	quiet := l.inFlight == 0 && l.waiting == 0 && !l.shut && len(l.children) == 0
	if !quiet || !l.window.narrow() {
		if l.idle != nil {
			s.idle.Remove(l.idle)
			l.idle = nil
		}
		if quiet {
			delete(l.parent.children, l.name)
		}
		return
	}
	if l.idle == nil {
		l.idle, l.idleSince = s.idle.PushBack(l), now
	}
}

// expire drops lanes that have been idle for long.
func (s *lanes) expire(now time.Time) {
	for e := s.idle.Front(); e != nil; e = s.idle.Front() {
		l := e.Value.(*lane)
		if now.Sub(l.idleSince) < remembered {
			return
		}
		for n := l; n.parent != nil && n.inFlight == 0 && n.waiting == 0 && len(n.children) <= 1; n = n.parent {
			n.window = n.window.anew()
		}
		s.refresh(l, now)
	}
}

// count adds keys to those that wait in a lane and those above it.
func (l *lane) count(keys int) {
	for ; l != nil; l = l.parent {
		l.waiting += keys
	}
}

// urgent returns the priority of the key that the lane would hand out, if it would hand out one.
func (l *lane) urgent() (int, bool) {
	if l.children != nil {
		c := l.next()
		if c == nil {
			return 0, false
		}
		return c.turn.priority, true
	}
	if l.shut || l.inFlight >= l.window.size || l.parked.Len() == 0 {
		return 0, false
	}
	return l.parked.keys[0].priority, true
}

// next returns the lane below it whose turn it is, or nil.
//
// While several have a key to hand out, none of them gets more than half. Alone, one gets all but a
// part that is kept for who comes: it may have three times as many in flight as then are free. So the
// first has three quarters at most, the next three quarters of the rest, and the last is for one that
// has none. What is in flight can't be taken back: a spoke that stopped answering, or a namespace
// whose admission webhook hangs, keeps it until it times out.
//
// For the same reason, spokes that have not answered yet get fewer of the few, the less is free, and a
// namespace of a spoke has one key in flight until it has answered: several that hang at once leave
// some to another one.
func (l *lane) next() *lane {
	free := l.window.size - l.inFlight
	if l.shut || free <= 0 || l.ready == nil {
		return nil
	}
	below := 3*(free-1) + 1 // a lane that has less in flight may go on
	if l.ready.Len() > 1 {
		below = min(below, max(1, l.window.size/2))
	}
	tried := below
	switch {
	case l.parent == nil:
		below = min(below, mostPerSpoke)
		tried = few*(free-1)/l.window.size + 1
	case l.parent.parent == nil:
		tried = 1
	}
	for pivot := (turn{priority: math.MaxInt}); ; {
		var first turn
		l.ready.AscendGreaterOrEqual(pivot, func(t turn) bool { first = t; return false })
		switch c := first.lane; {
		case c == nil:
			return nil
		case c.inFlight >= below: // as have the others of that priority
			pivot = turn{priority: first.priority - 1}
		case c.inFlight >= tried && !c.window.proven(): // no more of these than there are workers
			pivot, pivot.served = first, first.served+1
		default:
			return c
		}
	}
}

// behind returns the keys that wait in the namespace of a key in flight and have not failed. Each is
// returned once.
func (s *lanes) behind(req mcreconcile.Request) []mcreconcile.Request {
	f := s.flights[req]
	if f == nil {
		return nil
	}
	var out []mcreconcile.Request
	for _, l := range f.lane.parent.children {
		for i := range l.parked.keys {
			if k := &l.parked.keys[i]; !k.told && k.priority > Behind {
				k.told = true
				out = append(out, k.req)
			}
		}
	}
	return out
}

// parkedKey is a key that waits, with what decides when it is its turn.
type parkedKey struct {
	req      mcreconcile.Request
	priority int
	seq      uint64
	// told tells that behind has returned it.
	told bool
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
		p.keys[i].told = false // something about it changed
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
