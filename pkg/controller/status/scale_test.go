package status

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/controller/hub"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/rollup"
	"github.com/rulefleet/rulefleet/pkg/rule/validation"
	"github.com/rulefleet/rulefleet/pkg/testing/controlplane"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
)

const (
	many     = 1000
	atOnce   = 16
	patience = time.Minute
	poll     = 200 * time.Millisecond
	// maxObject is what an AlertRule on 1,000 spokes may take, as the API server returns it.
	maxObject = 100 << 10
)

// running is a Reconciler at work: in a manager in this process, against a real API server.
type running struct {
	*Reconciler
	hub    *fleet.Member
	clock  *clocktesting.FakePassiveClock
	spokes *spokes
	stop   func()
}

// long skips a test in short mode.
func long(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("make test-all runs it")
	}
}

func startReconciler(t *testing.T) *running {
	t.Helper()
	return startReconcilerOn(t, startHub(t))
}

func startReconcilerOn(t *testing.T, h *fleet.Member) *running {
	t.Helper()
	mgr, err := ctrl.NewManager(h.RESTConfig(), ctrl.Options{
		Scheme: fleet.Scheme, Logger: logr.Discard(), Metrics: metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: new(true)},
	})
	must(t, err)
	must(t, hub.SetupIndexes(t.Context(), mgr.GetFieldIndexer(), "hub", "rulefleet-generated"))
	clock := clocktesting.NewFakePassiveClock(time.Now())
	r := &Reconciler{Client: mgr.GetClient(), Board: newBoard(), Recorder: events.NewFakeRecorder(100), Validator: validation.New(validate)}
	r.damper.clock = clock
	must(t, r.SetupWithManager(mgr))
	ctx, cancel := context.WithCancel(t.Context())
	var group errgroup.Group
	group.Go(func() error { return mgr.Start(ctx) })
	stop := func() {
		cancel()
		must(t, group.Wait())
	}
	t.Cleanup(stop)
	return &running{r, h, clock, &spokes{reader: mgr.GetClient(), damper: &r.damper, board: r.Board, notify: r.onShown}, stop}
}

// parallel calls a function for 0 to n-1.
func parallel(t *testing.T, n int, do func(int)) {
	t.Helper()
	var group errgroup.Group
	group.SetLimit(atOnce)
	for i := range n {
		group.Go(func() error {
			do(i)
			return nil
		})
	}
	must(t, group.Wait())
}

func eventually(t *testing.T, what string, condition func(context.Context) error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), poll, patience, true, func(ctx context.Context) (bool, error) {
		last = condition(ctx)
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("%s: %v: %v", what, err, last)
	}
}

// writes returns how often the status of each AlertRule was written since the last
// reset of the audit log.
func (r *running) writes(t *testing.T) (each map[string]int, total int) {
	t.Helper()
	log, err := r.hub.Audit().Events(func(e controlplane.AuditEvent) bool {
		return e.IsWrite() && e.ObjectRef.Resource == "alertrules" && e.ObjectRef.Subresource == "status"
	})
	must(t, err)
	each = map[string]int{}
	for _, e := range log {
		each[e.ObjectRef.Name]++
	}
	return each, len(log)
}

// TestOneRuleOn1000Spokes converges one rule on 1,000 spokes.
func TestOneRuleOn1000Spokes(t *testing.T) {
	long(t)
	r := startReconciler(t)
	name := func(i int) v1alpha1.ClusterName {
		return v1alpha1.ClusterName(fmt.Sprintf("spoke-%04d-%s", i, strings.Repeat("n", 52)))
	}
	since := metav1.NewTime(r.clock.Now().Add(-time.Hour))
	parallel(t, many, func(i int) { connect(t, r.hub.Client, string(name(i)), up(since)) })
	ar := alertRule("scale")
	must(t, r.hub.Client.Create(t.Context(), ar))
	object := strings.Repeat("s", 63) + "/" + strings.Repeat("o", 147)
	verdict := func(i int, reason string) v1alpha1.ClusterStatus {
		v := v1alpha1.ClusterStatus{Name: name(i), Phase: v1alpha1.PhaseApplied, Rule: object, ObservedGeneration: 1}
		if reason != "" {
			v.Phase, v.Reason, v.Message = v1alpha1.PhasePending, reason, fmt.Sprintf("%04d%s", i, strings.Repeat(`"<`, 510))
		}
		return v
	}
	mutated := func(i int) v1alpha1.ClusterStatus {
		v := verdict(i, v1alpha1.ReasonMutated)
		v.AnswerDigest = strings.Repeat("d", 64)
		return v
	}
	largest := 0
	for _, phase := range []struct {
		what   string
		report func(i int) v1alpha1.ClusterStatus // nil: nothing is reported
		n      int
		over   time.Duration
		ready  string
		reason string
	}{
		{"nothing reported", nil, 0, 0, "0/1000", v1alpha1.ReasonWaiting},
		{"all applied", func(i int) v1alpha1.ClusterStatus { return verdict(i, "") }, many, 3 * time.Second, "1000/1000", v1alpha1.ReasonAllApplied},
		{"300 fail", func(i int) v1alpha1.ClusterStatus { return verdict(i, v1alpha1.ReasonRejected) }, 300, time.Second, "700/1000", v1alpha1.ReasonRejected},
		{"all fail", func(i int) v1alpha1.ClusterStatus { return verdict(i, v1alpha1.ReasonRejected) }, many, 2 * time.Second, "0/1000", v1alpha1.ReasonRejected},
		{"all mutated", mutated, many, 2 * time.Second, "0/1000", v1alpha1.ReasonMutated},
	} {
		begin := time.Now()
		if phase.n > 0 {
			tick := time.NewTicker(phase.over / time.Duration(phase.n))
			for i := range phase.n {
				<-tick.C
				r.Board.Report(rule.KeyOf(ar), ar.UID, phase.report(i))
			}
			tick.Stop()
		}
		eventually(t, phase.what, func(ctx context.Context) error {
			if err := r.hub.Client.Get(ctx, hub.Key(ar), ar); err != nil {
				return err
			}
			ready := apimeta.FindStatusCondition(ar.Status.Conditions, v1alpha1.ConditionReady)
			if s := ar.Status.Summary; s == nil || s.Ready != phase.ready || ready.Reason != phase.reason || len(ar.Status.Clusters) > 100 {
				return fmt.Errorf("the summary is %+v, Ready is %+v", s, ready)
			}
			return nil
		})
		took := time.Since(begin)
		raw, err := r.hub.Kubectl(t.Context(), "get", "--raw", "/apis/rulefleet.io/v1alpha1/namespaces/"+namespace+"/alertrules/"+ar.Name).Output()
		must(t, err)
		managed, err := json.Marshal(ar.ManagedFields)
		must(t, err)
		_, writes := r.writes(t)
		t.Logf("%s: %d bytes, %d of them managedFields, %d rows, %d groups; %d writes in %.1f s",
			phase.what, len(raw), len(managed), len(ar.Status.Clusters), len(ar.Status.Groups), writes, took.Seconds())
		largest = max(largest, len(raw))
		if most := int(took/debounce) + 2; phase.n > 0 && writes > most {
			t.Errorf("%s: %d writes in %v, at most %d are due", phase.what, writes, took, most)
		}
		must(t, r.hub.Audit().Reset())
	}
	t.Logf("the largest: %d bytes", largest)
	if largest >= maxObject {
		t.Errorf("the object takes up to %d bytes, more than %d", largest, maxObject)
	}

	r.stop()
	if n := restart(t, r.hub, ar, mutated); n > 0 {
		t.Errorf("after a restart, there are %d writes", n)
	}
	// A former version wrote no groups.
	before := ar.DeepCopy()
	ar.Status.Groups = nil
	must(t, r.hub.Client.Status().Patch(t.Context(), ar, client.MergeFrom(before)))
	must(t, r.hub.Audit().Reset())
	if n := restart(t, r.hub, ar, mutated); n != 1 {
		t.Errorf("the status of a former version is written %d times", n)
	}
	must(t, r.hub.Client.Get(t.Context(), hub.Key(ar), ar))
	ar.ManagedFields, ar.ResourceVersion = before.ManagedFields, before.ResourceVersion
	if !equality.Semantic.DeepEqual(ar, before) {
		t.Errorf("it is %+v, and was %+v", ar.Status, before.Status)
	}
}

// restart starts a Reconciler, to which all spokes report, and returns how often it writes the status of a rule.
func restart(t *testing.T, h *fleet.Member, ar *v1alpha1.AlertRule, verdict func(int) v1alpha1.ClusterStatus) int {
	t.Helper()
	r := startReconcilerOn(t, h)
	defer r.stop()
	tick := time.NewTicker(3 * time.Millisecond) // longer than news wait
	defer tick.Stop()
	for i := range many {
		<-tick.C
		r.Board.Report(rule.KeyOf(ar), ar.UID, verdict(i))
	}
	eventually(t, "all spokes have reported", func(context.Context) error {
		if is, ok := r.memories.Load(rule.KeyOf(ar)); !ok || len(is.(known).last) != many {
			return errors.New("the status waits")
		}
		return nil
	})
	r.settle(t, 0)
	_, writes := r.writes(t)
	return writes
}

// Test1000RulesOnAFlappingSpoke has a spoke come and go, by a fake clock.
func Test1000RulesOnAFlappingSpoke(t *testing.T) {
	long(t)
	r := startReconciler(t)
	connect(t, r.hub.Client, "eu-1", up(metav1.NewTime(r.clock.Now().Add(-time.Hour))))
	parallel(t, many, func(i int) {
		ar := alertRule(fmt.Sprintf("rule-%04d", i), "eu-1")
		must(t, r.hub.Client.Create(t.Context(), ar))
		r.Board.Report(rule.KeyOf(ar), ar.UID, applied("eu-1"))
	})
	r.expectRows(t, "")
	begin := r.clock.Now()
	r.observe(t)
	r.settle(t, 0)

	// Half an hour of flaps of all lengths below 5 min.
	r.reset(t)
	before := reconciles(t)
	flaps := 0
	for _, length := range []time.Duration{time.Second, 10 * time.Second, time.Minute, 2 * time.Minute, rollup.OutageDelay - time.Second} {
		for range 2 {
			r.flip(t, down, length)
			r.flip(t, up, length)
			flaps++
		}
	}
	r.settle(t, before+many) // they were looked at
	r.expectRows(t, "")
	_, total := r.writes(t)
	t.Logf("%d flaps of up to 5 min within %v: %d writes of the status of %d rules", flaps, r.clock.Since(begin), total, many)
	if total > 0 {
		t.Errorf("%d writes", total)
	}

	// 6 min down, 1 min up, and so on.
	r.flip(t, up, time.Hour)
	r.reset(t)
	begin = r.clock.Now()
	var last time.Time
	for range 2 {
		for _, state := range []struct {
			condition func(metav1.Time) metav1.Condition
			minutes   int
		}{{down, 6}, {up, 1}} {
			r.flip(t, state.condition, 0)
			for range state.minutes {
				last = r.minute(t, begin, last)
			}
		}
	}
	if last.IsZero() {
		t.Error("an outage of 6 min was never shown")
	}
}

// minute lets a minute pass, and holds what was written in it to the bound: last is
// when something was before, and the result when it was now.
func (r *running) minute(t *testing.T, begin, last time.Time) time.Time {
	t.Helper()
	before := r.damper.of(&v1alpha1.SpokeCluster{ObjectMeta: metav1.ObjectMeta{Name: "eu-1"}}).Top
	r.observe(t)
	shown := r.damper.of(&v1alpha1.SpokeCluster{ObjectMeta: metav1.ObjectMeta{Name: "eu-1"}})
	if shown.Top == rollup.OverlayOn {
		r.expectRows(t, v1alpha1.ReasonUnreachable)
	} else {
		r.expectRows(t, "")
	}
	if before != shown.Top {
		r.settle(t, 0) // the audit log may have the last writes later than the watch
	}
	each, total := r.writes(t)
	if total > 0 || before != shown.Top {
		t.Logf("after %v: %d writes, the rows show the outage: %v", r.clock.Since(begin), total, shown.Top)
		if !last.IsZero() && r.clock.Since(last) < rollup.OutageDelay {
			t.Errorf("that is %v after the last writes", r.clock.Since(last))
		}
		last = r.clock.Now()
	}
	for name, n := range each {
		if n > 1 {
			t.Errorf("%d writes of the status of %s", n, name)
		}
	}
	r.reset(t)
	r.clock.SetTime(r.clock.Now().Add(time.Minute))
	return last
}

// flip sets the spoke's condition, waits until that was seen, and lets time pass.
func (r *running) flip(t *testing.T, condition func(metav1.Time) metav1.Condition, pass time.Duration) {
	t.Helper()
	sc := &v1alpha1.SpokeCluster{}
	must(t, r.hub.Client.Get(t.Context(), client.ObjectKey{Name: "eu-1"}, sc))
	setConnected(t, r.hub.Client, sc, condition(metav1.NewTime(r.clock.Now())))
	eventually(t, "the cache has it", func(ctx context.Context) error {
		cached := &v1alpha1.SpokeCluster{}
		if err := r.Client.Get(ctx, client.ObjectKey{Name: "eu-1"}, cached); err != nil || cached.ResourceVersion != sc.ResourceVersion {
			return fmt.Errorf("it has %s, %w", cached.ResourceVersion, err)
		}
		return nil
	})
	r.observe(t)
	if pass > 0 {
		r.clock.SetTime(r.clock.Now().Add(pass))
		r.observe(t)
	}
}

// observe does what the workqueue does when a check is due: its own clock is real.
func (r *running) observe(t *testing.T) {
	t.Helper()
	_, err := r.spokes.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "eu-1"}})
	must(t, err)
}

// expectRows waits until every rule has one row, with this reason.
func (r *running) expectRows(t *testing.T, reason string) {
	t.Helper()
	eventually(t, "rows with reason "+reason, func(ctx context.Context) error {
		var list v1alpha1.AlertRuleList
		if err := r.Client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
			return err
		}
		for i := range list.Items {
			if rows := list.Items[i].Status.Clusters; len(rows) != 1 || rows[0].Reason != reason || rows[0].Phase != v1alpha1.PhaseApplied {
				return fmt.Errorf("%s has %+v", list.Items[i].Name, rows)
			}
		}
		if len(list.Items) != many {
			return fmt.Errorf("there are %d rules", len(list.Items))
		}
		return nil
	})
}

func (r *running) reset(t *testing.T) {
	t.Helper()
	must(t, r.hub.Audit().Reset())
}

// settle waits until at least so many rules were reconciled, and none is for twice as
// long as news waits.
func (r *running) settle(t *testing.T, atLeast float64) {
	t.Helper()
	last, since := -1.0, time.Now()
	eventually(t, "the queue is empty", func(context.Context) error {
		if n := reconciles(t); n != last || n < atLeast {
			last, since = n, time.Now()
			return fmt.Errorf("%v reconciles", n)
		}
		if time.Since(since) < 2*debounce {
			return errors.New("the last was just now")
		}
		return nil
	})
}

// reconciles returns how many rules were reconciled in this process.
func reconciles(t *testing.T) float64 {
	t.Helper()
	families, err := metrics.Registry.Gather()
	must(t, err)
	sum := 0.0
	for _, family := range families {
		if family.GetName() != "controller_runtime_reconcile_total" {
			continue
		}
		for _, m := range family.GetMetric() {
			for _, label := range m.GetLabel() {
				if label.GetName() == "controller" && label.GetValue() == "status" {
					sum += m.GetCounter().GetValue()
				}
			}
		}
	}
	return sum
}
