package kubeconfig

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// jwt returns a token with these claims.
func jwt(claims string) string {
	enc := base64.RawURLEncoding.EncodeToString
	return enc([]byte(`{"alg":"RS256"}`)) + "." + enc([]byte(claims)) + ".c2lnbmF0dXJl"
}

func TestCredentialOfAToken(t *testing.T) {
	at := func(s int64) time.Time { return time.Unix(s, 0).UTC() }
	end := time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
	for name, tc := range map[string]struct {
		token                    string
		issued, expires, renewal time.Time
		endless                  bool
	}{
		"of a ServiceAccount":           {token: jwt(`{"iat":1000,"nbf":1000,"exp":1900,"sub":"system:serviceaccount:a:b"}`), issued: at(1000), expires: at(1900), renewal: at(1600)},
		"a short life":                  {token: jwt(`{"iat":1000,"exp":1001}`), issued: at(1000), expires: at(1001), renewal: at(1001)},
		"fractions of a second":         {token: jwt(`{"iat":1000.9,"exp":1.9005e3}`), issued: at(1000), expires: at(1900), renewal: at(1600)},
		"no exp":                        {token: jwt(`{"iat":1000}`), endless: true},
		"no iat":                        {token: jwt(`{"exp":1900}`), expires: at(1900)},
		"iat after exp":                 {token: jwt(`{"iat":2000,"exp":1900}`), issued: at(2000), expires: at(1900)},
		"iat is exp":                    {token: jwt(`{"iat":1900,"exp":1900}`), issued: at(1900), expires: at(1900)},
		"iat is no number":              {token: jwt(`{"iat":"1000","exp":1900}`), expires: at(1900)},
		"exp is a text":                 {token: jwt(`{"iat":1000,"exp":"1900"}`)},
		"exp is null":                   {token: jwt(`{"iat":1000,"exp":null}`)},
		"exp is an object":              {token: jwt(`{"iat":1000,"exp":{"x":1}}`)},
		"exp in another case":           {token: jwt(`{"Exp":1900}`), endless: true},
		"a negative exp":                {token: jwt(`{"exp":-1e30}`), expires: at(0)},
		"exp after the year 9999":       {token: jwt(`{"iat":0,"exp":253402300800}`), issued: at(0), expires: end, renewal: at(latest - latest/3)},
		"exp beyond an int64":           {token: jwt(`{"exp":1e300}`), expires: end},
		"exp beyond a float":            {token: jwt(`{"exp":1e400}`), expires: end},
		"a negative exp beyond a float": {token: jwt(`{"exp":-1e400}`), expires: at(0)},
		"exp of many digits":            {token: jwt(`{"exp":` + strings.Repeat("9", 9000) + `}`), expires: end},
		"opaque":                        {token: "sha256~0123456789abcdef"},
		"opaque, with periods":          {token: "a.b.c"},
		"two parts":                     {token: strings.TrimSuffix(jwt(`{"exp":1900}`), ".c2lnbmF0dXJl")},
		"five parts":                    {token: jwt(`{"exp":1900}`) + ".a.b"},
		"a header that is no object":    {token: "MQ." + strings.SplitN(jwt(`{"exp":1900}`), ".", 2)[1]},
		"claims that are a list":        {token: jwt(`[{"exp":1900}]`)},
		"claims that are null":          {token: jwt(`null`)},
		"no claims":                     {token: jwt(``)},
		"claims that are cut off":       {token: jwt(`{"exp":1900`)},
		"two claims":                    {token: jwt(`{"exp":1900}{}`)},
		"padding":                       {token: strings.Replace(jwt(`{"exp":19000}`), ".c2l", "=.c2l", 1)},
		"nested deeply":                 {token: jwt(`{"a":` + strings.Repeat("[", 11000))},
		"as long as a token may be":     {token: sized(maxToken), expires: at(1900)},
		"longer than a token may be":    {token: sized(maxToken + 1)},
		"much longer":                   {token: strings.Repeat(".", 1<<20)},
	} {
		t.Run(name, func(t *testing.T) {
			c := CredentialOf(&rest.Config{BearerToken: tc.token})
			want := Credential{Kind: "token", Issued: tc.issued, Expires: tc.expires, Endless: tc.endless}
			if c != want {
				t.Errorf("got %+v, want %+v", c, want)
			}
			if got := c.Renewal(); got != tc.renewal {
				t.Errorf("it is renewed at %v, want %v", got, tc.renewal)
			}
		})
	}
}

// sized returns a token of this length.
func sized(length int) string {
	token := jwt(`{"exp":1900}`)
	return token + strings.Repeat("A", length-len(token))
}

// certificate returns a client certificate with these times.
func certificate(t *testing.T, issued, expires time.Time) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: issued, NotAfter: expires}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func TestCredentialOfACertificate(t *testing.T) {
	issued, expires := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC)
	leaf := certificate(t, issued, expires)
	authority := certificate(t, issued, expires.AddDate(10, 0, 0))
	key := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("x")})
	want := Credential{Kind: "client certificate", Issued: issued, Expires: expires}
	earlier, later := jwt(`{"iat":1767225600,"exp":1767225660}`), jwt(`{"iat":1767225600,"exp":1898208000}`)
	for name, tc := range map[string]struct {
		cfg  rest.Config
		want Credential
	}{
		"a certificate":               {rest.Config{TLSClientConfig: rest.TLSClientConfig{CertData: leaf}}, want},
		"a chain":                     {rest.Config{TLSClientConfig: rest.TLSClientConfig{CertData: append(append(key, leaf...), authority...)}}, want},
		"without an end":              {rest.Config{TLSClientConfig: rest.TLSClientConfig{CertData: certificate(t, issued, time.Unix(latest, 0))}}, Credential{Kind: want.Kind, Issued: issued, Expires: time.Unix(latest, 0).UTC()}},
		"no PEM":                      {rest.Config{TLSClientConfig: rest.TLSClientConfig{CertData: []byte("x")}}, Credential{Kind: want.Kind}},
		"PEM of no certificate":       {rest.Config{TLSClientConfig: rest.TLSClientConfig{CertData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")})}}, Credential{Kind: want.Kind}},
		"with a token that ends soon": {rest.Config{BearerToken: earlier, TLSClientConfig: rest.TLSClientConfig{CertData: leaf}}, Credential{Kind: "token", Issued: issued, Expires: issued.Add(time.Minute)}},
		"with a token that ends late": {rest.Config{BearerToken: later, TLSClientConfig: rest.TLSClientConfig{CertData: leaf}}, want},
		"with an opaque token":        {rest.Config{BearerToken: "x", TLSClientConfig: rest.TLSClientConfig{CertData: leaf}}, want},
		"unreadable, with a token":    {rest.Config{BearerToken: earlier, TLSClientConfig: rest.TLSClientConfig{CertData: []byte("x")}}, Credential{Kind: "token", Issued: issued, Expires: issued.Add(time.Minute)}},
		"a password":                  {rest.Config{Username: "u", Password: "p"}, Credential{Kind: "password"}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := CredentialOf(&tc.cfg); got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}

// Whatever a token is, its times can be stored.
func FuzzCredentialOf(f *testing.F) {
	for _, claims := range []string{`{"iat":1,"exp":2}`, `{"exp":1e400}`, `{"exp":-1e400,"iat":1e400}`, `{}`, `null`, `{"exp":"x"}`} {
		f.Add(claims)
	}
	f.Fuzz(func(t *testing.T, claims string) {
		for _, token := range []string{claims, jwt(claims)} {
			c := CredentialOf(&rest.Config{BearerToken: token})
			for _, at := range []time.Time{c.Issued, c.Expires, c.Renewal()} {
				if text, err := json.Marshal(at); err != nil || (!at.IsZero() && (at.Unix() < 0 || at.Unix() > latest)) {
					t.Errorf("%q: %s, %v", token, text, err)
				}
			}
			if r := c.Renewal(); !r.IsZero() && (r.Before(c.Issued) || r.After(c.Expires)) {
				t.Errorf("%q is renewed at %s", token, r)
			}
		}
	})
}

func TestSameButToken(t *testing.T) {
	base := kubeconfig(goodCluster, "token: a")
	for name, tc := range map[string]struct {
		other string
		want  bool
	}{
		"the same":             {base, true},
		"another token":        {kubeconfig(goodCluster, "token: b"), true},
		"another server":       {kubeconfig("server: 'https://other:6443'", "token: b"), false},
		"another setting":      {kubeconfig(goodCluster+", tls-server-name: x", "token: b"), false},
		"a password":           {kubeconfig(goodCluster, "username: u, password: p"), false},
		"a password, too":      {kubeconfig(goodCluster, "token: b, username: u, password: p"), false},
		"a certificate":        {kubeconfig(goodCluster, "client-certificate-data: "+b64("x")+", client-key-data: "+b64("y")), false},
		"not a kubeconfig":     {"x", false},
		"without such context": {strings.Replace(base, "current-context: ", "current-context: x", 1), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got, back := SameButToken([]byte(base), []byte(tc.other)), SameButToken([]byte(tc.other), []byte(base)); got != tc.want || back != tc.want {
				t.Errorf("%v, and the other way round %v", got, back)
			}
		})
	}
	if certificate := []byte(kubeconfig(goodCluster, "client-certificate-data: "+b64("x")+", client-key-data: "+b64("y"))); SameButToken(certificate, certificate) {
		t.Error("without a token")
	}
}
