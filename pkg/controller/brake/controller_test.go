package brake

import (
	"context"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/contest"
)

// An acknowledgement without effect that keeps coming back is removed less and less often. One that releases
// deletions comes from a person.
func TestAcknowledgementsThatComeAgain(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	sc := &v1alpha1.SpokeCluster{ObjectMeta: metav1.ObjectMeta{Name: "s"}}
	b, patches := newBraked(t, span), 0
	c := fake.NewClientBuilder().WithScheme(scheme).WithTypeConverters(managedfields.NewDeducedTypeConverter()).WithReturnManagedFields().
		WithObjects(sc).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
			patches++
			return c.Patch(ctx, o, patch, append(opts, client.FieldOwner(contest.Manager))...)
		},
	}).Build()
	var changed []string
	r := &Reconciler{
		Client: c, Brake: b.Brake, Engaged: func(string) bool { return true }, Changed: func(name string) { changed = append(changed, name) },
		Recorder: events.NewFakeRecorder(100), Contests: contest.New(b.clock, 0),
	}
	want := func(what string, writes int, again time.Duration) {
		t.Helper()
		patches = 0
		result, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(sc)})
		if err != nil || patches != writes || again > 0 && result.RequeueAfter != again {
			t.Fatalf("%s: patched %d times, again after %v, %v; want %d times, %v", what, patches, result.RequeueAfter, err, writes, again)
		}
	}
	set := func() {
		t.Helper()
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(sc), sc); err != nil {
			t.Fatal(err)
		}
		sc.Annotations = map[string]string{v1alpha1.AcknowledgeDeletionsAnnotation: "true"}
		if err := c.Update(t.Context(), sc, client.FieldOwner("argocd-controller")); err != nil {
			t.Fatal(err)
		}
	}
	b.mass(Generate, "s")
	set()
	want("40 are held", 1, 0)
	for _, what := range []string{"none is", "put back once"} {
		set()
		want(what, 1, 0)
	}
	changed = nil
	set()
	want("put back twice", 0, time.Second)
	if message, _ := r.Contests.InSpoke("s"); !strings.Contains(message, `field manager "argocd-controller" sets annotation `+v1alpha1.AcknowledgeDeletionsAnnotation) || len(changed) != 1 {
		t.Errorf("it shows %q, and told of %q", message, changed)
	}
	b.clock.SetTime(b.clock.Now().Add(time.Second))
	want("after a second", 1, 0)
	want("it is gone", 0, 0)
}
