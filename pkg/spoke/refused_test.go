package spoke

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/spoke/kubeconfig"
)

// A kubeconfig is checked against its own spoke's allowances, at registration and when the spoke leaves.
func TestRegisteredByItsOwnAllowance(t *testing.T) {
	allow, err := kubeconfig.ParseAllowances("eu-1=http")
	if err != nil {
		t.Fatal(err)
	}
	text := []byte(kubeconfigText("server: 'http://spoke.invalid'", goodUser))
	p := NewProvider(Options{Allow: allow})
	for _, name := range []string{"eu-1", "eu-2"} {
		c, err := p.lastConnectionLocked(name, text)
		if name == "eu-1" {
			if err != nil {
				t.Fatal(err)
			}
			c.disconnect()
			continue
		}
		checkRefused(t, errors.Unwrap(err), "cluster.server")
		if !strings.Contains(err.Error(), "--allow-kubeconfig=SPOKE=http") {
			t.Errorf("%q does not say how to allow it to one spoke", err)
		}
	}
}

// resolving makes a configuration's server, or its proxy, resolve to an address.
func resolving(cfg *rest.Config, address string) *rest.Config {
	dial := cfg.Dial
	cfg.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) { return dial(ctx, network, address) }
	return cfg
}

// A name that resolves to a loopback or link-local address is refused when it is dialed, and shows as a fault
// of the kubeconfig.
func TestResolvedAddresses(t *testing.T) {
	asked := 0
	target := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
	defer target.Close()
	here := target.Listener.Addr().String()
	_, port, err := net.SplitHostPort(here)
	if err != nil {
		t.Fatal(err)
	}
	everything := kubeconfig.Allowance{Loopback: true, LinkLocal: true, HTTP: true, InsecureTLS: true, ProxyURL: true}
	for name, tc := range map[string]struct {
		cluster, address, field string
		allow                   kubeconfig.Allowance
	}{
		"loopback":             {cluster: goodCluster, address: here, field: "cluster.server", allow: kubeconfig.Allowance{LinkLocal: true}},
		"unspecified":          {cluster: goodCluster, address: "0.0.0.0:" + port, field: "cluster.server"},
		"IPv6 loopback":        {cluster: goodCluster, address: "[::1]:" + port, field: "cluster.server"},
		"IPv4-mapped":          {cluster: goodCluster, address: "[::ffff:127.0.0.1]:" + port, field: "cluster.server"},
		"plain http, loopback": {cluster: "server: 'http://spoke'", address: here, field: "cluster.server", allow: kubeconfig.Allowance{HTTP: true}},
		"link-local":           {cluster: goodCluster, address: "169.254.1.1:80", field: "cluster.server", allow: kubeconfig.Allowance{Loopback: true}},
		"metadata":             {cluster: goodCluster, address: "169.254.169.254:80", field: "cluster.server", allow: everything},
		"metadata of Azure":    {cluster: goodCluster, address: "168.63.129.16:443", field: "cluster.server", allow: everything},
		"metadata of Alibaba":  {cluster: goodCluster, address: "100.100.100.200:443", field: "cluster.server", allow: everything},
		"metadata of AWS":      {cluster: goodCluster, address: "[fd00:ec2::254]:443", field: "cluster.server", allow: everything},
		"metadata by NAT64":    {cluster: goodCluster, address: "[64:ff9b::a9fe:a9fe]:443", field: "cluster.server", allow: everything},
		"a proxy at metadata":  {cluster: goodCluster + ", proxy-url: 'http://proxy'", address: "169.254.169.254:80", field: "cluster.proxy-url", allow: everything},
		"a proxy at loopback":  {cluster: goodCluster + ", proxy-url: 'http://proxy'", address: here, field: "cluster.proxy-url", allow: kubeconfig.Allowance{ProxyURL: true}},
		"a SOCKS proxy there":  {cluster: goodCluster + ", proxy-url: 'socks5://proxy'", address: here, field: "cluster.proxy-url", allow: kubeconfig.Allowance{ProxyURL: true}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, err := kubeconfig.RESTConfig([]byte(kubeconfigText(tc.cluster, goodUser)), tc.allow)
			if err != nil {
				t.Fatal(err)
			}
			c, err := NewProvider(Options{}).newConnection("s", resolving(cfg, tc.address))
			if err != nil {
				t.Fatal(err)
			}
			defer c.disconnect()
			err = c.probe(t.Context())
			checkRefused(t, err, tc.field)
			remedy := "--allow-kubeconfig="
			if tc.allow == everything {
				remedy = "metadata service"
			}
			if f := disconnected(err); f.Reason != v1alpha1.ReasonInvalidKubeconfig || !strings.Contains(f.Message, tc.field) || !strings.Contains(f.Message, remedy) {
				t.Errorf("it shows as %+v", f)
			}
		})
	}
	if asked > 0 {
		t.Errorf("the target was asked %d times", asked)
	}
}

// An invalid credential is detected when the connection is created.
func TestUnusableCredential(t *testing.T) {
	pem := func(kind string) string {
		return b64("-----BEGIN " + kind + "-----\n" + b64(canary) + "\n-----END " + kind + "-----\n")
	}
	for name, tc := range map[string]struct{ cluster, user string }{
		"a CA that is no PEM":            {cluster: goodCluster + ", certificate-authority-data: " + b64(canary), user: goodUser},
		"a certificate that is no X.509": {cluster: goodCluster, user: "client-certificate-data: " + pem("CERTIFICATE") + ", client-key-data: " + pem("PRIVATE KEY")},
		"a token and a password":         {cluster: goodCluster, user: goodUser + ", username: admin, password: " + canary},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, err := kubeconfig.RESTConfig([]byte(kubeconfigText(tc.cluster, tc.user)), kubeconfig.Allowance{})
			if err != nil {
				t.Fatal(err)
			}
			_, err = NewProvider(Options{}).newConnection("s", cfg)
			checkRefused(t, err, "")
		})
	}
}

// canary stands in every field that may hold a credential.
const canary = "c4n4ry"

const (
	goodCluster = "server: 'https://spoke:6443'"
	goodUser    = "token: " + canary
)

// kubeconfigText returns a kubeconfig of one context. Its cluster and its user are given as the fields of a
// YAML flow mapping.
func kubeconfigText(cluster, user string) string {
	return "{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: k, user: u}}]," +
		" clusters: [{name: k, cluster: {" + cluster + "}}], users: [{name: u, user: {" + user + "}}]}"
}

func b64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

// checkRefused requires a RefusedError about a field that quotes no credential, nor does the status.
func checkRefused(t *testing.T, err error, field string) {
	t.Helper()
	refused, ok := errors.AsType[*kubeconfig.RefusedError](err)
	if !ok {
		t.Fatalf("got %v, want a RefusedError", err)
	}
	if refused.Field != field {
		t.Errorf("the field is %q, want %q", refused.Field, field)
	}
	if refused.Message == "" {
		t.Error("no message")
	}
	for _, text := range []string{fmt.Sprintf("%+v", err), fmt.Sprintf("%#v", err), disconnected(err).Message} {
		if strings.Contains(text, canary) || strings.Contains(text, b64(canary)) {
			t.Errorf("%q quotes the kubeconfig", text)
		}
	}
}

// A kubeconfig that is refused shows as the condition Connected, and not as an error of the hub. One that is not
// refused is connected with the choice of evaluators that it is registered with.
func TestRegister(t *testing.T) {
	p := NewProvider(Options{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // nothing is connected
	p.base = ctx
	close(p.started)
	chosen := false
	choose := func(context.Context, string, string, Evaluators, Look) ([]v1alpha1.Evaluator, error) {
		chosen = true
		return nil, nil
	}
	finding, err := p.Register(t.Context(), "s", []byte(kubeconfigText(goodCluster, "exec: {command: x}")), choose)
	if err != nil || finding == nil || finding.Reason != v1alpha1.ReasonInvalidKubeconfig || !strings.Contains(finding.Message, "user.exec") || p.entries["s"] != nil {
		t.Errorf("got %+v, %v", finding, err)
	}
	finding, err = p.Register(t.Context(), "s", []byte(kubeconfigText(goodCluster, "client-certificate-data: "+b64("x")+", client-key-data: "+b64("x"))), choose)
	if err != nil || finding == nil || finding.Reason != v1alpha1.ReasonInvalidKubeconfig || p.entries["s"] != nil {
		t.Errorf("got %+v, %v", finding, err)
	}
	if finding, err = p.Register(t.Context(), "s", []byte(kubeconfigText(goodCluster, goodUser)), choose); err != nil || finding != nil {
		t.Fatalf("got %+v, %v", finding, err)
	}
	registered := p.entries["s"].pending.conn.choose
	if registered == nil {
		t.Fatal("it has no choice")
	}
	if _, err := registered(t.Context(), "s", "", Evaluators{}, nil); err != nil || !chosen {
		t.Errorf("it has another choice: %v", err)
	}
}
