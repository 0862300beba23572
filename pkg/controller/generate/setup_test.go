package generate

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/spoke"
	"github.com/rulefleet/rulefleet/pkg/spoke/queue"
)

// A changed namespace has its Deployments enqueued, unless the spoke's namespaces change all the time: then it waits for
// its turn.
func TestOnNamespace(t *testing.T) {
	inSpoke := fake.NewClientBuilder().WithScheme(spoke.Scheme)
	for _, name := range []string{"cart", "web"} {
		inSpoke.WithObjects(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}})
	}
	r := NewReconciler(Options{Spokes: &emptied{one: spoke.Spoke{Name: "s", Reader: inSpoke.Build()}}})
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[queue.Request]())
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

// A Deployment whose namespace has not been seen yet waits for it: it is neither gone nor without labels of a namespace.
func TestDeploymentBeforeItsNamespace(t *testing.T) {
	inSpoke := fake.NewClientBuilder().WithScheme(spoke.Scheme).WithObjects(
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}},
	).Build()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	onHub := fake.NewClientBuilder().WithScheme(scheme).WithObjects(&v1alpha1.SpokeCluster{ObjectMeta: metav1.ObjectMeta{Name: "s"}}).Build()
	s := &spoke.Spoke{Name: "s", Reader: inSpoke}
	r := NewReconciler(Options{Hub: onHub, Spokes: &emptied{one: *s}})
	key := rule.Key{Kind: "Deployment", Namespace: "shop", Name: "web"}
	if w, ready, err := r.observe(t.Context(), s, key); w != nil || ready || err != nil {
		t.Errorf("before, got %+v, %v, %v", w, ready, err)
	}
	home := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{"alerts": "on"}}}
	if err := inSpoke.Create(t.Context(), home); err != nil {
		t.Fatal(err)
	}
	if w, ready, err := r.observe(t.Context(), s, key); w == nil || w.NamespaceLabels["alerts"] != "on" || !ready || err != nil {
		t.Errorf("got %+v, %v, %v", w, ready, err)
	}
}
