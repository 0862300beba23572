package rollup

import (
	"slices"
	"unique"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/clip"
	"github.com/rulefleet/rulefleet/pkg/reasons"
	"github.com/rulefleet/rulefleet/pkg/rule"
)

// Limits of the API for overridden fields.
const (
	maxOverridden      = 256
	maxOverriddenBytes = 512
)

// Spoke is a registered spoke, and the outage that rows show.
type Spoke struct {
	rule.Cluster
	// Renewed is true if the present status is about a former spoke of the same name.
	Renewed bool
	// Shown is the result of Damp.
	Shown Shown
	// Top is the highest known phase of rules in the spoke, which is the phase of rules that the status
	// does not list. The zero value means Applied.
	Top v1alpha1.Phase
}

// Input is the input from which an AlertRule's status is derived.
type Input struct {
	// Rule is the AlertRule with its present status, on which the next one is based.
	Rule *v1alpha1.AlertRule
	// Invalid is the result of validation.Rule.
	Invalid *rule.Invalid
	// Contested describes how another client on the hub undoes a generated AlertRule, or is "".
	Contested string
	// Warnings are the results of validation.Warnings.
	Warnings []string
	// Overridden are the edited fields of a generated AlertRule.
	Overridden []string
	// Clusters are all registered spokes.
	Clusters []Spoke
	// Verdicts are the latest rows that were reported since the operator started, by the spoke's name.
	// Any of them may be missing.
	Verdicts map[string]v1alpha1.ClusterStatus
	// Leftovers are the rows of spokes that still have the rule although it does not belong there, by the
	// spoke's name.
	Leftovers map[string]v1alpha1.ClusterStatus
	// Metrics is true if evaluators are queried for the series that expressions select.
	Metrics bool
	// Memory is the result of the previous derivation in this process. It is nil after a restart.
	Memory *Memory
	// Now is the time for changes.
	Now metav1.Time
}

// Memory contains the rows of a rule for which its status has no room. It is never changed.
type Memory struct {
	rows  map[string]v1alpha1.ClusterStatus // those that lag and are not listed
	crowd crowd
	of    map[string]bool // the names of the spokes in the crowd
	// top are the rows at the top that are not listed. Only Count needs them. Rules on many
	// spokes share the values, since most of them are equally far in a spoke.
	top []unique.Handle[RowCount]
}

// Status derives an AlertRule's status. If the present status is its own result, it returns the same
// status at any time, so that nothing is written without news. This also holds without the verdicts,
// as after a restart.
//
// While a rule is invalid, its rows stay, as the spokes keep the last valid version. A disabled rule
// has no rows.
func Status(in Input) (v1alpha1.AlertRuleStatus, *Memory) {
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

// overridden returns the edited fields in the form of the API: a limited set.
func (in *Input) overridden() []string {
	var out []string
	for _, field := range in.Overridden {
		if field = clip.Marked(field, maxOverriddenBytes); !slices.Contains(out, field) && len(out) < maxOverridden {
			out = append(out, field)
		}
	}
	return out
}

// view is the known state of a rule in the spokes in which it belongs.
type view struct {
	// disabled is true if it belongs in no spoke.
	disabled bool
	// rows are the known rows, by name. crowd counts the others.
	rows  []v1alpha1.ClusterStatus
	crowd crowd
	// listed are the rows that the status lists. unlisted is the number of rows that lag behind and are
	// not listed.
	listed   []v1alpha1.ClusterStatus
	unlisted int32
	memory   *Memory
	// partial is true if there was no room for all notable rows, and some of the others have not been
	// reported since. The numbers of firing alerts and the missing metrics are then kept.
	partial bool
}

// AtTop reports whether a row has reached the furthest phase that can be verified: the spoke holds the
// current version, and the rule is evaluated or nothing more can be found out.
func AtTop(r *v1alpha1.ClusterStatus, generation int64) bool {
	return r.ObservedGeneration == generation && (r.Reason == "" && r.Phase != v1alpha1.PhasePending ||
		reasons.Is(r.Reason, tops[r.Phase]))
}

// tops are the properties of the reasons beyond which nothing can be verified, by phase.
var tops = map[v1alpha1.Phase]reasons.Class{v1alpha1.PhaseApplied: reasons.TopOfApplied, v1alpha1.PhaseSelected: reasons.TopOfSelected}

// reached tells whether a row is at a phase or beyond it.
func reached(r *v1alpha1.ClusterStatus, phase v1alpha1.Phase) bool {
	return slices.Index(phases, r.Phase) >= slices.Index(phases, phase)
}

// phases are all phases, in order.
var phases = []v1alpha1.Phase{v1alpha1.PhasePending, v1alpha1.PhaseApplied, v1alpha1.PhaseSelected, v1alpha1.PhaseEvaluating}

// asked reports whether a row results from querying an evaluator.
func asked(r *v1alpha1.ClusterStatus) bool {
	return r.Phase == v1alpha1.PhaseEvaluating || reasons.Is(r.Reason, reasons.Asked)
}

// notable reports whether a row has information that its absence from the list would not convey.
func notable(r *v1alpha1.ClusterStatus, generation int64) bool {
	return !AtTop(r, generation) || r.Firing > 0 || len(r.MissingMetrics) > 0
}
