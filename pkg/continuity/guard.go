// Package continuity notices that the etcd of an API server was restored from a backup while
// its objects are watched.
//
// A client does not notice by itself. After "connection refused" it watches again at the
// resource version that it saw last, the API server accepts one that its etcd has not reached
// yet, and drops all events up to it. What the backup brought back, or took away, stays
// unknown until something else makes the client list.
//
// Two things tell. A consistent read is never older than one before it, so a lower resource
// version means that the history begins anew. And a watch that ended early is opened one
// event earlier than the client asks for: in the same history it begins with the last event
// that the client saw, and in another history with something else. The latter also holds
// when only a few writes were lost, and the restored etcd has reached the former resource
// version within seconds. It costs no request.
package continuity

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
)

// RestoredError says that the history of a cluster's objects is another one than before.
type RestoredError struct {
	// Why says what was seen.
	Why string
}

// Error implements error.
func (e *RestoredError) Error() string {
	return "the cluster's etcd was restored from a backup: " + e.Why
}

// Guard looks after the watches of one cache. What the cache holds is not to be used any more
// once the guard has an error.
type Guard struct {
	tell     func()
	bound    Bound
	restored chan struct{}

	mu    sync.Mutex
	err   error
	kinds []*kind
}

// Bound returns a context that ends when an answer to a read of one object does not come any more.
type Bound func(context.Context) (context.Context, context.CancelFunc)

// NewGuard returns a Guard. It calls tell, which has to return at once, when it finds that
// the cluster was restored; nil tells nobody. Its own reads have contexts of bound; nil gives each 5 s.
func NewGuard(tell func(), bound Bound) *Guard {
	if bound == nil {
		bound = func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, readTimeout)
		}
	}
	return &Guard{tell: tell, bound: bound, restored: make(chan struct{})}
}

// Restored returns a channel that is closed when the cluster was found to be restored.
func (g *Guard) Restored() <-chan struct{} { return g.restored }

// Err returns a RestoredError when the cluster was found to be restored.
func (g *Guard) Err() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}

// ListerWatcher looks after the lists and watches of a kind, of which o is an object.
func (g *Guard) ListerWatcher(lw toolscache.ListerWatcher, o runtime.Object) *toolscache.ListWatch {
	k := &kind{guard: g, inner: toolscache.ToListerWatcherWithContext(lw), history: history{kind: kindOf(o), empty: true}}
	g.mu.Lock()
	g.kinds = append(g.kinds, k)
	g.mu.Unlock()
	return &toolscache.ListWatch{ListWithContextFunc: k.list, WatchFuncWithContext: k.watch}
}

// Reading begins a consistent read of a kind by somebody else, without a resource version. The
// function takes the resource version of the answer.
func (g *Guard) Reading(kind string) func(resourceVersion string) {
	k := g.latest(kind)
	if k == nil {
		return func(string) {}
	}
	floor := k.history.floor()
	return func(resourceVersion string) { g.found(k.history.read(floor, resourceVersion)) }
}

// Current returns an error when the caches may be of another history than the cluster's: it was
// restored, or can't be asked, or a watch that broke is not known to go on where it ended. It
// reads one object of every kind that is watched.
func (g *Guard) Current(ctx context.Context) error {
	kinds := g.all()
	for _, k := range kinds {
		if _, _, err := k.readOne(ctx); err != nil {
			return fmt.Errorf("reading the resource version of kind %s: %w", k.history.kind, err)
		}
	}
	if err := g.Err(); err != nil {
		return err
	}
	for _, k := range kinds {
		if k.history.uncertain() {
			return fmt.Errorf("the watch of kind %s has not caught up yet", k.history.kind)
		}
	}
	return nil
}

func (g *Guard) all() []*kind {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.kinds)
}

// latest returns a kind as it was watched last, or nil.
func (g *Guard) latest(name string) *kind {
	for _, k := range slices.Backward(g.all()) {
		if k.history.kind == name {
			return k
		}
	}
	return nil
}

// Expired tells whether a kind has to be listed again because the API server had no longer the version
// at which its watch was to begin.
func (g *Guard) Expired(kind string) bool {
	k := g.latest(kind)
	return k != nil && k.history.wasRefused()
}

// found notes that the cluster was restored, unless err is nil.
func (g *Guard) found(err *RestoredError) {
	if err == nil {
		return
	}
	g.mu.Lock()
	first := g.err == nil
	if first {
		g.err = err
		close(g.restored)
	}
	g.mu.Unlock()
	if first && g.tell != nil {
		g.tell()
	}
}

// kindOf returns the kind of an object, which may have only its Go type to tell.
func kindOf(o runtime.Object) string {
	if gvk := o.GetObjectKind().GroupVersionKind(); gvk.Kind != "" {
		return gvk.Kind
	}
	return reflect.TypeOf(o).Elem().Name()
}
