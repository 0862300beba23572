package membership

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/spoke"
)

// Failures reports the rules that fail in a connected spoke.
type Failures interface {
	// Failing returns what fails in a spoke, or "". known is false after a start, until it is known.
	Failing(spoke string) (message string, known bool)
}

// failing returns the message about a spoke's failing rules, or "". Until something is known it returns the
// message that is shown.
func failing(f Failures, sc *v1alpha1.SpokeCluster, seen *spoke.Observation) string {
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

// tellFailing writes the failures into the condition Ready, if it is True.
func tellFailing(s *v1alpha1.SpokeClusterStatus, message string) {
	ready := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionReady)
	if message != "" && ready != nil && ready.Status == metav1.ConditionTrue {
		ready.Reason, ready.Message = v1alpha1.ReasonRulesFailing, message
	}
}
