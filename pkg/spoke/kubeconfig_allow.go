package spoke

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Allowance is what a kubeconfig may have that is refused otherwise. All of it is
// the fleet's operator to decide: whoever may write a Secret can't.
type Allowance struct {
	// Loopback allows a server on the operator's own machine.
	Loopback bool
	// LinkLocal allows a link-local server, other than the metadata service of a cloud.
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

// Allowances are what the kubeconfigs of spokes may have.
type Allowances struct {
	every Allowance
	of    map[string]Allowance
}

// Of returns what the kubeconfig of a spoke may have.
func (a Allowances) Of(spoke string) Allowance {
	if own, has := a.of[spoke]; has {
		return own
	}
	return a.every
}

// ParseAllowances reads Allowances as they are written in the flag, between commas: NAME for all spokes, and
// SPOKE=NAME for one.
func ParseAllowances(text string) (Allowances, error) {
	out := Allowances{of: map[string]Allowance{}}
	if strings.TrimSpace(text) == "" {
		return out, nil
	}
	items := strings.Split(text, ",")
	// Those for all spokes come first: what a spoke has of its own comes on top.
	slices.SortStableFunc(items, func(a, b string) int { return strings.Count(a, "=") - strings.Count(b, "=") })
	for _, item := range items {
		spoke, name, one := strings.Cut(strings.TrimSpace(item), "=")
		if !one {
			if err := out.every.add(spoke); err != nil {
				return Allowances{}, err
			}
			continue
		}
		if errs := validation.IsDNS1123Subdomain(spoke); len(errs) > 0 {
			return Allowances{}, fmt.Errorf("%q is not a valid spoke name: %s", spoke, errs[0])
		}
		own := out.Of(spoke)
		if err := own.add(name); err != nil {
			return Allowances{}, err
		}
		out.of[spoke] = own
	}
	return out, nil
}

// add allows what has a name.
func (a *Allowance) add(name string) error {
	names := map[string]*bool{
		allowLoopback: &a.Loopback, allowLinkLocal: &a.LinkLocal, allowHTTP: &a.HTTP,
		allowInsecureTLS: &a.InsecureTLS, allowProxyURL: &a.ProxyURL,
	}
	allow, known := names[name]
	if !known {
		return fmt.Errorf("%q is not a known allowance; use one of %s", name, strings.Join(slices.Sorted(maps.Keys(names)), ", "))
	}
	*allow = true
	return nil
}

// orAllow says how to allow what was refused.
func orAllow(name string) string {
	return fmt.Sprintf("; if this is intended, start the operator with --allow-kubeconfig=%s, or --allow-kubeconfig=SPOKE=%[1]s for one spoke only", name)
}
