package certs

import (
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
	// bundleKey holds all authorities that are to be trusted.
	bundleKey = "ca.crt"
	// signerKey holds the key of the authority that signs.
	signerKey = "ca.key"
	// nextKey holds the key of the authority that takes over once it is trusted.
	nextKey = "next-ca.key"
	// servingCertKey and servingKeyKey hold what is served.
	servingCertKey = corev1.TLSCertKey
	servingKeyKey  = corev1.TLSPrivateKeyKey
)

var secretKeys = []string{bundleKey, signerKey, nextKey, servingCertKey, servingKeyKey}

// maxRetired is how many authorities that don't sign any more are kept at most.
const maxRetired = 8

// state is what a Secret holds, as far as it is of use.
type state struct {
	// signer is the authority that signs, or nil.
	signer *authority
	// next is the authority that takes over, or nil.
	next *authority
	// retired are the other authorities to be trusted.
	retired []*x509.Certificate
	// serving is the serving certificate, or nil when nothing can be served.
	serving *pair
}

// parse reads a Secret. Damage is nothing special: what can't be used is not there.
func parse(data map[string][]byte, now time.Time) *state {
	s := &state{}
	signer, _ := decodeKey(data[signerKey])
	next, _ := decodeKey(data[nextKey])
	var all []*x509.Certificate
	for _, c := range decode(data[bundleKey]) {
		if !c.IsCA || c.Subject.CommonName != authorityName || !now.Before(c.NotAfter) || c.CheckSignatureFrom(c) != nil {
			continue
		}
		all = append(all, c)
		switch {
		case s.signer == nil && signer != nil && signer.PublicKey.Equal(c.PublicKey):
			s.signer = &authority{cert: c, key: signer}
		case s.next == nil && next != nil && next.PublicKey.Equal(c.PublicKey):
			s.next = &authority{cert: c, key: next}
		case len(s.retired) < maxRetired && !slices.ContainsFunc(s.retired, c.Equal):
			s.retired = append(s.retired, c)
		}
	}
	if p, err := parsePair(data, all, now); err == nil {
		s.serving = p
	}
	return s
}

// parsePair returns what can be served by a Secret, or why nothing can be.
func parsePair(data map[string][]byte, bundle []*x509.Certificate, now time.Time) (*pair, error) {
	loaded, err := tls.X509KeyPair(data[servingCertKey], data[servingKeyKey])
	if err != nil {
		return nil, fmt.Errorf("the serving certificate can't be used: %w", err)
	}
	if err := verify(loaded.Leaf, bundle, now); err != nil {
		return nil, fmt.Errorf("the serving certificate is not trusted by the bundle beside it: %w", err)
	}
	return &pair{cert: loaded.Leaf, certPEM: data[servingCertKey], keyPEM: data[servingKeyKey]}, nil
}

// bundle returns all authorities that are to be trusted, the newest first: which of
// them signs makes no difference to those who trust them.
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

// data is how the state is written.
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
