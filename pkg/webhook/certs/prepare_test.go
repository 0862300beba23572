package certs

import (
	"context"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// TestPrepare starts replicas where nobody leads who would make a certificate.
func TestPrepare(t *testing.T) {
	t.Parallel()
	o := Options{Namespace: metav1.NamespaceDefault, Hosts: testHosts, Lifetimes: quarter}
	key := client.ObjectKey{Namespace: o.Namespace, Name: SecretName}
	c := fake.NewFakeClient()
	prepare := func(c client.Client) *corev1.Secret {
		t.Helper()
		if err := Prepare(t.Context(), c, o); err != nil {
			t.Fatal(err)
		}
		secret := &corev1.Secret{}
		if err := c.Get(t.Context(), key, secret); err != nil {
			t.Fatal(err)
		}
		return secret
	}
	first := prepare(c)
	servable(t, first.Data, time.Now())
	if second := prepare(c); second.ResourceVersion != first.ResourceVersion {
		t.Error("the second replica has written the Secret again")
	}

	// Another replica was faster, between the reading and the writing.
	raced := interceptor.NewClient(c, interceptor.Funcs{
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
			return apierrors.NewAlreadyExists(schema.GroupResource{Resource: "secrets"}, SecretName)
		},
	})
	if err := c.Delete(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	if err := Prepare(t.Context(), raced, o); err != nil {
		t.Error(err)
	}
}

// TestPrepareTrust starts a replica after an installation: the webhook works before one leads.
func TestPrepareTrust(t *testing.T) {
	t.Parallel()
	const ours, others = "one.rulefleet.io", "two.example.com"
	o := Options{Namespace: metav1.NamespaceDefault, Hosts: testHosts, Lifetimes: quarter, Config: "rulefleet", Webhooks: []string{ours}}
	for name, tc := range map[string]struct {
		bundle    string // that our webhook has
		refuse    bool
		injected  bool
		noWebhook bool
	}{
		"after an installation":      {injected: true},
		"a leader has put one there": {bundle: "a bundle"},
		"it may not be written":      {refuse: true},
		"there is no configuration":  {noWebhook: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: o.Config}, Webhooks: []admissionv1.ValidatingWebhook{
				{Name: ours, ClientConfig: admissionv1.WebhookClientConfig{CABundle: []byte(tc.bundle)}}, {Name: others},
			}}
			c, patches := fake.NewFakeClient(), 0
			if !tc.noWebhook {
				if err := c.Create(t.Context(), config); err != nil {
					t.Fatal(err)
				}
			}
			counted := interceptor.NewClient(c, interceptor.Funcs{
				Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
					patches++
					if tc.refuse {
						return apierrors.NewForbidden(schema.GroupResource{}, o.GetName(), nil)
					}
					return c.Patch(ctx, o, p, opts...)
				},
			})
			for range 2 { // with the first Secret, and with one that is there
				if err := Prepare(t.Context(), counted, o); err != nil {
					t.Fatal(err)
				}
			}
			if want := map[bool]int{true: 1}[tc.injected]; patches != want && !tc.refuse {
				t.Errorf("it was written %d times", patches)
			}
			if tc.noWebhook {
				return
			}
			secret := &corev1.Secret{}
			if err := c.Get(t.Context(), client.ObjectKey{Namespace: o.Namespace, Name: SecretName}, secret); err != nil {
				t.Fatal(err)
			}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(config), config); err != nil {
				t.Fatal(err)
			}
			want := tc.bundle
			if tc.injected {
				want = string(secret.Data[bundleKey])
			}
			if got := string(config.Webhooks[0].ClientConfig.CABundle); got != want || len(config.Webhooks[1].ClientConfig.CABundle) > 0 {
				t.Errorf("the configuration trusts %q and %q", got, config.Webhooks[1].ClientConfig.CABundle)
			}
		})
	}
}
