package join

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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

// candidate is a Prometheus or ThanosRuler that could evaluate the rules.
type candidate struct{ kind, namespace, name string }

func (c candidate) String() string {
	if c.kind == "Prometheus" {
		return c.namespace + "/" + c.name
	}
	return c.kind + "/" + c.namespace + "/" + c.name
}

// candidates lists the Prometheus and ThanosRulers of a spoke that select rules. served is false if the spoke
// does not serve PrometheusRules.
func candidates(ctx context.Context, c client.Client) (out []candidate, served bool, err error) {
	_, err = c.RESTMapper().RESTMapping(schema.GroupKind{Group: monitoringGroup, Kind: "PrometheusRule"}, "v1")
	if served = err == nil; err != nil && !meta.IsNoMatchError(err) {
		return nil, false, fmt.Errorf("reading which kinds the spoke serves: %w", err)
	}
	for _, kind := range []string{"Prometheus", "ThanosRuler"} {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(schema.GroupVersionKind{Group: monitoringGroup, Version: "v1", Kind: kind + "List"})
		err := c.List(ctx, list)
		if meta.IsNoMatchError(err) || apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
			continue // it is only for the choice, which the manager reports as well
		}
		if err != nil {
			return nil, served, fmt.Errorf("listing the %s objects of the spoke: %w", kind, err)
		}
		for i := range list.Items {
			o := &list.Items[i]
			if _, selects, _ := unstructured.NestedMap(o.Object, "spec", "ruleSelector"); selects {
				out = append(out, candidate{kind, o.GetNamespace(), o.GetName()})
			}
		}
	}
	return out, served, nil
}

// chooseAutomatically is the value of --prometheus that leaves the choice to Rulefleet.
const chooseAutomatically = "auto"

// evaluators reads --prometheus.
func evaluators(values []string) ([]v1alpha1.EvaluatorReference, error) {
	var out []v1alpha1.EvaluatorReference
	for _, value := range values {
		if value == chooseAutomatically {
			continue
		}
		parts := strings.Split(value, "/")
		if len(parts) == 2 {
			parts = append([]string{"Prometheus"}, parts...)
		}
		if len(parts) != 3 || slices.Contains(parts, "") || parts[0] != "Prometheus" && parts[0] != "ThanosRuler" {
			return nil, exit.New(exit.Usage, "", "--prometheus %q: write it as NAMESPACE/NAME, as ThanosRuler/NAMESPACE/NAME, or as %s", value, chooseAutomatically)
		}
		out = append(out, v1alpha1.EvaluatorReference{Kind: parts[0], Namespace: v1alpha1.NamespaceName(parts[1]), Name: parts[2]})
	}
	return out, nil
}

// checkChoice asks for --prometheus if the spoke has several and none is chosen, and refuses one that the
// spoke does not have. If none is known, the manager reports it.
func checkChoice(found []candidate, wanted []v1alpha1.EvaluatorReference, asked bool, present *v1alpha1.SpokeCluster) error {
	names := make([]string, len(found))
	for i, c := range found {
		names[i] = c.String()
	}
	for _, w := range wanted {
		if c := (candidate{w.Kind, string(w.Namespace), w.Name}); len(found) > 0 && !slices.Contains(found, c) {
			return exit.New(exit.Usage, "", "--prometheus %s: the spoke has no such object with a ruleSelector; it has: %s", c, strings.Join(names, ", "))
		}
	}
	if asked || len(found) < 2 || present != nil && (len(present.Spec.EvaluatorRefs) > 0 || hasChosen(present)) {
		return nil
	}
	return exit.New(exit.Usage, "Choose the one that is to evaluate the rules: --prometheus "+names[0]+". To leave it to Rulefleet, use --prometheus auto.",
		"the spoke has several Prometheus or ThanosRuler objects with a ruleSelector: %s", strings.Join(names, ", "))
}

func hasChosen(s *v1alpha1.SpokeCluster) bool {
	return slices.ContainsFunc(s.Status.Evaluators, func(e v1alpha1.Evaluator) bool { return e.Chosen })
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
