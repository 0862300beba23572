package model

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/spoke"
	"github.com/rulefleet/rulefleet/pkg/spoke/queue"
	"github.com/rulefleet/rulefleet/pkg/testing/oracle"
)

// Process is a manager: its caches, its queue, and a Reconciler.
type Process struct {
	OnHub, InSpoke *Cache
	Queue          *Queue

	// SawOnHub and SawInSpoke handle an event as the controller does.
	SawOnHub, SawInSpoke func(Change)
	// Engaged is called when the spoke is engaged: its cache has synced. Away means that it is not engaged.
	Engaged func()
	Away    bool
	// Forget is called when the spoke is not registered any more. It is nil if nothing is read from spokes.
	Forget func(name string)
	// Restored is called when the spoke was restored from a backup. It may be nil.
	Restored func()
	// Begins is called before each reconcile.
	Begins func()
	// Reconcile is the Reconciler's.
	Reconcile func(context.Context, queue.Request) (reconcile.Result, error)

	// holding shows held deletions; see Hold.
	holding *holding
	dead    bool
}

// errDied is what ends a process at a write.
var errDied = errors.New("the process died")

// Deliver passes an event to a handler. An update is passed if the controller's predicates pass it.
func (p *Process) Deliver(h spoke.EventHandler, c Change, passes func(event.UpdateEvent) bool) {
	ctx := context.Background()
	switch {
	case c.New == nil:
		h.Delete(ctx, event.TypedDeleteEvent[client.Object]{Object: c.Old}, p.Queue)
	case c.Old == nil:
		h.Create(ctx, event.TypedCreateEvent[client.Object]{Object: c.New}, p.Queue)
	case passes(event.UpdateEvent{ObjectOld: c.Old, ObjectNew: c.New}):
		h.Update(ctx, event.TypedUpdateEvent[client.Object]{ObjectOld: c.Old, ObjectNew: c.New}, p.Queue)
	}
}

// run reconciles a request.
func (p *Process) run(req queue.Request) {
	delete(p.Queue.due, req)
	defer func() {
		if got := recover(); got != nil {
			if got != any(errDied) {
				panic(got)
			}
			p.dead = true
		}
	}()
	p.Begins()
	result, err := p.reconcile(context.Background(), req)
	switch {
	case err != nil:
		p.Queue.AddAfter(req, 5*time.Second)
	case result.RequeueAfter > 0:
		p.Queue.AddAfter(req, result.RequeueAfter)
	}
}

func (p *Process) reconcile(ctx context.Context, req queue.Request) (reconcile.Result, error) {
	if req == aboutHeld {
		return p.holding.reconcile(ctx)
	}
	if p.holding.holds() {
		p.Queue.AddAfter(aboutHeld, aboutHeldAfter)
	}
	defer func() {
		if p.holding.holds() {
			p.Queue.AddAfter(aboutHeld, aboutHeldAfter)
		}
	}()
	return p.Reconcile(ctx, req)
}

// saw handles an event of the hub. When the SpokeCluster was created again, the spoke is not engaged any more, and what
// was known of it is forgotten. The brake learns that its identity was lost before it is engaged again.
func (p *Process) saw(c Change) {
	sc, ok := c.New.(*v1alpha1.SpokeCluster)
	created := ok && sc.Name == SpokeName && (c.Old == nil || c.Old.GetUID() != sc.UID) && p.Forget != nil
	if created {
		p.Away = true
		p.Forget(SpokeName)
	}
	p.SawOnHub(c)
	if p.holding != nil && c.Kind == "SpokeCluster" {
		p.Queue.Add(aboutHeld)
	}
	if created {
		if !sc.Status.IdentityTime.IsZero() {
			p.holding.Brake.Beware(sc.Name)
		}
		p.InSpoke.begin(len(p.InSpoke.server.history)) // the lists of a session are consistent reads
		p.engage()
	}
}

func (p *Process) relist() {
	for _, c := range p.OnHub.Relist() {
		p.saw(c)
	}
	if p.Away {
		return
	}
	for _, c := range p.InSpoke.Relist() {
		p.SawInSpoke(c)
	}
}

func (p *Process) catchUp() {
	for p.OnHub.Behind() > 0 {
		p.saw(p.OnHub.Next())
	}
	for p.behindInSpoke() > 0 {
		p.SawInSpoke(p.InSpoke.Next())
	}
}

// behindInSpoke returns how many changes the process will see in the spoke.
func (p *Process) behindInSpoke() int {
	if p.Away {
		return 0
	}
	return p.InSpoke.Behind()
}

// engage engages the spoke, with the first list of its cache.
func (p *Process) engage() {
	for _, c := range p.InSpoke.First() {
		p.SawInSpoke(c)
	}
	p.Away = false
	p.Engaged()
}

// Queue is a queue without goroutines.
type Queue struct {
	spoke.WorkQueue

	due map[queue.Request]time.Time
}

// Add and AddAfter implement spoke.WorkQueue.
func (q *Queue) Add(req queue.Request) { q.AddAfter(req, 0) }

// AddAfter adds a request that is due later.
func (q *Queue) AddAfter(req queue.Request, after time.Duration) {
	at := time.Now().Add(after)
	if was, ok := q.due[req]; !ok || at.Before(was) {
		q.due[req] = at
	}
}

// ready returns the requests that are due, in a fixed order.
func (q *Queue) ready() []queue.Request {
	var out []queue.Request
	for req, at := range q.due {
		if !at.After(time.Now()) {
			out = append(out, req)
		}
	}
	slices.SortFunc(out, func(a, b queue.Request) int {
		return cmp.Or(oracle.CompareKeys(a.NamespacedName, b.NamespacedName), cmp.Compare(a.ClusterName, b.ClusterName))
	})
	return out
}

// untilNext returns when the next request is due, at most at a time.
func (q *Queue) untilNext(end time.Time) time.Duration {
	next := end
	for _, at := range q.due {
		if at.Before(next) {
			next = at
		}
	}
	return max(time.Until(next), time.Millisecond)
}
