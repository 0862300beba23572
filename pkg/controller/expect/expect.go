// Package expect lets a controller wait for its own writes to reach its cache.
//
// A cache lags behind. Reconciling again before it shows the last write would send
// that write once more, or take the controller's own object for somebody else's. So
// a controller notes what it wrote, and leaves the key alone until the cache has it:
// the write's own event brings the key back.
package expect

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/utils/clock"
)

// patience bounds how long a write is waited for. A watch that is broken is made
// anew in less, or the spoke counts as unreachable.
const patience = 10 * time.Second

// Writes are the writes that a cache has not shown yet. The zero value is not
// usable; New makes one.
type Writes[K comparable] struct {
	clock clock.PassiveClock

	mu      sync.Mutex
	pending map[K]write
}

type write struct {
	version string
	deleted bool
	until   time.Time
}

// New returns a Writes without a write.
func New[K comparable](c clock.PassiveClock) *Writes[K] {
	return &Writes[K]{clock: c, pending: map[K]write{}}
}

// Wrote notes that key was created or updated, and has the resource version of the
// API server's answer.
func (w *Writes[K]) Wrote(key K, resourceVersion string) {
	w.note(key, write{version: resourceVersion})
}

// Deleted notes that key was deleted, when it had this resource version.
func (w *Writes[K]) Deleted(key K, resourceVersion string) {
	w.note(key, write{version: resourceVersion, deleted: true})
}

func (w *Writes[K]) note(key K, n write) {
	n.until = w.clock.Now().Add(patience)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pending[key] = n
}

// Seen notes that an event showed key at a resource version. Events of older
// versions, which were on their way when the write was made, do not count.
func (w *Writes[K]) Seen(key K, resourceVersion string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n, ok := w.pending[key]
	if !ok {
		return
	}
	order, err := resourceversion.CompareResourceVersion(resourceVersion, n.version)
	// A deletion is shown at a later version than the object had.
	if err != nil || order > 0 || (order == 0 && !n.deleted) {
		delete(w.pending, key)
	}
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
	left := n.until.Sub(w.clock.Now())
	if left <= 0 {
		delete(w.pending, key)
		return 0
	}
	return left
}
