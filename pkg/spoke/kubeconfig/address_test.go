package kubeconfig

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
)

func TestAllowance(t *testing.T) {
	for text, want := range map[string]Allowance{
		"":                       {},
		" ":                      {},
		"loopback":               {Loopback: true},
		"link-local, http":       {LinkLocal: true, HTTP: true},
		"insecure-tls,proxy-url": {InsecureTLS: true, ProxyURL: true},
	} {
		t.Run(text, func(t *testing.T) {
			if got, err := ParseAllowances(text); err != nil || got.Of("eu-1") != want {
				t.Errorf("%q: got %+v, %v", text, got, err)
			}
		})
	}
	for _, text := range []string{
		"exec", "loopback,", "Loopback", "loopback http", "loopback,all", "eu-1=", "eu-1=exec", "=http", "EU=http", "a/b=http", "eu-1=http=eu-2", "eu-1 = http", "*=http",
	} {
		t.Run(text, func(t *testing.T) {
			if got, err := ParseAllowances(text); err == nil || got.Of("eu-1") != (Allowance{}) || got.Of("") != (Allowance{}) {
				t.Errorf("%q: got %+v, %v", text, got, err)
			}
		})
	}
}

// A spoke may use the allowances of all spokes and its own, in any order of the flag.
func TestAllowanceOfASpoke(t *testing.T) {
	for _, text := range []string{"eu-1=http,loopback, eu-1=proxy-url,eu-2.x=link-local", "eu-2.x=link-local,eu-1=proxy-url,eu-1=http,loopback"} {
		a, err := ParseAllowances(text)
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]Allowance{
			"eu-1":   {Loopback: true, HTTP: true, ProxyURL: true},
			"eu-2.x": {Loopback: true, LinkLocal: true},
			"eu-2":   {Loopback: true},
			"":       {Loopback: true},
		} {
			if got := a.Of(name); got != want {
				t.Errorf("%s: %q may have %+v", text, name, got)
			}
		}
	}
}

// A feature that is refused by default is accepted only with its own allowance.
func TestRESTConfigAllowed(t *testing.T) {
	all := Allowance{Loopback: true, LinkLocal: true, HTTP: true, InsecureTLS: true, ProxyURL: true}
	loopback := func(a *Allowance) *bool { return &a.Loopback }
	linkLocal := func(a *Allowance) *bool { return &a.LinkLocal }
	for name, tc := range map[string]struct {
		cluster, field string
		of             func(a *Allowance) *bool
		flag           string
	}{
		"plain http":   {"server: 'http://spoke'", fieldServer, func(a *Allowance) *bool { return &a.HTTP }, "http"},
		"insecure TLS": {goodCluster + ", insecure-skip-tls-verify: true", fieldInsecure, func(a *Allowance) *bool { return &a.InsecureTLS }, "insecure-tls"},
		"a proxy":      {goodCluster + ", proxy-url: 'http://u:" + canary + "@proxy'", fieldProxy, func(a *Allowance) *bool { return &a.ProxyURL }, "proxy-url"},

		"127.0.0.1":           {server("127.0.0.1"), fieldServer, loopback, "loopback"},
		"127.255.255.254":     {server("127.255.255.254:6443"), fieldServer, loopback, "loopback"},
		"::1":                 {server("[::1]"), fieldServer, loopback, "loopback"},
		"::1, in full":        {server("[0:0:0:0:0:0:0:1]:6443"), fieldServer, loopback, "loopback"},
		"0.0.0.0":             {server("0.0.0.0"), fieldServer, loopback, "loopback"},
		"0.1.2.3":             {server("0.1.2.3"), fieldServer, loopback, "loopback"},
		"::":                  {server("[::]"), fieldServer, loopback, "loopback"},
		"IPv4-mapped":         {server("[::ffff:127.0.0.1]"), fieldServer, loopback, "loopback"},
		"IPv4-mapped, as hex": {server("[::ffff:7f00:1]"), fieldServer, loopback, "loopback"},
		"IPv4-mapped 0.1.2.3": {server("[::ffff:0.1.2.3]"), fieldServer, loopback, "loopback"},
		"IPv4-compatible":     {server("[::127.0.0.1]"), fieldServer, loopback, "loopback"},
		"NAT64":               {server("[64:ff9b::127.0.0.1]"), fieldServer, loopback, "loopback"},
		"NAT64 with a zone":   {server("[64:ff9b::7f00:1%25eth0]"), fieldServer, loopback, "loopback"},
		"localhost":           {server("localhost:6443"), fieldServer, loopback, "loopback"},
		"LocalHost.":          {server("LocalHost."), fieldServer, loopback, "loopback"},
		"under localhost":     {server("api.localhost"), fieldServer, loopback, "loopback"},
		"a proxy at loopback": {goodCluster + ", proxy-url: 'http://127.0.0.1:3128'", fieldProxy, loopback, "loopback"},

		"169.254.1.1":                {server("169.254.1.1"), fieldServer, linkLocal, "link-local"},
		"IPv4-mapped link-local":     {server("[::ffff:a9fe:101]"), fieldServer, linkLocal, "link-local"},
		"NAT64 link-local":           {server("[64:ff9b::a9fe:101]"), fieldServer, linkLocal, "link-local"},
		"6to4 link-local":            {server("[2002:a9fe:101::1]"), fieldServer, linkLocal, "link-local"},
		"6to4 loopback":              {server("[2002:7f00:1::]"), fieldServer, loopback, "loopback"},
		"IPv4-translated":            {server("[::ffff:0:127.0.0.1]"), fieldServer, loopback, "loopback"},
		"ISATAP":                     {server("[2001:db8::5efe:127.0.0.1]"), fieldServer, loopback, "loopback"},
		"ISATAP, unique":             {server("[2001:db8::200:5efe:127.0.0.1]"), fieldServer, loopback, "loopback"},
		"a network's NAT64, /48":     {server("[64:ff9b:1:7f00:0:100::]"), fieldServer, loopback, "loopback"},
		"a network's NAT64, /96":     {server("[64:ff9b:1::127.0.0.1]"), fieldServer, loopback, "loopback"},
		"fe80::1":                    {server("[fe80::1]"), fieldServer, linkLocal, "link-local"},
		"a zone":                     {server("[fe80::1%25eth0]"), fieldServer, linkLocal, "link-local"},
		"a zone where it has no use": {server("[fd00::1%25eth0]"), fieldServer, linkLocal, "link-local"},
		"224.0.0.1":                  {server("224.0.0.1"), fieldServer, linkLocal, "link-local"},
		"a link-local proxy":         {goodCluster + ", proxy-url: 'socks5://[fe80::1]:1080'", fieldProxy, linkLocal, "link-local"},
	} {
		t.Run(name, func(t *testing.T) {
			text := []byte(kubeconfig(tc.cluster, goodUser))
			others := all
			*tc.of(&others) = false
			_, err := RESTConfig(text, others)
			checkRefused(t, err, tc.field)
			if !strings.Contains(err.Error(), "--allow-kubeconfig=SPOKE="+tc.flag) {
				t.Errorf("%q does not say how to allow it", err)
			}
			if _, err := RESTConfig(text, all); err != nil {
				t.Errorf("all is allowed, and still: %v", err)
			}
		})
	}
	cfg, err := RESTConfig([]byte(kubeconfig(goodCluster+", insecure-skip-tls-verify: true, proxy-url: 'socks5://proxy:1080'", "token: secret")), all)
	if err != nil {
		t.Fatal(err)
	}
	if proxy, err := cfg.Proxy(&http.Request{URL: &url.URL{Scheme: "https", Host: "spoke"}}); err != nil || proxy.String() != "socks5://proxy:1080" {
		t.Errorf("the proxy is %v, %v", proxy, err)
	}
	checkConfig(t, cfg, rest.Config{Host: "https://spoke:6443", BearerToken: "secret", TLSClientConfig: rest.TLSClientConfig{Insecure: true}})
}

func server(host string) string { return "server: 'https://" + host + "'" }

// Metadata services of clouds are refused with all allowances, in every form, and as a proxy as well.
func TestMetadataServices(t *testing.T) {
	all := Allowance{Loopback: true, LinkLocal: true, HTTP: true, InsecureTLS: true, ProxyURL: true}
	hosts := []string{
		"169.254.169.254", "169.254.170.2", "169.254.170.23", "169.254.0.23", "169.254.42.42", "168.63.129.16", "100.100.100.200", "192.0.0.192",
		"[fd00:ec2::254]", "[FD00:EC2::254]", "[fd00:ec2:0:0::0254]", "[fd00:ec2::23]", "[fd00:ec2::254%25eth0]", "[fd20:ce::254]", "[fd00:c1::a9fe:a9fe]", "[fd00:42::42]", "[fe80::a9fe:a9fe]", "[fe80::a9fe:a9fe%25eth0]",
		"[::ffff:169.254.169.254]", "[::ffff:a83f:8110]", "[::ffff:100.100.100.200]", "[0:0:0:0:0:ffff:6464:64c8]", "[::168.63.129.16]", "[::ffff:0:168.63.129.16]",
		"[64:ff9b::a9fe:a9fe]", "[64:ff9b::168.63.129.16]", "[64:ff9b::100.100.100.200]", "[64:ff9b:1::169.254.169.254]",
		"[64:ff9b:1:a9fe:a9:fe00::]", "[64:ff9b:1:a9:fe:a9fe::]", "[64:ff9b:1:0:a9:fea9:fe00::]", "[2002:a9fe:a9fe::1]", "[2002:6464:64c8::]", "[fe80::5efe:a9fe:a9fe]", "[fe80::200:5efe:168.63.129.16]",
		"169.254%2e169.254", "metadata", "Metadata.Google.Internal", "metadata.google.internal.", "metadata.google.internal..", "METADATA.GOOG", "instance-data", "instance-data.ec2.internal", "metadata.azure.internal", "metadata.tencentyun.com",
		// These are refused for another reason.
		"0xa9fea9fe", "0XA9FEA9FE", "2852039166", "0251.0376.0251.0376", "0xa9.0xfe.0xa9.0xfe", "169.254.43518", "169.16689662", "169.254.169.254.", "169.254.169.254..", "169.254.169.0376", "１６９.254.169.254", "168.63.129.16.", "2822734096", "100.100.25800", "1684301000",
	}
	for _, host := range hosts {
		t.Run(host, func(t *testing.T) {
			_, err := RESTConfig([]byte(kubeconfig(server(host+":6443"), goodUser)), all)
			checkRefused(t, err, fieldServer)
			_, err = RESTConfig([]byte(kubeconfig(goodCluster+", proxy-url: 'http://"+host+"'", goodUser)), all)
			checkRefused(t, err, fieldProxy)
			if u, err := url.Parse("http://" + host + "/latest/meta-data"); err == nil {
				const field = "spec.evaluatorRefs.url"
				_, _, err = all.Route(field, u)
				checkRefused(t, err, field)
			}
		})
	}
	// Similar addresses are accepted.
	for _, host := range []string{"168.63.129.17", "100.100.100.201", "[fd00:ec3::254]", "[fd20:ce::253]", "metadata.example.com", "metadata-1", "[2002:a00:1::1]", "[64:ff9b:1:a00:0:100::]", "[2001:db8::5efe:10.0.0.1]"} {
		t.Run(host, func(t *testing.T) {
			if _, err := RESTConfig([]byte(kubeconfig(server(host), goodUser)), Allowance{}); err != nil {
				t.Errorf("%s: %v", host, err)
			}
		})
	}
}

// Hosts that no flag allows.
func TestHostsRefused(t *testing.T) {
	all := Allowance{Loopback: true, LinkLocal: true, HTTP: true, InsecureTLS: true, ProxyURL: true}
	for _, host := range []string{"127.1", "127.0.1", "2130706433", "0x7f000001", "0x7f.0.0.1", "0177.0.0.1", "127.0.0.1.", "127.0.0.1..", "127.0%2e0.1", "127.0.0.01", "10.1", "spoke.0x", "1.2.3.4.5", "256.1.1.1", "１２７.0.0.1", "spöke.example"} {
		t.Run(host, func(t *testing.T) {
			_, err := RESTConfig([]byte(kubeconfig(server(host), goodUser)), all)
			checkRefused(t, err, fieldServer)
			_, err = RESTConfig([]byte(kubeconfig(goodCluster+", proxy-url: 'http://"+host+"'", goodUser)), all)
			checkRefused(t, err, fieldProxy)
		})
	}
	for cluster, field := range map[string]string{
		goodCluster + ", insecure-skip-tls-verify: true, certificate-authority-data: " + b64(canary): fieldInsecure,
		goodCluster + ", proxy-url: 'ftp://proxy'":                                                   fieldProxy,
		goodCluster + ", proxy-url: 'proxy:" + canary + "'":                                          fieldProxy,
		goodCluster + ", proxy-url: 'http://:3128'":                                                  fieldProxy,
		"server: 'ftp://spoke'":                                                                      fieldServer,
	} {
		t.Run(cluster, func(t *testing.T) {
			_, err := RESTConfig([]byte(kubeconfig(cluster, goodUser)), all)
			checkRefused(t, err, field)
		})
	}
	// Similar hosts are accepted.
	for _, host := range []string{"10.0.0.1", "192.168.1.1:6443", "[fd00::1]", "[2001:db8::1]:6443", "localhost.example", "mylocalhost", "1.example", "spoke-1", "0xspoke", "face", "xn--spke-6qa.example", "[::ffff:10.0.0.1]", "[64:ff9b::10.0.0.1]", "spoke.example."} {
		t.Run(host, func(t *testing.T) {
			if _, err := RESTConfig([]byte(kubeconfig(server(host), goodUser)), Allowance{}); err != nil {
				t.Errorf("%s: %v", host, err)
			}
		})
	}
}

// The address of the operator's own proxy is not restricted. Those of a server whose name resolves here are.
func TestProxyOfTheEnvironment(t *testing.T) {
	// ProxyFromEnvironment reads the environment once in a process.
	was, resolver := fromEnvironment, lookup
	defer func() { fromEnvironment, lookup = was, resolver }()
	lookup = func(context.Context, string, string) ([]netip.Addr, error) { return nil, errors.New("no such host") }
	fromEnvironment = func(*http.Request) (*url.URL, error) { return url.Parse("http://127.0.0.1:3128") }
	target, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = target.Close() }()
	cfg, err := RESTConfig([]byte(kubeconfig(goodCluster, goodUser)), Allowance{})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := cfg.Dial(t.Context(), "tcp", target.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	for address, allowed := range map[string]bool{"192.0.2.1": true, "fd00:ec2::254": false, "::ffff:169.254.169.254": false, "127.0.0.1": false} {
		lookup = func(context.Context, string, string) ([]netip.Addr, error) {
			return []netip.Addr{netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr(address)}, nil
		}
		conn, err := cfg.Dial(t.Context(), "tcp", target.Addr().String())
		if allowed {
			if err != nil {
				t.Fatal(err)
			}
			_ = conn.Close()
			continue
		}
		checkRefused(t, err, fieldServer)
	}
	_, err = RESTConfig([]byte(kubeconfig(server("127.0.0.1"), goodUser)), Allowance{})
	checkRefused(t, err, fieldServer)
}
