package generate

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/rulefleet/rulefleet/pkg/spoke"
)

// A changed namespace has its Deployments enqueued, unless the spoke's namespaces change all the time: then it waits for
// its turn.
func TestOnNamespace(t *testing.T) {
	inSpoke := fake.NewClientBuilder().WithScheme(spoke.Scheme)
	for _, name := range []string{"cart", "web"} {
		inSpoke.WithObjects(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}})
	}
	r := NewReconciler(Options{Spokes: &emptied{one: spoke.Spoke{Name: "s", Reader: inSpoke.Build()}}})
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[mcreconcile.Request]())
	defer queue.ShutDown()
	change := func() int {
		before, after := spoke.NamespaceMetadata(), spoke.NamespaceMetadata()
		before.Name, after.Name, after.Labels = "shop", "shop", map[string]string{"alerts": "on"}
		r.onNamespace("s", nil).Update(t.Context(), event.TypedUpdateEvent[client.Object]{ObjectOld: before, ObjectNew: after}, queue)
		n := queue.Len()
		for range n {
			req, _ := queue.Get()
			queue.Done(req)
		}
		return n
	}
	if n := change(); n != 2 {
		t.Errorf("%d Deployments are enqueued", n)
	}
	r.replays.Do("s", "large", func() int {
		r.replays.Do("s", "another", func() int { return spoke.DefaultMaxObjects })
		return spoke.DefaultMaxObjects
	})
	if n := change(); n != 0 {
		t.Errorf("%d Deployments are enqueued at once", n)
	}
	r.Forget("s")
	if n := change(); n != 2 {
		t.Errorf("later, %d Deployments are enqueued", n)
	}
}
