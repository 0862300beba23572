package certs

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rulefleet/rulefleet/pkg/contest"
	"github.com/rulefleet/rulefleet/pkg/testing/controlplane"
)

// TestRotatorsDoNotFight lets three rotators work at once, on a real API server, as
// leaders do that don't know yet that they have lost the lead.
func TestRotatorsDoNotFight(t *testing.T) {
	t.Parallel()
	cluster, err := controlplane.Start(t.Context(), controlplane.Options{Name: "hub"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cluster.Stop() })
	direct, err := client.NewWithWatch(cluster.RESTConfig(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	path, fail, none := "/", admissionv1.Fail, admissionv1.SideEffectClassNone
	config := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "rulefleet"}}
	for _, name := range []string{"one.rulefleet.io", "two.example.com", "three.rulefleet.io"} {
		config.Webhooks = append(config.Webhooks, admissionv1.ValidatingWebhook{
			Name: name, FailurePolicy: &fail, SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
			ClientConfig: admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Namespace: "default", Name: "nobody", Path: &path}},
		})
	}
	if err := direct.Create(t.Context(), config); err != nil {
		t.Fatal(err)
	}

	var writes, injections atomic.Int32
	count := func(n *atomic.Int32, err error) error {
		if err == nil {
			n.Add(1)
		}
		return err
	}
	counting := interceptor.NewClient(direct, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return count(&writes, c.Create(ctx, o, opts...))
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			return count(&writes, c.Update(ctx, o, opts...))
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return count(&injections, c.Patch(ctx, o, p, opts...))
		},
	})
	clock := clocktesting.NewFakePassiveClock(epoch)
	rotators := make([]*rotator, 3)
	for i := range rotators {
		rotators[i] = &rotator{
			Client: counting, Namespace: metav1.NamespaceDefault, Config: config.Name,
			Webhooks: []string{"one.rulefleet.io", "three.rulefleet.io"}, Hosts: testHosts, Lifetimes: quarter, Clock: clock,
			Contests: contest.New(clock, 0), Recorder: events.NewFakeRecorder(10),
		}
	}
	together := func() {
		t.Helper()
		var wg sync.WaitGroup
		errs := make([]error, len(rotators))
		for i, r := range rotators {
			wg.Go(func() {
				for range 5 {
					_, err := r.Reconcile(t.Context(), reconcile.Request{})
					errs[i] = errors.Join(errs[i], err)
				}
			})
		}
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			t.Error(err)
		}
	}
	for _, step := range []struct {
		what               string
		at                 time.Duration
		writes, injections int32
		edit               func(*corev1.Secret)
	}{
		{"the first one", 0, 1, 1, nil},
		{"renewal", quarter.Serving * 7 / 10, 1, 0, nil},
		{"a successor joins", quarter.Authority * 7 / 10, 1, 1, nil},
		{"and settles", quarter.Authority*7/10 + quarter.Settle - time.Second, 0, 0, nil},
		{"and takes over", quarter.Authority*7/10 + quarter.Settle, 1, 0, nil},
		{"garbage", quarter.Authority*7/10 + time.Hour, 1, 0, func(s *corev1.Secret) { s.Data[servingKeyKey] = []byte("garbage") }},
		{"no label", quarter.Authority*7/10 + time.Hour, 1, 0, func(s *corev1.Secret) { s.Labels = nil }},
		{"the predecessor ends", quarter.Authority + time.Second, 1, 1, nil},
		{"the clock is set back", -time.Hour, 1, 1, nil},
		{"by less than certificates are backdated", -time.Hour - backdate/2, 0, 0, nil},
		{"the clock is right again", quarter.Authority + time.Second, 1, 1, nil},
	} {
		clock.SetTime(epoch.Add(step.at))
		secret := &corev1.Secret{}
		key := client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: SecretName}
		if step.edit != nil {
			if err := direct.Get(t.Context(), key, secret); err != nil {
				t.Fatal(err)
			}
			step.edit(secret)
			if err := direct.Update(t.Context(), secret); err != nil {
				t.Fatal(err)
			}
		}
		writes.Store(0)
		injections.Store(0)
		together()
		if writes.Load() != step.writes || injections.Load() != step.injections {
			t.Errorf("%s: %d writes and %d injections, and not %d and %d", step.what, writes.Load(), injections.Load(), step.writes, step.injections)
		}
		if err := direct.Get(t.Context(), key, secret); err != nil {
			t.Fatal(err)
		}
		servable(t, secret.Data, clock.Now())
		if err := direct.Get(t.Context(), client.ObjectKeyFromObject(config), config); err != nil {
			t.Fatal(err)
		}
		for i := range config.Webhooks {
			w := &config.Webhooks[i]
			ours := slices.Contains(rotators[0].Webhooks, w.Name)
			if ours != bytes.Equal(w.ClientConfig.CABundle, secret.Data[bundleKey]) || *w.ClientConfig.Service.Path != path {
				t.Errorf("%s: %s is %+v", step.what, w.Name, w.ClientConfig)
			}
		}
	}
}
