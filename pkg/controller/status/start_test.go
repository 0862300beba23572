package status

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/controller/hub"
	"github.com/rulefleet/rulefleet/pkg/rule"
)

// After a start, a status that does not list all spokes is not written until all have reported, at most for a minute.
func TestStartOfManySpokes(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	must(t, v1alpha1.AddToScheme(scheme))
	ar := alertRule("everywhere")
	ar.Generation = 1
	objects := []client.Object{ar}
	var names []v1alpha1.ClusterName
	for i := range 120 {
		connected := up(metav1.NewTime(time.Now().Add(-time.Hour)))
		connected.Type = v1alpha1.ConditionConnected
		sc := &v1alpha1.SpokeCluster{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("s%03d", i)}}
		sc.Status.Conditions = []metav1.Condition{connected}
		objects, names = append(objects, sc), append(names, v1alpha1.ClusterName(sc.Name))
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&v1alpha1.AlertRule{}).Build()
	report := func(r *Reconciler, names ...v1alpha1.ClusterName) {
		for _, name := range names {
			r.Board.Report(rule.KeyOf(ar), ar.UID, applied(name))
		}
	}
	first := newReconciler(c)
	report(first, names...)
	before := reconcileRule(t, first, ar)
	if want := (v1alpha1.ClusterGroup{Phase: v1alpha1.PhaseApplied, ObservedGeneration: 1, Count: 120}); len(before.Status.Groups) != 1 || before.Status.Groups[0] != want {
		t.Fatalf("the groups are %+v", before.Status.Groups)
	}

	second := newReconciler(c)
	second.started = time.Now()
	unchanged := func(what string, r *Reconciler, waits bool) {
		t.Helper()
		result, err := r.Reconcile(t.Context(), rule.KeyOf(ar))
		must(t, err)
		if again := result.RequeueAfter; again > startPatience || waits != (again > 0) {
			t.Errorf("%s: it is looked at again after %v", what, again)
		}
		got := &v1alpha1.AlertRule{}
		must(t, c.Get(t.Context(), hub.Key(ar), got))
		if got.ResourceVersion != before.ResourceVersion {
			t.Errorf("%s: it is written: %+v", what, got.Status)
		}
		n := 0
		for _, rows := range r.Rules().Rows {
			n += rows
		}
		if n != len(names) {
			t.Errorf("%s: metrics count %d rows", what, n)
		}
	}
	unchanged("nothing is reported", second, true)
	report(second, names[1:]...)
	differs := applied("s001")
	differs.Phase, differs.Reason = v1alpha1.PhasePending, v1alpha1.ReasonConflict
	second.Board.Report(rule.KeyOf(ar), ar.UID, differs)
	unchanged("all but one have reported", second, true)
	report(second, names[1])
	report(second, names[0])
	unchanged("all have reported", second, false)

	late := newReconciler(c)
	late.started = time.Now().Add(-startPatience)
	report(late, names[:60]...)
	unchanged("half of them do not report", late, false)
}
