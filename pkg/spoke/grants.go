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

// need is a permission that the operator needs in a spoke.
type need struct {
	verb     string
	resource schema.GroupResource
}

// The permissions that the operator needs in a spoke: to read Deployments and namespaces, without which it can't
// work, and to read and write rules. Of the other kinds of workloads, it needs to read those that templates name.
var (
	readsWorkloads = append(reads(v1alpha1.DeploymentKind), needs("", "namespaces", "get", "list", "watch")...)
	readsRules     = needs(ruleKind.Group, "prometheusrules", "get", "list", "watch")
	writesRules    = needs(ruleKind.Group, "prometheusrules", "create", "update", "delete")
)

// reads are the permissions that the operator needs to read workloads of a kind.
func reads(kind v1alpha1.WorkloadKind) []need {
	return needs(WorkloadMetadata(kind).GroupVersionKind().Group, WorkloadResource(kind), "get", "list", "watch")
}

func needs(group, resource string, verbs ...string) []need {
	out := make([]need, 0, len(verbs))
	for _, verb := range verbs {
		out = append(out, need{verb: verb, resource: schema.GroupResource{Group: group, Resource: resource}})
	}
	return out
}

// grants are the permissions of the operator's account, as the spoke reports them.
type grants struct {
	// known is false if the spoke's report is incomplete.
	known bool
	// missing are the permissions that the operator lacks.
	missing []need
}

// grantError says which permissions a spoke's account lacks.
type grantError struct {
	missing []need
	// refusal is the answer that was refused for that reason, if there was one.
	refusal error
}

// Unwrap returns the refusal.
func (e *grantError) Unwrap() error { return e.refusal }

// Error implements error.
func (e *grantError) Error() string {
	var words []string
	for i, n := range e.missing { // those of a resource follow each other
		verbs := n.verb
		if i > 0 && e.missing[i-1].resource == n.resource {
			last := len(words) - 1
			verbs, _, _ = strings.Cut(words[last], " ")
			verbs, words = verbs+"/"+n.verb, words[:last]
		}
		words = append(words, verbs+" "+n.resource.String())
	}
	return "Rulefleet's account in the spoke lacks permissions: " + strings.Join(words, ", ") + "; run kubectl rulefleet join again with the same options, or apply charts/rulefleet/files/spoke-access.yaml of this version there" +
		" (with -l 'app.kubernetes.io/component notin (evaluate, renew)' to leave out the optional permissions)"
}

// lack returns an error if any of some needs is missing. The error names all missing permissions, so that they
// can be granted together.
func (g grants) lack(some []need) error {
	if slices.ContainsFunc(g.missing, func(n need) bool { return slices.Contains(some, n) }) {
		return &grantError{missing: g.missing}
	}
	return nil
}

// writes says whether rules may be written.
func (g grants) writes() Finding {
	if err := g.lack(writesRules); err != nil {
		return Finding{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonForbidden, Message: Clip(err.Error(), MaxMessage)}
	}
	return Finding{}
}

// noNamespace is the namespace of the review. It should not exist, so that only cluster-wide permissions
// count.
const noNamespace = "rulefleet-no-such-namespace"

// review asks the spoke for the permissions of the operator's account. It takes one request and changes
// nothing. The error means that there was no answer.
func (c *connection) review(ctx context.Context, kinds []v1alpha1.WorkloadKind) (grants, error) {
	ctx, cancel := c.patient(ctx)
	defer cancel()
	review, err := c.reviews.Create(ctx, &authorizationv1.SelfSubjectRulesReview{
		Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: noNamespace},
	}, metav1.CreateOptions{})
	switch {
	case err == nil:
		return granted(&review.Status, kinds), nil
	case answered(err):
		return grants{}, nil // unknown
	}
	return grants{}, fmt.Errorf("reading the account's permissions: %w", err)
}

// granted evaluates the report. kinds are the kinds of workloads, beside Deployments, that templates name. Listed
// permissions are granted even if the report is incomplete, as with an authorizer that can't list its rules.
func granted(s *authorizationv1.SubjectRulesReviewStatus, kinds []v1alpha1.WorkloadKind) grants {
	var missing []need
	wanted := slices.Concat(readsWorkloads, readsRules, writesRules)
	for _, kind := range kinds {
		wanted = append(wanted, reads(kind)...)
	}
	for _, n := range wanted {
		if !slices.ContainsFunc(s.ResourceRules, func(r authorizationv1.ResourceRule) bool { return n.in(&r) }) {
			missing = append(missing, n)
		}
	}
	if len(missing) > 0 && (s.Incomplete || len(s.ResourceRules) == 0) {
		return grants{}
	}
	return grants{known: true, missing: missing}
}

// in reports whether a rule grants a need for all objects.
func (n need) in(r *authorizationv1.ResourceRule) bool {
	has := func(list []string, what string) bool {
		return slices.Contains(list, what) || slices.Contains(list, "*")
	}
	return len(r.ResourceNames) == 0 && has(r.Verbs, n.verb) && has(r.APIGroups, n.resource.Group) && has(r.Resources, n.resource.Resource)
}
