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
	// earlyAfter is how long a list is read before the watch that is to follow it is opened.
	// kube-apiserver remembers the events of at least 75 s.
	earlyAfter = 30 * time.Second
	// earlyLasts is for how long that watch is opened, in seconds.
	earlyLasts = 3600
)

// earlyWatch opens the watch that follows a list while the list is still being read. A list over a slow link
// can take longer than the API server remembers events. A watch that is opened at its end would be
// refused then, and the list would begin again, without an end.
type earlyWatch struct {
	inner toolscache.ListerWatcherWithContext

	mu      sync.Mutex
	waiting *backlog
}

// listWatch returns the ListerWatcher whose watches may have been opened before.
func (a *earlyWatch) listWatch() *toolscache.ListWatch {
	return &toolscache.ListWatch{ListWithContextFunc: a.inner.ListWithContext, WatchFuncWithContext: a.watch}
}

// open opens the watch of a list of a version, unless the list ends soon.
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
		return // the watch that follows the list will tell why
	}
	b := newBacklog(version, w)
	context.AfterFunc(ctx, b.Stop) // whoever was to read it may have ended
	a.mu.Lock()
	defer a.mu.Unlock()
	select {
	case <-ended:
		b.Stop()
	default:
		a.waiting = b
	}
}

// take returns the watch that was opened, if there is one.
func (a *earlyWatch) take() *backlog {
	a.mu.Lock()
	defer a.mu.Unlock()
	b := a.waiting
	a.waiting = nil
	return b
}

// drop ends the watch that was opened, if there is one.
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

// backlog is a watch whose events wait for their reader: of each object, the last.
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
			for from != nil { // it may have something in hand
				if _, ok := <-from; !ok {
					from = nil
				}
			}
			return
		}
	}
}

// supersedes tells whether an event says all that an earlier one did: of the same object, or a later
// bookmark.
func supersedes(e, old watch.Event) bool {
	if (e.Type == watch.Bookmark) != (old.Type == watch.Bookmark) {
		return false
	}
	is, ok := uidOf(e)
	was, wasOK := uidOf(old)
	return ok && wasOK && is == was
}

// uidOf returns the UID of an event's object, which a bookmark's does not have. It tells false for an
// error.
func uidOf(e watch.Event) (types.UID, bool) {
	o, err := meta.Accessor(e.Object)
	if err != nil || e.Type == watch.Error {
		return "", false
	}
	return o.GetUID(), true
}
