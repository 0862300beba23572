// Package expect lets a controller wait until its cache shows the controller's own writes.
//
// A cache lags behind. A reconcile before it shows the last write would repeat the write, or take the
// controller's own object for another client's. So a controller records its writes, and skips a key until the
// cache shows the write. The write's event triggers another reconcile.
package expect

import (
	"maps"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/utils/clock"
)

// patience bounds the wait for a write. A broken watch is replaced sooner, or the spoke counts as unreachable.
const patience = 10 * time.Second

// Writes are the writes that a cache does not show yet. Use New to create one.
//
// Call Begin before the request is sent, because the event can arrive before the answer. Writes of one key
// must not overlap.
type Writes[K comparable] struct {
	clock clock.PassiveClock

	mu      sync.Mutex
	pending map[K]write
}

type write struct {
	// seen is the latest version in an event since the write began.
	seen string
	// version and deleted are set with the answer; until is zero before.
	version string
	deleted bool
	until   time.Time
}

// New returns an empty Writes.
func New[K comparable](c clock.PassiveClock) *Writes[K] {
	return &Writes[K]{clock: c, pending: map[K]write{}}
}

// Begin records that a write of key is about to be sent.
func (w *Writes[K]) Begin(key K) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pending[key] = write{}
}

// Wrote records that key was created or updated, with the resourceVersion of the answer.
func (w *Writes[K]) Wrote(key K, resourceVersion string) {
	w.end(key, write{version: bounded(resourceVersion)})
}

// Deleted records that key was deleted at this resourceVersion.
func (w *Writes[K]) Deleted(key K, resourceVersion string) {
	w.end(key, write{version: bounded(resourceVersion), deleted: true})
}

// bounded returns a version that can be kept: spokes send them, and that of an API server has up to 20 digits. Any other is
// one that can't be compared.
func bounded(resourceVersion string) string {
	if len(resourceVersion) > 64 {
		return ""
	}
	return resourceVersion
}

// Failed records that the write failed, or that there is nothing to wait for.
func (w *Writes[K]) Failed(key K) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.pending, key)
}

// Forget drops the writes of the keys for which meant returns true.
func (w *Writes[K]) Forget(meant func(K) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.pending, func(key K, _ write) bool { return meant(key) })
}

func (w *Writes[K]) end(key K, n write) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n.seen, n.until = w.pending[key].seen, w.clock.Now().Add(patience)
	w.pending[key] = n
	if n.seen != "" && n.shownBy(n.seen) {
		delete(w.pending, key)
	}
}

// Seen records an event of key at a resourceVersion. Events of older versions do not count.
func (w *Writes[K]) Seen(key K, resourceVersion string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n, ok := w.pending[key]
	switch {
	case !ok:
	case n.until.IsZero():
		// Events of one object arrive in order, so the last one is the latest.
		n.seen = bounded(resourceVersion)
		w.pending[key] = n
	case n.shownBy(resourceVersion):
		delete(w.pending, key)
	}
}

// shownBy reports whether an event at that version shows the write. A deletion has a later version than the
// object. If versions can't be compared (KEP-5504), it returns true, so that nothing waits.
func (n write) shownBy(resourceVersion string) bool {
	order, err := resourceversion.CompareResourceVersion(resourceVersion, n.version)
	return err != nil || order > 0 || (order == 0 && !n.deleted)
}

// Pending returns how long key has to be skipped at most; zero if the cache has caught up.
func (w *Writes[K]) Pending(key K) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	n, ok := w.pending[key]
	if !ok {
		return 0
	}
	if n.until.IsZero() {
		return patience
	}
	left := max(n.until.Sub(w.clock.Now()), 0)
	if left == 0 && n.deleted { // a list may have shown it
		delete(w.pending, key)
	}
	return left
}

// Confirm reads an object that the cache lacks although it was written and should long have been shown. read returns
// its resourceVersion, or NotFound. If it is there, the cache is still behind, and the key is pending again; otherwise
// it was deleted before the cache showed it. Confirm returns the other errors of read.
func (w *Writes[K]) Confirm(key K, read func() (resourceVersion string, err error)) error {
	if !w.overdue(key) {
		return nil
	}
	version, err := read()
	switch {
	case apierrors.IsNotFound(err):
		w.Failed(key)
	case err != nil:
		return err
	default:
		w.Wrote(key, version)
	}
	return nil
}

func (w *Writes[K]) overdue(key K) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	n, ok := w.pending[key]
	return ok && !n.deleted && !n.until.IsZero() && !w.clock.Now().Before(n.until)
}
