package spoke

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

// embedding are the prefixes of IPv6 whose last four bytes are an address of IPv4 that
// the network leads to: IPv4-compatible addresses, and those of NAT64 and DNS64.
var embedding = []netip.Prefix{netip.MustParsePrefix("::/96"), netip.MustParsePrefix("64:ff9b::/96")}

// thisNetwork leads to the machine itself, as its first address does.
var thisNetwork = netip.MustParsePrefix("0.0.0.0/8")

// fromEnvironment is the proxy that the operator itself was told to use.
var fromEnvironment = utilnet.NewProxierWithNoProxyCIDR(http.ProxyFromEnvironment)

// checkHost looks at the host of a URL as it is written. What a name leads to shows
// when it is dialed.
func (a Allowance) checkHost(field, host string) error {
	if addr, err := netip.ParseAddr(host); err == nil {
		return a.checkAddr(field, addr)
	}
	name := strings.TrimSuffix(strings.ToLower(host), ".")
	labels := strings.Split(name, ".")
	last := labels[len(labels)-1]
	switch {
	case strings.ContainsFunc(name, func(r rune) bool { return r > unicode.MaxASCII || r == '%' || unicode.IsSpace(r) }):
		// Some of it would become ASCII on its way to the resolver: full-width digits do.
		return refuse(field, "has a host that is not plain ASCII; write it so, a name as xn--…")
	case last == "localhost" && !a.Loopback:
		return refuse(field, "is a loopback address, which leads to the operator itself; give the spoke's own address"+orAllow(allowLoopback))
	case isNumber(last):
		// Resolvers take 127.1, 0x7f.1 and 2130706433 for addresses.
		return refuse(field, "has an address in a form that is not accepted; write it as four decimal numbers, or IPv6 in brackets")
	}
	return nil
}

// isNumber tells whether a label is a number, in any way that resolvers know.
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

// checkAddr refuses addresses that lead to the operator itself, or to what its machine
// alone can reach.
func (a Allowance) checkAddr(field string, addr netip.Addr) error {
	zone := addr.Zone() != ""
	addr = addr.Unmap().WithZone("")
	within := func(p netip.Prefix) bool { return p.Contains(addr) }
	// ::1 and :: are within one of the prefixes, and stay what they are.
	if !addr.IsLoopback() && !addr.IsUnspecified() && slices.ContainsFunc(embedding, within) {
		b := addr.As16()
		addr = netip.AddrFrom4([4]byte(b[12:]))
	}
	switch {
	case !a.Loopback && (addr.IsLoopback() || addr.IsUnspecified() || thisNetwork.Contains(addr)):
		return refuse(field, "is a loopback address, which leads to the operator itself; give the spoke's own address"+orAllow(allowLoopback))
	case !a.LinkLocal && (zone || addr.IsLinkLocalUnicast() || addr.IsLinkLocalMulticast() || addr.IsInterfaceLocalMulticast()):
		return refuse(field, "is a link-local address, by which clouds serve their credentials; give an address that is routed"+orAllow(allowLinkLocal))
	}
	return nil
}

// dialer connects to addresses that are allowed, whichever way a name led there, and
// tells of others as of a fault of that field.
func (a Allowance) dialer(field string) dialFunc {
	d := newDialer()
	d.Control = func(_, address string, _ syscall.RawConn) error {
		ap, err := netip.ParseAddrPort(address)
		if err != nil {
			return refuse(field, "leads to what is no address")
		}
		return a.checkAddr(field, ap.Addr())
	}
	return d.DialContext
}

// newDialer has client-go's settings.
func newDialer() *net.Dialer {
	return &net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}
}

// route says how a server is reached: by which proxy, and what connects to that, or to
// the server. The operator's own proxy (HTTPS_PROXY) may be anywhere, and it is the one
// that resolves the server's name then.
func (a Allowance) route(server, proxy *url.URL) (proxyFunc, dialFunc) {
	if proxy != nil {
		return http.ProxyURL(proxy), a.dialer(fieldProxy)
	}
	if own, err := fromEnvironment(&http.Request{URL: server}); err == nil && own != nil {
		return fromEnvironment, newDialer().DialContext
	}
	return fromEnvironment, a.dialer(fieldServer)
}
