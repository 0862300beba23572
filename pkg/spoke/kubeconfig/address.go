package kubeconfig

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

type (
	dialFunc  = func(ctx context.Context, network, address string) (net.Conn, error)
	proxyFunc = func(*http.Request) (*url.URL, error)
)

// embedding lists IPv6 prefixes whose addresses embed an IPv4 address to which the network may route, and the
// bytes that hold it.
var embedding = []struct {
	netip.Prefix
	bytes [][4]int
}{
	{netip.MustParsePrefix("::/96"), [][4]int{{12, 13, 14, 15}}},           // IPv4-compatible
	{netip.MustParsePrefix("::ffff:0:0:0/96"), [][4]int{{12, 13, 14, 15}}}, // IPv4-translated
	{netip.MustParsePrefix("64:ff9b::/96"), [][4]int{{12, 13, 14, 15}}},    // NAT64 and DNS64
	// A network's own NAT64 prefix may have any of the lengths in RFC 6052.
	{netip.MustParsePrefix("64:ff9b:1::/48"), [][4]int{{6, 7, 9, 10}, {7, 9, 10, 11}, {9, 10, 11, 12}, {12, 13, 14, 15}}},
	{netip.MustParsePrefix("2002::/16"), [][4]int{{2, 3, 4, 5}}}, // 6to4
}

// metadata lists the addresses of the metadata services of clouds, which hand out credentials and secrets. No
// API server has any of them.
var metadata = []netip.Prefix{
	netip.MustParsePrefix("169.254.169.254/32"),     // most of them
	netip.MustParsePrefix("169.254.170.0/24"),       // AWS: credentials of containers and pods
	netip.MustParsePrefix("169.254.0.23/32"),        // Tencent
	netip.MustParsePrefix("169.254.42.42/32"),       // Scaleway
	netip.MustParsePrefix("168.63.129.16/32"),       // Azure
	netip.MustParsePrefix("100.100.100.200/32"),     // Alibaba
	netip.MustParsePrefix("192.0.0.192/32"),         // Oracle
	netip.MustParsePrefix("fd00:ec2::/32"),          // AWS
	netip.MustParsePrefix("fd20:ce::254/128"),       // Google
	netip.MustParsePrefix("fd00:c1::a9fe:a9fe/128"), // Oracle
	netip.MustParsePrefix("fd00:42::42/128"),        // Scaleway
	netip.MustParsePrefix("fe80::a9fe:a9fe/128"),    // OpenStack
}

// metadataNames are host names of those services. Most of them resolve only in the cloud, and behind the
// operator's own proxy their addresses are not visible here.
var metadataNames = []string{
	"metadata", "metadata.google.internal", "metadata.goog", "instance-data", "instance-data.ec2.internal",
	"metadata.azure.internal", "metadata.tencentyun.com", "metadata.platformequinix.com", "metadata.packet.net",
}

// thisNetwork leads to the machine itself, as its first address does.
var thisNetwork = netip.MustParsePrefix("0.0.0.0/8")

// fromEnvironment is the operator's own proxy.
var fromEnvironment = utilnet.NewProxierWithNoProxyCIDR(http.ProxyFromEnvironment)

// checkHost checks the host of a URL as written. The addresses of a name are checked when it is dialed.
func (a Allowance) checkHost(field, host string) error {
	if addr, err := netip.ParseAddr(host); err == nil {
		return a.checkAddr(field, addr)
	}
	name := strings.TrimRight(strings.ToLower(host), ".")
	labels := strings.Split(name, ".")
	last := labels[len(labels)-1]
	switch {
	case strings.ContainsFunc(name, func(r rune) bool { return r > unicode.MaxASCII || r == '%' || unicode.IsSpace(r) }):
		// Some non-ASCII characters, such as full-width digits, become ASCII before the host is resolved.
		return refuse(field, "has a host name with characters other than ASCII; write it in ASCII (Punycode: xn--…)")
	case slices.Contains(metadataNames, name):
		return refuseMetadata(field)
	case last == "localhost" && !a.Loopback:
		return refuse(field, "is, or resolves to, a loopback address, which leads to the manager itself; use an address at which the hub can reach the server"+orAllow(allowLoopback))
	case isNumber(last):
		// Resolvers accept 127.1, 0x7f.1 and 2130706433 as addresses.
		return refuse(field, "has an IP address in a form that is not allowed; write it as four decimal numbers, or as IPv6 in brackets")
	}
	return nil
}

func refuseMetadata(field string) error {
	return refuse(field, "is, or resolves to, the metadata service of a cloud, which hands out credentials of the manager's machine; use an address at which the hub can reach the server")
}

// isNumber reports whether a label is a number in any notation that resolvers accept.
func isNumber(label string) bool {
	digits, hex := label, false
	if rest, found := strings.CutPrefix(label, "0x"); found {
		digits, hex = rest, true
	}
	if digits == "" {
		return hex
	}
	return !strings.ContainsFunc(digits, func(r rune) bool {
		return (r < '0' || r > '9') && (!hex || r < 'a' || r > 'f')
	})
}

// checkAddr refuses addresses that lead to the operator itself, or that only its machine can reach.
func (a Allowance) checkAddr(field string, addr netip.Addr) error {
	zone := addr.Zone() != ""
	addr = addr.Unmap().WithZone("")
	for _, addr := range append(embedded(addr), addr) {
		if err := a.checkPlain(field, addr, zone); err != nil {
			return err
		}
	}
	return nil
}

// embedded returns the IPv4 addresses to which an IPv6 address may lead.
func embedded(addr netip.Addr) []netip.Addr {
	if !addr.Is6() {
		return nil
	}
	var out []netip.Addr
	b := addr.As16()
	for _, e := range embedding {
		for _, at := range e.bytes {
			held := netip.AddrFrom4([4]byte{b[at[0]], b[at[1]], b[at[2]], b[at[3]]})
			if e.Contains(addr) && (len(e.bytes) == 1 || !thisNetwork.Contains(held)) { // zeros belong to a prefix of another length
				out = append(out, held)
			}
		}
	}
	if b[8]&^0x03 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe { // ISATAP
		out = append(out, netip.AddrFrom4([4]byte(b[12:])))
	}
	return out
}

// checkPlain checks an address without embedded addresses. zone means that it was written with a zone.
func (a Allowance) checkPlain(field string, addr netip.Addr, zone bool) error {
	switch {
	case slices.ContainsFunc(metadata, func(p netip.Prefix) bool { return p.Contains(addr) }):
		return refuseMetadata(field)
	case !a.Loopback && (addr.IsLoopback() || addr.IsUnspecified() || thisNetwork.Contains(addr)):
		return refuse(field, "is, or resolves to, a loopback address, which leads to the manager itself; use an address at which the hub can reach the server"+orAllow(allowLoopback))
	case !a.LinkLocal && (zone || addr.IsLinkLocalUnicast() || addr.IsLinkLocalMulticast() || addr.IsInterfaceLocalMulticast()):
		return refuse(field, "is, or resolves to, a link-local address, where clouds serve credentials; use a routable address"+orAllow(allowLinkLocal))
	}
	return nil
}

// dialer connects only to allowed addresses, whatever a name resolves to, and returns a RefusedError about the
// field for others.
func (a Allowance) dialer(field string) dialFunc {
	d := newDialer()
	d.Control = func(_, address string, _ syscall.RawConn) error {
		ap, err := netip.ParseAddrPort(address)
		if err != nil {
			return refuse(field, "does not resolve to an IP address")
		}
		return a.checkAddr(field, ap.Addr())
	}
	return d.DialContext
}

// lookupTimeout bounds the lookup of a name that a proxy resolves. Where only the proxy can resolve names, each connection
// waits for it.
const lookupTimeout = time.Second

// lookup resolves a name.
var lookup = net.DefaultResolver.LookupNetIP

// dialerOfProxy connects to the operator's own proxy, which resolves the name of the server. If the name resolves here as
// well, its addresses have to be allowed: usually they are the same for both. Any name can lead to a metadata service.
func (a Allowance) dialerOfProxy(field, host string) dialFunc {
	d := newDialer()
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		bounded, cancel := context.WithTimeout(ctx, lookupTimeout)
		addrs, err := lookup(bounded, "ip", host)
		cancel()
		if err != nil {
			addrs = nil // only the proxy knows it
		}
		for _, addr := range addrs {
			if err := a.checkAddr(field, addr); err != nil {
				return nil, err
			}
		}
		return d.DialContext(ctx, network, address)
	}
}

// newDialer has the settings of client-go.
func newDialer() *net.Dialer {
	return &net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}
}

// Route returns the proxy to a server and the dial function to the proxy or the server, or a RefusedError about
// the field that names the server.
func (a Allowance) Route(field string, server *url.URL) (
	proxy func(*http.Request) (*url.URL, error), dial func(ctx context.Context, network, address string) (net.Conn, error), err error,
) {
	if err := a.checkHost(field, server.Hostname()); err != nil {
		return nil, nil, err
	}
	proxy, dial = a.route(field, server)
	return proxy, dial, nil
}

// route is Route to a server whose host is checked. The operator's own proxy (HTTPS_PROXY) may have any address.
func (a Allowance) route(field string, server *url.URL) (proxyFunc, dialFunc) {
	if own, err := fromEnvironment(&http.Request{URL: server}); err == nil && own != nil {
		return fromEnvironment, a.dialerOfProxy(field, server.Hostname())
	}
	return fromEnvironment, a.dialer(field)
}
