package rollup

import (
	"slices"
	"unique"

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
}

// Input is the input from which the status of a source is derived.
type Input struct {
	// Rule is the source with its present status, on which the next one is based.
	Rule rule.Source
	// Invalid is the result of validation.Rule or validation.Pack.
	Invalid *rule.Invalid
	// Contested describes how another client on the hub undoes a generated AlertRule, or is "".
	Contested string
	// Warnings are the results of validation.Warnings.
	Warnings []string
	// Overridden are the edited fields of a generated AlertRule.
	Overridden []string
	// Clusters are all registered spokes that the rule can select, or that have a row.
	Clusters []Spoke
	// Verdicts are the latest rows that were reported since the operator started, by the spoke's name.
	// Any of them may be missing.
	Verdicts map[string]v1alpha1.ClusterStatus
	// Leftovers are the rows of spokes that still have the rule although it does not belong there, by the
	// spoke's name.
	Leftovers map[string]v1alpha1.ClusterStatus
	// Metrics is true if evaluators are queried for the series that expressions select.
	Metrics bool
	// Last are the rows of the previous derivation in this process. It is nil after a restart.
	Last []unique.Handle[Row]
	// Starting is true while spokes may have rules on which they have not reported yet because the process
	// has just started.
	Starting bool
	// Now is the time for changes.
	Now metav1.Time
}

// Status derives the status of a source, and the rows of all spokes. If the present status is its own
// result, it returns the same status at any time, so that nothing is written without news. This also holds
// without the verdicts, as after a restart; the rows are then nil until enough is known.
//
// While a rule is invalid, its rows stay, as the spokes keep the last valid version. A disabled rule
// has no rows.
func Status(in Input) (v1alpha1.RuleStatus, []unique.Handle[Row]) {
	in.Now = in.Now.Rfc3339Copy() // what the API keeps of it
	v := view{disabled: in.disabled()}
	switch {
	case v.disabled:
	case in.Invalid != nil:
		v = in.lastValid()
	default:
		var known bool
		if v, known = in.present(); !known {
			return *in.Rule.GetStatus(), nil
		}
	}
	summary, ready := in.conclude(v)
	out := v1alpha1.RuleStatus{
		ObservedGeneration: in.Rule.GetGeneration(),
		Conditions:         in.conditions(v, ready),
		Summary:            &summary,
		OverriddenFields:   in.overridden(),
		Clusters:           v.listed,
		Groups:             v.groups,
	}
	rows := make([]unique.Handle[Row], 0, len(v.rows))
	for i := range v.rows {
		r := &v.rows[i]
		rows = append(rows, unique.Make(Row{Cluster: string(r.Name), State: stateOf(r), Presumed: v.presumed[r.Name]}))
	}
	return out, rows
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
	// rows are those of all spokes. presumed are the spokes of which it is not certain that a state is theirs.
	rows     []v1alpha1.ClusterStatus
	presumed map[v1alpha1.ClusterName]bool
	// listed are the rows that the status lists, and groups count the others.
	listed []v1alpha1.ClusterStatus
	groups []v1alpha1.ClusterGroup
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

// FiringKnown reports whether the number of firing alerts in a row comes from an evaluator. If not, 0 means that the number
// is unknown.
func FiringKnown(r *v1alpha1.ClusterStatus) bool {
	return r.Firing > 0 || r.Phase == v1alpha1.PhaseEvaluating || reasons.Is(r.Reason, reasons.Answered)
}

// notable reports whether a row has information that its absence from the list would not convey.
func notable(r *v1alpha1.ClusterStatus, generation int64) bool {
	return !AtTop(r, generation) || r.Firing > 0 || len(r.MissingMetrics) > 0
}
