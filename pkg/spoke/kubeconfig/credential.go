package kubeconfig

import (
	"bytes"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	// maxToken bounds the tokens that are read, in bytes. A token of a ServiceAccount has about 1,000.
	maxToken = 16 << 10
	// latest is the end of the year 9999. JSON can't represent a later time.
	latest = 253402300799
)

// Credential is what a credential says about itself. Its signature is not verified, so it is only shown.
type Credential struct {
	// Kind is what the credential is, for messages.
	Kind string
	// Issued and Expires are zero if the credential does not say it.
	Issued, Expires time.Time
	// Endless means that the credential says that it does not expire.
	Endless bool
}

// CredentialOf reads the credential of a configuration: the claims of a token that is a JWT, or the times of a client
// certificate. If it has both, the one that expires first counts.
func CredentialOf(cfg *rest.Config) Credential {
	token, certificate := ofToken(cfg.BearerToken), ofCertificate(cfg.CertData)
	switch {
	case len(cfg.CertData) == 0 && cfg.BearerToken == "":
		return Credential{Kind: "password"}
	case len(cfg.CertData) == 0:
		return token
	case cfg.BearerToken == "", token.Expires.IsZero(), !certificate.Expires.IsZero() && certificate.Expires.Before(token.Expires):
		return certificate
	}
	return token
}

// SameButToken reports whether two kubeconfigs have tokens, and differ in nothing else that RESTConfig reads.
func SameButToken(a, b []byte) bool {
	cluster, user, err := currentContext(a)
	otherCluster, otherUser, otherErr := currentContext(b)
	if err != nil || otherErr != nil || user.Token == "" || otherUser.Token == "" {
		return false
	}
	user.Token = otherUser.Token
	return reflect.DeepEqual(cluster, otherCluster) && reflect.DeepEqual(user, otherUser)
}

// Renewal returns when a third of the credential's life is left, or the zero time if that is unknown.
func (c Credential) Renewal() time.Time {
	if c.Issued.IsZero() || !c.Issued.Before(c.Expires) {
		return time.Time{}
	}
	issued, expires := c.Issued.Unix(), c.Expires.Unix() // a Duration has at most 292 years
	return time.Unix(expires-(expires-issued)/3, 0).UTC()
}

// ofToken reads a token. Anything but a JWT has no times.
func ofToken(token string) Credential {
	c := Credential{Kind: "token"}
	if len(token) > maxToken {
		return c
	}
	parts := strings.Split(token, ".")
	if len(parts) != 3 || object(parts[0]) == nil {
		return c
	}
	claims := object(parts[1])
	if claims == nil {
		return c
	}
	exp, expires := claims["exp"]
	if !expires {
		c.Endless = true
		return c
	}
	if c.Expires = date(exp); !c.Expires.IsZero() {
		c.Issued = date(claims["iat"])
	}
	return c
}

// object decodes a part of a JWT, or returns nil.
func object(part string) map[string]json.RawMessage {
	text, err := base64.RawURLEncoding.DecodeString(part)
	if err != nil {
		return nil
	}
	var out map[string]json.RawMessage // an object for null is nil
	if json.Unmarshal(text, &out) != nil {
		return nil
	}
	return out
}

// date reads a NumericDate. It returns the zero time for any other value.
func date(raw json.RawMessage) time.Time {
	text := string(bytes.TrimSpace(raw))
	seconds, err := strconv.ParseFloat(text, 64)
	if err != nil && !math.IsInf(seconds, 0) { // beyond the range of a float it is infinite
		return time.Time{}
	}
	return bounded(seconds)
}

// bounded limits a time to those that JSON can represent.
func bounded(seconds float64) time.Time {
	return time.Unix(int64(min(max(seconds, 0), latest)), 0).UTC()
}

// ofCertificate reads a client certificate, the first of its chain.
func ofCertificate(chain []byte) Credential {
	c := Credential{Kind: "client certificate"}
	for {
		var block *pem.Block
		if block, chain = pem.Decode(chain); block == nil {
			return c
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		if leaf, err := x509.ParseCertificate(block.Bytes); err == nil {
			c.Issued, c.Expires = bounded(float64(leaf.NotBefore.Unix())), bounded(float64(leaf.NotAfter.Unix()))
		}
		return c
	}
}

// Binding is what a token says about the ServiceAccount that it belongs to, and the Secret that it is bound to.
type Binding struct {
	// Namespace is that of the ServiceAccount and of the Secret.
	Namespace, Account string
	// Secret and UID are empty if the token is not bound to a Secret.
	Secret, UID string
}

// TokenOf returns what the token of a kubeconfig says about itself. It returns nil if the kubeconfig is not valid, or has
// another credential than the token of a ServiceAccount.
func TokenOf(kubeconfig []byte) (*Credential, *Binding) {
	_, user, err := currentContext(kubeconfig)
	if err != nil || user.Token == "" || user.Username != "" || len(user.ClientCertificateData) > 0 || checkCredential(user) != nil {
		return nil, nil
	}
	credential, parts := ofToken(user.Token), strings.Split(user.Token, ".")
	if credential.Expires.IsZero() && !credential.Endless { // it is not a JWT
		return nil, nil
	}
	var claim struct {
		Namespace      string `json:"namespace"`
		ServiceAccount struct {
			Name string `json:"name"`
		} `json:"serviceaccount"`
		Secret struct {
			Name string `json:"name"`
			UID  string `json:"uid"`
		} `json:"secret"`
	}
	if json.Unmarshal(object(parts[1])["kubernetes.io"], &claim) != nil || claim.Namespace == "" || claim.ServiceAccount.Name == "" {
		return nil, nil
	}
	return &credential, &Binding{Namespace: claim.Namespace, Account: claim.ServiceAccount.Name, Secret: claim.Secret.Name, UID: claim.Secret.UID}
}

// WithToken returns a kubeconfig with another token. It differs in nothing else that RESTConfig reads.
func WithToken(kubeconfig []byte, token string) ([]byte, error) {
	cfg, err := parse(kubeconfig)
	if err != nil {
		return nil, err
	}
	if _, _, err := currentContext(kubeconfig); err != nil {
		return nil, err
	}
	user := cfg.AuthInfos[cfg.Contexts[cfg.CurrentContext].AuthInfo]
	user.Token = token
	if err := checkCredential(user); err != nil {
		return nil, err
	}
	out, err := clientcmd.Write(*cfg)
	if err != nil {
		return nil, errInvalid
	}
	return out, nil
}
