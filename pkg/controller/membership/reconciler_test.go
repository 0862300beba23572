package membership

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/contest"
	"github.com/rulefleet/rulefleet/pkg/controller/brake"
	"github.com/rulefleet/rulefleet/pkg/live"
	"github.com/rulefleet/rulefleet/pkg/spoke"
	"github.com/rulefleet/rulefleet/pkg/spoke/queue"
	"github.com/rulefleet/rulefleet/pkg/testing/memory"
)

// registrar returns one whose Provider serves nothing yet, on a hub with these objects.
func registrar(t *testing.T, objects ...client.Object) (*Reconciler, *events.FakeRecorder) {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithTypeConverters(managedfields.NewDeducedTypeConverter()).WithReturnManagedFields().
		WithObjects(objects...).WithStatusSubresource(&v1alpha1.SpokeCluster{}).Build()
	recorder := events.NewFakeRecorder(10)
	return &Reconciler{
		Client: c, Live: c, Provider: spoke.NewProvider(spoke.Options{}), Namespace: "operator", Brake: brake.New(clock.RealClock{}, time.Minute), Recorder: recorder,
		Contests: contest.New(clock.RealClock{}, 0),
	}, recorder
}

// memberOf returns a SpokeCluster that is known to be a cluster.
func memberOf(name, identity string) *v1alpha1.SpokeCluster {
	return &v1alpha1.SpokeCluster{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid of " + name), Finalizers: []string{v1alpha1.LeaveFinalizer}},
		Status:     v1alpha1.SpokeClusterStatus{Identity: identity},
	}
}

func secretOf(name string, data map[string][]byte) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "operator", Name: name, Labels: map[string]string{v1alpha1.RegistrationLabel: "true"}},
		Data:       data,
	}
}

// After a restart, a spoke that took over from others knows of them before it is served, or it would remove
// their rules.
func TestLearnPredecessors(t *testing.T) {
	unlabeled := secretOf("unlabeled", map[string][]byte{v1alpha1.KubeconfigKey: []byte("k")})
	unlabeled.Labels = nil
	r, _ := registrar(t,
		memberOf("former", "c"), memberOf("unlabeled", "c"), unlabeled, memberOf("keyless", "c"), secretOf("keyless", nil),
		memberOf("s", "c"), secretOf("s", map[string][]byte{v1alpha1.KubeconfigKey: []byte("k")}),
	)
	if err := r.learn(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"former": true, "unlabeled": true, "keyless": true, "s": false} {
		known := memory.Of(r.Provider, name)
		if !slices.Contains(known, ".members.identities["+name+"]") || slices.Contains(known, ".members.released["+name+"]") != want {
			t.Errorf("of %s is known %q", name, known)
		}
	}
}

// lostKind has the rules of a hub that lost the kind SpokeCluster.
type lostKind struct {
	noRules

	asked int
}

func (f *lostKind) Forgotten(context.Context, time.Time) (bool, error) {
	f.asked++
	return true, nil
}

// Each SpokeCluster without an identity is checked once for a lost one. Its new identity is reported, with the
// time in the status.
func TestRecollect(t *testing.T) {
	secret := secretOf("s", map[string][]byte{v1alpha1.KubeconfigKey: []byte("no kubeconfig")})
	r, _ := registrar(t)
	rules := &lostKind{}
	r.Rules = rules
	for _, uid := range []types.UID{"1", "2"} {
		sc := memberOf("s", "")
		sc.UID = uid
		for range 2 {
			if err := r.recollect(t.Context(), sc, secret); err != nil {
				t.Fatal(err)
			}
		}
	}
	known := memberOf("known", "A")
	if err := r.recollect(t.Context(), known, secret); err != nil || rules.asked != 2 {
		t.Errorf("asked %d times, %v", rules.asked, err)
	}
	if known := memory.Of(r.Provider, "s"); !slices.Contains(known, ".members.forgotten[s]") {
		t.Errorf("of s is known %q", known)
	}
	if known := memory.Of(r.Provider, "known"); slices.Contains(known, ".members.forgotten[known]") {
		t.Errorf("of the other is known %q", known)
	}
	seen := &spoke.Observation{Identity: "A", IdentityTime: time.Now()}
	sc := memberOf("s", "")
	sc.Status = statusOf(sc, news{seen: seen}, metav1.Now())
	if since := sc.Status.IdentityTime; since.IsZero() || since.Nanosecond() != 0 || time.Since(since.Time) > time.Minute {
		t.Errorf("the status has %v", since)
	}
	seen.IdentityTime = time.Time{} // after a restart
	if again := statusOf(sc, news{seen: seen}, metav1.Now()); !again.IdentityTime.Equal(&sc.Status.IdentityTime) {
		t.Errorf("the status has %v then", again.IdentityTime)
	}
	r.gone("s")
	if len(r.recollected) != 0 || len(memory.Of(r.Provider, "s")) > 0 {
		t.Errorf("%v is remembered", r.recollected)
	}
}

// A SpokeCluster that was deleted and created again is another one, even if no reconcile came in between: it
// does not inherit the state, and has not left.
func TestReplacedSpokeCluster(t *testing.T) {
	r, _ := registrar(t, memberOf("s", "was"))
	if err := r.learn(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() { _ = r.Provider.Start(ctx, nil) }()
	progress := workqueue.NewTypedRateLimitingQueue(queue.Backoff[reconcile.Request]())
	defer progress.ShutDown()
	if err := r.Provider.Changes().Start(ctx, progress); err != nil {
		t.Fatal(err)
	}
	options := spoke.DepartOptions{Stays: "a test"}
	if _, err := r.Provider.Depart(ctx, "s", options); err != nil {
		t.Fatal(err)
	}
	progress.Get() // it has left
	if d, err := r.Provider.Depart(ctx, "s", options); err != nil || !d.Done {
		t.Fatalf("got %+v, %v", d, err)
	}
	remembered := func() []string {
		return slices.DeleteFunc(memory.Of(r.Provider, "s"), func(where string) bool {
			return where != ".leaving[s]" && where != ".members.identities[s]"
		})
	}
	sc, _, err := r.member(t.Context(), "s", nil)
	if got := remembered(); err != nil || len(got) != 2 {
		t.Fatalf("the same one is forgotten: %v, %q", err, got)
	}
	sc.Finalizers = nil
	if err := r.Client.Update(t.Context(), sc); err != nil {
		t.Fatal(err)
	}
	if err := r.Client.Delete(t.Context(), sc); err != nil {
		t.Fatal(err)
	}
	again := memberOf("s", "")
	again.UID = "another"
	if err := r.Client.Create(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.member(t.Context(), "s", nil); err != nil {
		t.Fatal(err)
	}
	if got := remembered(); len(got) > 0 { // it has not left already, and is not taken for the former
		t.Errorf("of the former is remembered %q", got)
	}
}

// With an old cache, nothing is announced twice, and nothing is written until it shows a newer version.
func TestShowWithAnOldCache(t *testing.T) {
	r, recorder := registrar(t, memberOf("s", ""))
	writes := 0
	r.Client = interceptor.NewClient(r.Client.(client.WithWatch), interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			writes++
			return c.SubResource(sub).Patch(ctx, o, patch, opts...)
		},
	})
	read := func() *v1alpha1.SpokeCluster {
		t.Helper()
		sc := &v1alpha1.SpokeCluster{}
		if err := r.Client.Get(t.Context(), client.ObjectKey{Name: "s"}, sc); err != nil {
			t.Fatal(err)
		}
		return sc
	}
	finding := &spoke.Finding{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonKubeconfigMissing, Message: "no Secret"}
	show := func(sc *v1alpha1.SpokeCluster, message string, wantWrites, wantEvents int) {
		t.Helper()
		finding.Message = message
		if _, err := r.show(t.Context(), sc, nil, statusOf(sc, news{finding: finding}, metav1.Now())); err != nil {
			t.Fatal(err)
		}
		if writes != wantWrites || len(recorder.Events) != wantEvents {
			t.Errorf("%d writes and %d Events, want %d and %d", writes, len(recorder.Events), wantWrites, wantEvents)
		}
	}
	old := read()
	show(old, "no Secret", 1, 1)
	show(old, "no Secret", 1, 1)
	show(old, "another message", 1, 1)

	old = read() // the event arrived
	somebodys := old.DeepCopy()
	somebodys.Labels = map[string]string{"tier": "1"}
	if err := r.Client.Update(t.Context(), somebodys); err != nil {
		t.Fatal(err)
	}
	show(old, "another message", 2, 1) // a conflict
	show(old, "another message", 2, 1)
	show(read(), "another message", 3, 1)
}

// Labels of a SpokeCluster change only according to the Secret on the API server, not according to an old
// cache.
func TestMemberWithAnOldCache(t *testing.T) {
	gold, bronze := map[string]string{"tier": "gold"}, map[string]string{"tier": "bronze"}
	for name, tc := range map[string]struct {
		cached, live map[string]string
		gone, fails  bool // past the cache
		want         map[string]string
		reads        int
	}{
		"changed":                      {cached: bronze, live: bronze, want: bronze, reads: 1},
		"taken off":                    {want: nil, reads: 1},
		"added":                        {cached: map[string]string{"tier": "gold", "env": "prod"}, want: map[string]string{"tier": "gold", "env": "prod"}},
		"changed, as it was":           {cached: bronze, live: gold, want: gold, reads: 1},
		"taken off, as it was":         {live: gold, want: gold, reads: 1},
		"changed, to another value":    {cached: bronze, live: map[string]string{"tier": "silver"}, want: map[string]string{"tier": "silver"}, reads: 1},
		"changed, of one that is gone": {cached: bronze, gone: true, want: gold, reads: 1},
		"changed, without an answer":   {cached: bronze, live: bronze, fails: true, want: gold, reads: 1},
	} {
		t.Run(name, func(t *testing.T) {
			secret := secretOf("s", nil)
			secret.Labels["tier"] = "gold"
			r, _ := registrar(t, secret)
			reads := 0
			r.Live = interceptor.NewClient(r.Client.(client.WithWatch), interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
					reads++
					if tc.fails {
						return errors.New("no answer")
					}
					return c.Get(ctx, key, o, opts...)
				},
			})
			if err := r.learn(t.Context()); err != nil {
				t.Fatal(err)
			}
			member := func(s *corev1.Secret) (time.Duration, error) {
				t.Helper()
				_, again, err := r.member(t.Context(), "s", s)
				return again, err
			}
			if _, err := member(secret); err != nil || reads > 0 {
				t.Fatalf("a new one: %v, after %d reads", err, reads)
			}
			labeled := func(labels map[string]string) *corev1.Secret {
				out := secret.DeepCopy()
				out.Labels = maps.Clone(labels)
				if out.Labels == nil {
					out.Labels = map[string]string{}
				}
				out.Labels[v1alpha1.RegistrationLabel] = "true"
				return out
			}
			if err := r.Client.Update(t.Context(), labeled(tc.live)); err != nil {
				t.Fatal(err)
			}
			if tc.gone {
				if err := r.Client.Delete(t.Context(), secret); err != nil {
					t.Fatal(err)
				}
			}
			again, err := member(labeled(tc.cached))
			if (err != nil) != tc.fails || reads != tc.reads {
				t.Errorf("got %v, after %d reads", err, reads)
			}
			sc := &v1alpha1.SpokeCluster{}
			if err := r.Client.Get(t.Context(), client.ObjectKey{Name: "s"}, sc); err != nil {
				t.Fatal(err)
			}
			if !maps.Equal(sc.Labels, tc.want) {
				t.Errorf("the labels are %v, want %v", sc.Labels, tc.want)
			}
			behind := !tc.fails && maps.Equal(tc.want, gold)
			if want := map[bool]time.Duration{true: live.BehindRetry}[behind]; again != want {
				t.Errorf("it looks again after %v, want %v", again, want)
			}
		})
	}
}
