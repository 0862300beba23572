package brake

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/client-go/tools/events"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/metrics"
)

// Each hold is counted once, however long it lasts and however many deletions it holds.
func TestFirings(t *testing.T) {
	r := &Reconciler{Recorder: events.NewFakeRecorder(10)}
	held, more := &Held{Count: 2, Message: "2 wait"}, &Held{Count: 5, Message: "5 wait"}
	count := func(hop Hop) float64 { return testutil.ToFloat64(metrics.DeletionHolds.WithLabelValues(string(hop))) }
	before := map[Hop]float64{Generate: count(Generate), Distribute: count(Distribute)}
	for _, p := range []publication{
		{},
		{is: held, held: map[Hop]int{Generate: 0, Distribute: 2}},
		{was: held, is: more, held: map[Hop]int{Generate: 0, Distribute: 5}},
		{was: more, ended: waited, held: map[Hop]int{Generate: 0, Distribute: 0}},
	} {
		r.tell(t.Context(), &v1alpha1.SpokeCluster{}, p)
	}
	if g, d := count(Generate)-before[Generate], count(Distribute)-before[Distribute]; g != 0 || d != 1 {
		t.Errorf("%v and %v firings are counted", g, d)
	}
}
