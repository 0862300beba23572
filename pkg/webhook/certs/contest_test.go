package certs

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rulefleet/rulefleet/pkg/contest"
)

// TestContest has somebody write another bundle into the configuration again and again.
func TestContest(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, admissionv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	const ours = "one.rulefleet.io"
	config := &admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "rulefleet"}, Webhooks: []admissionv1.ValidatingWebhook{{Name: ours}},
	}
	var refuse error
	injections := 0
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(config).WithReturnManagedFields().WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			injections++
			if refuse != nil {
				return refuse
			}
			return c.Patch(ctx, o, p, append(opts, client.FieldOwner(contest.Manager))...)
		},
	}).Build()
	clock, recorder := clocktesting.NewFakePassiveClock(epoch), events.NewFakeRecorder(10)
	r := &rotator{
		Client: c, Namespace: metav1.NamespaceDefault, Config: config.Name, Webhooks: []string{ours}, Hosts: testHosts, Lifetimes: quarter,
		Clock: clock, Contests: contest.New(clock, 0), Recorder: recorder,
	}
	undo := func() {
		t.Helper()
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(config), config); err != nil {
			t.Fatal(err)
		}
		config.Webhooks[0].ClientConfig.CABundle = []byte("another")
		if err := c.Update(t.Context(), config, client.FieldOwner("helm")); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(what string, want int, again time.Duration) {
		t.Helper()
		injections = 0
		result, err := r.Reconcile(t.Context(), reconcile.Request{})
		if err != nil || injections != want || (again > 0 && result.RequeueAfter != again) {
			t.Fatalf("%s: injected %d times, again after %v, %v; want %d times, %v", what, injections, result.RequeueAfter, err, want, again)
		}
	}
	expect("the first", 1, 0)
	undo()
	expect("undone once", 1, 0)
	undo()
	expect("undone twice", 0, time.Second)
	select {
	case e := <-recorder.Events:
		if !strings.HasPrefix(e, `Warning Contested field manager "helm" changes ValidatingWebhookConfiguration rulefleet back`) || !strings.Contains(e, "caBundle") {
			t.Errorf("the Event is %q", e)
		}
	default:
		t.Error("no Event tells of it")
	}
	clock.SetTime(epoch.Add(time.Second))
	expect("after a second", 1, 0)
	undo()
	expect("undone three times", 0, 2*time.Second)
	clock.SetTime(epoch.Add(3 * time.Second))
	refuse = apierrors.NewConflict(admissionv1.Resource("validatingwebhookconfigurations"), config.Name, errors.New("changed"))
	expect("they are faster", 1, 4*time.Second)
	refuse = nil
	clock.SetTime(epoch.Add(7 * time.Second))
	expect("after four seconds", 1, 0)
	expect("it stands", 0, 0)
}

// TestContestOfTheSecret has somebody empty the Secret again and again, as from a chart that has it
// without keys.
func TestContestOfTheSecret(t *testing.T) {
	t.Parallel()
	for name, undo := range map[string]func(c client.Client, secret *corev1.Secret) error{
		"emptied": func(c client.Client, secret *corev1.Secret) error {
			secret.Data = nil
			return c.Update(t.Context(), secret, client.FieldOwner("helm"))
		},
		"unlabeled": func(c client.Client, secret *corev1.Secret) error {
			secret.Labels = map[string]string{"theirs": secret.ResourceVersion}
			return c.Update(t.Context(), secret, client.FieldOwner("helm"))
		},
		"deleted": func(c client.Client, secret *corev1.Secret) error { return c.Delete(t.Context(), secret) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			writes := 0
			write := func(o client.Object) {
				if _, ok := o.(*corev1.Secret); ok {
					writes++
				}
			}
			c := fake.NewClientBuilder().WithReturnManagedFields().WithInterceptorFuncs(interceptor.Funcs{
				Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
					write(o)
					return c.Create(ctx, o, append([]client.CreateOption{client.FieldOwner(contest.Manager)}, opts...)...)
				},
				Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
					write(o)
					return c.Update(ctx, o, append([]client.UpdateOption{client.FieldOwner(contest.Manager)}, opts...)...)
				},
			}).Build()
			clock, recorder := clocktesting.NewFakePassiveClock(epoch), events.NewFakeRecorder(10)
			r := &rotator{
				Client: c, Namespace: metav1.NamespaceDefault, Config: "rulefleet", Hosts: testHosts, Lifetimes: quarter,
				Clock: clock, Contests: contest.New(clock, 0), Recorder: recorder,
			}
			expect := func(what string, want int, again time.Duration) {
				t.Helper()
				writes = 0
				result, err := r.Reconcile(t.Context(), reconcile.Request{})
				if err != nil || writes != want || (again > 0 && result.RequeueAfter != again) {
					t.Fatalf("%s: written %d times, again after %v, %v; want %d times, %v", what, writes, result.RequeueAfter, err, want, again)
				}
			}
			undone := func() {
				t.Helper()
				secret := &corev1.Secret{}
				if err := c.Get(t.Context(), client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: SecretName}, secret); err != nil {
					t.Fatal(err)
				}
				if err := undo(c, secret); err != nil {
					t.Fatal(err)
				}
			}
			expect("the first", 1, 0)
			expect("it stands", 0, 0)
			undone()
			expect("undone once", 1, 0)
			undone()
			expect("undone twice", 0, time.Second)
			select {
			case e := <-recorder.Events:
				if !strings.HasPrefix(e, "Warning Contested ") || !strings.Contains(e, "Secret default/"+SecretName) {
					t.Errorf("the Event is %q", e)
				}
			default:
				t.Error("no Event tells of it")
			}
			clock.SetTime(epoch.Add(time.Second))
			expect("after a second", 1, 0)
			expect("it stands again", 0, 0)
		})
	}
}

// What the rotator writes one after the other, because time passes, is no contest.
func TestRotationIsNoContest(t *testing.T) {
	t.Parallel()
	clock := clocktesting.NewFakePassiveClock(epoch)
	r := &rotator{
		Client: fake.NewFakeClient(), Namespace: metav1.NamespaceDefault, Config: "rulefleet", Hosts: testHosts, Lifetimes: LifetimesOf(5 * time.Minute),
		Clock: clock, Contests: contest.New(clock, 0), Recorder: events.NewFakeRecorder(10),
	}
	versions := map[string]bool{}
	for range 200 {
		result, err := r.Reconcile(t.Context(), reconcile.Request{})
		if err != nil {
			t.Fatal(err)
		}
		versions[r.wrote] = true
		clock.SetTime(clock.Now().Add(max(result.RequeueAfter, time.Second)))
	}
	if message := r.Contests.Message(r.secretWrite(nil).Object); message != "" || len(versions) < 10 {
		t.Errorf("after %d writes: %q", len(versions), message)
	}
}
