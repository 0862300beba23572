package status

import (
	"unique"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/metrics"
	"github.com/rulefleet/rulefleet/pkg/rule/rollup"
)

// known is what is kept in memory of a rule from one reconcile to the next.
type known struct {
	of types.UID // of the AlertRule
	// last are the rows of the last derivation, if there was one, and shown those that metrics count. Rules share
	// the values, which keeps them small and quick to count: most rules are equally far in a spoke.
	last, shown []unique.Handle[rollup.Row]
	conditions  unique.Handle[conditions]
	// written is the count of lives before the input of the last status that was written was read.
	written *int64
	paced   paced
}

// conditions are the outcomes of those in counted.
type conditions [len(counted)]metrics.Condition

// newKnown returns what is to be kept of the status of the AlertRule with a UID, which came with rows.
func newKnown(of types.UID, status *v1alpha1.RuleStatus, rows []unique.Handle[rollup.Row]) known {
	k := known{of: of, last: rows, shown: rows, conditions: unique.Make(outcomes(status.Conditions))}
	if rows == nil {
		k.shown = rollup.Rows(status)
	}
	return k
}

// counted are the conditions that metrics count.
var counted = [...]string{v1alpha1.ConditionAccepted, v1alpha1.ConditionReady, v1alpha1.ConditionStalled, v1alpha1.ConditionMetricsPresent}

func outcomes(all []metav1.Condition) conditions {
	var out conditions
	for i, kind := range counted {
		if c := apimeta.FindStatusCondition(all, kind); c != nil {
			out[i] = metrics.Condition{Type: kind, Status: c.Status, Reason: c.Reason}
		}
	}
	return out
}

// Rules counts the AlertRules and RulePacks, and their rows, as their statuses are at present or are about
// to be. After a start, it takes a moment until each was looked at.
func (r *Reconciler) Rules() metrics.Rules {
	byRow, byConditions := map[unique.Handle[rollup.Row]]int{}, map[unique.Handle[conditions]]int{}
	r.memories.Range(func(_, of any) bool {
		k := of.(known)
		for _, row := range k.shown {
			byRow[row]++
		}
		byConditions[k.conditions]++
		return true
	})
	out := metrics.Rules{Rows: map[metrics.Row]int{}, Conditions: map[metrics.Condition]int{}}
	for row, n := range byRow {
		r := row.Value()
		if r.Presumed {
			r.Cluster = ""
		}
		out.Rows[metrics.Row{Cluster: r.Cluster, Phase: r.State.Phase, Reason: r.State.Reason}] += n
	}
	for all, n := range byConditions {
		for _, c := range all.Value() {
			if c.Type != "" {
				out.Conditions[c] += n
			}
		}
	}
	return out
}
