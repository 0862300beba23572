package rule

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// Tenant is a namespace of the hub with AlertRules, outside of the operator's own two.
type Tenant struct {
	Name string
	// Labels and Created are those of the Namespace. They are only known where ByTenantLabels needs them.
	Labels  map[string]string
	Created time.Time
}

// PlatformNamespace reports whether a namespace of the hub is part of the platform. Spokes take its AlertRules only
// if spec.tenants names it.
func PlatformNamespace(name string) bool {
	return strings.HasPrefix(name, "kube-") || strings.HasPrefix(name, "openshift-") || name == "openshift"
}

// Takes reports whether the spoke takes AlertRules of the tenant in question. It returns an error for an invalid
// selector.
func (c *Cluster) Takes() (bool, error) {
	if c.Tenant == nil {
		return true, nil
	}
	if !c.ByTenantLabels(c.Tenant.Name) {
		return c.names(c.Tenant.Name) || c.Tenants == nil && !PlatformNamespace(c.Tenant.Name), nil
	}
	selector, err := SelectorOf(c.Tenants.Selector)
	return err == nil && selector.Matches(labels.Set(c.Tenant.Labels)), err
}

// ByTenantLabels reports whether the labels of a namespace of the hub decide whether the spoke takes its AlertRules.
func (c *Cluster) ByTenantLabels(namespace string) bool {
	return c.Tenants != nil && c.Tenants.Selector != nil && !c.names(namespace) && !PlatformNamespace(namespace)
}

func (c *Cluster) names(namespace string) bool {
	return c.Tenants != nil && slices.Contains(c.Tenants.Names, v1alpha1.NamespaceName(namespace))
}

// DefaultMinInterval is the default of Tenancy.MinInterval.
const DefaultMinInterval = 5 * time.Second

// Tenancy has the settings of the hub for tenants, which are the authors of AlertRules outside of the
// operator's two namespaces.
type Tenancy struct {
	// ProtectedLabels are labels of alerts, in addition to namespace, that AlertRules outside of the admin
	// namespace cannot have, whether they set them or their series have them.
	ProtectedLabels []string
	// MinInterval is the minimum of spec.interval for tenants.
	MinInterval time.Duration
	// EnforceNamespace restricts the expressions of tenants to series of their own namespace.
	EnforceNamespace bool
}
