// Package expect lets a controller wait for its own writes to reach its cache.
//
// A cache lags behind. Reconciling again before it shows the last write would send
// that write once more, or take the controller's own object for somebody else's. So
// a controller notes what it wrote, and leaves the key alone until the cache has it:
// the write's own event brings the key back.
package expect

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/utils/clock"
)

// patience bounds how long a write is waited for. A watch that is broken is made
// anew in less, or the spoke counts as unreachable.
const patience = 10 * time.Second

// Writes are the writes that a cache has not shown yet. New makes one.
//
// A write begins before its request is sent: its event can arrive before the answer
// does. Writes of one key must not overlap.
type Writes[K comparable] struct {
	clock clock.PassiveClock

	mu      sync.Mutex
	pending map[K]write
}

type write struct {
	// seen is the latest version that an event showed since the write began.
	seen string
	// version and deleted are known when the answer is in; until is zero before.
	version string
	deleted bool
	until   time.Time
}

// New returns a Writes without a write.
func New[K comparable](c clock.PassiveClock) *Writes[K] {
	return &Writes[K]{clock: c, pending: map[K]write{}}
}

// Begin notes that a write of key is about to be sent.
func (w *Writes[K]) Begin(key K) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pending[key] = write{}
}

// Wrote notes that key was created or updated, and has the resource version of the
// API server's answer.
func (w *Writes[K]) Wrote(key K, resourceVersion string) {
	w.end(key, write{version: resourceVersion})
}

// Deleted notes that key was deleted, when it had this resource version.
func (w *Writes[K]) Deleted(key K, resourceVersion string) {
	w.end(key, write{version: resourceVersion, deleted: true})
}

// Failed notes that the write was refused.
func (w *Writes[K]) Failed(key K) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.pending, key)
}

// Forget drops the writes of the keys that are meant.
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

// Seen notes that an event showed key at a resource version. Events of older
// versions, which were on their way when the write was made, do not count.
func (w *Writes[K]) Seen(key K, resourceVersion string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n, ok := w.pending[key]
	switch {
	case !ok:
	case n.until.IsZero():
		// Events of one object come in order: the last one is the latest.
		n.seen = resourceVersion
		w.pending[key] = n
	case n.shownBy(resourceVersion):
		delete(w.pending, key)
	}
}

// shownBy tells whether an event of that version shows the write. A deletion is
// shown at a later version than the object had. Versions that can't be compared
// (KEP-5504) are taken for it: there is nothing to wait for then.
func (n write) shownBy(resourceVersion string) bool {
	order, err := resourceversion.CompareResourceVersion(resourceVersion, n.version)
	return err != nil || order > 0 || (order == 0 && !n.deleted)
}

// Pending returns for how long at most key is still to be left alone: zero when
// the cache has caught up.
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
	left := n.until.Sub(w.clock.Now())
	if left <= 0 {
		delete(w.pending, key)
		return 0
	}
	return left
}
