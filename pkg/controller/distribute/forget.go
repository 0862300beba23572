package distribute

import (
	"maps"

	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"
)

// Forget drops the state of a spoke that is no longer registered. Engaging it again restores what is needed.
func (r *Reconciler) Forget(name string) {
	of := func(req mcreconcile.Request) bool { return req.ClusterName.String() == name }
	r.writes.Forget(func(key objectKey) bool { return key.spoke == name })
	r.waiting.forget(of)
	r.hidden.forgetAll(of)
	r.replays.Forget(name)
	for _, key := range r.leftovers.in(name) {
		r.leftovers.forget(mcreconcile.Request{ClusterName: multicluster.ClusterName(name), Request: reconcile.Request{NamespacedName: key}})
		r.Reporter.Forget(key, name)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.answers, func(req mcreconcile.Request, _ string) bool { return of(req) })
}

// forget drops keys.
func (w *waiting) forget(meant func(mcreconcile.Request) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for k, keys := range w.keys {
		maps.DeleteFunc(keys, func(req mcreconcile.Request, _ sets.Empty) bool { return meant(req) })
		if len(keys) == 0 {
			delete(w.keys, k)
		}
	}
}

// forgetAll drops keys.
func (h *hidden) forgetAll(meant func(mcreconcile.Request) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	maps.DeleteFunc(h.tries, func(req mcreconcile.Request, _ int) bool { return meant(req) })
}
