package spoke

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
)

const (
	// earlyAfter is how long a list is read before the watch that follows it is opened. kube-apiserver keeps the
	// events of at least 75 s.
	earlyAfter = 30 * time.Second
	// earlyLasts is the timeout of that watch, in seconds.
	earlyLasts = 3600
)

// earlyWatch opens the watch that follows a list while the list is still being read. A list over a slow link
// can take longer than the API server keeps events. A watch opened afterwards would be refused, and the list
// would start again, endlessly.
type earlyWatch struct {
	inner toolscache.ListerWatcherWithContext
	// trim trims the objects of events that wait, and bounds limit them. Both may be nil.
	trim   func(runtime.Object) error
	bounds *listBounds

	mu      sync.Mutex
	waiting *backlog
}

// keeps trims an event, and reports whether events of this amount may wait.
func (a *earlyWatch) keeps(e watch.Event, all amount) bool {
	if e.Type != watch.Error && a.trim != nil && a.trim(e.Object) != nil {
		return false // it is not of this kind
	}
	all.add(e.Object)
	return a.bounds.waits(all)
}

// listWatch returns a ListerWatcher that uses the watch that was opened early.
func (a *earlyWatch) listWatch() *toolscache.ListWatch {
	return &toolscache.ListWatch{ListWithContextFunc: a.inner.ListWithContext, WatchFuncWithContext: a.watch}
}

// open opens the watch for a list of this version, unless the list ends soon.
func (a *earlyWatch) open(ctx context.Context, version string, ended <-chan struct{}) {
	select {
	case <-ended:
		return
	case <-time.After(earlyAfter):
	}
	w, err := a.inner.WatchWithContext(ctx, metav1.ListOptions{
		ResourceVersion: version, AllowWatchBookmarks: true, TimeoutSeconds: new(int64(earlyLasts)),
	})
	if err != nil {
		return // the watch that follows the list shows the error
	}
	b := newBacklog(version, w, a.keeps, a.bounds.account().charge())
	context.AfterFunc(ctx, b.Stop) // the reader may have ended
	a.mu.Lock()
	defer a.mu.Unlock()
	select {
	case <-ended:
		b.Stop()
	default:
		a.waiting = b
	}
}

// take returns the watch that was opened early, or nil.
func (a *earlyWatch) take() *backlog {
	a.mu.Lock()
	defer a.mu.Unlock()
	b := a.waiting
	a.waiting = nil
	return b
}

// drop stops the watch that was opened early.
func (a *earlyWatch) drop() {
	if b := a.take(); b != nil {
		b.Stop()
	}
}

func (a *earlyWatch) watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	if b := a.take(); b != nil {
		if b.version == options.ResourceVersion {
			return b, nil
		}
		b.Stop()
	}
	return a.inner.WatchWithContext(ctx, options) //nolint:wrapcheck // its caller knows client-go's
}

// backlog is a watch that keeps its events until they are read: the last one of each object. If too many wait, it ends,
// and what follows the list is watched from its beginning.
type backlog struct {
	version string
	inner   watch.Interface
	// keeps reports whether an event may wait beside others.
	keeps func(e watch.Event, others amount) bool
	// charge counts the events that wait.
	charge *Charge
	out    chan watch.Event
	done   chan struct{}
	stop   sync.Once
}

func newBacklog(version string, w watch.Interface, keeps func(watch.Event, amount) bool, charge *Charge) *backlog {
	b := &backlog{version: version, inner: w, keeps: keeps, charge: charge, out: make(chan watch.Event), done: make(chan struct{})}
	go b.run()
	return b
}

// ResultChan implements watch.Interface.
func (b *backlog) ResultChan() <-chan watch.Event { return b.out }

// Stop implements watch.Interface.
func (b *backlog) Stop() {
	b.stop.Do(func() {
		close(b.done)
		b.inner.Stop()
	})
}

func (b *backlog) run() {
	defer close(b.out)
	defer b.charge.Close()
	w := waitingEvents{last: map[eventKey]*waitingEvent{}}
	for from := b.inner.ResultChan(); from != nil || w.first() != nil; {
		var out chan<- watch.Event
		var next watch.Event
		if first := w.first(); first != nil {
			out, next = b.out, first.Event
		}
		select {
		case e, ok := <-from:
			if !ok {
				from = nil
				continue
			}
			if !b.keeps(e, w.beside(e)) {
				b.Stop() // nothing that is newer than this event may be read
				drain(from)
				return
			}
			w.add(e)
			b.charge.Set(w.size.bytes)
			if e.Type == watch.Error { // an API server sends nothing after it, and another one may send more errors
				b.inner.Stop()
				go drain(from)
				from = nil
			}
		case out <- next:
			w.drop(w.events[0])
			b.charge.Set(w.size.bytes)
		case <-b.done:
			drain(from)
			return
		}
	}
}

// drain reads what a stopped watch still sends. from may be nil.
func drain(from <-chan watch.Event) {
	if from == nil {
		return
	}
	for range from {
	}
}

// eventKey identifies the object of an event. It is empty for errors.
type eventKey struct {
	uid      types.UID
	bookmark bool
}

// waitingEvents are events in order, with the last one of each object, and the last bookmark. Those that a later one
// replaced are empty.
type waitingEvents struct {
	events []*waitingEvent
	last   map[eventKey]*waitingEvent
	size   amount
}

// waitingEvent is an event, with what is counted of it: its reader may change the object.
type waitingEvent struct {
	watch.Event

	key  eventKey
	size amount
}

// beside returns the amount of the events that an event does not replace.
func (w *waitingEvents) beside(e watch.Event) amount {
	if old := w.last[keyOf(e)]; old != nil {
		return w.size.minus(old.size)
	}
	return w.size
}

// add appends an event.
func (w *waitingEvents) add(e watch.Event) {
	is := &waitingEvent{Event: e, key: keyOf(e)}
	is.size.add(e.Object)
	if is.key != (eventKey{}) {
		if old := w.last[is.key]; old != nil {
			w.drop(old)
		}
		w.last[is.key] = is
	}
	w.events = append(w.events, is)
	w.size = w.size.plus(is.size)
	if len(w.events) > 100 && len(w.events) > 2*int(w.size.objects) {
		w.events = slices.DeleteFunc(w.events, func(e *waitingEvent) bool { return e.Object == nil })
	}
}

// drop removes an event that waits.
func (w *waitingEvents) drop(e *waitingEvent) {
	if w.last[e.key] == e {
		delete(w.last, e.key)
	}
	w.size = w.size.minus(e.size)
	*e = waitingEvent{}
}

// first returns the first event, or nil.
func (w *waitingEvents) first() *waitingEvent {
	for len(w.events) > 0 && w.events[0].Object == nil {
		w.events = w.events[1:]
	}
	if len(w.events) == 0 {
		return nil
	}
	return w.events[0]
}

func keyOf(e watch.Event) eventKey {
	o, err := meta.Accessor(e.Object)
	if err != nil || e.Type == watch.Error {
		return eventKey{}
	}
	return eventKey{uid: o.GetUID(), bookmark: e.Type == watch.Bookmark}
}
