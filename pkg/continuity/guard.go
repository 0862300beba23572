// Package continuity detects that the etcd of an API server was restored from a backup while its objects are
// watched.
//
// A client does not detect that by itself. After "connection refused" it watches again from its last
// resourceVersion. The API server accepts one that its etcd has not reached yet, and drops all events up to
// it. The objects that the backup restored or removed stay unknown until the client lists again for another
// reason.
//
// There are three signs. A consistent read is never older than an earlier one, so a lower resourceVersion means
// a new history. And a watch that ended early is opened one event earlier than the client asks for: in the
// same history it begins with the client's last event, in another history with something else. That also works
// when only a few writes were lost and the restored etcd reaches the former resourceVersion within seconds. It
// needs no request. If the API server no longer has that event, neither sign is certain: then an object that is
// written all the time, such as a Lease, is the third one (Guard.Follow).
package continuity

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
)

// RestoredError says that a cluster's objects have a different history than before.
type RestoredError struct {
	// Why describes the sign.
	Why string
}

// Error implements error.
func (e *RestoredError) Error() string {
	return "the cluster's etcd was restored from a backup: " + e.Why
}

// Guard checks the watches of one cache. Once it has an error, the cache must not be used any more.
type Guard struct {
	tell     func()
	bound    Bound
	restored chan struct{}
	// pulse is the followed object, or nil.
	pulse atomic.Pointer[pulse]

	mu    sync.Mutex
	err   error
	kinds []*kind
}

// Bound returns a context for a read of one object, which ends when no answer can be expected any more.
type Bound func(context.Context) (context.Context, context.CancelFunc)

// NewGuard returns a Guard. It calls tell, which may be nil and must return at once, when the cluster was
// restored. Its own reads use contexts of bound; nil means 5 s each.
func NewGuard(tell func(), bound Bound) *Guard {
	if bound == nil {
		bound = func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, readTimeout)
		}
	}
	return &Guard{tell: tell, bound: bound, restored: make(chan struct{})}
}

// Restored returns a channel that is closed when a restore is detected.
func (g *Guard) Restored() <-chan struct{} { return g.restored }

// Err returns a RestoredError when a restore was detected.
func (g *Guard) Err() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}

// ListerWatcher checks the lists and watches of the kind of o.
func (g *Guard) ListerWatcher(lw toolscache.ListerWatcher, o runtime.Object) *toolscache.ListWatch {
	k := &kind{guard: g, inner: toolscache.ToListerWatcherWithContext(lw), history: history{kind: kindOf(o), empty: true}}
	g.mu.Lock()
	g.kinds = append(g.kinds, k)
	g.mu.Unlock()
	return &toolscache.ListWatch{ListWithContextFunc: k.list, WatchFuncWithContext: k.watch}
}

// Reading starts a consistent read by the caller, without a resourceVersion. Call the function with the
// resourceVersion of the answer.
func (g *Guard) Reading(kind string) func(resourceVersion string) {
	k := g.latest(kind)
	if k == nil {
		return func(string) {}
	}
	floor := k.history.floor()
	return func(resourceVersion string) { g.found(k.history.read(floor, resourceVersion)) }
}

// Current returns an error if the caches may have another history than the cluster: it was restored, or does
// not answer, or a watch that broke is not known to continue where it ended. It reads one object of every
// watched kind.
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

// latest returns the latest watch of a kind, or nil.
func (g *Guard) latest(name string) *kind {
	for _, k := range slices.Backward(g.all()) {
		if k.history.kind == name {
			return k
		}
	}
	return nil
}

// Expired reports whether a kind must be listed again because the version at which its watch was to begin has
// expired.
func (g *Guard) Expired(kind string) bool {
	k := g.latest(kind)
	return k != nil && k.history.hasExpired()
}

// found records a restore, unless err is nil.
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

// kindOf returns the kind of an object, from its Go type if necessary.
func kindOf(o runtime.Object) string {
	if gvk := o.GetObjectKind().GroupVersionKind(); gvk.Kind != "" {
		return gvk.Kind
	}
	return reflect.TypeOf(o).Elem().Name()
}
