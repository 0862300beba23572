package e2e

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
)

// TestSameClusterTwice registers a spoke under a second name. If both were served, each would endlessly remove
// the other's rules as leftovers.
func TestSameClusterTwice(t *testing.T) {
	long(t)
	parallel(t)
	f := start(t, fleet.Options{Spokes: []string{"first"}})
	dir := t.TempDir()
	m := startManager(t, f, dir)
	first := f.Spoke("first")
	namespace(t, "shop", first)
	must(t, f.Register(t.Context(), "first", nil))
	expectConnected(t, f, "first", metav1.ConditionTrue, v1alpha1.ReasonConnected)
	key := create(t, f.Hub, alertRule("everywhere", "shop", onEvery()))
	pr := expectPushed(t, first, key, 1)

	again, err := first.UserKubeconfig(fleet.SpokeUser)
	must(t, err)
	must(t, f.RegisterKubeconfig(t.Context(), "again", again, nil))
	expectConnected(t, f, "again", metav1.ConditionFalse, v1alpha1.ReasonDuplicateCluster)
	sc := &v1alpha1.SpokeCluster{}
	must(t, f.Hub.Client.Get(t.Context(), client.ObjectKey{Name: "again"}, sc))
	if c := meta.FindStatusCondition(sc.Status.Conditions, v1alpha1.ConditionConnected); !strings.Contains(c.Message, "first") {
		t.Errorf("the message names no other spoke: %s", c.Message)
	}
	throughout(t, time.Second, "the rule is left alone", func(ctx context.Context) error { return untouched(ctx, first, pr) })

	// Whichever answers first after a restart, the first one stays in charge.
	must(t, m.Stop())
	startManager(t, f, dir)
	throughout(t, 2*time.Second, "the first stays in charge", func(ctx context.Context) error {
		return errors.Join(connected(ctx, f, "again", metav1.ConditionFalse, v1alpha1.ReasonDuplicateCluster), untouched(ctx, first, pr))
	})

	must(t, f.Hub.Client.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.Namespace, Name: "first"}}))
	// Then the other takes over, as after a rename: the rule is the same object, with the other's name.
	expectConnected(t, f, "first", metav1.ConditionFalse, v1alpha1.ReasonKubeconfigMissing)
	expectConnected(t, f, "again", metav1.ConditionTrue, v1alpha1.ReasonConnected)
	renamed := expectRule(t, first, key, "the other's name", func(r *monitoringv1.Rule) bool { return r.Labels["cluster"] == "again" })
	if renamed.UID != pr.UID {
		t.Error("it was made anew")
	}
	must(t, f.Hub.Client.Delete(t.Context(), &v1alpha1.SpokeCluster{ObjectMeta: metav1.ObjectMeta{Name: "first"}}))
	expectGone(t, f.Hub, membership("first"))
	throughout(t, time.Second, "the rule is left alone", func(ctx context.Context) error { return untouched(ctx, first, renamed) })
}
