package distribute

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/testing/memory"
)

// The state of a spoke is dropped with it; that of others stays.
func TestForget(t *testing.T) {
	for name, work := range map[string]func(w *world){
		"a write that the cache does not show": func(w *world) {
			w.put(w.hub, alertRule())
			w.want("create shop")
		},
		"what a webhook made of it": func(w *world) {
			w.mutate = relabel
			w.put(w.hub, alertRule())
			w.want("create shop")
			w.sync()
			w.want()
		},
		"a namespace that is waited for": func(w *world) {
			w.drop(w.server, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
			w.sync()
			w.put(w.hub, alertRule())
			w.want()
		},
		"an object that is not listed": func(w *world) {
			w.put(w.hub, alertRule())
			w.refuse["create"] = apierrors.NewAlreadyExists(v1alpha1.GroupVersion.WithResource("prometheusrules").GroupResource(), "x")
			w.want("create shop")
		},
		"a predecessor that is waited for": func(w *world) {
			w.notes.wait(namespaceKey{spoke: "former"}, request("s", "down"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			work(w)
			// lives distinguishes the next SpokeCluster of that name from this one.
			remembered := func(spoke string) []string { return memory.Beside(w.Reconciler, spoke, "Options", "lives") }
			if len(remembered("s")) == 0 {
				t.Fatal("nothing is remembered")
			}
			other := request("other", "down")
			w.notes.edit(other, func(n *note) { n.answer, n.hidden = "x", 1 })
			w.notes.wait(namespaceKey{"other", "later"}, other)
			w.writes.Begin(objectKey{"other", types.NamespacedName{Name: "x"}})
			before := len(remembered("other"))
			w.Reconciler.Forget("s")
			if got := remembered("s"); len(got) > 0 {
				t.Errorf("remembered: %q", got)
			}
			if got := remembered("other"); len(got) != before {
				t.Errorf("of the other is left: %q", got)
			}
		})
	}
}
