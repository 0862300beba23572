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
	of     types.UID // of the AlertRule
	memory *rollup.Memory
	// rows and conditions are what metrics count. Rules share them, which keeps them small and
	// quick to count: most rules are equally far in a spoke.
	rows       []rows
	conditions unique.Handle[conditions]
}

// rows is a spoke that a rule is placed on, or several of which only the number is known.
type rows struct {
	unique.Handle[metrics.Row]

	spokes int
}

// conditions are the outcomes of those in counted.
type conditions [len(counted)]metrics.Condition

// newKnown returns what is to be kept of the status of the AlertRule with a UID, which came with a memory.
func newKnown(of types.UID, status *v1alpha1.AlertRuleStatus, memory *rollup.Memory) known {
	k := known{of: of, memory: memory, conditions: unique.Make(outcomes(status.Conditions))}
	for _, c := range rollup.Count(status, memory) {
		k.rows = append(k.rows, rows{unique.Make(metrics.Row{Cluster: c.Cluster, Phase: c.Phase, Reason: c.Reason}), c.Spokes})
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

// Rules counts the AlertRules, and their rows, as their statuses are at present or are about
// to be. After a start, it takes a moment until each was looked at.
func (r *Reconciler) Rules() metrics.Rules {
	byRow, byConditions := map[unique.Handle[metrics.Row]]int{}, map[unique.Handle[conditions]]int{}
	r.memories.Range(func(_, of any) bool {
		k := of.(known)
		for _, rows := range k.rows {
			byRow[rows.Handle] += rows.spokes
		}
		byConditions[k.conditions]++
		return true
	})
	out := metrics.Rules{Rows: map[metrics.Row]int{}, Conditions: map[metrics.Condition]int{}}
	for row, n := range byRow {
		out.Rows[row.Value()] = n
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
