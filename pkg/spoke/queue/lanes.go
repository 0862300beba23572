package queue

import (
	"container/heap"
	"container/list"
	"math"
	"time"

	"k8s.io/utils/third_party/forked/golang/btree"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
)

// remembered is how long the small window of an empty lane is kept. It is longer than maxBackoff, so that the
// failed keys of a namespace that hangs do not return all at once.
const remembered = 10 * time.Minute

// mostPerSpoke is how many keys of a spoke may be in flight. kube-apiserver serves 100 concurrent requests per
// connection, including watches. With more, the HTTP client opens another connection, for which the identity
// has to be read as well.
const mostPerSpoke = 64

// Lane is the place where a key of a spoke waits: among the keys of one namespace of the spoke and, within it,
// of one namespace of the hub.
type Lane struct {
	// Namespace is a namespace of the spoke.
	Namespace string
	// Origin is a namespace of the hub.
	Origin string
}

// lanes decides which key is next. It is a tree: the root has all workers, below it are the spokes, then the
// spokes' namespaces, then the hub's namespaces. There, keys wait in order of priority and arrival. A key is
// handed out when every level allows it; see lane.next.
//
// lanes has no lock and no goroutines. Every operation takes logarithmic time, except forget, which is linear
// in the keys that it drops.
type lanes struct {
	root    *lane
	waiting map[Request]*lane
	flights map[Request]*flight
	// idle are the empty lanes with a small window, the longest idle first.
	idle *list.List
	seq  uint64
	free *btree.FreeList[turn]
}

// flight is a key that was handed out.
type flight struct {
	lane  *lane
	began time.Time
	// failed means that the controller will retry the key.
	failed bool
}

// lane is a node of the tree.
type lane struct {
	name     string
	parent   *lane // nil for the root
	window   window
	inFlight int
	// waiting is the number of keys that wait in this lane and below.
	waiting int
	// shut means that the spoke's circuit is open.
	shut bool
	// behind is since when keys of a spoke have been waiting without a pause while the circuit was closed; zero
	// if none waits.
	behind time.Time

	// children are the lanes below this one. ready are those of them that have a key to hand out.
	children map[string]*lane
	ready    *btree.BTree[turn]
	// parked are the keys that wait in a leaf.
	parked parking

	turn   turn // the entry in parent.ready
	queued bool // is in parent.ready
	served uint64
	// idle is the element in lanes.idle, and idleSince when it was added.
	idle      *list.Element
	idleSince time.Time
}

// turn orders the lanes of a level: the most urgent key first, then the fewest keys in flight, then the
// longest time since the lane was served.
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
		waiting: map[Request]*lane{},
		flights: map[Request]*flight{},
		idle:    list.New(),
		free:    btree.NewFreeList[turn](btree.DefaultFreeListSize),
	}
}

// has reports whether a key waits.
func (s *lanes) has(req Request) bool { return s.waiting[req] != nil }

// put adds a key that is not in flight, and reports whether it is new. A waiting key keeps its place unless it
// is more urgent now.
func (s *lanes) put(req Request, priority int, in Lane, now time.Time) bool {
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

// next hands out the next key, if one is allowed.
func (s *lanes) next(now time.Time) (Request, int, bool) {
	l := s.root
	for l.children != nil {
		if l = l.next(); l == nil {
			return Request{}, 0, false
		}
	}
	if l == s.root {
		return Request{}, 0, false // no key was ever added
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

// done ends the flight of a key.
func (s *lanes) done(req Request, now time.Time) {
	f := s.flights[req]
	delete(s.flights, req)
	for n := f.lane; n != nil; n = n.parent {
		n.inFlight--
	}
	s.refresh(f.lane, now)
}

// count adjusts the windows of a key's lanes after one of its requests, or its reconcile, has ended.
// Throttling by the spoke does not affect the windows of its namespaces.
func (s *lanes) count(req Request, e ending, took time.Duration, now time.Time) {
	f := s.flights[req]
	if f == nil {
		return // a late answer
	}
	f.lane.feed(e, took, now)
	if e == endFailed {
		// The other lanes of each level come before this one.
		for n := f.lane; n.parent != nil; n = n.parent {
			s.seq++
			n.served = s.seq
		}
	}
	s.refresh(f.lane, now)
}

// feed reports the end of a request to the windows of a lane and of those above. A window is never larger than
// its share of the window above, because the rest is reserved for others.
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

// most is the largest share of a level that one lane gets.
func most(of int) int { return (3*of + 1) / 4 }

// shut parks the keys of a spoke, or releases them.
func (s *lanes) shut(name multicluster.ClusterName, shut bool, now time.Time) {
	l := s.spoke(name)
	l.shut = shut
	s.refresh(l, now)
}

// forget drops the waiting keys and windows of a spoke, and returns the number of keys. Keys in flight are not
// affected.
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

// clear drops the waiting keys and the windows of a lane and those below.
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

// spoke returns the lane of a spoke, creating it if needed.
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
		// A spoke keeps a small window even if all requests fail, because a single namespace may be the reason.
		w := newWindow(few, few)
		if l != s.root {
			w = newWindow(most(l.window.start), 1)
		}
		c = &lane{name: name, parent: l, window: w, served: s.seq}
		l.children[name] = c
	}
	return c
}

// refresh updates a lane and those above it after a change, and removes lanes that are no longer needed.
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

// tidy removes an empty lane. A small window is kept for a while.
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

// expire removes lanes that have been idle for long.
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

// count adds to the number of waiting keys of a lane and those above.
func (l *lane) count(keys int) {
	for ; l != nil; l = l.parent {
		l.waiting += keys
	}
}

// urgent returns the priority of the key that the lane would hand out, if any.
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

// next returns the child lane whose turn it is, or nil.
//
// While several lanes have a key to hand out, each gets at most half of the level. A single lane leaves a part
// for others: its keys in flight may be at most three times the free rest. So the first lane gets at most
// three quarters, the next three quarters of the rest, and the last place goes to a lane that has none. The
// reserve is needed because keys in flight can't be taken back: a spoke that stopped answering, or a namespace
// whose admission webhook hangs, occupies them until they time out.
//
// For the same reason, spokes that have not answered yet get fewer keys as fewer workers are free, and a
// namespace has one key in flight until it has answered: several namespaces that hang at once leave workers to
// others.
func (l *lane) next() *lane {
	free := l.window.size - l.inFlight
	if l.shut || free <= 0 || l.ready == nil {
		return nil
	}
	below := 3*(free-1) + 1 // a lane with fewer keys in flight may get another
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
		case c.inFlight >= below: // the others of that priority have as many
			pivot = turn{priority: first.priority - 1}
		case c.inFlight >= tried && !c.window.proven(): // there are no more of these than workers
			pivot, pivot.served = first, first.served+1
		default:
			return c
		}
	}
}

// behind returns the keys that wait in the same namespace as a key in flight and have not failed. Each is
// returned once.
func (s *lanes) behind(req Request) []Request {
	f := s.flights[req]
	if f == nil {
		return nil
	}
	var out []Request
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

// parkedKey is a waiting key with its order.
type parkedKey struct {
	req      Request
	priority int
	seq      uint64
	// told means that behind has returned it.
	told bool
}

// parking is a set of keys ordered by priority, then arrival.
type parking struct {
	keys []parkedKey
	at   map[Request]int // index in keys
	seq  uint64
}

// put parks a key and reports whether it is new. A parked key keeps its place unless it is more urgent now.
func (p *parking) put(req Request, priority int) bool {
	if i, ok := p.at[req]; ok {
		p.keys[i].told = false // something about it changed
		if priority > p.keys[i].priority {
			p.keys[i].priority = priority
			heap.Fix(p, i)
		}
		return false
	}
	if p.at == nil {
		p.at = map[Request]int{}
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
