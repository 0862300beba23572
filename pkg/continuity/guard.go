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
	"reflect"
	"sync"
	"time"

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
	restored chan struct{}

	mu    sync.Mutex
	err   error
	kinds map[string]*history
}

// NewGuard returns a Guard. It calls tell, which has to return at once, when it finds that
// the cluster was restored; nil tells nobody.
func NewGuard(tell func()) *Guard {
	return &Guard{tell: tell, restored: make(chan struct{}), kinds: map[string]*history{}}
}

// Restored returns a channel that is closed when the cluster was found to be restored.
func (g *Guard) Restored() <-chan struct{} { return g.restored }

// Err returns a RestoredError when the cluster was found to be restored.
func (g *Guard) Err() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}

// NewInformer is client-go's NewSharedIndexInformer with watches that the guard looks after.
func (g *Guard) NewInformer(lw toolscache.ListerWatcher, o runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
	return toolscache.NewSharedIndexInformer(g.ListerWatcher(lw, o), o, resync, indexers)
}

// ListerWatcher looks after the lists and watches of a kind, of which o is an object.
func (g *Guard) ListerWatcher(lw toolscache.ListerWatcher, o runtime.Object) *toolscache.ListWatch {
	k := &kind{guard: g, inner: toolscache.ToListerWatcherWithContext(lw), history: history{kind: kindOf(o), empty: true}}
	g.mu.Lock()
	g.kinds[k.history.kind] = &k.history
	g.mu.Unlock()
	return &toolscache.ListWatch{ListWithContextFunc: k.list, WatchFuncWithContext: k.watch}
}

// Reading begins a consistent read of a kind by somebody else, without a resource version. The
// function takes the resource version of the answer.
func (g *Guard) Reading(kind string) func(resourceVersion string) {
	g.mu.Lock()
	h := g.kinds[kind]
	g.mu.Unlock()
	if h == nil {
		return func(string) {}
	}
	floor := h.floor()
	return func(resourceVersion string) { g.found(h.read(floor, resourceVersion)) }
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
