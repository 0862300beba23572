package membership

import (
	"context"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/contest"
	"github.com/rulefleet/rulefleet/pkg/live"
)

// noRules are on the hub.
type noRules struct{ Rules }

func (noRules) Lacking(string) (int, string)                             { return 0, "" }
func (noRules) Forgotten(context.Context, time.Time) (bool, error)       { return false, nil }
func (noRules) Doomed(context.Context, string) ([]string, bool)          { return nil, true }
func (noRules) Placed(context.Context, string) (rules []string, _ error) { return nil, nil }

// disputed is a hub where another client reverts the Reconciler's writes of SpokeCluster s.
type disputed struct {
	*testing.T
	*Reconciler

	clock  *testingclock.FakePassiveClock
	cached *v1alpha1.SpokeCluster // what the cache shows; nil for what there is
	writes int                    // but of the status
}

func newDisputed(t *testing.T) *disputed {
	t.Helper()
	secret := secretOf("s", nil)
	secret.Labels["env"] = "prod"
	r, _ := registrar(t, secret)
	d := &disputed{T: t, Reconciler: r, clock: testingclock.NewFakePassiveClock(time.Unix(1e9, 0))}
	r.Rules, r.Contests = noRules{}, contest.New(d.clock, 0)
	r.Client = interceptor.NewClient(r.Client.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if sc, ok := o.(*v1alpha1.SpokeCluster); ok && d.cached != nil {
				d.cached.DeepCopyInto(sc)
				return nil
			}
			return c.Get(ctx, key, o, opts...)
		},
		Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			d.writes++
			return c.Apply(ctx, o, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
			d.writes++
			return c.Patch(ctx, o, patch, append(opts, client.FieldOwner(contest.Manager))...)
		},
	})
	return d
}

// want reconciles, and compares the number of writes and when to look again.
func (d *disputed) want(writes int, again time.Duration) {
	d.Helper()
	d.writes = 0
	result, err := d.Reconcile(d.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "s"}})
	if err != nil || d.writes != writes || result.RequeueAfter != again {
		d.Fatalf("wrote %d times, again after %v, %v; want %d times, %v", d.writes, result.RequeueAfter, err, writes, again)
	}
}

func (d *disputed) read() *v1alpha1.SpokeCluster {
	d.Helper()
	sc := &v1alpha1.SpokeCluster{}
	if err := d.Client.Get(d.Context(), client.ObjectKey{Name: "s"}, sc); err != nil {
		d.Fatal(err)
	}
	return sc
}

func (d *disputed) edit(change func(*v1alpha1.SpokeCluster)) {
	d.Helper()
	sc := d.read()
	change(sc)
	if err := d.Client.Update(d.Context(), sc, client.FieldOwner("argocd-controller")); err != nil {
		d.Fatal(err)
	}
}

func (d *disputed) pass(after time.Duration) { d.clock.SetTime(d.clock.Now().Add(after)) }

func (d *disputed) wantShown(words string) {
	d.Helper()
	if message, _ := d.Contests.InSpoke("s"); !strings.Contains(message, words) || (words == "") != (message == "") {
		d.Errorf("it shows %q, want %q", message, words)
	}
}

// TestContestOfMembership has another client that removes the labels of a SpokeCluster's Secret.
func TestContestOfMembership(t *testing.T) {
	for name, undo := range map[string]func(*v1alpha1.SpokeCluster){
		"labels":    func(sc *v1alpha1.SpokeCluster) { delete(sc.Labels, "env") },
		"finalizer": func(sc *v1alpha1.SpokeCluster) { sc.Finalizers = nil },
		"and more": func(sc *v1alpha1.SpokeCluster) {
			delete(sc.Labels, "env")
			sc.Labels = map[string]string{"theirs": time.Now().String()}
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDisputed(t)
			d.want(1, 0) // it is made
			d.want(0, 0)
			d.edit(undo)
			d.want(1, 0)
			d.want(0, 0)
			d.wantShown("")
			d.edit(undo)
			d.want(0, time.Second)
			d.wantShown("changes SpokeCluster s back after each write (2 times)")
			d.pass(time.Second / 2)
			d.want(0, time.Second/2)
			d.pass(time.Second / 2)
			d.want(1, 0)
			d.want(0, 30*time.Second)
			if sc := d.read(); sc.Labels["env"] != "prod" || !controllerutil.ContainsFinalizer(sc, v1alpha1.LeaveFinalizer) {
				t.Errorf("it has %v, %v", sc.Labels, sc.Finalizers)
			}
			d.edit(undo)
			d.want(0, 2*time.Second)
			d.edit(func(sc *v1alpha1.SpokeCluster) { // they give in
				controllerutil.AddFinalizer(sc, v1alpha1.LeaveFinalizer)
				sc.Labels = map[string]string{"env": "prod"}
			})
			d.pass(2 * time.Second)
			d.want(0, 30*time.Second)
			d.pass(30 * time.Second)
			d.wantShown("")
			d.gone("s")
			d.edit(undo)
			d.want(1, 0)
		})
	}
}

// TestContestOfStatus has another client that changes the status of a SpokeCluster back.
func TestContestOfStatus(t *testing.T) {
	d := newDisputed(t)
	d.want(1, 0)
	before := d.read().Status
	undo := func() {
		d.Helper()
		sc := d.read()
		sc.Status = before
		if err := d.Client.Status().Update(d.Context(), sc); err != nil {
			d.Fatal(err)
		}
	}
	shown := func(is bool, again time.Duration) {
		d.Helper()
		d.want(0, again)
		if got := len(d.read().Status.Conditions) > 0; got != is {
			d.Fatalf("the status is shown: %v", got)
		}
	}
	shown(true, 0)
	undo()
	shown(true, 0)
	notes := d.Recorder.(*events.FakeRecorder).Events
	for len(notes) > 0 {
		<-notes // of transitions
	}
	for _, wait := range []time.Duration{time.Second, 2 * time.Second} {
		undo()
		shown(false, wait)
		if note := <-notes; !strings.Contains(note, "changes the status of SpokeCluster s back after each write") || !strings.Contains(note, "ignore the status") {
			t.Errorf("it says %s", note)
		}
		d.pass(wait)
		shown(true, 0)
		for len(notes) > 0 {
			<-notes
		}
	}
}

// A spoke does not leave because of an old cache.
func TestLeaveByAnOldCache(t *testing.T) {
	for name, change := range map[string]func(*v1alpha1.SpokeCluster){
		"a former one": func(sc *v1alpha1.SpokeCluster) { sc.UID = "former" },
		"not deleted":  func(*v1alpha1.SpokeCluster) {},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDisputed(t)
			d.want(1, 0)
			sc := d.read()
			sc.DeletionTimestamp = new(metav1.Now())
			change(sc)
			d.cached = sc // Depart would wait for the controllers
			d.want(0, live.BehindRetry)
		})
	}
}

// TestContestOfCreation has another client that deletes the SpokeCluster, and registers its Secret again each time.
func TestContestOfCreation(t *testing.T) {
	d := newDisputed(t)
	prune := func() {
		d.Helper()
		d.edit(func(sc *v1alpha1.SpokeCluster) { sc.Finalizers = nil })
		if err := d.Client.Delete(d.Context(), d.read()); err != nil {
			d.Fatal(err)
		}
	}
	notes := d.Recorder.(*events.FakeRecorder).Events
	d.want(1, 0)
	prune()
	d.want(1, 0)
	if len(notes) > 0 {
		t.Errorf("it says %s", <-notes)
	}
	for _, wait := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
		prune()
		d.want(0, wait)
		if note := <-notes; !strings.Contains(note, "deletes SpokeCluster s after each write") || !strings.Contains(note, "add that label to the chart value trackingLabels") {
			t.Errorf("it says %s", note)
		}
		d.pass(wait)
		d.want(1, 0)
	}
	d.pass(30 * time.Minute)
	prune()
	d.want(1, 0)
}

// What the cache does not show yet was not undone.
func TestMembershipByAnOldCache(t *testing.T) {
	d := newDisputed(t)
	d.want(1, 0)
	d.want(0, 0)
	for _, value := range []string{"test", "dev", "prod"} {
		d.cached = d.read()
		secret := secretOf("s", nil)
		secret.Labels["env"] = value
		if err := d.Client.Update(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
		d.want(1, 0)
		for range 4 {
			d.want(0, 0)
		}
		d.wantShown("")
		d.cached = nil
		d.want(0, 0)
	}
	// Somebody was faster, and the cache does not show that.
	old := d.read()
	d.edit(func(sc *v1alpha1.SpokeCluster) { sc.Labels["x"] = "1" })
	old.Labels, d.cached = nil, old
	d.want(1, 0)
	d.cached = nil
	d.want(0, 0)
}

// TestContestOfConfirmation has another client that keeps setting a confirmation that the Reconciler removes.
func TestContestOfConfirmation(t *testing.T) {
	d := newDisputed(t)
	d.want(1, 0)
	set := func(identity string) func(sc *v1alpha1.SpokeCluster) {
		return func(sc *v1alpha1.SpokeCluster) {
			sc.Annotations = map[string]string{v1alpha1.AcceptIdentityAnnotation: identity}
		}
	}
	accept := func(writes int, again time.Duration) {
		t.Helper()
		d.writes = 0
		left, err := d.accepted(t.Context(), d.read())
		if err != nil || left != again || d.writes != writes {
			t.Fatalf("wrote %d times, again after %v, %v; want %d times, %v", d.writes, left, err, writes, again)
		}
	}
	for range 2 {
		d.edit(set("a"))
		d.cached = d.read()
		accept(1, 0)
		accept(0, 0) // the cache does not show that yet
		d.cached = nil
		d.wantShown("")
	}
	d.edit(set("b")) // another decision
	accept(1, 0)
	d.edit(set("b"))
	accept(0, time.Second)
	d.wantShown(`field manager "argocd-controller" sets annotation ` + v1alpha1.AcceptIdentityAnnotation)
	d.Contests.ForgetSpoke("s") // a confirmation does so
	accept(0, time.Second)
	d.pass(time.Second)
	accept(1, 0)
	if sc := d.read(); len(sc.Annotations) > 0 {
		t.Errorf("it still has %v", sc.Annotations)
	}
}

// There is no event at the end of a contest.
func TestContestsAreAskedForAgain(t *testing.T) {
	for undos, again := range []time.Duration{0, 0, 30 * time.Second} {
		d := newDisputed(t)
		d.want(1, 0)
		write := contest.Write{Object: contest.Object{Spoke: "s", Kind: "PrometheusRule"}}
		for range undos + 1 {
			d.pass(d.Contests.Ask(write).Wait)
			d.Contests.Wrote(write, nil)
		}
		d.want(0, again)
	}
}
