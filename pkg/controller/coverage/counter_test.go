package coverage

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unique"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kuberuntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/controller/hub"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/coverage"
	"github.com/rulefleet/rulefleet/pkg/spoke"
)

func deployment(name string) rule.Key {
	return rule.Key{Kind: "Deployment", Namespace: "shop", Name: name}
}

type indexer struct{ *fake.ClientBuilder }

func (i indexer) IndexField(_ context.Context, o client.Object, field string, fn client.IndexerFunc) error {
	i.WithIndex(o, field, fn)
	return nil
}

// fleet is a hub, and the spokes that are engaged.
type fleet struct {
	t       *testing.T
	hub     client.Client
	inSpoke client.Client
	spokes  []*spoke.Spoke
	away    bool
	changed []string
	counter *Counter
	// informers are those of the hub, and reads is how often its AlertRules were read.
	informers *informertest.FakeInformers
	reads     int

	mu    sync.Mutex
	asked map[v1alpha1.WorkloadKind]int
	// fails is the answer to the next requests for numbers, or nil. Without it, the answer is number.
	fails  error
	number int32
}

func (f *fleet) Spokes() []*spoke.Spoke  { return f.spokes }
func (f *fleet) Away(string) bool        { return f.away }
func (f *fleet) ChangedSoon(name string) { f.changed = append(f.changed, name) }

// newFleet returns a hub with SpokeClusters, of which the first is engaged and has Deployments.
func newFleet(t *testing.T, deployments []string, spokes ...string) *fleet {
	t.Helper()
	scheme := kuberuntime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	f := &fleet{t: t, asked: map[v1alpha1.WorkloadKind]int{}, number: 3}
	onHub, inSpoke := fake.NewClientBuilder().WithScheme(scheme), fake.NewClientBuilder().WithScheme(spoke.Scheme)
	if err := hub.SetupIndexes(t.Context(), indexer{onHub}, "hub", "rulefleet-generated"); err != nil {
		t.Fatal(err)
	}
	for _, name := range spokes {
		onHub.WithObjects(&v1alpha1.SpokeCluster{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	onHub.WithObjects(&v1alpha1.AlertRuleTemplate{ObjectMeta: metav1.ObjectMeta{Name: "down"}})
	for _, name := range deployments {
		inSpoke.WithObjects(object(name))
	}
	f.informers = &informertest.FakeInformers{Scheme: scheme}
	onHub.WithInterceptorFuncs(interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		if _, ok := list.(*v1alpha1.AlertRuleList); ok {
			f.reads++
		}
		return c.List(ctx, list, opts...)
	}})
	f.hub, f.inSpoke = onHub.Build(), inSpoke.Build()
	f.start()
	f.engage()
	return f
}

// start starts the manager.
func (f *fleet) start() {
	f.counter = NewCounter(Options{Hub: f.hub, Informers: f.informers, Spokes: f, Trusted: []string{"rulefleet-generated"}, Clock: clock.RealClock{}})
	f.counter.began = time.Now()
	if err := f.counter.follow(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}
	f.counter.ask = func(_ context.Context, _ *spoke.Spoke, kind v1alpha1.WorkloadKind) (int32, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.asked[kind]++
		switch {
		case f.fails != nil:
			return 0, f.fails
		case kind == v1alpha1.CronJobKind:
			return 0, fmt.Errorf("counting: %w", apierrors.NewForbidden(schema.GroupResource{}, "", nil))
		}
		return f.number, nil
	}
}

// engage engages the first spoke, again.
func (f *fleet) engage() {
	<-time.After(time.Second)
	f.spokes = []*spoke.Spoke{{Name: "eu", Reader: f.inSpoke, Since: time.Now()}}
}

func (f *fleet) record(outcome coverage.Outcome, workloads ...string) {
	for _, name := range workloads {
		f.counter.Record(f.spokes[0], deployment(name), coverage.Outcomes{"down": outcome})
	}
}

// count counts every spoke once, and returns the covered and total numbers of Deployments that are shown.
func (f *fleet) count() string {
	f.t.Helper()
	for _, s := range f.spokes {
		if err := f.counter.count(f.t.Context(), s); err != nil {
			f.t.Fatal(err)
		}
	}
	if err := f.counter.publish(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}
	synctest.Wait()
	<-time.After(period)
	is := f.counter.Coverage("eu")
	if is == nil {
		return "unknown"
	}
	return fmt.Sprintf("%d/%d", is.Workloads[0].Covered, is.Workloads[0].Total)
}

// object is a Deployment of the spoke.
func object(name string) *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
}

// evaluates creates the AlertRule of a Deployment.
func (f *fleet) evaluates(name string) {
	f.t.Helper()
	ar := &v1alpha1.AlertRule{ObjectMeta: metav1.ObjectMeta{Namespace: "rulefleet-generated", Name: "down-" + name}}
	ar.Spec.WorkloadRef = &v1alpha1.WorkloadReference{Cluster: "eu", Kind: "Deployment", Namespace: "shop", Name: name}
	ar.Status.Clusters = []v1alpha1.ClusterStatus{{Name: "eu", Phase: v1alpha1.PhaseEvaluating}}
	if err := f.hub.Create(f.t.Context(), ar); err != nil {
		f.t.Fatal(err)
	}
	f.informer().Add(ar)
}

// informer is that of the AlertRules.
func (f *fleet) informer() *controllertest.FakeInformer {
	f.t.Helper()
	informer, err := f.informers.FakeInformerFor(f.t.Context(), &v1alpha1.AlertRule{})
	if err != nil {
		f.t.Fatal(err)
	}
	return informer
}

func (f *fleet) expect(got, want, when string) {
	f.t.Helper()
	if got != want {
		f.t.Errorf("%s: got %s, want %s", when, got, want)
	}
}

// TestCoverage shows numbers once all workloads are processed, and reports each change once.
func TestCoverage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, []string{"cart", "web", "job"}, "eu")
		f.evaluates("web")
		f.record(coverage.Generated, "web")
		f.record(coverage.Disabled, "cart")
		f.count()
		f.expect(f.count(), "unknown", "one was not processed")
		f.counter.Record(f.spokes[0], deployment("job"), coverage.Outcomes{})
		f.expect(f.count(), "1/3", "all were processed")
		want := []v1alpha1.UncoveredWorkload{
			{Kind: "Deployment", Namespace: "shop", Name: "cart", Reason: "Disabled"}, {Kind: "Deployment", Namespace: "shop", Name: "job", Reason: "NoTemplate"},
		}
		if is := f.counter.Coverage("eu"); !slices.Equal(is.Uncovered, want) {
			t.Errorf("got %+v", is.Uncovered)
		}
		kinds := []v1alpha1.WorkloadCount{{Kind: "Deployment", Total: 3, Covered: 1}, {Kind: "StatefulSet", Total: 3}, {Kind: "DaemonSet", Total: 3}}
		if is := f.counter.Coverage("eu"); !slices.Equal(is.Workloads, kinds) {
			t.Errorf("got %+v", is.Workloads)
		}
		f.evaluates("cart")
		f.expect(f.count(), "2/3", "one more is evaluated")
		told := len(f.changed)
		for range 10 {
			f.count()
		}
		if told != 2 || len(f.changed) != told {
			t.Errorf("told %d times of two changes, and then %d times", told, len(f.changed)-told)
		}
		f.counter.Forget("eu")
		if f.counter.Coverage("eu") != nil || len(f.counter.spokes)+len(f.counter.outcomes)+len(f.counter.sums) != 0 {
			t.Errorf("it is not forgotten: %+v", f.counter.sums)
		}
	})
}

// TestUnchanged counts a spoke again when something has changed, and otherwise once per recountInterval.
func TestUnchanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, []string{"cart", "web"}, "eu")
		f.evaluates("web")
		f.record(coverage.Generated, "web", "cart")
		for range recountInterval / period {
			f.count()
		}
		named, another := &v1alpha1.AlertRule{}, &v1alpha1.AlertRule{}
		named.Spec.WorkloadRef, another.Spec.WorkloadRef = &v1alpha1.WorkloadReference{Cluster: "eu"}, &v1alpha1.WorkloadReference{Cluster: "us"}
		for _, step := range []struct {
			name   string
			change func()
			counts bool
		}{
			{"nothing changes", func() {}, false},
			{"an AlertRule is written", func() { f.informer().Add(named) }, true},
			{"an AlertRule names it no longer", func() { f.informer().Update(named, another) }, true},
			{"an AlertRule is deleted", func() { f.informer().Delete(named) }, true},
			{"an AlertRule of another spoke is deleted", func() { f.informer().Delete(another) }, false},
			{"the same outcome", func() { f.record(coverage.Generated, "cart") }, false},
			{"another outcome", func() { f.record(coverage.Failed, "cart") }, true},
			{"a workload is gone", func() {
				if err := f.inSpoke.Delete(t.Context(), object("cart")); err != nil {
					t.Fatal(err)
				}
				f.counter.Record(f.spokes[0], deployment("cart"), nil)
			}, true},
			{"another number of a kind without an informer", func() { f.number = 4; <-time.After(askInterval); f.count() }, true},
			{"no answer", func() { f.fails = errors.New("no answer"); <-time.After(askInterval); f.count(); f.fails = nil }, false},
			{"the same number", func() { <-time.After(askInterval); f.count() }, false},
			{"its labels change", func() {
				sc := &v1alpha1.SpokeCluster{}
				if err := f.hub.Get(t.Context(), client.ObjectKey{Name: "eu"}, sc); err != nil {
					t.Fatal(err)
				}
				sc.Labels = map[string]string{"tier": "gold"}
				if err := f.hub.Update(t.Context(), sc); err != nil {
					t.Fatal(err)
				}
			}, true},
			{"a minute passes", func() { <-time.After(recountInterval) }, true},
		} {
			f.counter.Changed("eu")
			f.count()
			before := f.reads
			step.change()
			f.count()
			if counted := f.reads > before; counted != step.counts {
				t.Errorf("%s: counted is %v", step.name, counted)
			}
			before = f.reads
			f.count()
			if f.reads != before {
				t.Errorf("%s: it is counted once more", step.name)
			}
		}
		if err := f.inSpoke.Delete(t.Context(), object("web")); err != nil {
			t.Fatal(err)
		}
		f.counter.Record(f.spokes[0], deployment("web"), nil)
		f.count()
		before := f.reads
		f.engage()
		f.count()
		if f.reads == before {
			t.Error("it is not counted after it was engaged again")
		}
	})
}

// TestAway keeps the numbers of a spoke that does not answer, and of one that is engaged again, until they are known.
func TestAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, []string{"cart", "web"}, "eu")
		f.evaluates("web")
		f.record(coverage.Generated, "web", "cart")
		f.count()
		f.expect(f.count(), "1/2", "it is counted")
		requests := f.requests()
		f.away = true
		f.evaluates("cart")
		for range 20 {
			f.count()
		}
		f.expect(f.count(), "1/2", "it is away")
		if n := f.requests(); n != requests {
			t.Errorf("%d requests to a spoke that does not answer", n-requests)
		}
		f.away = false
		if err := f.inSpoke.Create(t.Context(), object("new")); err != nil {
			t.Fatal(err)
		}
		f.counter.Changed("eu")
		f.record(coverage.Disabled, "cart")
		f.expect(f.count(), "1/2", "it is back, and a new workload is about to be processed")
		if is := f.counter.sums["down"]; is.Matched != 2 || is.Disabled != 0 {
			t.Errorf("its template has %+v", is)
		}
		f.record(coverage.Generated, "new")
		f.expect(f.count(), "2/3", "all were processed since it is back")
		old := f.spokes[0]
		f.engage()
		f.record(coverage.Generated, "web", "new")
		f.counter.Record(old, deployment("cart"), coverage.Outcomes{"down": coverage.Generated}) // a worker is late
		f.count()
		<-time.After(2 * processWait)
		f.counter.Changed("eu")
		if err := f.counter.count(t.Context(), old); err != nil { // the round began before it was engaged again
			t.Fatal(err)
		}
		f.expect(f.count(), "2/3", "not all were processed since it was engaged again")
		if is := f.counter.sums["down"]; is.Matched != 3 {
			t.Errorf("its template has %+v", is)
		}
		f.evaluates("new")
		f.record(coverage.Generated, "cart")
		f.count()
		f.expect(f.count(), "3/3", "all were processed")
	})
}

func (f *fleet) requests() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, is := range f.asked {
		n += is
	}
	return n
}

// TestAsked counts the kinds without an informer once a minute, in a suspended spoke as well. A kind without a number does
// not hide the others.
func TestAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, nil, "eu")
		f.fails = errors.New("no answer")
		f.count()
		f.expect(f.count(), "0/0", "no other kind was counted")
		if want := map[v1alpha1.WorkloadKind]int{v1alpha1.StatefulSetKind: 1, v1alpha1.DaemonSetKind: 1, v1alpha1.CronJobKind: 1}; !maps.Equal(f.asked, want) {
			t.Errorf("the spoke was asked %v", f.asked)
		}
		f.fails = nil
		for range askInterval / period {
			f.count()
		}
		f.expect(f.count(), "0/0", "it was asked again")
		f.fails = errors.New("no answer")
		for range 2 * askInterval / period {
			f.count()
		}
		if is := f.counter.Coverage("eu"); len(is.Workloads) != 3 || is.Workloads[1].Total != 3 {
			t.Errorf("without an answer, got %+v", is.Workloads)
		}
		before := f.requests()
		sc := &v1alpha1.SpokeCluster{}
		if err := f.hub.Get(t.Context(), client.ObjectKey{Name: "eu"}, sc); err != nil {
			t.Fatal(err)
		}
		sc.Spec.Suspend = new(true)
		if err := f.hub.Update(t.Context(), sc); err != nil {
			t.Fatal(err)
		}
		for range 2 * askInterval / period {
			f.count()
		}
		if f.requests() == before {
			t.Error("a suspended spoke was not asked")
		}
	})
}

// TestRestart keeps what statuses show for publishInterval after a start, because a restart is not a change.
func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, []string{"web"}, "eu")
		sc, art := &v1alpha1.SpokeCluster{}, &v1alpha1.AlertRuleTemplate{}
		sc.Name, art.Name = "eu", "down"
		for _, o := range []client.Object{sc, art} {
			if err := f.hub.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
				t.Fatal(err)
			}
		}
		sc.Status.Workloads = []v1alpha1.WorkloadCount{{Kind: v1alpha1.DeploymentKind, Total: 2}}
		art.Status.Summary = &v1alpha1.TemplateSummary{Matched: 2}
		for _, o := range []client.Object{sc, art} {
			if err := f.hub.Update(t.Context(), o); err != nil {
				t.Fatal(err)
			}
		}
		f.record(coverage.Generated, "web")
		f.count()
		f.count()
		reads := f.reads
		for range publishInterval/period - 2 {
			f.expect(f.count(), "unknown", "the manager has just started")
			if is := f.counter.Summary("down"); is != nil {
				t.Errorf("the template has %+v", is)
			}
		}
		if f.reads != reads {
			t.Error("it is counted again before a result may be shown")
		}
		f.count()
		f.expect(f.count(), "0/1", "later")
		if is := f.counter.Summary("down"); is == nil || is.Matched != 1 {
			t.Errorf("later, the template has %+v", is)
		}
	})
}

// TestSummary has the sums over the spokes. After a start, they are not shown before all spokes are known, or for
// settleTime.
func TestSummary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, []string{"a", "b", "c", "d", "e"}, "eu", "us")
		var told []string
		f.counter.Changes().Listen(func(name string) { told = append(told, name) })
		f.record(coverage.Generated, "a", "b")
		f.record(coverage.Disabled, "c")
		f.record(coverage.Refused, "d")
		f.record(coverage.Failed, "e")
		f.count()
		if f.counter.Summary("down") != nil || len(told) > 0 {
			t.Error("it is shown although us is not known")
		}
		for range settleTime / period {
			f.count()
		}
		want := v1alpha1.TemplateSummary{Matched: 5, Generated: 2, Disabled: 1, Refused: 1, Failed: 1}
		if is := f.counter.Summary("down"); is == nil || *is != want || len(told) != 1 {
			t.Errorf("got %+v, told %d times", is, len(told))
		}
		f.record(coverage.Generated, "c")
		f.counter.Record(f.spokes[0], deployment("e"), nil)
		if err := f.inSpoke.Delete(t.Context(), object("e")); err != nil {
			t.Fatal(err)
		}
		for range publishInterval/period + 1 {
			f.count()
		}
		want = v1alpha1.TemplateSummary{Matched: 4, Generated: 3, Refused: 1}
		if is := f.counter.Summary("down"); *is != want || len(told) != 2 {
			t.Errorf("got %+v, told %d times", is, len(told))
		}
		f.start()
		f.counter.Changes().Listen(func(string) {})
		if err := f.hub.Delete(t.Context(), &v1alpha1.SpokeCluster{ObjectMeta: metav1.ObjectMeta{Name: "us"}}); err != nil {
			t.Fatal(err)
		}
		f.record(coverage.Generated, "a", "b", "c")
		f.count()
		if f.counter.Summary("down") != nil {
			t.Error("it is shown although d is not processed")
		}
		f.record(coverage.Refused, "d")
		f.count()
		if is := f.counter.Summary("down"); is == nil || *is != want {
			t.Errorf("after a start, got %+v", is)
		}
	})
}

// TestBusySpoke checks the numbers of a spoke in which one workload is never processed.
func TestBusySpoke(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, []string{"a", "b"}, "eu")
		f.evaluates("a")
		f.record(coverage.Generated, "a")
		f.record(coverage.Disabled, "b")
		for range publishInterval / period {
			f.count()
		}
		if err := f.inSpoke.Create(t.Context(), object("new")); err != nil {
			t.Fatal(err)
		}
		f.counter.Changed("eu")
		f.record(coverage.Generated, "b")
		f.evaluates("b")
		f.expect(f.count(), "1/2", "the new one is about to be processed")
		for range processWait / period {
			f.count()
		}
		f.expect(f.count(), "2/3", "it still is")
		for range publishInterval / period {
			f.count()
		}
		if is, want := f.counter.Summary("down"), (v1alpha1.TemplateSummary{Matched: 2, Generated: 2}); is == nil || *is != want {
			t.Errorf("got %+v", is)
		}
	})
}

// TestNeverEnabled has disabled templates. One whose workloads were never counted needs no status, and that of another one
// follows.
func TestNeverEnabled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, []string{"a"}, "eu")
		var told []string
		f.counter.Changes().Listen(func(name string) { told = append(told, name) })
		for name, status := range map[string]*v1alpha1.TemplateSummary{"never": nil, "once": {Matched: 1, Generated: 1}} {
			art := &v1alpha1.AlertRuleTemplate{ObjectMeta: metav1.ObjectMeta{Name: name}}
			art.Spec.State, art.Status.Summary = v1alpha1.Disabled, status
			if err := f.hub.Create(t.Context(), art); err != nil {
				t.Fatal(err)
			}
		}
		f.record(coverage.Generated, "a")
		for range publishInterval/period + 2 {
			f.count()
		}
		slices.Sort(told)
		if !slices.Equal(told, []string{"down", "once"}) {
			t.Errorf("told are %q", told)
		}
	})
}

// TestMemory keeps the outcomes of many workloads in little memory.
func TestMemory(t *testing.T) {
	const workloads, most = 50_000, 64 // bytes
	of := coverage.Outcomes{"deployment-down": coverage.Generated, "deployment-rollout": coverage.Disabled}
	if got := decode(encode(of)); !maps.Equal(got, of) || len(decode(encode(nil))) != 0 {
		t.Errorf("got %v", got)
	}
	used := func() int64 {
		for range 3 { // the second empties pools, and the third collects what finalizers kept
			runtime.GC()
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	o, s, before := outcomes{}, &spoke.Spoke{Name: "eu"}, used()
	for i := range workloads {
		o.record(s, deployment(fmt.Sprintf("a-deployment-with-a-usual-name-%d", i)), unique.Make(encode(of)))
	}
	if each := (used() - before) / workloads; each <= 0 || each > most {
		t.Errorf("%d bytes for each workload", each)
	}
	runtime.KeepAlive(o)
}
