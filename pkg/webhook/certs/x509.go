package certs

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"slices"
	"time"
)

const (
	// authorityName is the common name of every authority that is created here.
	authorityName = "rulefleet-webhook-ca"
	// backdate is the time by which the clock of an API server may be behind.
	backdate = 5 * time.Minute

	pemCertificate = "CERTIFICATE"
	pemKey         = "PRIVATE KEY"
)

// authority is a certificate that signs others, with its key.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// newAuthority creates an authority.
func newAuthority(now time.Time, lifetime time.Duration) (*authority, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	return authorityFor(key, now, lifetime)
}

// renew creates the authority again with the same key. A client that trusts either of the two trusts
// what the key signs.
func (a *authority) renew(now time.Time, lifetime time.Duration) (*authority, error) {
	return authorityFor(a.key, now, lifetime)
}

// shares reports whether a certificate has the key of an authority, which may be nil.
func (a *authority) shares(c *x509.Certificate) bool {
	return a != nil && a.key.PublicKey.Equal(c.PublicKey)
}

func authorityFor(key *ecdsa.PrivateKey, now time.Time, lifetime time.Duration) (*authority, error) {
	template, err := newTemplate(now)
	if err != nil {
		return nil, err
	}
	template.Subject = pkix.Name{CommonName: authorityName}
	template.NotAfter = now.Add(lifetime)
	template.IsCA, template.BasicConstraintsValid, template.MaxPathLenZero = true, true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	cert, err := sign(template, template, key, key)
	if err != nil {
		return nil, fmt.Errorf("creating an authority: %w", err)
	}
	return &authority{cert: cert, key: key}, nil
}

// issue creates a serving certificate. It expires with its authority at the latest.
func (a *authority) issue(now time.Time, lifetime time.Duration, hosts []string) (*pair, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	template, err := newTemplate(now)
	if err != nil {
		return nil, err
	}
	template.Subject = pkix.Name{CommonName: "rulefleet-webhook"}
	template.NotAfter = a.end(now, lifetime)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	cert, err := sign(template, a.cert, key, a.key)
	if err != nil {
		return nil, fmt.Errorf("creating a serving certificate: %w", err)
	}
	return newPair(cert, key)
}

// end returns the expiry of a certificate that the authority signs now.
func (a *authority) end(now time.Time, lifetime time.Duration) time.Time {
	end := now.Add(lifetime).Truncate(time.Second)
	if a.cert.NotAfter.Before(end) {
		return a.cert.NotAfter
	}
	return end
}

func newKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("creating a key: %w", err)
	}
	return key, nil
}

func newTemplate(now time.Time) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("creating a serial number: %w", err)
	}
	return &x509.Certificate{SerialNumber: serial, NotBefore: now.Add(-backdate)}, nil
}

func sign(template, parent *x509.Certificate, key, by *ecdsa.PrivateKey) (*x509.Certificate, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), by)
	if err != nil {
		return nil, fmt.Errorf("signing: %w", err)
	}
	return x509.ParseCertificate(der)
}

// pair is a certificate with its key, in their stored form.
type pair struct {
	cert            *x509.Certificate
	certPEM, keyPEM []byte
}

func newPair(cert *x509.Certificate, key *ecdsa.PrivateKey) (*pair, error) {
	keyPEM, err := encodeKey(key)
	if err != nil {
		return nil, err
	}
	return &pair{cert: cert, certPEM: encode(cert), keyPEM: keyPEM}, nil
}

// hosts returns the names and addresses in a certificate.
func hosts(c *x509.Certificate) []string {
	out := slices.Clone(c.DNSNames)
	for _, ip := range c.IPAddresses {
		out = append(out, ip.String())
	}
	return out
}

// verify explains why a bundle does not trust a serving certificate at a time.
func verify(c *x509.Certificate, bundle []*x509.Certificate, now time.Time) error {
	roots := x509.NewCertPool()
	for _, ca := range bundle {
		roots.AddCert(ca)
	}
	_, err := c.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	return err
}

func encode(certs ...*x509.Certificate) []byte {
	var out bytes.Buffer
	for _, c := range certs {
		out.Write(pem.EncodeToMemory(&pem.Block{Type: pemCertificate, Bytes: c.Raw}))
	}
	return out.Bytes()
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	if key == nil {
		return nil, nil
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encoding a key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: pemKey, Bytes: der}), nil
}

// decodeKey never quotes its input.
func decodeKey(data []byte) (*ecdsa.PrivateKey, error) {
	block, _ := pem.Decode(data)
	if block == nil || block.Type != pemKey {
		return nil, errors.New("no PEM block with a key found")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, errors.New("the key can't be read")
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok {
		return nil, errors.New("the key is not an ECDSA key")
	}
	return key, nil
}

// decode returns the certificates in a bundle. Anything else is left out.
func decode(data []byte) []*x509.Certificate {
	var out []*x509.Certificate
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			return out
		}
		if c, err := x509.ParseCertificate(block.Bytes); err == nil && block.Type == pemCertificate {
			out = append(out, c)
		}
	}
}
