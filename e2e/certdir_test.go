package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
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

// TestCertificateOfSomebodyElse serves the webhook and the metrics with a certificate from a folder, as with
// cert-manager: the manager creates none, and does not change the configuration.
func TestCertificateOfSomebodyElse(t *testing.T) {
	long(t)
	parallel(t)
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
	m := startManagerWith(t, f, fleet.ManagerOptions{Dir: t.TempDir(), Webhook: address, Args: []string{"--webhook-cert-dir=" + dir, "--metrics-secure"}})
	eventually(t, "the manager is ready", func(ctx context.Context) error {
		ok, body, err := readyz(ctx, m)
		if err == nil && !ok {
			err = errors.New(body)
		}
		return err
	})

	must(t, verifiesMetrics(t.Context(), m, certificate))

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

// verifiesMetrics returns an error unless metrics are served with a certificate that an authority has issued.
func verifiesMetrics(ctx context.Context, m *fleet.Manager, authority []byte) error {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority) {
		return errors.New("the authority has no certificate")
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.Replace(m.MetricsURL, "http:", "https:", 1), http.NoBody)
	if err != nil {
		return fmt.Errorf("asking for metrics: %w", err)
	}
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots}}}
	resp, err := c.Do(req)
	if err != nil {
		return fmt.Errorf("asking for metrics: %w", err)
	}
	if resp.StatusCode != http.StatusUnauthorized {
		return fmt.Errorf("metrics for a stranger: %s", resp.Status)
	}
	return resp.Body.Close()
}
