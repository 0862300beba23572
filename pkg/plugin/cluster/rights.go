package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Right is the permission for a request.
type Right struct {
	Verb, Group, Resource, Subresource string
	// Namespace is empty for cluster-scoped objects, and for all namespaces.
	Namespace string
	// Name is empty for all names.
	Name string
}

// String returns the right in the words of RBAC.
func (r Right) String() string {
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
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: r.Verb, Group: r.Group, Resource: r.Resource, Subresource: r.Subresource, Namespace: r.Namespace, Name: r.Name,
			},
		}}
		if err := c.Create(ctx, review); err != nil {
			return nil, fmt.Errorf("asking whether you may %s: %w", r, err)
		}
		if !review.Status.Allowed {
			out = append(out, r)
		}
	}
	return out, nil
}

// RightsOf returns the rights that rules of a ClusterRole grant, one by one.
func RightsOf(rules []rbacv1.PolicyRule) []Right {
	var out []Right
	for i := range rules {
		rule := &rules[i]
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
