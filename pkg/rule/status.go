package rule

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// SpokeState is a registered spoke, and whether it is connected.
type SpokeState struct {
	Cluster
	// Connected, Reason and Message are the SpokeCluster's condition Connected.
	Connected metav1.ConditionStatus
	Reason    string
	Message   string
}

// StatusInput is what an AlertRule's status is derived from.
type StatusInput struct {
	// Rule is the AlertRule with its present status, which the next one is based on.
	Rule *v1alpha1.AlertRule
	// Invalid is what Validate says of it.
	Invalid *Invalid
	// Clusters are all registered spokes.
	Clusters []SpokeState
	// Verdicts are the latest rows that were reported since the operator started, by
	// the spoke's name. Any may be missing.
	Verdicts map[string]v1alpha1.ClusterStatus
	// Now is the time of whatever changes.
	Now metav1.Time
}

// Status derives an AlertRule's status. Given its own outcome as the present status
// it returns the same, at any time: with nothing new there is nothing to write.
//
// While a rule is invalid its rows stay, as what the spokes hold does: the last valid
// version. Once it is disabled it has none.
func Status(in StatusInput) v1alpha1.AlertRuleStatus {
	in.Now = in.Now.Rfc3339Copy() // what the API keeps of it
	var (
		rows    []row
		summary v1alpha1.RuleSummary
		listed  []v1alpha1.ClusterStatus
	)
	switch {
	case in.Rule.Spec.State == v1alpha1.Disabled:
		summary = summarize(nil, 0)
	case in.Invalid != nil:
		rows, summary, listed = in.lastValid()
	default:
		rows = in.rows()
		listed = in.list(rows)
		summary = summarize(rows, in.Rule.Generation)
	}
	out := v1alpha1.AlertRuleStatus{
		ObservedGeneration: in.Rule.Generation,
		Conditions:         slices.Clone(in.Rule.Status.Conditions),
		Summary:            &summary,
		Clusters:           listed,
	}
	for _, c := range []metav1.Condition{in.accepted(), in.ready(rows, summary), in.stalled(rows)} {
		c.ObservedGeneration = in.Rule.Generation
		c.LastTransitionTime = in.Now
		meta.SetStatusCondition(&out.Conditions, c)
	}
	return out
}

// atTop tells whether a row is as far as it can be: the spoke holds what the spec
// says now.
func atTop(r *v1alpha1.ClusterStatus, generation int64) bool {
	return r.Phase == v1alpha1.PhaseApplied && r.Reason == "" && r.ObservedGeneration == generation
}

// Reasons of rows, as the summary counts them and as Stalled reads them.
var (
	failingReasons = []string{
		v1alpha1.ReasonConflict, v1alpha1.ReasonRejected, v1alpha1.ReasonForbidden, v1alpha1.ReasonMutated, v1alpha1.ReasonError,
		v1alpha1.ReasonInvalidSpec, v1alpha1.ReasonInvalidExpr,
	}
	stallingReasons = []string{
		v1alpha1.ReasonConflict, v1alpha1.ReasonRejected, v1alpha1.ReasonForbidden,
		v1alpha1.ReasonInvalidSpec, v1alpha1.ReasonInvalidExpr,
	}
	unreachableReasons = []string{
		v1alpha1.ReasonUnreachable, v1alpha1.ReasonAuthFailed, v1alpha1.ReasonInvalidKubeconfig, v1alpha1.ReasonKubeconfigMissing,
	}
)

func summarize(rows []row, generation int64) v1alpha1.RuleSummary {
	var s v1alpha1.RuleSummary
	top := 0
	for i := range rows {
		r := &rows[i].ClusterStatus
		s.Desired++
		if r.Phase == v1alpha1.PhaseApplied {
			s.Applied++
		}
		if slices.Contains(failingReasons, r.Reason) {
			s.Failing++
		}
		if slices.Contains(unreachableReasons, r.Reason) {
			s.Unreachable++
		}
		if atTop(r, generation) {
			top++
		}
	}
	s.Ready = fmt.Sprintf("%d/%d", top, s.Desired)
	return s
}
