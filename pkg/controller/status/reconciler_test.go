package status

import (
	"context"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/contest"
	"github.com/rulefleet/rulefleet/pkg/controller/hub"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/validation"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
)

// TestReconcile calls Reconcile against a real API server.
func TestReconcile(t *testing.T) {
	h := startHub(t)
	long := metav1.Unix(1e9, 0)
	connect(t, h.Client, "a", up(long))
	connect(t, h.Client, "b", up(long))
	for name, test := range map[string]func(*testing.T, *fleet.Member){
		"a life":    testLife,
		"a restart": testRestart,
		"invalid":   testInvalid,
		"behind":    testBehind,
		"gone":      testGone,
		"recreated": testRecreated,
		"outage":    testOutage,
		"template":  testTemplate,
		"contest":   testContest,
	} {
		t.Run(name, func(t *testing.T) { test(t, h) })
	}
	t.Run("health", func(t *testing.T) { testHealth(t, h) })
}

func testLife(t *testing.T, h *fleet.Member) {
	t.Helper()
	r := newReconciler(h.Client)
	ar := alertRule("life", "a", "b")
	must(t, h.Client.Create(t.Context(), ar))
	if ar.Status.ObservedGeneration != -1 {
		t.Errorf("the status of a rule that nobody has seen is of generation %d", ar.Status.ObservedGeneration)
	}
	expect := func(what string, want string, ready string) {
		t.Helper()
		got := reconcileRule(t, r, ar)
		if is := shortly(got); is != want || got.Status.Summary.Ready != ready || got.Status.ObservedGeneration != got.Generation {
			t.Fatalf("%s: %s, %s ready, of generation %d; want %s, %s, %d", what, is, got.Status.Summary.Ready, got.Status.ObservedGeneration, want, ready, got.Generation)
		}
		if again := reconcileRule(t, r, ar); again.ResourceVersion != got.ResourceVersion {
			t.Fatalf("%s: written once more with no news", what)
		}
		ar = got
	}
	expect("new", "True/Accepted False/Waiting", "0/2")
	r.Board.Report(rule.KeyOf(ar), ar.UID, applied("a"))
	expect("one applied", "True/Accepted False/Waiting", "1/2")
	r.Board.Report(rule.KeyOf(ar), ar.UID, failed("b", v1alpha1.ReasonUnsupported, "needs Prometheus 3"))
	expect("one can't", "True/Accepted False/Unsupported True/Unsupported", "1/2")
	r.Board.Report(rule.KeyOf(ar), ar.UID, applied("b"))
	expect("both applied", "True/Accepted True/AllApplied", "2/2")
	ar.Spec.For = "5m"
	must(t, h.Client.Update(t.Context(), ar))
	expect("edited", "True/Accepted False/Progressing", "0/2")
	ar.Spec.State = v1alpha1.Disabled
	must(t, h.Client.Update(t.Context(), ar))
	expect("disabled", "True/Accepted True/Disabled", "0/0")
}

func testRestart(t *testing.T, h *fleet.Member) {
	t.Helper()
	r := newReconciler(h.Client)
	ar := alertRule("restart", "a", "b")
	must(t, h.Client.Create(t.Context(), ar))
	r.Board.Report(rule.KeyOf(ar), ar.UID, applied("a"))
	r.Board.Report(rule.KeyOf(ar), ar.UID, v1alpha1.ClusterStatus{
		Name: "b", Phase: v1alpha1.PhasePending, Reason: v1alpha1.ReasonMutated, AnswerDigest: "digest", ObservedGeneration: 1,
	})
	before := reconcileRule(t, r, ar)
	r = newReconciler(h.Client)
	if after := reconcileRule(t, r, ar); after.ResourceVersion != before.ResourceVersion || after.Status.Clusters[1].AnswerDigest != "digest" {
		t.Errorf("after a restart the status is %+v", after.Status)
	}
	r.Board.Report(rule.KeyOf(ar), ar.UID, applied("a"))
	if after := reconcileRule(t, r, ar); after.ResourceVersion != before.ResourceVersion {
		t.Errorf("the same verdict after a restart made a write: %+v", after.Status)
	}
}

// The first status of a rule waits for spokes, but not for long.
func TestAwaited(t *testing.T) {
	t.Parallel()
	ar := alertRule("new")
	ar.CreationTimestamp = metav1.Unix(1e9, 0)
	ar.Status.ObservedGeneration = -1
	waits := &v1alpha1.RuleStatus{Clusters: []v1alpha1.ClusterStatus{applied("a"), {Name: "b", Reason: v1alpha1.ReasonWaiting}}}
	seen := ar.DeepCopy()
	seen.Status.ObservedGeneration = 1
	for name, c := range map[string]struct {
		rule   *v1alpha1.AlertRule
		status *v1alpha1.RuleStatus
		age    time.Duration
		want   time.Duration
	}{
		"a spoke is missing":          {ar, waits, 2 * time.Second, 4 * time.Second},
		"that takes too long":         {ar, waits, 6 * time.Second, 0},
		"all have answered":           {ar, &v1alpha1.RuleStatus{Clusters: waits.Clusters[:1]}, 2 * time.Second, 0},
		"no spoke, or not accepted":   {ar, &v1alpha1.RuleStatus{}, 2 * time.Second, 0},
		"it has a status":             {seen, waits, 2 * time.Second, 0},
		"the clock of the hub is off": {ar, waits, -time.Hour, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if got := awaited(c.rule, c.status, ar.CreationTimestamp.Add(c.age)); got != c.want {
				t.Errorf("it waits %v, want %v", got, c.want)
			}
		})
	}
}

// testContest has another client that changes the status back.
func testContest(t *testing.T, h *fleet.Member) {
	t.Helper()
	r, c := newReconciler(h.Client), clocktesting.NewFakePassiveClock(time.Unix(1e9, 0))
	recorder := events.NewFakeRecorder(10)
	r.Recorder, r.Contests = recorder, contest.New(c, 0)
	ar := alertRule("contest", "a")
	must(t, h.Client.Create(t.Context(), ar))
	r.Board.Report(rule.KeyOf(ar), ar.UID, applied("a"))
	written := reconcileRule(t, r, ar)
	undo := func() {
		t.Helper()
		must(t, h.Client.Get(t.Context(), hub.Key(ar), ar))
		ar.Status.Clusters = nil
		must(t, h.Client.Status().Update(t.Context(), ar))
	}
	undo()
	// The row is new each time, so its time is not compared.
	meant := func(ar *v1alpha1.AlertRule) string { return contest.OfStatus("AlertRule", ar, &ar.Status).Meant }
	if got := reconcileRule(t, r, ar); meant(got) != meant(written) {
		t.Errorf("the first time, the status is %+v", got.Status)
	}
	for _, wait := range []time.Duration{time.Second, 2 * time.Second} {
		undo()
		result, err := r.Reconcile(t.Context(), rule.KeyOf(ar))
		if err != nil || result.RequeueAfter != wait {
			t.Fatalf("Reconcile returned %v, %v", result, err)
		}
		if note := <-recorder.Events; !strings.Contains(note, "changes the status of AlertRule default/contest back after each write") {
			t.Errorf("it says %s", note)
		}
		c.SetTime(c.Now().Add(wait))
		if got := reconcileRule(t, r, ar); meant(got) != meant(written) {
			t.Errorf("after %v, the status is %+v", wait, got.Status)
		}
	}
}

func testInvalid(t *testing.T, h *fleet.Member) {
	t.Helper()
	r := newReconciler(h.Client)
	recorder := events.NewFakeRecorder(10)
	r.Recorder = recorder
	ar := alertRule("invalid", "a")
	must(t, h.Client.Create(t.Context(), ar))
	r.Board.Report(rule.KeyOf(ar), ar.UID, applied("a"))
	ar = reconcileRule(t, r, ar)
	if len(recorder.Events) > 0 {
		t.Errorf("an Event tells of a valid rule: %s", <-recorder.Events)
	}
	ar.Spec.Expr = "up =="
	must(t, h.Client.Update(t.Context(), ar))
	ar = reconcileRule(t, r, ar)
	if is := shortly(ar); is != "False/InvalidExpr False/InvalidExpr True/InvalidExpr" || len(ar.Status.Clusters) != 1 || ar.Status.Summary.Applied != 1 {
		t.Errorf("got %s, %+v", is, ar.Status)
	}
	ar = reconcileRule(t, r, ar)
	if n := len(recorder.Events); n != 1 {
		t.Fatalf("%d Events tell of it", n)
	}
	if e := <-recorder.Events; !strings.HasPrefix(e, "Warning InvalidExpr ") {
		t.Errorf("the Event is %q", e)
	}
	ar.Spec.Expr = "up == 1"
	must(t, h.Client.Update(t.Context(), ar))
	if is := shortly(reconcileRule(t, r, ar)); is != "True/Accepted False/Progressing" {
		t.Errorf("valid again: %s", is)
	}
}

// The cache may be behind: fields that it lacks must not be overwritten.
func testBehind(t *testing.T, h *fleet.Member) {
	t.Helper()
	ar := alertRule("behind", "a", "b")
	must(t, h.Client.Create(t.Context(), ar))
	fresh := newReconciler(h.Client)
	fresh.Board.Report(rule.KeyOf(ar), ar.UID, applied("a"))
	want := reconcileRule(t, fresh, ar)

	direct, err := client.NewWithWatch(h.RESTConfig(), client.Options{Scheme: fleet.Scheme})
	must(t, err)
	stale := newReconciler(interceptor.NewClient(direct, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
			if of, ok := o.(*v1alpha1.AlertRule); ok {
				ar.DeepCopyInto(of)
				return nil
			}
			return c.Get(ctx, key, o, options...)
		},
	}))
	result, err := stale.Reconcile(t.Context(), rule.KeyOf(ar))
	if err != nil || result.RequeueAfter != debounce {
		t.Errorf("Reconcile returned %v, %v", result, err)
	}
	got := &v1alpha1.AlertRule{}
	must(t, h.Client.Get(t.Context(), hub.Key(ar), got))
	if got.ResourceVersion != want.ResourceVersion {
		t.Errorf("a newer status was overwritten with %+v", got.Status)
	}
}

func testGone(t *testing.T, h *fleet.Member) {
	t.Helper()
	r := newReconciler(h.Client)
	ar := alertRule("gone", "a")
	must(t, h.Client.Create(t.Context(), ar))
	r.Board.Report(rule.KeyOf(ar), ar.UID, applied("a"))
	reconcileRule(t, r, ar)
	// Stalled and MetricsPresent are absent.
	if got := r.Rules(); len(got.Rows) != 1 || len(got.Conditions) != len(counted)-2 {
		t.Errorf("counted are %+v", got)
	}
	must(t, h.Client.Delete(t.Context(), ar))
	if _, err := r.Reconcile(t.Context(), rule.KeyOf(ar)); err != nil {
		t.Error(err)
	}
	if _, left := r.memories.Load(rule.KeyOf(ar)); left || len(r.Board.kept(rule.KeyOf(ar))) > 0 {
		t.Error("something of it is left")
	}
}

// An AlertRule that is deleted and created again before that was noticed shows nothing of the former one.
func testRecreated(t *testing.T, h *fleet.Member) {
	t.Helper()
	r := newReconciler(h.Client)
	former := alertRule("recreated", "a")
	must(t, h.Client.Create(t.Context(), former))
	r.Board.Report(rule.KeyOf(former), former.UID, applied("a"))
	reconcileRule(t, r, former)
	must(t, h.Client.Delete(t.Context(), former))
	ar := alertRule("recreated", "a")
	must(t, h.Client.Create(t.Context(), ar))
	reconcileRule(t, r, ar)
	must(t, h.Client.Get(t.Context(), hub.Key(ar), ar))
	if len(ar.Status.Clusters) != 1 || ar.Status.Clusters[0].Phase != v1alpha1.PhasePending {
		t.Errorf("rows %+v", ar.Status.Clusters)
	}
	if kept := r.Board.kept(rule.KeyOf(ar)); len(kept) > 0 {
		t.Errorf("kept is %v", kept)
	}
}

// An outage is shown once it lasts; a restart at any time, or another message, does not change that.
func testOutage(t *testing.T, h *fleet.Member) {
	t.Helper()
	clock := clocktesting.NewFakePassiveClock(time.Unix(2e9, 0))
	begin := clock.Now()
	connect(t, h.Client, "out", up(metav1.NewTime(begin.Add(-time.Hour))))
	top, lagging := alertRule("outage-top", "out"), alertRule("outage-lagging", "out")
	must(t, h.Client.Create(t.Context(), top))
	must(t, h.Client.Create(t.Context(), lagging))
	var r *Reconciler
	restart := func() {
		r = newReconciler(h.Client)
		r.damper.clock = clock
	}
	restart()
	r.Board.Report(rule.KeyOf(top), top.UID, applied("out"))
	look := func() {
		s := &spokes{reader: h.Client, damper: &r.damper, board: r.Board, notify: func(context.Context, string) {}}
		_, err := s.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "out"}})
		must(t, err)
	}
	for _, step := range []struct {
		at           time.Duration
		condition    func(metav1.Time) metav1.Condition // nil: no news
		reason       string
		top, lagging string // the reasons that the rows show
	}{
		{0, nil, "", "", "Waiting"},
		{time.Minute, down, "Unreachable", "", "Unreachable"},
		{2 * time.Minute, up, "Connected", "", "Unreachable"},
		{3 * time.Minute, down, "AuthFailed", "", "Unreachable"},
		{7 * time.Minute, down, "Unreachable", "", "Unreachable"},
		{8 * time.Minute, nil, "", "Unreachable", "Unreachable"},
		{9 * time.Minute, down, "AuthFailed", "Unreachable", "Unreachable"},
		{30 * time.Minute, up, "Connected", "", "Unreachable"},
	} {
		clock.SetTime(begin.Add(step.at))
		if step.condition != nil {
			sc := &v1alpha1.SpokeCluster{}
			must(t, h.Client.Get(t.Context(), client.ObjectKey{Name: "out"}, sc))
			c := step.condition(metav1.NewTime(clock.Now()))
			c.Reason = step.reason
			setConnected(t, h.Client, sc, c)
		}
		look()
		before := reconcileRule(t, r, top)
		other := reconcileRule(t, r, lagging)
		if a, b := before.Status.Clusters[0], other.Status.Clusters[0]; a.Reason != step.top || b.Reason != step.lagging || a.Phase != v1alpha1.PhaseApplied || a.Rule == "" {
			t.Fatalf("after %v the rows are %+v and %+v", step.at, a, b)
		}
		restart()
		if again := reconcileRule(t, r, top); again.ResourceVersion != before.ResourceVersion {
			t.Fatalf("after %v a restart changed the row to %+v", step.at, again.Status.Clusters[0])
		}
		if again := reconcileRule(t, r, lagging); again.ResourceVersion != other.ResourceVersion {
			t.Fatalf("after %v a restart changed the row to %+v", step.at, again.Status.Clusters[0])
		}
	}
	must(t, h.Client.Delete(t.Context(), &v1alpha1.SpokeCluster{ObjectMeta: metav1.ObjectMeta{Name: "out"}}))
	look()
	if len(r.damper.shown) > 2 { // those that the rules are not placed on
		t.Errorf("what is shown of a spoke that is gone is kept: %+v", r.damper.shown)
	}
	for _, ar := range []*v1alpha1.AlertRule{top, lagging} {
		if row := reconcileRule(t, r, ar).Status.Clusters[0]; row.Reason != v1alpha1.ReasonNotRegistered {
			t.Errorf("the spoke is gone, and the row is %+v", row)
		}
	}
}

func testTemplate(t *testing.T, h *fleet.Member) {
	t.Helper()
	r := &TemplateReconciler{Client: h.Client, Validator: validation.New(validate)}
	art := &v1alpha1.AlertRuleTemplate{ObjectMeta: metav1.ObjectMeta{Name: "down"}}
	art.Spec.Alert, art.Spec.Expr = "Down", "up == 0"
	must(t, h.Client.Create(t.Context(), art))
	key := client.ObjectKeyFromObject(art)
	for _, step := range []struct {
		expr, accepted string
	}{{"up == 0", "True/Accepted True/Accepted"}, {"up ==", "False/InvalidExpr False/InvalidExpr True/InvalidExpr"}, {"up == 1", "True/Accepted True/Accepted"}} {
		art.Spec.Expr = step.expr
		must(t, h.Client.Update(t.Context(), art))
		for range 2 {
			_, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: key})
			must(t, err)
			must(t, h.Client.Get(t.Context(), key, art))
			got := shortly(&v1alpha1.AlertRule{Status: v1alpha1.RuleStatus{ObservedGeneration: art.Generation, Conditions: art.Status.Conditions}})
			if got != step.accepted || art.Status.ObservedGeneration != art.Generation {
				t.Errorf("%s: %s, of generation %d", step.expr, got, art.Status.ObservedGeneration)
			}
		}
		version := art.ResourceVersion
		_, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: key})
		must(t, err)
		must(t, h.Client.Get(t.Context(), key, art))
		if art.ResourceVersion != version {
			t.Errorf("%s: written once more with no news", step.expr)
		}
	}
}

// Only changes that affect the rows count as a change of the connection.
func TestConnectedChanged(t *testing.T) {
	spoke := func() *v1alpha1.SpokeCluster {
		c := down(metav1.Unix(1e9, 0))
		c.Type = v1alpha1.ConditionConnected
		return &v1alpha1.SpokeCluster{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Status: v1alpha1.SpokeClusterStatus{Conditions: []metav1.Condition{c}}}
	}
	for name, tc := range map[string]struct {
		change func(*v1alpha1.SpokeCluster)
		want   bool
	}{
		"nothing":   {func(*v1alpha1.SpokeCluster) {}, false},
		"a label":   {func(sc *v1alpha1.SpokeCluster) { sc.Labels = map[string]string{"a": "b"} }, false},
		"a count":   {func(sc *v1alpha1.SpokeCluster) { sc.Status.Deployments = new(int32(1)) }, false},
		"a text":    {func(sc *v1alpha1.SpokeCluster) { sc.Status.Conditions[0].Message = "other" }, false},
		"a reason":  {func(sc *v1alpha1.SpokeCluster) { sc.Status.Conditions[0].Reason = v1alpha1.ReasonAuthFailed }, true},
		"a status":  {func(sc *v1alpha1.SpokeCluster) { sc.Status.Conditions[0].Status = metav1.ConditionTrue }, true},
		"a time":    {func(sc *v1alpha1.SpokeCluster) { sc.Status.Conditions[0].LastTransitionTime = metav1.Unix(1e9+1, 0) }, true},
		"not known": {func(sc *v1alpha1.SpokeCluster) { sc.Status.Conditions = nil }, true},
	} {
		t.Run(name, func(t *testing.T) {
			before, after := spoke(), spoke()
			tc.change(after)
			for _, e := range []event.UpdateEvent{{ObjectOld: before, ObjectNew: after}, {ObjectOld: after, ObjectNew: before}} {
				if got := connectedChanged(e); got != tc.want {
					t.Errorf("%s: %v", name, got)
				}
			}
		})
	}
}
