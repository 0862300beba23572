package kubeconfig

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Allowance lists features of a kubeconfig that are refused by default. The administrator of the hub allows
// them; write access to a Secret is not enough.
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

// The names of the allowances in the flag.
const (
	allowLoopback    = "loopback"
	allowLinkLocal   = "link-local"
	allowHTTP        = "http"
	allowInsecureTLS = "insecure-tls"
	allowProxyURL    = "proxy-url"
)

// Allowances are the allowances of all spokes.
type Allowances struct {
	every Allowance
	of    map[string]Allowance
}

// Of returns the allowance of a spoke.
func (a Allowances) Of(spoke string) Allowance {
	if own, has := a.of[spoke]; has {
		return own
	}
	return a.every
}

// ParseAllowances parses the flag, a comma-separated list: NAME for all spokes, SPOKE=NAME for one.
func ParseAllowances(text string) (Allowances, error) {
	out := Allowances{of: map[string]Allowance{}}
	if strings.TrimSpace(text) == "" {
		return out, nil
	}
	items := strings.Split(text, ",")
	// Those for all spokes come first, because a spoke's own are added to them.
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

// add allows the feature with this name.
func (a *Allowance) add(name string) error {
	names := map[string]*bool{
		allowLoopback: &a.Loopback, allowLinkLocal: &a.LinkLocal, allowHTTP: &a.HTTP,
		allowInsecureTLS: &a.InsecureTLS, allowProxyURL: &a.ProxyURL,
	}
	allow, known := names[name]
	if !known {
		return fmt.Errorf("%q is not a feature that can be allowed; use one of %s", name, strings.Join(slices.Sorted(maps.Keys(names)), ", "))
	}
	*allow = true
	return nil
}

// orAllow says how to allow a refused feature.
func orAllow(name string) string {
	return fmt.Sprintf("; if this is intended, allow it for this spoke with the chart value allowKubeconfigOfSpokes, {SPOKE: [%s]} (--allow-kubeconfig=SPOKE=%[1]s)", name)
}
