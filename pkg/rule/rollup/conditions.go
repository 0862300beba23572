package rollup

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/clip"
	"github.com/rulefleet/rulefleet/pkg/reasons"
	"github.com/rulefleet/rulefleet/pkg/rule"
)

const (
	// told is the maximum number of rows that a condition's message quotes, and toldBytes the maximum
	// length of each.
	told      = 3
	toldBytes = 256
)

// accepted returns the condition Accepted, which depends only on the spec.
func (in *Input) accepted() metav1.Condition {
	if in.Invalid != nil {
		return condition(v1alpha1.ConditionAccepted, false, in.Invalid.Reason, in.Invalid.Error())
	}
	return condition(v1alpha1.ConditionAccepted, true, v1alpha1.ReasonAccepted, AcceptedMessage(in.Warnings))
}

// conditions returns the conditions of the rule, of which Ready is given.
func (in *Input) conditions(v view, ready metav1.Condition) []metav1.Condition {
	all := []metav1.Condition{in.accepted(), ready}
	if c, is := in.stalled(v); is {
		all = append(all, c)
	}
	if c, is := in.metricsMissing(v); is {
		all = append(all, c)
	}
	return Conditions(in.Rule.GetStatus().Conditions, all, in.Rule.GetGeneration(), in.Now)
}

// Conditions returns the conditions of a status that had others before. Stalled and MetricsPresent are absent unless they
// are given; conditions that others put there stay. The time of a transition stays if the status of the condition does;
// otherwise, it is now.
func Conditions(before, given []metav1.Condition, generation int64, now metav1.Time) []metav1.Condition {
	out := slices.Clone(before)
	for _, kind := range []string{v1alpha1.ConditionStalled, v1alpha1.ConditionMetricsPresent} {
		if meta.FindStatusCondition(given, kind) == nil {
			meta.RemoveStatusCondition(&out, kind)
		}
	}
	for _, c := range given {
		c.ObservedGeneration, c.LastTransitionTime = generation, now
		meta.SetStatusCondition(&out, c)
	}
	return out
}

// conclude derives the summary and Ready from the rows, and from whether the rule is valid
// and enabled.
func (in *Input) conclude(v view) (summary v1alpha1.RuleSummary, ready metav1.Condition) {
	var all totals
	for i := range v.rows {
		all.add(&v.rows[i], in.Rule.GetGeneration())
	}
	if in.Invalid != nil {
		all.lagging = all.spokes // this spec is nowhere
	}
	summary = v1alpha1.RuleSummary{
		Desired: all.spokes, Applied: all.applied, Selected: all.selected, Evaluating: all.evaluating,
		Failing: all.failing, Unreachable: all.unreachable,
		Ready: fmt.Sprintf("%d/%d", all.spokes-all.lagging, all.spokes),
	}
	switch was := in.Rule.GetStatus().Summary; {
	case in.kept(v) && was != nil && was.Firing != nil:
		summary.Firing = new(*was.Firing)
	case all.firingKnown:
		summary.Firing = new(all.firing)
	}
	return summary, in.ready(v, all)
}

// kept reports whether the rows that are not listed are those of a former derivation, of which only the states
// are known.
func (in *Input) kept(v view) bool { return in.Invalid != nil && len(v.groups) > 0 }

// totals counts the spokes of a rule, and the alerts that fire there.
type totals struct {
	spokes, applied, selected, evaluating, failing, unreachable, lagging, firing int32
	// firingKnown is true if an evaluator has answered in a spoke.
	firingKnown bool
}

func (c *totals) add(r *v1alpha1.ClusterStatus, generation int64) {
	c.spokes++
	c.firing += r.Firing
	c.firingKnown = c.firingKnown || FiringKnown(r)
	count := func(n *int32, is bool) {
		if is {
			*n++
		}
	}
	count(&c.applied, reached(r, v1alpha1.PhaseApplied))
	count(&c.selected, reached(r, v1alpha1.PhaseSelected))
	count(&c.evaluating, reached(r, v1alpha1.PhaseEvaluating))
	count(&c.failing, reasons.Is(r.Reason, reasons.Failing))
	count(&c.unreachable, reasons.Is(r.Reason, reasons.Unreachable))
	count(&c.lagging, !AtTop(r, generation))
}

// ready derives Ready from the rows. all counts them.
func (in *Input) ready(v view, all totals) metav1.Condition {
	is := func(is bool, reason, message string) metav1.Condition {
		return condition(v1alpha1.ConditionReady, is, reason, message)
	}
	spokes := fmt.Sprintf("ready in %d/%d spokes", all.spokes-all.lagging, all.spokes) + in.tellRefusing()
	switch {
	case in.Invalid != nil && all.applied > 0:
		return is(false, in.Invalid.Reason, in.notAccepted()+"; the spokes keep the last valid version; see condition Accepted")
	case in.Invalid != nil:
		return is(false, in.Invalid.Reason, in.notAccepted()+"; see condition Accepted")
	case in.Contested != "":
		return is(false, v1alpha1.ReasonContested, in.Contested)
	case len(in.Leftovers) > 0 && (v.disabled || all.lagging == 0):
		return is(false, reasonOf(in.leftovers()), in.tellLeftovers())
	case v.disabled && in.Rule.Suspended():
		return is(false, v1alpha1.ReasonSuspended, "the rule is disabled and suspended; spokes that have it keep it until spec.suspend is false")
	case v.disabled:
		return is(true, v1alpha1.ReasonDisabled, "the rule is disabled and is removed from the spokes; a spoke that is unreachable or suspended, or whose deletions are held, keeps it until that ends")
	case all.spokes == 0:
		if n := in.refusing(); n > 0 {
			return is(false, v1alpha1.ReasonNoClusters, fmt.Sprintf(
				"the spokes that spec.placement matches (%d) do not take %ss of namespace %s; ask an administrator of the hub to include the namespace in spec.tenants of the SpokeCluster", n, in.Rule.SourceKind(), in.Rule.GetNamespace()))
		}
		return is(false, v1alpha1.ReasonNoClusters, "spec.placement matches no registered spoke; list the spokes and their labels with: kubectl get spokes --show-labels")
	case all.lagging == 0:
		return is(true, v1alpha1.ReasonAllApplied, spokes)
	}
	message := spokes + "; " + tell(in.lagging(v.listed), int(all.lagging))
	if len(in.Leftovers) > 0 {
		message += "; " + in.tellLeftovers()
	}
	return is(false, reasonOf(in.lagging(v.rows)), message)
}

// refusing counts the spokes that the placement selects by labels and that don't take the rule.
func (in *Input) refusing() (n int) {
	selection, err := rule.SelectionOf(in.Rule.GetPlacement())
	if err != nil {
		return 0 // validation.Rule refuses it
	}
	for i := range in.Clusters {
		s := &in.Clusters[i]
		if !s.taken() && selection.Selects(s.Cluster) && !slices.Contains(in.Rule.GetPlacement().Names, v1alpha1.ClusterName(s.Name)) {
			n++
		}
	}
	return n
}

func (in *Input) tellRefusing() string {
	switch n, kind, namespace := in.refusing(), in.Rule.SourceKind(), in.Rule.GetNamespace(); n {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf(" (1 more spoke matches, but does not take %ss of namespace %s; see its spec.tenants)", kind, namespace)
	default:
		return fmt.Sprintf(" (%d more spokes match, but do not take %ss of namespace %s; see their spec.tenants)", n, kind, namespace)
	}
}

// notAccepted says in short why a rule is not accepted.
func (in *Input) notAccepted() string {
	if in.Invalid.Reason == v1alpha1.ReasonLimitExceeded {
		return "the namespace has too many rules"
	}
	return "the spec is not valid"
}

// leftovers returns the rows of spokes in which the rule does not belong, by name.
func (in *Input) leftovers() []v1alpha1.ClusterStatus {
	var out []v1alpha1.ClusterStatus
	for _, name := range slices.Sorted(maps.Keys(in.Leftovers)) {
		out = append(out, in.fit(name, in.Leftovers[name]))
	}
	return out
}

func (in *Input) tellLeftovers() string {
	return "the rule could not be removed from spokes that should not have it: " + tell(in.leftovers(), len(in.Leftovers))
}

// reasonOf returns the reason of rows, or Progressing if they have several reasons.
func reasonOf(rows []v1alpha1.ClusterStatus) string {
	reason := rows[0].Reason
	if reason == "" || slices.ContainsFunc(rows, func(r v1alpha1.ClusterStatus) bool { return r.Reason != reason }) {
		return v1alpha1.ReasonProgressing
	}
	return reason
}

// stalled derives Stalled from the rows. is is false if the rule is not stalled.
func (in *Input) stalled(v view) (c metav1.Condition, is bool) {
	if in.Invalid != nil {
		return condition(v1alpha1.ConditionStalled, true, in.Invalid.Reason, in.notAccepted()+"; see condition Accepted"), true
	}
	stalls := func(rows []v1alpha1.ClusterStatus) []v1alpha1.ClusterStatus {
		return slices.DeleteFunc(slices.Clone(rows), func(r v1alpha1.ClusterStatus) bool { return !reasons.Is(r.Reason, reasons.Stalling) })
	}
	leftovers := stalls(in.leftovers())
	all, quoted := append(stalls(v.rows), leftovers...), append(stalls(v.listed), leftovers...)
	if len(all) == 0 {
		return c, false
	}
	message := tell(quoted, len(all))
	return condition(v1alpha1.ConditionStalled, true, append(quoted, all...)[0].Reason, message), true
}

// metricsMissing reports whether a spoke's Prometheus lacks series that the expression selects, as far as is known.
func (in *Input) metricsMissing(v view) (c metav1.Condition, is bool) {
	if was := meta.FindStatusCondition(in.Rule.GetStatus().Conditions, v1alpha1.ConditionMetricsPresent); was != nil && in.Metrics && in.kept(v) {
		return *was, true
	}
	var lacking []string
	for i := range v.rows {
		if r := &v.rows[i]; len(r.MissingMetrics) > 0 {
			lacking = append(lacking, string(r.Name)+": "+strings.Join(r.MissingMetrics, ", "))
		}
	}
	if !in.Metrics || len(lacking) == 0 {
		return c, false
	}
	quoted := make([]string, 0, told)
	for _, text := range lacking[:min(told, len(lacking))] {
		quoted = append(quoted, clip.Marked(text, toldBytes))
	}
	message := "no series in " + strings.Join(quoted, "; ")
	if more := len(lacking) - told; more > 0 {
		message += fmt.Sprintf("; and in %d more spokes", more)
	}
	message += ". Without them, the alert can't fire there; check that they are scraped and that the names are right"
	if in.Rule.SourceKind() == v1alpha1.RulePackKind {
		message += ". A recording rule is listed if it has no result although the series that it reads exist; check its expression"
	}
	return condition(v1alpha1.ConditionMetricsPresent, false, v1alpha1.ReasonMetricsMissing, message), true
}

// tell quotes the worst of the listed rows, after sorting them, and counts the others.
func tell(rows []v1alpha1.ClusterStatus, outOf int) string {
	if len(rows) == 0 {
		return fmt.Sprintf("%d spokes that are not listed", outOf)
	}
	WorstFirst(rows)
	var parts []string
	for _, r := range rows[:min(told, len(rows))] {
		text := string(r.Name) + ": " + cmp.Or(r.Reason, v1alpha1.ReasonProgressing)
		if r.Message != "" {
			text += ": " + clip.Marked(r.Message, toldBytes)
		}
		parts = append(parts, text)
	}
	if more := outOf - len(parts); more > 0 {
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

// maxAcceptedMessage limits the message of Accepted, in bytes.
const maxAcceptedMessage = 900

// AcceptedMessage returns the message of Accepted=True with warnings, with a limited length.
func AcceptedMessage(warnings []string) string {
	const valid = "the spec is valid"
	if len(warnings) == 0 {
		return valid
	}
	return clip.Marked(valid+"; warning: "+strings.Join(warnings, "; "), maxAcceptedMessage)
}
