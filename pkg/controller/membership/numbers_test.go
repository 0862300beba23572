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

// TestNumbersAlone writes numbers with any other change, but numbers alone at most once per numbersInterval.
func TestNumbersAlone(t *testing.T) {
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
	show("the first numbers", 1, "Connected", 0, 1)
	now = now.Add(5 * time.Second)
	show("others soon after", 2, "Connected", numbersInterval-5*time.Second, 1)
	show("with another change", 2, "Other", 0, 2)
	now = now.Add(numbersInterval - time.Second)
	show("too soon after that", 3, "Other", time.Second, 2)
	now = now.Add(time.Second)
	show("they are due", 3, "Other", 0, 3)
	r.gone("s")
	show("of another SpokeCluster", 4, "Other", 0, 4)
}
