package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/pkg/plugin/exit"
)

// Right is the permission for a request.
type Right struct {
	Verb, Group, Resource, Subresource string
	// Namespace is empty for cluster-scoped objects, and for all namespaces.
	Namespace string
	// Name is empty for all names.
	Name string
	// Path is a path that is not of a resource, such as /metrics. The other fields but Verb are empty then.
	Path string
}

// String returns the right in the words of RBAC.
func (r Right) String() string {
	if r.Path != "" {
		return r.Verb + " " + r.Path
	}
	out := r.Verb + " " + r.Resource
	if r.Subresource != "" {
		out += "/" + r.Subresource
	}
	if r.Group != "" {
		out += "." + r.Group
	}
	if r.Name != "" {
		out += " " + r.Name
	}
	if r.Namespace != "" {
		out += " in namespace " + r.Namespace
	}
	return out
}

// Lacking returns those of the rights that the user of a client does not have, as the API server reports
// them to the user (SelfSubjectAccessReview). Nothing is stored.
func Lacking(ctx context.Context, c client.Client, rights []Right) ([]Right, error) {
	var out []Right
	for _, r := range rights {
		review := &authorizationv1.SelfSubjectAccessReview{}
		if r.Path != "" {
			review.Spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Verb: r.Verb, Path: r.Path}
		} else {
			review.Spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
				Verb: r.Verb, Group: r.Group, Resource: r.Resource, Subresource: r.Subresource, Namespace: r.Namespace, Name: r.Name,
			}
		}
		if err := c.Create(ctx, review); err != nil {
			return nil, fmt.Errorf("asking whether you may %s: %w", r, err)
		}
		if !review.Status.Allowed {
			out = append(out, r)
		}
	}
	return out, nil
}

// LackingGrants returns those of the rights that the user of a client may not grant to others. A user can only
// grant what they have, unless the verbs escalate and bind are allowed, in the namespace or in the cluster.
func LackingGrants(ctx context.Context, c client.Client, granted []Right) ([]Right, error) {
	waived := map[string]bool{} // by namespace
	var needed []Right
	for _, r := range granted {
		if _, asked := waived[r.Namespace]; !asked {
			waiver := Right{Verb: "escalate", Group: rbacv1.GroupName, Resource: "clusterroles"}
			if r.Namespace != "" {
				waiver.Resource, waiver.Namespace = "roles", r.Namespace
			}
			bind := waiver
			bind.Verb = "bind"
			lacking, err := Lacking(ctx, c, []Right{waiver, bind})
			if err != nil {
				return nil, err
			}
			waived[r.Namespace] = len(lacking) == 0
		}
		if !waived[r.Namespace] {
			needed = append(needed, r)
		}
	}
	return Lacking(ctx, c, needed)
}

// maxLines is how many resources Denied lists. An installation with the default values needs fewer.
const maxLines = 40

// Denied returns an error that names the rights that a person lacks in a cluster, or nil if there are none.
func Denied(where string, lacking []Right) error {
	const ask = "Ask an administrator of that cluster for these permissions, or to run the command. Nothing was changed."
	switch len(lacking) {
	case 0:
		return nil
	case 1:
		return exit.New(exit.Denied, ask, "you lack permissions %s: %s", where, Words(lacking))
	}
	lines := byResource(lacking)
	if len(lines) > maxLines {
		lines = append(lines[:maxLines:maxLines], "…")
	}
	return exit.New(exit.Denied, "  "+strings.Join(lines, "\n  ")+"\n"+ask, "you lack permissions %s:", where)
}

// RightsOf returns the rights that rules of a ClusterRole grant, one by one.
func RightsOf(rules []rbacv1.PolicyRule) []Right {
	var out []Right
	for i := range rules {
		rule := &rules[i]
		for _, path := range rule.NonResourceURLs {
			for _, verb := range rule.Verbs {
				out = append(out, Right{Verb: verb, Path: path})
			}
		}
		names := rule.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				resource, sub, _ := strings.Cut(resource, "/")
				for _, name := range names {
					for _, verb := range rule.Verbs {
						out = append(out, Right{Verb: verb, Group: group, Resource: resource, Subresource: sub, Name: name})
					}
				}
			}
		}
	}
	return out
}

// Grants returns the rights that the Roles and ClusterRoles among some objects grant, each once.
func Grants(objects []*unstructured.Unstructured) ([]Right, error) {
	var out []Right
	for _, o := range objects {
		if o.GetKind() != "Role" && o.GetKind() != "ClusterRole" {
			continue
		}
		var role rbacv1.ClusterRole // a Role has the same rules
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &role); err != nil {
			return nil, fmt.Errorf("reading %s %s: %w", o.GetKind(), o.GetName(), err)
		}
		for _, right := range RightsOf(role.Rules) {
			right.Namespace = o.GetNamespace()
			if !slices.Contains(out, right) {
				out = append(out, right)
			}
		}
	}
	return out, nil
}

// Without returns the rights of one list that are not in another.
func Without(rights, others []Right) []Right {
	return slices.DeleteFunc(slices.Clone(rights), func(r Right) bool { return slices.Contains(others, r) })
}

// Words joins rights for a message.
func Words(rights []Right) string {
	out := make([]string, len(rights))
	for i, r := range rights {
		out[i] = r.String()
	}
	return strings.Join(out, ", ")
}

// byResource returns a line for each resource: the verbs for all names of objects, and then those for some.
func byResource(rights []Right) []string {
	var resources []Right
	of := map[Right][]Right{} // a resource, and then an object for each verb
	for _, r := range rights {
		resource := r
		resource.Verb, resource.Name = "", ""
		if len(of[resource]) == 0 {
			resources = append(resources, resource)
		}
		of[resource] = append(of[resource], r)
	}
	out := make([]string, len(resources))
	for i, resource := range resources {
		out[i] = strings.TrimSpace(resource.String()) + ": " + strings.Join(verbsOf(of[resource]), "; ")
	}
	return out
}

// verbsOf returns the verbs of the rights on a resource, with the names of objects that have the same verbs.
func verbsOf(rights []Right) []string {
	var names []string
	verbs := map[string][]string{}
	for _, r := range rights {
		if len(verbs[r.Name]) == 0 {
			names = append(names, r.Name)
		}
		verbs[r.Name] = append(verbs[r.Name], r.Verb)
	}
	slices.Sort(names) // those for all names come first
	var out []string
	before := ""
	for _, name := range names {
		words := strings.Join(verbs[name], ", ")
		if name != "" && words == before {
			out[len(out)-1] += ", " + name
			continue
		}
		before = words
		if name == "" {
			before = "" // the next ones are about some objects
		}
		out = append(out, strings.TrimSpace(words+" "+name))
	}
	return out
}
