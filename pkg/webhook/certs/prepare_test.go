package certs

import (
	"context"
	"testing"
	"time"

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
