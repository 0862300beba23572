package rule

import (
	"slices"
	"unique"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// These bound what the API bounds of the fields that people have made their own.
const (
	maxOverridden      = 256
	maxOverriddenBytes = 512
)

// SpokeState is a registered spoke, and what rows show of its outage.
type SpokeState struct {
	Cluster
	// Renewed tells that the present status is about a former spoke of the same name.
	Renewed bool
	// Shown is the outcome of Damp.
	Shown Shown
	// Top is the phase that rules reach in the spoke, as far as is known: what one that the
	// status does not list has. The zero value is Applied.
	Top v1alpha1.Phase
}

// StatusInput is what an AlertRule's status is derived from.
type StatusInput struct {
	// Rule is the AlertRule with its present status, which the next one is based on.
	Rule *v1alpha1.AlertRule
	// Invalid is what Validate says of it.
	Invalid *Invalid
	// Contested says how somebody on the hub undoes the AlertRule itself, where a template
	// makes it, or is "".
	Contested string
	// Warnings are what is valid and most likely not meant.
	Warnings []string
	// Overridden are the fields of a generated AlertRule that people have made their own.
	Overridden []string
	// Clusters are all registered spokes.
	Clusters []SpokeState
	// Verdicts are the latest rows that were reported since the operator started, by
	// the spoke's name. Any may be missing.
	Verdicts map[string]v1alpha1.ClusterStatus
	// Metrics tells whether evaluators are asked for the series that expressions select.
	Metrics bool
	// Memory is what the derivation before this one, in this process, returned. It is nil
	// after a restart.
	Memory *Memory
	// Now is the time of whatever changes.
	Now metav1.Time
}

// Memory is what a process knows of a rule beyond its status, which has no room for
// more rows. It is never changed.
type Memory struct {
	rows  map[string]v1alpha1.ClusterStatus // those that lag and are not listed
	crowd crowd
	of    map[string]bool // the names of the spokes in the crowd
	// top are the rows at the top that are not listed. Only CountRows needs them. Rules on many
	// spokes share the values, since most of them are equally far in a spoke.
	top []unique.Handle[RowCount]
}

// Status derives an AlertRule's status. Given its own outcome as the present status
// it returns the same, at any time: with nothing new there is nothing to write. That
// holds without the verdicts too, as after a restart.
//
// While a rule is invalid its rows stay, as what the spokes hold does: the last valid
// version. Once it is disabled it has none.
func Status(in StatusInput) (v1alpha1.AlertRuleStatus, *Memory) {
	in.Now = in.Now.Rfc3339Copy() // what the API keeps of it
	v := view{disabled: in.disabled(), memory: &Memory{}}
	switch {
	case v.disabled:
	case in.Invalid != nil:
		v = in.lastValid()
	default:
		v = in.present()
	}
	summary, ready, stalled := in.conclude(v)
	out := v1alpha1.AlertRuleStatus{
		ObservedGeneration: in.Rule.Generation,
		Conditions:         slices.Clone(in.Rule.Status.Conditions),
		Summary:            &summary,
		OverriddenFields:   in.overridden(),
		Clusters:           v.listed,
		UnlistedClusters:   v.unlisted,
	}
	conditions := []metav1.Condition{in.accepted(), ready, stalled}
	if c, known := in.metricsPresent(v); known {
		conditions = append(conditions, c)
	} else {
		meta.RemoveStatusCondition(&out.Conditions, v1alpha1.ConditionMetricsPresent)
	}
	for _, c := range conditions {
		c.ObservedGeneration = in.Rule.Generation
		c.LastTransitionTime = in.Now
		meta.SetStatusCondition(&out.Conditions, c)
	}
	return out, v.memory
}

// overridden returns the fields that people have made their own, as the API takes
// them: a bounded set.
func (in *StatusInput) overridden() []string {
	var out []string
	for _, field := range in.Overridden {
		if field = bounded(field, maxOverriddenBytes); !slices.Contains(out, field) && len(out) < maxOverridden {
			out = append(out, field)
		}
	}
	return out
}

// view is what is known of a rule in the spokes that it is meant for.
type view struct {
	// disabled says that it is meant for none.
	disabled bool
	// rows are those that are known, by name, and crowd counts the others.
	rows  []v1alpha1.ClusterStatus
	crowd crowd
	// listed are the rows that the status lists, and unlisted the number of those that
	// lag without being listed.
	listed   []v1alpha1.ClusterStatus
	unlisted int32
	memory   *Memory
	// partial tells that there was no room for all rows that are notable, and that some of the
	// others were not reported since: how many alerts fire, and which metrics are missing, stands.
	partial bool
}

// atTop tells whether a row is as far as it can be proven to be: the spoke holds what the
// spec says now, and nothing more can be found out, or it is evaluated.
func atTop(r *v1alpha1.ClusterStatus, generation int64) bool {
	return r.ObservedGeneration == generation && (r.Reason == "" && r.Phase != v1alpha1.PhasePending ||
		slices.Contains(topReasons[r.Phase], r.Reason))
}

// topReasons are those beyond which nothing can be proven, by phase.
var topReasons = map[v1alpha1.Phase][]string{
	v1alpha1.PhaseApplied:  {v1alpha1.ReasonNoEvaluator, v1alpha1.ReasonEvaluatorsUnknown},
	v1alpha1.PhaseSelected: {v1alpha1.ReasonPredicted, v1alpha1.ReasonConfirmed},
}

// reached tells whether a row is at a phase or beyond it.
func reached(r *v1alpha1.ClusterStatus, phase v1alpha1.Phase) bool {
	return slices.Index(phases, r.Phase) >= slices.Index(phases, phase)
}

// phases are all of them, in their order.
var phases = []v1alpha1.Phase{v1alpha1.PhasePending, v1alpha1.PhaseApplied, v1alpha1.PhaseSelected, v1alpha1.PhaseEvaluating}

// asked tells whether a row comes of asking an evaluator.
func asked(r *v1alpha1.ClusterStatus) bool {
	return r.Phase == v1alpha1.PhaseEvaluating || slices.Contains(askedReasons, r.Reason)
}

var askedReasons = []string{
	v1alpha1.ReasonLoading, v1alpha1.ReasonNotLoaded, v1alpha1.ReasonEvaluationFailed, v1alpha1.ReasonEvaluatorUnreachable,
}

// notable tells whether a row says something that its absence from the list would not.
func notable(r *v1alpha1.ClusterStatus, generation int64) bool {
	return !atTop(r, generation) || r.Firing > 0 || len(r.MissingMetrics) > 0
}

// Reasons of rows, as the summary counts them and as Stalled reads them.
var (
	failingReasons = []string{
		v1alpha1.ReasonConflict, v1alpha1.ReasonRejected, v1alpha1.ReasonForbidden, v1alpha1.ReasonMutated, v1alpha1.ReasonError,
		v1alpha1.ReasonQuotaExceeded, v1alpha1.ReasonInvalidSpec, v1alpha1.ReasonInvalidExpr, v1alpha1.ReasonUnsupported,
		v1alpha1.ReasonNotSelected, v1alpha1.ReasonAmbiguous, v1alpha1.ReasonNamespaceEnforced, v1alpha1.ReasonNotLoaded, v1alpha1.ReasonEvaluationFailed,
		v1alpha1.ReasonEvaluatorUnreachable, v1alpha1.ReasonContested,
	}
	stallingReasons = []string{
		v1alpha1.ReasonConflict, v1alpha1.ReasonRejected, v1alpha1.ReasonForbidden, v1alpha1.ReasonQuotaExceeded,
		v1alpha1.ReasonInvalidSpec, v1alpha1.ReasonInvalidExpr, v1alpha1.ReasonUnsupported,
		v1alpha1.ReasonNotSelected, v1alpha1.ReasonAmbiguous, v1alpha1.ReasonNamespaceEnforced, v1alpha1.ReasonNotLoaded,
	}
	unreachableReasons = []string{
		v1alpha1.ReasonUnreachable, v1alpha1.ReasonAuthFailed, v1alpha1.ReasonInvalidKubeconfig, v1alpha1.ReasonKubeconfigMissing,
	}
)

func stalls(r *v1alpha1.ClusterStatus) bool { return slices.Contains(stallingReasons, r.Reason) }
