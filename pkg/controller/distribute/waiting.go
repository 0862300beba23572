package distribute

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"
)

// The kinds of objects in a spoke that a key can wait for.
const (
	namespaceKind = "Namespace"
	ruleKind      = "PrometheusRule"
)

// waitKey is an object in a spoke.
type waitKey struct {
	spoke, kind string
	types.NamespacedName
}

// waiting are the keys that wait for an object in a spoke to come or to go. It
// spares every event of such an object a walk over all rules. The zero value is
// ready to use.
type waiting struct {
	mu   sync.Mutex
	keys map[waitKey]sets.Set[mcreconcile.Request]
}

func (w *waiting) add(k waitKey, req mcreconcile.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.keys == nil {
		w.keys = map[waitKey]sets.Set[mcreconcile.Request]{}
	}
	if w.keys[k] == nil {
		w.keys[k] = sets.New[mcreconcile.Request]()
	}
	w.keys[k].Insert(req)
}

func (w *waiting) drop(k waitKey, req mcreconcile.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.keys[k].Delete(req)
	if len(w.keys[k]) == 0 {
		delete(w.keys, k)
	}
}

// take returns the keys that wait for an object; they don't wait any more.
func (w *waiting) take(k waitKey) []mcreconcile.Request {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := w.keys[k].UnsortedList()
	delete(w.keys, k)
	return out
}
