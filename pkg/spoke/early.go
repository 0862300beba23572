package spoke

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

	mu      sync.Mutex
	waiting *backlog
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
	b := newBacklog(version, w)
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

// backlog is a watch that keeps its events until they are read: the last one of each object.
type backlog struct {
	version string
	inner   watch.Interface
	out     chan watch.Event
	done    chan struct{}
	stop    sync.Once
}

func newBacklog(version string, w watch.Interface) *backlog {
	b := &backlog{version: version, inner: w, out: make(chan watch.Event), done: make(chan struct{})}
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
	var events []watch.Event
	for from := b.inner.ResultChan(); from != nil || len(events) > 0; {
		var out chan<- watch.Event
		var next watch.Event
		if len(events) > 0 {
			out, next = b.out, events[0]
		}
		select {
		case e, ok := <-from:
			if !ok {
				from = nil
				continue
			}
			events = append(slices.DeleteFunc(events, func(old watch.Event) bool { return supersedes(e, old) }), e)
		case out <- next:
			events = events[1:]
		case <-b.done:
			for from != nil { // it may still be sending an event
				if _, ok := <-from; !ok {
					from = nil
				}
			}
			return
		}
	}
}

// supersedes reports whether an event replaces an earlier one: one of the same object, or an earlier bookmark.
func supersedes(e, old watch.Event) bool {
	if (e.Type == watch.Bookmark) != (old.Type == watch.Bookmark) {
		return false
	}
	is, ok := uidOf(e)
	was, wasOK := uidOf(old)
	return ok && wasOK && is == was
}

// uidOf returns the UID of an event's object, which is empty for a bookmark. It returns false for an error.
func uidOf(e watch.Event) (types.UID, bool) {
	o, err := meta.Accessor(e.Object)
	if err != nil || e.Type == watch.Error {
		return "", false
	}
	return o.GetUID(), true
}
