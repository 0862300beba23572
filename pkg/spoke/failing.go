package spoke

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// Failures tells which rules fail in a spoke that can be served.
type Failures interface {
	// Failing says what fails in a spoke, or "". known is false while that can't be said
	// yet, after a start.
	Failing(spoke string) (message string, known bool)
}

// failing returns what is to be shown of a spoke's failing rules, or "": what was shown
// stands until something is known.
func failing(f Failures, sc *v1alpha1.SpokeCluster, seen *Observation) string {
	if f == nil || seen == nil || seen.Connected.Status != metav1.ConditionTrue {
		return ""
	}
	message, known := f.Failing(sc.Name)
	was := meta.FindStatusCondition(sc.Status.Conditions, v1alpha1.ConditionReady)
	if !known && was != nil && was.Reason == v1alpha1.ReasonRulesFailing {
		return was.Message
	}
	return message
}

// tellFailing says in the status of a spoke that is ready what fails there.
func tellFailing(s *v1alpha1.SpokeClusterStatus, message string) {
	ready := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionReady)
	if message != "" && ready != nil && ready.Status == metav1.ConditionTrue {
		ready.Reason, ready.Message = v1alpha1.ReasonRulesFailing, message
	}
}
