package status

import (
	"context"
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/controller/hub"
	"github.com/rulefleet/rulefleet/pkg/rule"
)

// renewals are the events of successive SpokeClusters with the same name.
type renewals struct {
	*testing.T
	*Reconciler
	handler eventHandler
	queue   queue
	clock   *clocktesting.FakePassiveClock
	rule    *v1alpha1.AlertRule
}

func newRenewals(t *testing.T) *renewals {
	t.Helper()
	scheme := runtime.NewScheme()
	must(t, v1alpha1.AddToScheme(scheme))
	ar := alertRule("by-hand", "a")
	ar.Generation = 1
	builder := fake.NewClientBuilder().WithScheme(scheme).WithObjects(ar).WithStatusSubresource(&v1alpha1.AlertRule{}, &v1alpha1.SpokeCluster{})
	must(t, hub.SetupIndexes(t.Context(), indexer{builder}, "hub", "generated"))
	r := newReconciler(builder.Build())
	t.Cleanup(func() { r.Board.forgetSpoke("a") })
	clock := clocktesting.NewFakePassiveClock(time.Now())
	r.damper.clock = clock
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[rule.Key]())
	t.Cleanup(q.ShutDown)
	return &renewals{T: t, Reconciler: r, handler: r.onSpokeCluster(), queue: q, clock: clock, rule: ar}
}

// indexer lets a fake client have the indexes of a cache.
type indexer struct{ *fake.ClientBuilder }

func (i indexer) IndexField(_ context.Context, o client.Object, field string, fn client.IndexerFunc) error {
	i.WithIndex(o, field, fn)
	return nil
}

func (n *renewals) member(uid types.UID) *v1alpha1.SpokeCluster {
	sc := &v1alpha1.SpokeCluster{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: uid}}
	connected := up(metav1.NewTime(time.Now().Add(-time.Hour)))
	if uid == "down" {
		connected = down(metav1.NewTime(time.Now().Add(-time.Hour)))
	}
	connected.Type = v1alpha1.ConditionConnected
	if uid != "new" {
		sc.Status.Conditions = []metav1.Condition{connected}
	}
	return sc
}

func (n *renewals) comes(uid types.UID) {
	n.Helper()
	sc := n.member(uid)
	must(n.T, n.Client.Create(n.Context(), sc.DeepCopy()))
	n.handler.Create(n.Context(), event.CreateEvent{Object: sc}, n.queue)
}

func (n *renewals) goes(uid types.UID) {
	n.Helper()
	must(n.T, n.Client.Delete(n.Context(), n.member(uid)))
	n.handler.Delete(n.Context(), event.DeleteEvent{Object: n.member(uid)}, n.queue)
}

// wants checks the row, and that nothing is announced twice.
func (n *renewals) wants(what string, phase v1alpha1.Phase, reason string, firing int32, digest string) {
	n.Helper()
	got := reconcileRule(n.T, n.Reconciler, n.rule)
	if len(got.Status.Clusters) != 1 {
		n.Fatalf("%s: %+v", what, got.Status.Clusters)
	}
	if r := got.Status.Clusters[0]; r.Phase != phase || r.Reason != reason || r.Firing != firing || r.AnswerDigest != digest {
		n.Errorf("%s: %+v", what, r)
	}
	n.clock.SetTime(n.clock.Now().Add(time.Hour))
	if again := reconcileRule(n.T, n.Reconciler, n.rule); again.ResourceVersion != got.ResourceVersion {
		n.Errorf("%s: it is written once more", what)
	}
}

func (n *renewals) former() v1alpha1.ClusterStatus {
	return v1alpha1.ClusterStatus{
		Name: "a", Phase: v1alpha1.PhasePending, Reason: v1alpha1.ReasonMutated, Message: "labels", Firing: 3, AnswerDigest: "digest", ObservedGeneration: 1,
	}
}

// In any sequence of events, a rule that is placed by hand shows nothing about a former cluster of the name.
func TestRenewed(t *testing.T) {
	t.Parallel()
	const waiting = v1alpha1.ReasonWaiting
	for name, renew := range map[string]func(n *renewals){
		"it is seen to be gone": func(n *renewals) {
			n.goes("former")
			n.wants("gone", v1alpha1.PhasePending, v1alpha1.ReasonNotRegistered, 0, "")
			n.comes("new")
		},
		"before it is seen": func(n *renewals) { n.goes("former"); n.comes("new") },
		"at once": func(n *renewals) {
			must(n.T, n.Client.Delete(n.Context(), n.member("former")))
			must(n.T, n.Client.Create(n.Context(), n.member("new")))
			n.handler.Update(n.Context(), event.UpdateEvent{ObjectOld: n.member("former"), ObjectNew: n.member("new")}, n.queue)
		},
		"again and again": func(n *renewals) {
			for range 3 {
				n.goes("former")
				n.comes("former")
			}
			n.goes("former")
			n.comes("new")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, begun := newRenewals(t), time.Now()
			n.comes("former")
			n.Board.Report(rule.KeyOf(n.rule), n.rule.UID, n.former())
			n.wants("the former one", v1alpha1.PhasePending, v1alpha1.ReasonMutated, 3, "digest")
			renew(n)
			if n.queue.Len() > 0 && time.Since(begun) < debounce {
				t.Error("it is looked at before there can be more news")
			}
			n.wants("the new one", v1alpha1.PhasePending, waiting, 0, "")
			if message, _ := n.Board.Failing("a"); message != "" || n.Board.spokes["a"].message() != "" {
				t.Errorf("what failed in the former one is kept: %q", message)
			}
			n.Board.Report(rule.KeyOf(n.rule), n.rule.UID, v1alpha1.ClusterStatus{Name: "a", Phase: v1alpha1.PhaseApplied, ObservedGeneration: 1})
			n.wants("the new one, with its own verdict", v1alpha1.PhaseApplied, "", 0, "")
		})
	}
}

// A verdict on the new one is kept, even if the new one is seen later.
func TestRenewedIsSeenLate(t *testing.T) {
	t.Parallel()
	n := newRenewals(t)
	n.comes("former")
	n.Board.Report(rule.KeyOf(n.rule), n.rule.UID, n.former())
	n.wants("the former one", v1alpha1.PhasePending, v1alpha1.ReasonMutated, 3, "digest")
	n.goes("former")
	must(t, n.Client.Create(t.Context(), n.member("new")))
	n.Board.Report(rule.KeyOf(n.rule), n.rule.UID, v1alpha1.ClusterStatus{Name: "a", Phase: v1alpha1.PhaseApplied, ObservedGeneration: 1})
	n.handler.Create(t.Context(), event.CreateEvent{Object: n.member("new")}, n.queue)
	n.wants("the new one", v1alpha1.PhaseApplied, "", 0, "")
}

// An outage belongs to the former one, too.
func TestRenewedInAnOutage(t *testing.T) {
	t.Parallel()
	n := newRenewals(t)
	n.comes("down")
	n.wants("the former one", v1alpha1.PhasePending, v1alpha1.ReasonUnreachable, 0, "")
	n.goes("down")
	n.comes("new")
	n.wants("the new one", v1alpha1.PhasePending, v1alpha1.ReasonWaiting, 0, "")
}

// After a restart, the status is about the present spoke.
func TestRestartIsNoRenewal(t *testing.T) {
	t.Parallel()
	n := newRenewals(t)
	n.comes("former")
	n.Board.Report(rule.KeyOf(n.rule), n.rule.UID, n.former())
	n.wants("before", v1alpha1.PhasePending, v1alpha1.ReasonMutated, 3, "digest")
	r := newReconciler(n.Client)
	n.Reconciler, n.handler = r, r.onSpokeCluster()
	n.handler.Create(t.Context(), event.CreateEvent{Object: n.member("former")}, n.queue)
	n.wants("after", v1alpha1.PhasePending, v1alpha1.ReasonMutated, 3, "digest")
}

// What could not be written does not make the next write wait.
func TestFiringIsNotWritten(t *testing.T) {
	t.Parallel()
	n := newRenewals(t)
	n.comes("former")
	row := n.former()
	n.Board.Report(rule.KeyOf(n.rule), n.rule.UID, row)
	n.wants("before", v1alpha1.PhasePending, v1alpha1.ReasonMutated, 3, "digest")
	row.Firing = 4
	n.Board.Report(rule.KeyOf(n.rule), n.rule.UID, row)
	down, up := errors.New("the hub is down"), n.Client
	n.Client = interceptor.NewClient(up.(client.WithWatch), interceptor.Funcs{
		SubResourcePatch: func(context.Context, client.Client, string, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
			return down
		},
	})
	if _, err := n.Reconcile(t.Context(), rule.KeyOf(n.rule)); !errors.Is(err, down) {
		t.Fatalf("Reconcile returned %v", err)
	}
	n.Client = up
	n.wants("after", v1alpha1.PhasePending, v1alpha1.ReasonMutated, 4, "digest")
}

func TestBoardDropsASpoke(t *testing.T) {
	t.Parallel()
	b := newBoard()
	one, both := rule.AlertRuleKey("", "one"), rule.AlertRuleKey("", "both")
	b.Report(one, "1", applied("a"))
	b.Report(both, "1", applied("a"))
	b.Report(both, "1", applied("b"))
	b.forgetSpoke("a")
	if len(b.kept(one)) > 0 || len(b.rows(both, "1")) != 1 || b.rows(both, "1")["b"].Name != "b" {
		t.Errorf("kept are %v", b.rows(both, "1"))
	}
}
