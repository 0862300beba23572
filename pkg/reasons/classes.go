package reasons

import "github.com/rulefleet/rulefleet/api/v1alpha1"

// Class is a set of properties that a reason has for the manager and the kubectl plugin.
type Class uint16

// The properties of reasons. Except for Final, they are about a row of AlertRule.status.clusters.
const (
	// Failing reasons are counted in status.summary.failing.
	Failing Class = 1 << iota
	// Stalling reasons set the condition Stalled.
	Stalling
	// NotInEffect reasons are about one rule, and remain until a person acts although the spoke is connected. The
	// SpokeCluster counts them with RulesFailing.
	NotInEffect
	// Unreachable reasons are counted in status.summary.unreachable.
	Unreachable
	// Outage reasons are those of the condition Connected. The row shows the last known phase.
	Outage
	// Answered reasons result from the answer of an evaluator.
	Answered
	// TopOfApplied and TopOfSelected reasons are those beyond which nothing can be verified, if the row has this phase.
	TopOfApplied
	TopOfSelected
	// Passing reasons are those of a rule that is on its way.
	Passing
	// Final reasons of the condition Ready of a SpokeCluster do not pass by themselves.
	Final
)

// classes has a row for every reason of a condition or a row.
var classes = map[string]Class{
	// conditions of an AlertRule
	v1alpha1.ReasonAccepted:            0,
	v1alpha1.ReasonInvalidExpr:         Failing | Stalling | NotInEffect,
	v1alpha1.ReasonInvalidSpec:         Failing | Stalling | NotInEffect,
	v1alpha1.ReasonNamespaceNotAllowed: 0,
	v1alpha1.ReasonLimitExceeded:       0,
	v1alpha1.ReasonAllApplied:          0,
	v1alpha1.ReasonProgressing:         0,
	v1alpha1.ReasonNoClusters:          0,
	v1alpha1.ReasonDisabled:            0,

	// rows of an AlertRule
	v1alpha1.ReasonWaiting:              Passing,
	v1alpha1.ReasonUnreachable:          Unreachable | Outage,
	v1alpha1.ReasonNotRegistered:        NotInEffect,
	v1alpha1.ReasonTenantNotAllowed:     Failing | Stalling | NotInEffect,
	v1alpha1.ReasonCRDMissing:           Final,
	v1alpha1.ReasonNamespaceMissing:     NotInEffect,
	v1alpha1.ReasonForbidden:            Failing | Stalling | NotInEffect,
	v1alpha1.ReasonConflict:             Failing | Stalling | NotInEffect,
	v1alpha1.ReasonRejected:             Failing | Stalling | NotInEffect,
	v1alpha1.ReasonMutated:              Failing | NotInEffect,
	v1alpha1.ReasonContested:            Failing,
	v1alpha1.ReasonSuspended:            0,
	v1alpha1.ReasonUnsupported:          Failing | Stalling | NotInEffect,
	v1alpha1.ReasonQuotaExceeded:        Failing | Stalling | NotInEffect,
	v1alpha1.ReasonError:                Failing | NotInEffect,
	v1alpha1.ReasonNoEvaluator:          TopOfApplied,
	v1alpha1.ReasonAmbiguous:            Failing | Stalling,
	v1alpha1.ReasonEvaluatorsUnknown:    TopOfApplied,
	v1alpha1.ReasonNotSelected:          Failing | Stalling | NotInEffect,
	v1alpha1.ReasonNamespaceEnforced:    Failing | Stalling | NotInEffect,
	v1alpha1.ReasonPredicted:            TopOfSelected,
	v1alpha1.ReasonConfirmed:            TopOfSelected,
	v1alpha1.ReasonLoading:              Answered | Passing,
	v1alpha1.ReasonNotLoaded:            Failing | Stalling | NotInEffect | Answered,
	v1alpha1.ReasonEvaluationFailed:     Failing | NotInEffect | Answered,
	v1alpha1.ReasonEvaluatorUnreachable: Failing,

	// conditions MetricsPresent, EvaluatorsFound and Evaluating
	v1alpha1.ReasonMetricsPresent:          0,
	v1alpha1.ReasonMetricsMissing:          0,
	v1alpha1.ReasonKubeStateMetricsMissing: 0,
	v1alpha1.ReasonEvaluatorsFound:         0,
	v1alpha1.ReasonNoSuchEvaluator:         0,
	v1alpha1.ReasonTooManyRules:            0,
	v1alpha1.ReasonEvaluating:              0,
	v1alpha1.ReasonNotGranted:              0,

	// other conditions of a SpokeCluster; a row also has those with NotInEffect if only PrometheusRules can't be read
	v1alpha1.ReasonConnected:         0,
	v1alpha1.ReasonKubeconfigNotUsed: 0,
	v1alpha1.ReasonConnecting:        Outage,
	v1alpha1.ReasonAuthFailed:        Unreachable | Outage | NotInEffect,
	v1alpha1.ReasonCredentialValid:   0,
	v1alpha1.ReasonExpiring:          0,
	v1alpha1.ReasonExpired:           0,
	v1alpha1.ReasonExpirationUnknown: 0,
	v1alpha1.ReasonRenewed:           0,
	v1alpha1.ReasonUnmanaged:         0,
	v1alpha1.ReasonInvalidKubeconfig: Unreachable | Outage | Final,
	v1alpha1.ReasonKubeconfigMissing: Unreachable | Outage,
	v1alpha1.ReasonDuplicateCluster:  Outage | Final,
	v1alpha1.ReasonServed:            0,
	v1alpha1.ReasonDeletionsHeld:     0,
	v1alpha1.ReasonIdentityChanged:   Outage | Final,
	v1alpha1.ReasonRestored:          Outage,
	v1alpha1.ReasonThrottled:         Outage | NotInEffect,
	v1alpha1.ReasonTooLarge:          Outage | NotInEffect,
	v1alpha1.ReasonMaxRulesReached:   0,
	v1alpha1.ReasonLeaving:           0,
	v1alpha1.ReasonRulesFailing:      0,
	v1alpha1.ReasonReady:             0,
}

// Is reports whether a reason has one of the properties.
func Is(reason string, class Class) bool { return classes[reason]&class != 0 }

// Known reports whether a condition or a row can have a reason.
func Known(reason string) bool {
	_, known := classes[reason]
	return known
}
