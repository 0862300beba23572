package rule

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

const (
	// told is how many rows a condition's message quotes, and toldBytes how much of each.
	told      = 3
	toldBytes = 256
)

func (in *StatusInput) accepted() metav1.Condition {
	if in.Invalid != nil {
		return condition(v1alpha1.ConditionAccepted, false, in.Invalid.Reason, in.Invalid.Error())
	}
	return condition(v1alpha1.ConditionAccepted, true, v1alpha1.ReasonAccepted, "the spec is valid")
}

func (in *StatusInput) ready(rows []row, summary v1alpha1.RuleSummary) metav1.Condition {
	spokes := summary.Ready + " spokes"
	switch {
	case in.Invalid != nil && summary.Applied > 0:
		return condition(v1alpha1.ConditionReady, false, in.Invalid.Reason, "the spec is not valid, see Accepted; the spokes keep the last version that was")
	case in.Invalid != nil:
		return condition(v1alpha1.ConditionReady, false, in.Invalid.Reason, "the spec is not valid, see Accepted")
	case in.Rule.Spec.State == v1alpha1.Disabled:
		return condition(v1alpha1.ConditionReady, true, v1alpha1.ReasonDisabled, "the rule is disabled: spokes don't have it, or lose it as soon as they can be reached")
	case summary.Desired == 0:
		return condition(v1alpha1.ConditionReady, false, v1alpha1.ReasonNoClusters, "the placement picks no registered spoke")
	}
	lagging := in.lagging(rows)
	if len(lagging) == 0 {
		return condition(v1alpha1.ConditionReady, true, v1alpha1.ReasonAllApplied, spokes)
	}
	reason := lagging[0].Reason
	if reason == "" || slices.ContainsFunc(lagging, func(r row) bool { return r.Reason != reason }) {
		reason = v1alpha1.ReasonProgressing
	}
	return condition(v1alpha1.ConditionReady, false, reason, spokes+"; "+tell(lagging))
}

func (in *StatusInput) stalled(rows []row) metav1.Condition {
	if in.Invalid != nil {
		return condition(v1alpha1.ConditionStalled, true, in.Invalid.Reason, "the spec is not valid, see Accepted")
	}
	var stalling []row
	for _, r := range rows {
		if slices.Contains(stallingReasons, r.Reason) {
			stalling = append(stalling, r)
		}
	}
	if len(stalling) == 0 {
		return condition(v1alpha1.ConditionStalled, false, v1alpha1.ReasonNotStalled, "no spoke refuses the rule")
	}
	return condition(v1alpha1.ConditionStalled, true, stalling[0].Reason, tell(stalling))
}

// tell quotes the first rows, by name.
func tell(rows []row) string {
	var parts []string
	for _, r := range rows[:min(told, len(rows))] {
		text := string(r.Name)
		if r.Reason == "" {
			text += ": " + v1alpha1.ReasonProgressing
		} else {
			text += ": " + r.Reason
		}
		if r.Message != "" {
			text += ": " + bounded(r.Message, toldBytes)
		}
		parts = append(parts, text)
	}
	if more := len(rows) - told; more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(parts, "; ")
}

func condition(kind string, is bool, reason, message string) metav1.Condition {
	status := metav1.ConditionFalse
	if is {
		status = metav1.ConditionTrue
	}
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message}
}
