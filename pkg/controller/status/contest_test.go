package status

import (
	"strings"
	"testing"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/contest"
	"github.com/rulefleet/rulefleet/pkg/controller/hub"
	"github.com/rulefleet/rulefleet/pkg/rule"
)

// TestContested has another client on the hub that reverts the operator's writes of an AlertRule.
func TestContested(t *testing.T) {
	scheme := runtime.NewScheme()
	must(t, v1alpha1.AddToScheme(scheme))
	ar := alertRule("contested", "a")
	c := fake.NewClientBuilder().WithScheme(scheme).WithTypeConverters(managedfields.NewDeducedTypeConverter()).
		WithObjects(ar).WithStatusSubresource(ar).Build()
	clock := testingclock.NewFakePassiveClock(time.Unix(1e9, 0))
	r := newReconciler(c)
	r.Contests = contest.New(clock, 0)
	r.Board.Report(rule.KeyOf(ar), ar.UID, applied("a"))
	expect := func(what, reason, words string, again time.Duration) {
		t.Helper()
		result, err := r.Reconcile(t.Context(), rule.KeyOf(ar))
		must(t, err)
		must(t, c.Get(t.Context(), hub.Key(ar), ar))
		ready := apimeta.FindStatusCondition(ar.Status.Conditions, v1alpha1.ConditionReady)
		if ready.Reason != reason || !strings.Contains(ready.Message, words) || result.RequeueAfter != again {
			t.Errorf("%s: Ready is %+v, to be looked at again after %v; want %s, %q, %v", what, ready, result.RequeueAfter, reason, words, again)
		}
	}
	write := contest.Write{Object: contest.Object{Spoke: "a", Kind: "AlertRule", NamespacedName: hub.Key(ar)}, Rule: rule.KeyOf(ar), Meant: "x"}
	inSpoke := contest.Write{Object: contest.Object{Spoke: "a", Kind: "PrometheusRule", NamespacedName: hub.Key(ar)}, Rule: rule.KeyOf(ar), Meant: "x"}
	for range 2 {
		for _, w := range []contest.Write{write, inSpoke} {
			r.Contests.Ask(w)
			r.Contests.Wrote(w, ar)
		}
		expect("drift", v1alpha1.ReasonNotRegistered, "", 0)
	}
	r.Contests.Ask(inSpoke)
	expect("what is contested in a spoke, its row shows", v1alpha1.ReasonNotRegistered, "", 0)
	r.Contests.Ask(write)
	expect("contested", v1alpha1.ReasonContested, "an unknown client changes AlertRule", 31*time.Second)
	expect("contested, with nothing to write", v1alpha1.ReasonContested, "an unknown client changes AlertRule", 31*time.Second)
	clock.SetTime(clock.Now().Add(31 * time.Second))
	expect("over", v1alpha1.ReasonNotRegistered, "", 0)
}

func TestNotify(t *testing.T) {
	b, told := newBoard(), 0
	b.Notify(rule.KeyOf(alertRule("a"))) // nobody listens yet
	b.news.Listen(func(rule.Key) { told++ })
	b.Notify(rule.KeyOf(alertRule("a")))
	if told != 1 {
		t.Errorf("told %d times", told)
	}
}
