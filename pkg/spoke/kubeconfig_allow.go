package spoke

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Allowance is what a kubeconfig may have that is refused otherwise. All of it is
// the fleet's operator to decide: whoever may write a Secret can't.
type Allowance struct {
	// Loopback allows a server on the operator's own machine.
	Loopback bool
	// LinkLocal allows a link-local server. Clouds serve credentials at such addresses.
	LinkLocal bool
	// HTTP allows plain http.
	HTTP bool
	// InsecureTLS allows insecure-skip-tls-verify.
	InsecureTLS bool
	// ProxyURL allows proxy-url.
	ProxyURL bool
}

// The names by which people allow something.
const (
	allowLoopback    = "loopback"
	allowLinkLocal   = "link-local"
	allowHTTP        = "http"
	allowInsecureTLS = "insecure-tls"
	allowProxyURL    = "proxy-url"
)

// ParseAllowance reads an Allowance as it is written in the flag: names between commas.
func ParseAllowance(text string) (Allowance, error) {
	var a Allowance
	names := map[string]*bool{
		allowLoopback: &a.Loopback, allowLinkLocal: &a.LinkLocal, allowHTTP: &a.HTTP,
		allowInsecureTLS: &a.InsecureTLS, allowProxyURL: &a.ProxyURL,
	}
	if strings.TrimSpace(text) == "" {
		return a, nil
	}
	for name := range strings.SplitSeq(text, ",") {
		allow, known := names[strings.TrimSpace(name)]
		if !known {
			return Allowance{}, fmt.Errorf("%q is none of %s", name, strings.Join(slices.Sorted(maps.Keys(names)), ", "))
		}
		*allow = true
	}
	return a, nil
}

// orAllow says how to allow what was refused.
func orAllow(name string) string {
	return "; where it is meant to be so, start the operator with --allow-kubeconfig=" + name
}
