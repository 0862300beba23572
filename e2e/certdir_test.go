package e2e

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	certutil "k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
)

// TestCertificateOfSomebodyElse serves the webhook with a certificate from a folder, as with cert-manager: the
// manager creates none, and does not change the configuration.
func TestCertificateOfSomebodyElse(t *testing.T) {
	long(t)
	t.Parallel()
	f, dir := start(t, fleet.Options{}), t.TempDir()
	address, err := fleet.FreeAddress()
	must(t, err)
	certificate, key, err := certutil.GenerateSelfSignedCertKey("127.0.0.1", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "tls.crt"), certificate, 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "tls.key"), key, 0o600))
	config, err := f.WebhookConfig(address)
	must(t, err)
	for i := range config.Webhooks {
		config.Webhooks[i].ClientConfig.CABundle = certificate
	}
	must(t, f.Hub.Client.Create(t.Context(), config))
	m := startManagerWith(t, f, fleet.ManagerOptions{Dir: t.TempDir(), Webhook: address, Args: []string{"--webhook-cert-dir=" + dir}})
	eventually(t, "the manager is ready", func(ctx context.Context) error {
		ok, body, err := readyz(ctx, m)
		if err == nil && !ok {
			err = errors.New(body)
		}
		return err
	})

	bad := alertRule("bad", "shop", onEvery())
	bad.Spec.Expr = "up =="
	if err := f.Hub.Client.Create(t.Context(), bad); err == nil || !strings.Contains(err.Error(), "denied the request") {
		t.Errorf("a bad AlertRule: %v", err)
	}
	must(t, f.Hub.Client.Create(t.Context(), alertRule("good", "shop", onEvery())))

	secret := client.ObjectKey{Namespace: fleet.Namespace, Name: "rulefleet-webhook-certs"}
	if err := f.Hub.Client.Get(t.Context(), secret, &corev1.Secret{}); !apierrors.IsNotFound(err) {
		t.Errorf("the manager made a certificate of its own: %v", err)
	}
	is := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	must(t, f.Hub.Client.Get(t.Context(), client.ObjectKeyFromObject(config), is))
	for i := range is.Webhooks {
		if !bytes.Equal(is.Webhooks[i].ClientConfig.CABundle, certificate) {
			t.Errorf("webhook %s has another authority now", is.Webhooks[i].Name)
		}
	}
}
