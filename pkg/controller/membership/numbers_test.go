package membership

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/spoke"
)

// TestNumbersOnly writes numbers with any other change. Numbers alone wait for others, and are written at most once per
// numbersInterval.
func TestNumbersOnly(t *testing.T) {
	r, _ := registrar(t, memberOf("s", ""))
	now := time.Now()
	r.now = func() time.Time { return now }
	show := func(what string, rules int32, reason string, wantWait time.Duration, wantRules int32) {
		t.Helper()
		sc := &v1alpha1.SpokeCluster{}
		if err := r.Client.Get(t.Context(), client.ObjectKey{Name: "s"}, sc); err != nil {
			t.Fatal(err)
		}
		seen := &spoke.Observation{
			Connected: spoke.Finding{Status: metav1.ConditionTrue, Reason: reason, Message: reason}, Counts: spoke.Counts{Rules: rules, Known: true},
		}
		wait, err := r.show(t.Context(), sc, nil, statusOf(sc, news{seen: seen}, metav1.NewTime(now.Truncate(time.Second))))
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Client.Get(t.Context(), client.ObjectKey{Name: "s"}, sc); err != nil {
			t.Fatal(err)
		}
		if wait != wantWait || ptr.Deref(sc.Status.Rules, -1) != wantRules {
			t.Errorf("%s: it waits for %v and shows %d rules, want %v and %d", what, wait, ptr.Deref(sc.Status.Rules, -1), wantWait, wantRules)
		}
	}
	const gather, interval = numbersGather, numbersInterval
	pass := func(d time.Duration) { now = now.Add(d) }
	show("with the first conditions", 1, "Connected", 0, 1)
	show("numbers only", 2, "Connected", gather, 1)
	pass(5 * time.Second)
	show("others", 3, "Connected", gather-5*time.Second, 1)
	pass(gather - 5*time.Second)
	show("they are due", 3, "Connected", 0, 3)
	show("no change", 3, "Connected", 0, 3)
	pass(5 * time.Second)
	show("soon after that", 4, "Connected", interval-5*time.Second, 3)
	show("as before", 3, "Connected", 0, 3)
	pass(interval - 6*time.Second)
	show("just before the interval ends", 5, "Connected", gather, 3)
	show("with another change", 5, "Other", 0, 5)
	show("after it", 6, "Other", gather, 5)
	pass(gather)
	show("they are due again", 6, "Other", 0, 6)
	r.gone("s")
	show("of another SpokeCluster", 7, "Other", gather, 6)
}
