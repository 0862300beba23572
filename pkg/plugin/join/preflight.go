package join

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/plugin/advice"
	"github.com/rulefleet/rulefleet/pkg/plugin/cluster"
	"github.com/rulefleet/rulefleet/pkg/plugin/exit"
)

const (
	admissionGroup  = "admissionregistration.k8s.io"
	rbacGroup       = "rbac.authorization.k8s.io"
	monitoringGroup = "monitoring.coreos.com"
)

// resources are the resources of the objects in spoke-access.yaml and spoke-policy.yaml.
var resources = map[string]struct{ group, name string }{
	kindNamespace:        {"", "namespaces"},
	"ServiceAccount":     {"", "serviceaccounts"},
	kindClusterRole:      {rbacGroup, "clusterroles"},
	"ClusterRoleBinding": {rbacGroup, "clusterrolebindings"},
	kindRole:             {rbacGroup, "roles"},
	"RoleBinding":        {rbacGroup, "rolebindings"},

	kindPolicy:                         {admissionGroup, "validatingadmissionpolicies"},
	"ValidatingAdmissionPolicyBinding": {admissionGroup, "validatingadmissionpolicybindings"},
}

// readIdentity is the right to recognize the spoke.
var readIdentity = cluster.Right{Verb: "get", Resource: "namespaces", Name: "kube-system"}

// rightsOn adds rights on objects of the account or its policy to others.
func rightsOn(out []cluster.Right, objects []*unstructured.Unstructured, verbs ...string) []cluster.Right {
	for _, o := range objects {
		r := resources[o.GetKind()]
		for _, verb := range verbs {
			right := cluster.Right{Verb: verb, Group: r.group, Resource: r.name, Namespace: o.GetNamespace(), Name: o.GetName()}
			if verb == "create" {
				right.Name = "" // RBAC does not know the name then
			}
			if !slices.Contains(out, right) {
				out = append(out, right)
			}
		}
	}
	return out
}

// revocationRights returns the rights that the person needs in the spoke to delete the account. Without that to delete
// Secrets, the tokens are revoked with the ServiceAccount.
func revocationRights(objects []*unstructured.Unstructured) []cluster.Right {
	out := []cluster.Right{readIdentity, {Verb: "list", Group: monitoringGroup, Resource: "prometheusrules"}}
	return rightsOn(out, objects, "delete")
}

// spokeRights returns the rights that the person needs in the spoke.
func spokeRights(apply, remove []*unstructured.Unstructured, static bool) []cluster.Right {
	out := []cluster.Right{readIdentity}
	for _, o := range apply {
		verbs := []string{"get", "create", "patch"}
		if o.GetKind() == kindNamespace {
			verbs = verbs[:2]
		}
		out = rightsOn(out, []*unstructured.Unstructured{o}, verbs...)
	}
	out = rightsOn(out, remove, "delete")
	name := account
	if !static {
		name = boundSecret
		out = append(out, cluster.Right{Verb: "create", Resource: "serviceaccounts", Subresource: "token", Namespace: cluster.DefaultNamespace, Name: account})
	}
	for _, right := range []cluster.Right{{Verb: "get", Name: name}, {Verb: "create"}, {Verb: "patch", Name: name}} {
		right.Resource, right.Namespace = "secrets", cluster.DefaultNamespace
		out = append(out, right)
	}
	return out
}

// hubRights returns the rights that the person needs on the hub.
func hubRights(namespace, name string, spec bool) []cluster.Right {
	out := []cluster.Right{
		{Verb: "get", Resource: "secrets", Namespace: namespace, Name: name},
		{Verb: "create", Resource: "secrets", Namespace: namespace},
		{Verb: "patch", Resource: "secrets", Namespace: namespace, Name: name},
		{Verb: "list", Group: v1alpha1.Group, Resource: "spokeclusters"},
		{Verb: "get", Group: v1alpha1.Group, Resource: "spokeclusters", Name: name},
	}
	if spec {
		out = append(out, cluster.Right{Verb: "create", Group: v1alpha1.Group, Resource: "spokeclusters"},
			cluster.Right{Verb: "patch", Group: v1alpha1.Group, Resource: "spokeclusters", Name: name})
	}
	return out
}

// onHub says where a permission is missing.
const onHub = "on the hub"

// permit fails if the person lacks rights in a cluster.
func permit(ctx context.Context, c client.Client, where string, rights []cluster.Right) error {
	lacking, err := cluster.Lacking(ctx, c, rights)
	if err != nil {
		return fmt.Errorf("%s: %w", where, err)
	}
	return cluster.Denied(where, lacking)
}

// permitGrants fails if the person may not grant the account its rights.
func permitGrants(ctx context.Context, c client.Client, where string, granted []cluster.Right) error {
	lacking, err := cluster.LackingGrants(ctx, c, granted)
	if err != nil {
		return fmt.Errorf("%s: %w", where, err)
	}
	return cluster.Denied(where, lacking)
}

// identity returns the UID of the spoke's namespace kube-system, by which the hub recognizes the cluster.
func identity(ctx context.Context, c client.Client) (string, error) {
	var ns corev1.Namespace
	if err := c.Get(ctx, client.ObjectKey{Name: "kube-system"}, &ns); err != nil {
		return "", fmt.Errorf("reading the identity of the spoke: %w", err)
	}
	return string(ns.UID), nil
}

// checkIdentity refuses a cluster that is registered under another name, and a name that another cluster
// has.
func checkIdentity(name, uid string, spokes []v1alpha1.SpokeCluster) error {
	for i := range spokes {
		s := &spokes[i]
		switch {
		case s.Status.Identity == "":
		case s.Name == name && s.Status.Identity != uid:
			return exit.New(exit.Failed, "If this is another cluster, choose another name. If it replaces the cluster of spoke "+name+": "+advice.Docs+"docs/how-to/manage-spokes.md#replace-a-cluster-under-the-same-name",
				"spoke %s is another cluster: the UID of its namespace kube-system is %s, and here it is %s", name, s.Status.Identity, uid)
		case s.Name != name && s.Status.Identity == uid:
			return exit.New(exit.Failed, "To renew its credential, join it as "+s.Name+". To rename it: "+advice.Docs+"docs/how-to/manage-spokes.md#rename-a-spoke",
				"this cluster is registered already, as spoke %s", s.Name)
		}
	}
	return nil
}

// servesPolicies reports whether a spoke serves ValidatingAdmissionPolicies.
func servesPolicies(c client.Client) (bool, error) {
	_, err := c.RESTMapper().RESTMapping(schema.GroupKind{Group: admissionGroup, Kind: kindPolicy}, "v1")
	if meta.IsNoMatchError(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading which kinds the spoke serves: %w", err)
	}
	return true, nil
}

// checkServer refuses an address that cannot be that of an API server, and warns of one that the hub will not use.
func checkServer(server string) (warning string, err error) {
	u, err := url.Parse(server)
	if err != nil || u.Hostname() == "" || u.Scheme != "https" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return "", exit.New(exit.Usage, "Set it with --server https://HOST:PORT.", "%q is not the address of an API server", server)
	}
	ip := net.ParseIP(u.Hostname())
	if u.Hostname() == "localhost" || ip != nil && (ip.IsLoopback() || ip.IsLinkLocalUnicast() || ip.IsUnspecified()) {
		return fmt.Sprintf("The hub's pods cannot reach %s. Set the address at which they reach the spoke: --server https://HOST:PORT", server), nil
	}
	return "", nil
}
