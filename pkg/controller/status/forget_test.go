package status

import (
	"context"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/testing/memory"
)

// gone is a hub without any object.
type gone struct{ client.Reader }

func (gone) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	return apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource("spokeclusters").GroupResource(), key.Name)
}

// The verdicts on a spoke are dropped with its SpokeCluster.
func TestVerdictsGoWithTheSpoke(t *testing.T) {
	withFailures(t, func(h *told) {
		r := &Reconciler{Board: h.Board}
		s := &spokes{reader: gone{}, damper: &r.damper, board: h.Board}
		look := func(name string) {
			h.Failing(name)
			s.damper.of(&v1alpha1.SpokeCluster{ObjectMeta: metav1.ObjectMeta{Name: name}})
		}
		for _, name := range []string{"s", "other"} {
			h.report(name, "a", v1alpha1.ReasonRejected, "no")
			h.report(name, "b", "", "")
			look(name)
		}
		before := len(memory.Of(r, "other"))
		if len(memory.Of(r, "s")) < 2 { // the Board and the damper
			h.Fatalf("remembered: %q", memory.Of(r, "s"))
		}
		r.forgetSpoke("s")
		if got := memory.Of(r, "s"); len(got) > 0 {
			h.Errorf("remembered: %q", got)
		}
		look("s") // by what was read before
		if _, err := s.Reconcile(h.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "s"}}); err != nil {
			h.Fatal(err)
		}
		if got := memory.Of(r, "s"); len(got) > 0 {
			h.Errorf("remembered: %q", got)
		}
		if got := memory.Of(r, "other"); len(got) != before {
			h.Errorf("of the other is left: %q", got)
		}
	})
}
