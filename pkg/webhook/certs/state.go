package certs

import (
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// SecretName is the name of the Secret, in the operator's own namespace.
const SecretName = "rulefleet-webhook-certs"

// The keys of the Secret.
const (
	// bundleKey holds all authorities to trust.
	bundleKey = "ca.crt"
	// signerKey holds the key of the authority that signs.
	signerKey = "ca.key"
	// nextKey holds the key of the authority that takes over when it is trusted.
	nextKey = "next-ca.key"
	// servingCertKey and servingKeyKey hold the serving certificate and its key.
	servingCertKey = corev1.TLSCertKey
	servingKeyKey  = corev1.TLSPrivateKeyKey
)

var secretKeys = []string{bundleKey, signerKey, nextKey, servingCertKey, servingKeyKey}

// maxRetired is the maximum number of stored authorities that no longer sign.
const maxRetired = 8

// state is the usable content of a Secret.
type state struct {
	// signer is the authority that signs, or nil.
	signer *authority
	// next is the authority that takes over, or nil.
	next *authority
	// retired are the other authorities to trust.
	retired []*x509.Certificate
	// serving is the serving certificate, or nil if none can be served.
	serving *pair
}

// parse reads a Secret. Damaged content is treated as missing.
func parse(data map[string][]byte, now time.Time) *state {
	s := &state{}
	signer, _ := decodeKey(data[signerKey])
	next, _ := decodeKey(data[nextKey])
	var all []*x509.Certificate
	for _, c := range decode(data[bundleKey]) {
		if c.IsCA && c.Subject.CommonName == authorityName && now.Before(c.NotAfter) && c.CheckSignatureFrom(c) == nil && !slices.ContainsFunc(all, c.Equal) {
			all = append(all, c)
		}
	}
	s.signer, s.next = authorityOf(signer, all, now), authorityOf(next, all, now)
	for _, c := range all {
		if (s.signer == nil || !s.signer.cert.Equal(c)) && (s.next == nil || !s.next.cert.Equal(c)) {
			s.retire(c, now)
		}
	}
	if p, err := parsePair(data, all, now); err == nil {
		s.serving = p
	}
	return s
}

// authorityOf returns the authority of a key: a valid one in the bundle or, if there is none, one that
// is not valid yet.
func authorityOf(key *ecdsa.PrivateKey, bundle []*x509.Certificate, now time.Time) *authority {
	var out *authority
	for _, c := range bundle {
		if key != nil && key.PublicKey.Equal(c.PublicKey) && (out == nil || early(out.cert, now) && !early(c, now)) {
			out = &authority{cert: c, key: key}
		}
	}
	return out
}

// early reports whether a certificate is not valid yet, because the clock was ahead when it was
// created.
func early(c *x509.Certificate, now time.Time) bool { return now.Before(c.NotBefore) }

// retire keeps an authority in the bundle that no longer signs. Valid ones come first, and of those
// the ones that are valid longest. One that is not valid yet is only useful as long as its key is: API
// servers whose clock is ahead use it to trust what the key signs.
func (s *state) retire(c *x509.Certificate, now time.Time) {
	if early(c, now) && !s.signer.shares(c) && !s.next.shares(c) {
		return
	}
	s.retired = append(s.retired, c)
	slices.SortStableFunc(s.retired, func(a, b *x509.Certificate) int {
		if early(a, now) != early(b, now) {
			return map[bool]int{true: 1, false: -1}[early(a, now)]
		}
		return b.NotAfter.Compare(a.NotAfter)
	})
	s.retired = s.retired[:min(len(s.retired), maxRetired)]
}

// parsePair returns the certificate that a Secret can serve, or why there is none.
func parsePair(data map[string][]byte, bundle []*x509.Certificate, now time.Time) (*pair, error) {
	loaded, err := tls.X509KeyPair(data[servingCertKey], data[servingKeyKey])
	if err != nil {
		return nil, fmt.Errorf("the serving certificate can't be used: %w", err)
	}
	if err := verify(loaded.Leaf, bundle, now); err != nil {
		return nil, fmt.Errorf("the serving certificate is not trusted by its own CA bundle: %w", err)
	}
	return &pair{cert: loaded.Leaf, certPEM: data[servingCertKey], keyPEM: data[servingKeyKey]}, nil
}

// bundle returns all authorities to trust, the newest first. The order does not matter to clients.
func (s *state) bundle() []*x509.Certificate {
	var out []*x509.Certificate
	for _, a := range []*authority{s.signer, s.next} {
		if a != nil {
			out = append(out, a.cert)
		}
	}
	out = append(out, s.retired...)
	slices.SortStableFunc(out, func(a, b *x509.Certificate) int { return b.NotAfter.Compare(a.NotAfter) })
	return out
}

// data returns the state in the form of the Secret.
func (s *state) data() (map[string][]byte, error) {
	out := map[string][]byte{bundleKey: encode(s.bundle()...)}
	for name, a := range map[string]*authority{signerKey: s.signer, nextKey: s.next} {
		if a == nil {
			continue
		}
		key, err := encodeKey(a.key)
		if err != nil {
			return nil, err
		}
		out[name] = key
	}
	if s.serving != nil {
		out[servingCertKey], out[servingKeyKey] = s.serving.certPEM, s.serving.keyPEM
	}
	return out, nil
}
