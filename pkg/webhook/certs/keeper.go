package certs

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/rulefleet/rulefleet/pkg/metrics"
)

// Keeper holds the serving certificate of a replica. The zero value has none.
type Keeper struct {
	// Clock defaults to the real clock.
	Clock clock.PassiveClock

	mu sync.Mutex
	// current is served. next is served as soon as it is valid, or when current is no longer valid. The
	// clock of the replica that created next was ahead, or the clock of this one is behind.
	current, next *tls.Certificate
}

// GetCertificate implements the function of a tls.Config. It fails while there is no certificate.
func (k *Keeper) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if now := k.now(); k.next != nil && (!early(k.next.Leaf, now) || !valid(k.current.Leaf, now)) {
		k.serveLocked(k.next)
	}
	if k.current == nil {
		return nil, errors.New("the webhook has no certificate yet")
	}
	return k.current, nil
}

func valid(c *x509.Certificate, now time.Time) bool {
	return !early(c, now) && now.Before(c.NotAfter)
}

func (k *Keeper) serveLocked(c *tls.Certificate) {
	k.current, k.next = c, nil
	metrics.SetWebhookCertificate(c.Leaf.NotBefore, c.Leaf.NotAfter)
}

// Ready returns why the webhook can't serve, or nil.
func (k *Keeper) Ready() error {
	c, err := k.GetCertificate(nil)
	if err != nil {
		return err
	}
	if !k.now().Before(c.Leaf.NotAfter) {
		return fmt.Errorf("the webhook's certificate expired at %s", c.Leaf.NotAfter.Format(time.RFC3339))
	}
	return nil
}

// take serves the certificate in the Secret from now on, and reports whether it differs from the
// previous one. If it can't be used, the previous one stays, and the error explains why. A certificate
// that is not valid yet by this replica's clock is not an error, because API servers check the
// validity with their own clocks. However, a valid certificate is preferred.
func (k *Keeper) take(secret *corev1.Secret) (bool, error) {
	loaded, err := tls.X509KeyPair(secret.Data[servingCertKey], secret.Data[servingKeyKey])
	if err != nil {
		return false, fmt.Errorf("reading the serving certificate: %w", err)
	}
	now := k.now()
	at := now
	if early(loaded.Leaf, now) {
		at = loaded.Leaf.NotBefore
	}
	if err := verify(loaded.Leaf, decode(secret.Data[bundleKey]), at); err != nil {
		return false, fmt.Errorf("the serving certificate is not trusted by its own CA bundle: %w", err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.current != nil && bytes.Equal(k.current.Leaf.Raw, loaded.Leaf.Raw):
		k.next = nil
		return false, nil
	case k.current != nil && early(loaded.Leaf, now) && valid(k.current.Leaf, now):
		k.next = &loaded
		return false, nil
	}
	k.serveLocked(&loaded)
	return true, nil
}

func (k *Keeper) now() time.Time {
	if k.Clock == nil {
		return time.Now()
	}
	return k.Clock.Now()
}
