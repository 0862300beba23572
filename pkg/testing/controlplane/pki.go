package controlplane

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"
)

// certificateLife is long enough for a demo that is left running. The start is in the past, to tolerate a
// clock that is set back slightly.
const (
	certificateLife = 30 * 24 * time.Hour
	clockSkew       = time.Hour
)

// keyPair is a certificate and its private key, both in PEM.
type keyPair struct {
	cert, key []byte
}

// authority is the certificate authority of one cluster. Each cluster has its own, so that no client is valid
// in two clusters.
type authority struct {
	keyPair
	parsed *x509.Certificate
	signer *ecdsa.PrivateKey
}

func newAuthority(clusterName string) (*authority, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "rulefleet test cluster " + clusterName},
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	a := &authority{signer: key}
	der, err := a.certify(template, template, key)
	if err != nil {
		return nil, err
	}
	if a.parsed, err = x509.ParseCertificate(der); err != nil {
		return nil, fmt.Errorf("parsing the CA certificate: %w", err)
	}
	a.keyPair, err = encode(der, key)
	return a, err
}

// client issues a client certificate of a user in these groups.
func (a *authority) client(user string, groups ...string) (keyPair, error) {
	return a.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

// server issues the serving certificate of the API server.
func (a *authority) server() (keyPair, error) {
	return a.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: apiServerName},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"},
		IPAddresses: []net.IP{net.ParseIP(loopback), net.ParseIP(serviceIP)},
	})
}

func (a *authority) issue(template *x509.Certificate) (keyPair, error) {
	key, err := newKey()
	if err != nil {
		return keyPair{}, err
	}
	der, err := a.certify(template, a.parsed, key)
	if err != nil {
		return keyPair{}, err
	}
	return encode(der, key)
}

func (a *authority) certify(template, parent *x509.Certificate, key *ecdsa.PrivateKey) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("drawing a serial number: %w", err)
	}
	template.SerialNumber = serial
	template.NotBefore = time.Now().Add(-clockSkew)
	template.NotAfter = time.Now().Add(certificateLife)
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, a.signer)
	if err != nil {
		return nil, fmt.Errorf("issuing a certificate for %q: %w", template.Subject.CommonName, err)
	}
	return der, nil
}

func newKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generating a key: %w", err)
	}
	return key, nil
}

func encode(der []byte, key *ecdsa.PrivateKey) (keyPair, error) {
	keyPEM, err := encodeKey(key)
	return keyPair{cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), key: keyPEM}, err
}

// encodeKey uses the older of the two PEM forms, because the API server can derive the public key of a service
// account key only from that.
func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encoding a key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}
