package certs

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/rulefleet/rulefleet/pkg/metrics"
)

// Keeper holds the certificate that a replica serves with. Its zero value has none.
type Keeper struct {
	// Clock is the real one when it is nil.
	Clock clock.PassiveClock

	current atomic.Pointer[tls.Certificate]
}

// GetCertificate is for a tls.Config. It fails as long as there is no certificate.
func (k *Keeper) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c := k.current.Load()
	if c == nil {
		return nil, errors.New("the webhook has no certificate yet")
	}
	return c, nil
}

// Ready returns why the webhook can't serve, or nil.
func (k *Keeper) Ready() error {
	c, err := k.GetCertificate(nil)
	if err != nil {
		return err
	}
	if !k.now().Before(c.Leaf.NotAfter) {
		return fmt.Errorf("the webhook's certificate ended at %s", c.Leaf.NotAfter.Format(time.RFC3339))
	}
	return nil
}

// Take serves with what is in the Secret from now on, and tells whether that is
// another certificate than before. When it can't be used, the one before stays, and
// the error says why.
func (k *Keeper) Take(secret *corev1.Secret) (bool, error) {
	if _, err := parsePair(secret.Data, decode(secret.Data[bundleKey]), k.now()); err != nil {
		return false, err
	}
	loaded, err := tls.X509KeyPair(secret.Data[servingCertKey], secret.Data[servingKeyKey])
	if err != nil {
		return false, fmt.Errorf("reading the serving certificate: %w", err)
	}
	if before := k.current.Load(); before != nil && bytes.Equal(before.Leaf.Raw, loaded.Leaf.Raw) {
		return false, nil
	}
	k.current.Store(&loaded)
	metrics.SetWebhookCertificate(loaded.Leaf.NotBefore, loaded.Leaf.NotAfter)
	return true, nil
}

func (k *Keeper) now() time.Time {
	if k.Clock == nil {
		return time.Now()
	}
	return k.Clock.Now()
}
