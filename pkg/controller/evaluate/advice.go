package evaluate

import (
	"slices"
	"strings"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/evaluator"
	"github.com/rulefleet/rulefleet/pkg/rule"
)

const (
	checkPath = "Check in namespace {namespace} of the spoke that the pods of the {kind} are ready, and that no firewall or NetworkPolicy keeps the API server from reaching them"
	checkPods = "Check the pods of the {kind} and their logs in namespace {namespace} of the spoke"
	noLogin   = "Rulefleet does not support a login. Rules are verified only up to Selected. To verify more, set {url} to an address without a login that only the hub can reach, including any path prefix"
	checkLoad = "Check the load and the log of the {kind}"
	noProxy   = "Set {url} to an address at which the {kind} itself answers"
	// Rulefleet asks again at each poll.
	keepsChanging = "If this lasts, find out what changes the rules of the {kind} so often"

	checkURL = "Check the {kind} at the address in {url}, and any proxy in front of it"
)

// The advice depends on who answered: the spoke's API server, a server behind it, or the server at a configured
// address. A kind is left out if the error itself says what to do.
var (
	adviceOnAPIServer = map[evaluator.Kind]string{
		evaluator.Unauthorized: "Put a kubeconfig with a valid credential into the Secret",
		evaluator.NotFound:     "Check in namespace {namespace} of the spoke that the Service exists and that the pods of the {kind} are ready",
		evaluator.Throttled:    "Find out what overloads the spoke's API server",
		evaluator.Unavailable:  checkPath,
	}
	adviceBehindAPIServer = map[evaluator.Kind]string{
		evaluator.Unreachable:    checkPods,
		evaluator.Unauthorized:   noLogin,
		evaluator.Forbidden:      noLogin,
		evaluator.Throttled:      "Find out what overloads the spoke's API server, or the proxy in front of the {kind}", // a Prometheus does not throttle
		evaluator.Unavailable:    checkPods,
		evaluator.Rejected:       checkLoad,
		evaluator.NotAnEvaluator: noProxy,
		evaluator.Changing:       keepsChanging,
	}
	adviceByURL = map[evaluator.Kind]string{
		evaluator.Unreachable:    "Check {url}, and that the hub can reach the {kind} there",
		evaluator.Unauthorized:   noLogin,
		evaluator.Forbidden:      noLogin,
		evaluator.NotFound:       "Check the path in {url}",
		evaluator.Throttled:      checkURL,
		evaluator.Unavailable:    checkURL,
		evaluator.Rejected:       checkLoad,
		evaluator.NotAnEvaluator: noProxy,
		evaluator.Changing:       keepsChanging,
	}
)

// advice says what to do about an evaluator that can't be queried, as a sentence to append to the error. It is
// empty if the error says it already.
func advice(c *rule.Cluster, e *rule.Evaluator, fault *evaluator.Error) string {
	if fault == nil {
		return ""
	}
	advices := adviceBehindAPIServer
	switch {
	case hasURL(c, e):
		advices = adviceByURL
	case fault.FromAPIServer:
		advices = adviceOnAPIServer
	}
	text, known := advices[fault.Kind]
	if !known {
		return ""
	}
	return ". " + strings.NewReplacer(
		"{kind}", e.Kind, "{namespace}", e.Namespace, "{url}", "spec.evaluatorRefs[].url of SpokeCluster "+c.Name,
	).Replace(text)
}

// hasURL reports whether the spec of the spoke has the address of an evaluator.
func hasURL(c *rule.Cluster, e *rule.Evaluator) bool {
	return slices.ContainsFunc(c.EvaluatorRefs, func(r v1alpha1.EvaluatorReference) bool {
		return r.URL != "" && r.Kind == e.Kind && string(r.Namespace) == e.Namespace && r.Name == e.Name
	})
}
