package distribute

import (
	"sync"

	"k8s.io/apimachinery/pkg/util/sets"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"
)

// namespaceKey is a namespace in a spoke or, without a namespace, the spoke's SpokeCluster.
type namespaceKey struct {
	spoke, namespace string
}

// waiting has the keys that wait for a namespace to be created, or for a SpokeCluster to change. It saves
// going through all rules for each event of a namespace. The zero value is ready to use.
type waiting struct {
	mu   sync.Mutex
	keys map[namespaceKey]sets.Set[mcreconcile.Request]
}

func (w *waiting) add(k namespaceKey, req mcreconcile.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.keys == nil {
		w.keys = map[namespaceKey]sets.Set[mcreconcile.Request]{}
	}
	if w.keys[k] == nil {
		w.keys[k] = sets.New[mcreconcile.Request]()
	}
	w.keys[k].Insert(req)
}

func (w *waiting) drop(k namespaceKey, req mcreconcile.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.keys[k].Delete(req)
	if len(w.keys[k]) == 0 {
		delete(w.keys, k)
	}
}

// take removes and returns the keys that wait for a namespace.
func (w *waiting) take(k namespaceKey) []mcreconcile.Request {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := w.keys[k].UnsortedList()
	delete(w.keys, k)
	return out
}
