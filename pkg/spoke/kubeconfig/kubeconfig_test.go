package kubeconfig

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// canary stands in every field that may hold a credential.
const canary = "c4n4ry"

// kubeconfig returns a kubeconfig of one context. Its cluster and its user are given
// as the fields of a YAML flow mapping.
func kubeconfig(cluster, user string) string {
	return `apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: k, user: u}}]
clusters: [{name: k, cluster: {` + cluster + `}}]
users: [{name: u, user: {` + user + `}}]
`
}

const (
	goodCluster = "server: 'https://spoke:6443'"
	goodUser    = "token: " + canary
)

func b64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

func TestRESTConfigAccepted(t *testing.T) {
	for name, tc := range map[string]struct {
		kubeconfig string
		want       rest.Config
	}{
		"a token": {
			kubeconfig: kubeconfig(goodCluster, "token: secret"),
			want:       rest.Config{Host: "https://spoke:6443", BearerToken: "secret"},
		},
		"a client certificate": {
			kubeconfig: kubeconfig(goodCluster+", certificate-authority-data: "+b64("ca"),
				"client-certificate-data: "+b64("cert")+", client-key-data: "+b64("key")),
			want: rest.Config{Host: "https://spoke:6443", TLSClientConfig: rest.TLSClientConfig{
				CAData: []byte("ca"), CertData: []byte("cert"), KeyData: []byte("key"),
			}},
		},
		"a user name and a password": {
			kubeconfig: kubeconfig(goodCluster, "username: admin, password: secret"),
			want:       rest.Config{Host: "https://spoke:6443", Username: "admin", Password: "secret"},
		},
		"a path, a server name and no compression": {
			kubeconfig: kubeconfig("server: 'https://proxy/k8s/clusters/c-1', tls-server-name: spoke, disable-compression: true", "token: secret"),
			want: rest.Config{
				Host: "https://proxy/k8s/clusters/c-1", BearerToken: "secret", DisableCompression: true,
				TLSClientConfig: rest.TLSClientConfig{ServerName: "spoke"},
			},
		},
		"an IPv6 address": {
			kubeconfig: kubeconfig("server: 'https://[fd00::1]:6443'", "token: secret"),
			want:       rest.Config{Host: "https://[fd00::1]:6443", BearerToken: "secret"},
		},
		"JSON": {
			kubeconfig: `{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"k","user":"u"}}],` +
				`"clusters":[{"name":"k","cluster":{"server":"https://spoke"}}],"users":[{"name":"u","user":{"token":"secret"}}]}`,
			want: rest.Config{Host: "https://spoke", BearerToken: "secret"},
		},
		// Everything that is neither allowed nor refused, with a canary in it.
		"what changes nothing is left out": {
			kubeconfig: `apiVersion: v1
kind: Config
current-context: c
preferences: {colors: true, extensions: [{name: c4n4ry, extension: {a: c4n4ry}}]}
extensions: [{name: c4n4ry, extension: {a: c4n4ry}}]
contexts:
- name: c
  context: {cluster: k, user: u, namespace: c4n4ry, extensions: [{name: c4n4ry, extension: {a: c4n4ry}}]}
- name: c4n4ry
  context: {cluster: c4n4ry, user: c4n4ry}
clusters:
- name: k
  cluster: {server: 'https://spoke', extensions: [{name: c4n4ry, extension: {a: c4n4ry}}], unknown: c4n4ry}
- name: c4n4ry
  cluster: {server: 'http://c4n4ry', proxy-url: 'http://c4n4ry', insecure-skip-tls-verify: true}
users:
- name: u
  user: {token: secret, extensions: [{name: c4n4ry, extension: {a: c4n4ry}}], unknown: c4n4ry}
- name: c4n4ry
  user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: c4n4ry, interactiveMode: Never}, tokenFile: /c4n4ry}
unknown: c4n4ry
`,
			want: rest.Config{Host: "https://spoke", BearerToken: "secret"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := RESTConfig([]byte(tc.kubeconfig), Allowance{})
			if err != nil {
				t.Fatal(err)
			}
			checkConfig(t, got, tc.want)
		})
	}
}

// checkConfig requires every field that is not in want to be zero, except those of the connection.
func checkConfig(t *testing.T, got *rest.Config, want rest.Config) {
	t.Helper()
	if got.Dial == nil || got.Proxy == nil {
		t.Error("client-go's own dialer would connect, or its cache would keep the transport")
	}
	rest := *got
	rest.Dial, rest.Proxy = nil, nil
	if !reflect.DeepEqual(rest, want) {
		t.Errorf("got %#v, want %#v", rest, want)
	}
}

func TestRESTConfigRefused(t *testing.T) {
	context := func(current, cluster, user string) string {
		return fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: %s, contexts: [{name: c, context: {cluster: %s, user: %s}}],
  clusters: [{name: k, cluster: {%s}}], users: [{name: u, user: {%s}}]}`, current, cluster, user, goodCluster, goodUser)
	}
	for name, tc := range map[string]struct {
		kubeconfig, field, says string
	}{
		"nothing":                             {kubeconfig: ""},
		"more than 256 KiB":                   {kubeconfig: kubeconfig(goodCluster, goodUser) + strings.Repeat("#"+canary+"\n", 40000)},
		"no YAML":                             {kubeconfig: "{" + canary},
		"no mapping":                          {kubeconfig: canary},
		"binary":                              {kubeconfig: "\x00\x01" + canary},
		"a tab":                               {kubeconfig: "users:\n\t- token: " + canary},
		"another kind":                        {kubeconfig: "{apiVersion: v1, kind: Secret, data: {kubeconfig: " + canary + "}}"},
		"a kind that the parser would quote":  {kubeconfig: "{apiVersion: v1, kind: " + canary + "}"},
		"a token that the parser would quote": {kubeconfig: kubeconfig(goodCluster, "token: !!int "+canary)},
		"a list for a token":                  {kubeconfig: kubeconfig(goodCluster, "token: ["+canary+"]")},
		"a CA that is no base64":              {kubeconfig: kubeconfig(goodCluster+", certificate-authority-data: '"+canary+"!'", goodUser)},
		"a key that is no base64": {
			kubeconfig: kubeconfig(goodCluster, "client-certificate-data: "+b64(canary)+", client-key-data: '"+canary+"!'"),
		},

		"no current-context":      {kubeconfig: context("''", "k", "u"), field: "current-context", says: "is missing; set it with"},
		"another current-context": {kubeconfig: context(canary, "k", "u"), field: "current-context", says: "names a context that"},
		"no cluster":              {kubeconfig: context("c", "''", "u"), field: "contexts[].context.cluster", says: "is missing; set it to"},
		"another cluster":         {kubeconfig: context("c", canary, "u"), field: "contexts[].context.cluster", says: "names a cluster that"},
		"no user":                 {kubeconfig: context("c", "k", "''"), field: "contexts[].context.user", says: "is missing; set it to"},
		"another user":            {kubeconfig: context("c", "k", canary), field: "contexts[].context.user", says: "names a user that"},

		"no server":               {kubeconfig: kubeconfig("tls-server-name: "+canary, goodUser), field: "cluster.server", says: "is missing; write it as"},
		"http":                    {kubeconfig: kubeconfig("server: 'http://"+canary+"'", goodUser), field: "cluster.server"},
		"a bare host":             {kubeconfig: kubeconfig("server: "+canary, goodUser), field: "cluster.server"},
		"a bare host and port":    {kubeconfig: kubeconfig("server: '"+canary+":6443'", goodUser), field: "cluster.server"},
		"a socket":                {kubeconfig: kubeconfig("server: 'unix:///"+canary+"'", goodUser), field: "cluster.server"},
		"no URL":                  {kubeconfig: kubeconfig("server: 'https://"+canary+":port'", goodUser), field: "cluster.server"},
		"a port without a host":   {kubeconfig: kubeconfig("server: 'https://:6443'", goodUser), field: "cluster.server"},
		"a credential in the URL": {kubeconfig: kubeconfig("server: 'https://admin:"+canary+"@spoke'", goodUser), field: "cluster.server"},
		"a user name in the URL":  {kubeconfig: kubeconfig("server: 'https://"+canary+"@spoke'", goodUser), field: "cluster.server"},
		"a query in the URL":      {kubeconfig: kubeconfig("server: 'https://spoke?token="+canary+"'", goodUser), field: "cluster.server"},
		"a fragment in the URL":   {kubeconfig: kubeconfig("server: 'https://spoke#"+canary+"'", goodUser), field: "cluster.server"},
		"insecure TLS":            {kubeconfig: kubeconfig(goodCluster+", insecure-skip-tls-verify: true", goodUser), field: "cluster.insecure-skip-tls-verify"},
		"a CA file":               {kubeconfig: kubeconfig(goodCluster+", certificate-authority: /"+canary, goodUser), field: "cluster.certificate-authority"},
		"a CA file beside a CA": {
			kubeconfig: kubeconfig(goodCluster+", certificate-authority: /"+canary+", certificate-authority-data: "+b64(canary), goodUser),
			field:      "cluster.certificate-authority",
		},
		"a proxy": {kubeconfig: kubeconfig(goodCluster+", proxy-url: 'http://admin:"+canary+"@proxy'", goodUser), field: "cluster.proxy-url"},

		"a program": {
			kubeconfig: kubeconfig(goodCluster, goodUser+", exec: {apiVersion: client.authentication.k8s.io/v1, command: "+canary+
				", args: ["+canary+"], env: [{name: TOKEN, value: "+canary+"}], interactiveMode: Never}"),
			field: "user.exec",
		},
		"an auth provider":            {kubeconfig: kubeconfig(goodCluster, "auth-provider: {name: oidc, config: {client-secret: "+canary+"}}"), field: "user.auth-provider"},
		"a token file":                {kubeconfig: kubeconfig(goodCluster, goodUser+", tokenFile: /"+canary), field: "user.tokenFile"},
		"a certificate's file":        {kubeconfig: kubeconfig(goodCluster, "client-certificate: /"+canary+", client-key-data: "+b64(canary)), field: "user.client-certificate"},
		"a key's file":                {kubeconfig: kubeconfig(goodCluster, "client-certificate-data: "+b64(canary)+", client-key: /"+canary), field: "user.client-key"},
		"another user to act as":      {kubeconfig: kubeconfig(goodCluster, goodUser+", as: "+canary), field: "user.as"},
		"another UID to act as":       {kubeconfig: kubeconfig(goodCluster, goodUser+", as-uid: "+canary), field: "user.as"},
		"another group to act as":     {kubeconfig: kubeconfig(goodCluster, goodUser+", as-groups: ["+canary+"]"), field: "user.as"},
		"no credential":               {kubeconfig: kubeconfig(goodCluster, ""), field: "user"},
		"a certificate without a key": {kubeconfig: kubeconfig(goodCluster, "client-certificate-data: "+b64(canary)), field: "user.client-key-data"},
		"a key without a certificate": {kubeconfig: kubeconfig(goodCluster, goodUser+", client-key-data: "+b64(canary)), field: "user.client-certificate-data"},
		"a token of two lines":        {kubeconfig: kubeconfig(goodCluster, `token: "`+canary+`\n"`), field: "user.token"},
		"extra to act as":             {kubeconfig: kubeconfig(goodCluster, goodUser+", as-user-extra: {scopes: ["+canary+"]}"), field: "user.as"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, err := RESTConfig([]byte(tc.kubeconfig), Allowance{})
			checkRefused(t, err, tc.field)
			if !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%q does not say %q", err, tc.says)
			}
			if cfg != nil {
				t.Error("a configuration came with the error")
			}
		})
	}
}

// checkRefused requires a RefusedError about a field that quotes nothing of the input.
func checkRefused(t *testing.T, err error, field string) {
	t.Helper()
	refused, ok := errors.AsType[*RefusedError](err)
	if !ok {
		t.Fatalf("got %v, want a RefusedError", err)
	}
	if refused.Field != field {
		t.Errorf("the field is %q, want %q", refused.Field, field)
	}
	if !strings.Contains(err.Error(), field) {
		t.Errorf("%q does not name %s", err, field)
	}
	if refused.Message == "" {
		t.Error("no message")
	}
	for _, text := range []string{err.Error(), fmt.Sprintf("%+v", err), fmt.Sprintf("%#v", err)} {
		if strings.Contains(text, canary) || strings.Contains(text, b64(canary)) {
			t.Errorf("%q quotes the kubeconfig", text)
		}
	}
}

// Input that needs much time or memory to parse is rejected early.
func TestKubeconfigsAreBounded(t *testing.T) {
	most, longest := uint64(32<<20), 500*time.Millisecond
	if raceDetector {
		longest *= 10
	}
	fill := func(before, what string) string {
		return before + strings.Repeat(what, (maxBytes-len(before))/len(what))
	}
	good := kubeconfig(goodCluster, goodUser)
	contexts := func(n int) string {
		b := &strings.Builder{}
		for i := range n {
			fmt.Fprintf(b, "{name: c%d},\n", i)
		}
		return "{current-context: c, clusters: [{name: k, cluster: {" + goodCluster + "}}], users: [{name: u, user: {token: secret}}], contexts: [" +
			b.String() + "{name: c, context: {cluster: k, user: u}}]}"
	}
	for name, tc := range map[string]struct {
		kubeconfig string
		accepted   bool
	}{
		"1,000 contexts":          {kubeconfig: contexts(1000), accepted: true},
		"10,000 contexts":         {kubeconfig: contexts(10_000)},
		"1 MiB":                   {kubeconfig: good + strings.Repeat("#"+canary+"\n", 1<<17)},
		"a CA of 200 KiB":         {kubeconfig: kubeconfig(goodCluster+", certificate-authority-data: "+b64(strings.Repeat("x", 150<<10)), goodUser), accepted: true},
		"comments":                {kubeconfig: fill(good, "#\n")},
		"long comments":           {kubeconfig: fill(good, "# 4567\n"), accepted: true},
		"aliases of aliases":      {kubeconfig: bomb() + good},
		"an anchor alone":         {kubeconfig: good + "x: &a " + canary + "\n"},
		"an alias of itself":      {kubeconfig: good + "x: &a [*a]\n"},
		"anchors":                 {kubeconfig: fill(good, "- &a a\n")},
		"a merge":                 {kubeconfig: good + "x: &a {b: c}\ny: {<<: *a}\n"},
		"100 levels":              {kubeconfig: good + "x: " + strings.Repeat("[", 100) + strings.Repeat("]", 100)},
		"9,000 levels":            {kubeconfig: good + "x: " + strings.Repeat("[", 9000) + strings.Repeat("]", 9000)},
		"endless lists":           {kubeconfig: strings.Repeat("[", maxBytes)},
		"endless mappings":        {kubeconfig: fill("", "{a: ")},
		"a list of much":          {kubeconfig: fill("[", "a,")},
		"a mapping of much":       {kubeconfig: fill("{", "a,")},
		"as much as is parsed":    {kubeconfig: "{" + strings.Repeat("a,", maxSeparators-2) + "}"},
		"a list with comments":    {kubeconfig: fill("", "- a #b\n")},
		"keys that are mappings":  {kubeconfig: fill("", "{}: {}\n")},
		"one key again and again": {kubeconfig: fill("", "a: b\n")},
	} {
		t.Run(name, func(t *testing.T) {
			start, before := time.Now(), allocated()
			_, err := RESTConfig([]byte(tc.kubeconfig), Allowance{})
			took, memory := time.Since(start), allocated()-before
			t.Logf("%d bytes: %v, %d KiB: %v", len(tc.kubeconfig), took, memory>>10, err)
			if took > longest || memory > most {
				t.Errorf("it took %v and %d bytes", took, memory)
			}
			if tc.accepted && err != nil {
				t.Error(err)
			} else if !tc.accepted {
				checkRefused(t, err, "")
			}
		})
	}
}

// bomb is small, and would expand to 9^20 strings.
func bomb() string {
	b := &strings.Builder{}
	b.WriteString("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n")
	for i := 1; i < 20; i++ {
		alias := fmt.Sprintf("*a%d", i-1)
		fmt.Fprintf(b, "a%d: &a%d [%s]\n", i, i, strings.Join(slices.Repeat([]string{alias}, 9), ", "))
	}
	return b.String()
}

// allocated returns the number of bytes ever allocated.
func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

func FuzzKubeconfig(f *testing.F) {
	const all = 1<<5 - 1
	user := goodUser + ", client-key-data: '" + b64(canary) + "'"
	for _, s := range []string{
		"",
		kubeconfig(goodCluster, goodUser),
		kubeconfig(goodCluster+", certificate-authority-data: "+b64("ca"), "client-certificate-data: "+b64("cert")+", client-key-data: "+b64(canary)),
		kubeconfig("server: 'http://[::1]:80', insecure-skip-tls-verify: true, proxy-url: 'socks5://x'", "exec: {command: "+canary+"}, as-user-extra: {a: ["+canary+"]}"),
		kubeconfig("server: 'https://127.1', proxy-url: 'http://admin:"+canary+"@169.254.169.254'", user),
		kubeconfig("server: 'https://[fe80::1%25eth0]', tls-server-name: x", "username: a, password: "+canary),
		kubeconfig("extensions: [{name: x, extension: {kind: Y, apiVersion: v1}}]", "auth-provider: {name: x, config: null}, exec: null"),
		kubeconfig(goodCluster+", certificate-authority: /"+canary, "tokenFile: /"+canary+", client-key: /"+canary+", as: "+canary),
		`{"apiVersion":"v1","kind":"Config","contexts":[null],"clusters":[{}],"users":null}`,
		"a: &a [*a]\n<<: *a\n? {}\n: !!binary =\n",
		bomb(),
	} {
		f.Add([]byte(s), byte(0))
		f.Add([]byte(s), byte(all))
	}
	f.Fuzz(func(t *testing.T, kubeconfig []byte, bits byte) {
		bit := func(n int) bool { return bits&(1<<n) != 0 }
		allow := Allowance{Loopback: bit(0), LinkLocal: bit(1), HTTP: bit(2), InsecureTLS: bit(3), ProxyURL: bit(4)}
		start := time.Now()
		cfg, err := RESTConfig(kubeconfig, allow)
		if took := time.Since(start); took > 5*time.Second { // of a machine that fuzzes
			t.Errorf("it took %v", took)
		}
		if (cfg == nil) == (err == nil) {
			t.Fatalf("got both or neither of %v and %v", cfg, err)
		}
		if err != nil {
			checkFuzzed(t, err)
			return
		}
		checkConfig(t, cfg, rest.Config{
			Host: cfg.Host, BearerToken: cfg.BearerToken, Username: cfg.Username, Password: cfg.Password, DisableCompression: cfg.DisableCompression,
			TLSClientConfig: rest.TLSClientConfig{
				ServerName: cfg.ServerName, CAData: cfg.CAData, CertData: cfg.CertData, KeyData: cfg.KeyData, Insecure: cfg.Insecure && allow.InsecureTLS,
			},
		})
		server, err := url.Parse(cfg.Host)
		if err != nil || (server.Scheme != "https" && (server.Scheme != "http" || !allow.HTTP)) {
			t.Errorf("the host is %q: %v", cfg.Host, err)
		}
		proxy, err := cfg.Proxy(&http.Request{URL: server})
		if err != nil || (proxy != nil && !allow.ProxyURL) {
			t.Errorf("the proxy is %v: %v", proxy, err)
		}
		for _, u := range []*url.URL{server, proxy} {
			if u == nil {
				continue
			}
			if ip := net.ParseIP(u.Hostname()); !allow.Loopback && ip.IsLoopback() || !allow.LinkLocal && ip.IsLinkLocalUnicast() {
				t.Errorf("it leads to %v", ip)
			}
		}
	})
}

// checkFuzzed requires an error that quotes no credential.
func checkFuzzed(t *testing.T, err error) {
	t.Helper()
	refused, ok := errors.AsType[*RefusedError](err)
	if !ok || refused.Message == "" {
		t.Errorf("%T: %v", err, err)
	}
	if text := err.Error(); strings.Contains(text, canary) || strings.Contains(text, b64(canary)) {
		t.Errorf("%q quotes the kubeconfig", text)
	}
}
