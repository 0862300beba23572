package status

import (
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/metrics"
	"github.com/rulefleet/rulefleet/pkg/rule"
)

// known is what is kept in memory of a rule from one reconcile to the next.
type known struct {
	memory *rule.Memory
	// rows and conditions are what metrics count.
	rows       []rule.RowCount
	conditions [len(counted)]metrics.Condition
}

// counted are the conditions that metrics count.
var counted = [...]string{v1alpha1.ConditionAccepted, v1alpha1.ConditionReady, v1alpha1.ConditionStalled}

func outcomes(conditions []metav1.Condition) [len(counted)]metrics.Condition {
	var out [len(counted)]metrics.Condition
	for i, kind := range counted {
		if c := apimeta.FindStatusCondition(conditions, kind); c != nil {
			out[i] = metrics.Condition{Type: kind, Status: c.Status, Reason: c.Reason}
		}
	}
	return out
}

// Rules counts the AlertRules, and their rows, as their statuses are at present or are about
// to be. After a start, it takes a moment until each was looked at.
func (r *Reconciler) Rules() metrics.Rules {
	out := metrics.Rules{Rows: map[metrics.Row]int{}, Conditions: map[metrics.Condition]int{}}
	r.memories.Range(func(_, of any) bool {
		k := of.(known)
		for _, c := range k.rows {
			out.Rows[metrics.Row{Phase: c.Phase, Reason: c.Reason}] += c.Spokes
		}
		for _, c := range k.conditions {
			if c.Type != "" {
				out.Conditions[c]++
			}
		}
		return true
	})
	return out
}
