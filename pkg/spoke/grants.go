package spoke

import (
	"context"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// need is a verb that the operator has to be granted in a spoke.
type need struct {
	verb     string
	resource schema.GroupResource
}

// What the operator needs in a spoke: to read workloads, without which it
// can do nothing, and to read and write rules.
var (
	readsWorkloads = append(needs("apps", "deployments", "get", "list", "watch"), needs("", "namespaces", "get", "list", "watch")...)
	readsRules     = needs(ruleKind.Group, "prometheusrules", "get", "list", "watch")
	writesRules    = needs(ruleKind.Group, "prometheusrules", "create", "update", "delete")
)

func needs(group, resource string, verbs ...string) []need {
	out := make([]need, 0, len(verbs))
	for _, verb := range verbs {
		out = append(out, need{verb: verb, resource: schema.GroupResource{Group: group, Resource: resource}})
	}
	return out
}

// grants are what a spoke says that the operator's account may do there.
type grants struct {
	// known is false where the spoke does not say all.
	known bool
	// missing is what the operator needs and is not granted.
	missing []need
}

// grantError says what a spoke's account is not granted.
type grantError struct{ missing []need }

// Error implements error.
func (e *grantError) Error() string {
	words := make([]string, 0, len(e.missing))
	for _, n := range e.missing {
		words = append(words, n.verb+" "+n.resource.String())
	}
	return "the operator's account in the spoke lacks permissions: " + strings.Join(words, ", ") + "; add them to its ClusterRole in the spoke"
}

// lack tells whether any of some needs is missing. Then the error names all that is
// missing, so that it can be granted in one go.
func (g grants) lack(some []need) error {
	if slices.ContainsFunc(g.missing, func(n need) bool { return slices.Contains(some, n) }) {
		return &grantError{missing: g.missing}
	}
	return nil
}

// writes tells whether rules may be written.
func (g grants) writes() Finding {
	if err := g.lack(writesRules); err != nil {
		return Finding{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonForbidden, Message: Clip(err.Error(), maxMessage)}
	}
	return Finding{}
}

// noNamespace is asked about, so that only what is granted for all namespaces counts. It
// need not exist, and should not.
const noNamespace = "rulefleet-no-such-namespace"

// review asks the spoke what the operator's account may do there. It takes one request,
// and changes nothing. The error is the lack of an answer.
func (c *connection) review(ctx context.Context) (grants, error) {
	ctx, cancel := c.patient(ctx)
	defer cancel()
	review, err := c.reviews.Create(ctx, &authorizationv1.SelfSubjectRulesReview{
		Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: noNamespace},
	}, metav1.CreateOptions{})
	switch {
	case err == nil:
		return granted(&review.Status), nil
	case answered(err):
		return grants{}, nil // it does not say
	}
	return grants{}, fmt.Errorf("reading the account's permissions: %w", err)
}

// granted reads what an account may do. What is listed is granted, even where the list
// does not say all, as with an authorizer that can't tell.
func granted(s *authorizationv1.SubjectRulesReviewStatus) grants {
	var missing []need
	for _, n := range slices.Concat(readsWorkloads, readsRules, writesRules) {
		if !slices.ContainsFunc(s.ResourceRules, func(r authorizationv1.ResourceRule) bool { return n.in(&r) }) {
			missing = append(missing, n)
		}
	}
	if len(missing) > 0 && (s.Incomplete || len(s.ResourceRules) == 0) {
		return grants{}
	}
	return grants{known: true, missing: missing}
}

// in tells whether a rule grants a need, for all objects.
func (n need) in(r *authorizationv1.ResourceRule) bool {
	has := func(list []string, what string) bool {
		return slices.Contains(list, what) || slices.Contains(list, "*")
	}
	return len(r.ResourceNames) == 0 && has(r.Verbs, n.verb) && has(r.APIGroups, n.resource.Group) && has(r.Resources, n.resource.Resource)
}
