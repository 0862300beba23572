package metrics

import (
	"slices"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule/rollup"
)

// reasons are all reasons of conditions and rows. They limit the number of series, whatever is in a
// status.
var reasons = []string{
	rollup.ReasonUnlisted,
	v1alpha1.ReasonAccepted, v1alpha1.ReasonInvalidExpr, v1alpha1.ReasonInvalidSpec, v1alpha1.ReasonNamespaceNotAllowed,
	v1alpha1.ReasonAllApplied, v1alpha1.ReasonProgressing, v1alpha1.ReasonNoClusters, v1alpha1.ReasonDisabled,
	v1alpha1.ReasonNotStalled, v1alpha1.ReasonWaiting, v1alpha1.ReasonUnreachable, v1alpha1.ReasonNotRegistered,
	v1alpha1.ReasonCRDMissing, v1alpha1.ReasonNamespaceMissing, v1alpha1.ReasonForbidden, v1alpha1.ReasonConflict,
	v1alpha1.ReasonRejected, v1alpha1.ReasonMutated, v1alpha1.ReasonContested, v1alpha1.ReasonSuspended, v1alpha1.ReasonUnsupported,
	v1alpha1.ReasonQuotaExceeded, v1alpha1.ReasonError, v1alpha1.ReasonConnected, v1alpha1.ReasonConnecting,
	v1alpha1.ReasonAuthFailed, v1alpha1.ReasonInvalidKubeconfig, v1alpha1.ReasonKubeconfigMissing,
	v1alpha1.ReasonDuplicateCluster, v1alpha1.ReasonServed, v1alpha1.ReasonDeletionsHeld, v1alpha1.ReasonIdentityChanged,
	v1alpha1.ReasonThrottled, v1alpha1.ReasonMaxRulesReached, v1alpha1.ReasonLeaving, v1alpha1.ReasonRulesFailing,
	v1alpha1.ReasonReady, v1alpha1.ReasonNoEvaluator, v1alpha1.ReasonAmbiguous, v1alpha1.ReasonEvaluatorsUnknown, v1alpha1.ReasonNotSelected,
	v1alpha1.ReasonNamespaceEnforced, v1alpha1.ReasonPredicted, v1alpha1.ReasonConfirmed, v1alpha1.ReasonLoading,
	v1alpha1.ReasonNotLoaded, v1alpha1.ReasonEvaluationFailed, v1alpha1.ReasonEvaluatorUnreachable,
	v1alpha1.ReasonMetricsPresent, v1alpha1.ReasonMetricsMissing, v1alpha1.ReasonKubeStateMetricsMissing,
	v1alpha1.ReasonEvaluatorsFound, v1alpha1.ReasonNoSuchEvaluator, v1alpha1.ReasonTooManyRules, v1alpha1.ReasonEvaluating,
	v1alpha1.ReasonNotGranted, v1alpha1.ReasonRestored, v1alpha1.ReasonTooLarge, v1alpha1.ReasonLimitExceeded, v1alpha1.ReasonTenantNotAllowed,
	v1alpha1.ReasonCredentialValid, v1alpha1.ReasonExpiring, v1alpha1.ReasonExpired, v1alpha1.ReasonExpirationUnknown,
}

// reason returns a reason as the value of a label.
func reason(r string) string {
	switch {
	case r == "":
		return noReason
	case !slices.Contains(reasons, r):
		return otherReason
	}
	return r
}
