package evaluation

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/prometheus/common/model"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/clip"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/promql"
)

// ReasonUnproven is the reason of a verdict on a selected rule whose evaluator has not been queried
// since the operator started. The state in the status is kept. No status has this reason.
const ReasonUnproven = "Unproven"

// Outcome is the result of querying an evaluator about a rule.
type Outcome int

const (
	// Unasked means that the evaluator has not been queried yet. It is the zero value.
	Unasked Outcome = iota
	// NotGranted means that the operator is not allowed to query the evaluator.
	NotGranted
	// Unreachable means that the evaluator did not answer, or not as a Prometheus does.
	Unreachable
	// Absent means that the evaluator has not loaded the current version of the rule.
	Absent
	// Waiting means that the rule was loaded but not evaluated yet.
	Waiting
	// Failed means that the last evaluation of the rule ended with an error.
	Failed
	// Evaluates means that the rule was evaluated.
	Evaluates
)

// State is the state of a rule in an evaluator.
type State struct {
	Outcome Outcome
	// Late is true if the rule has been Absent for longer than loading takes.
	Late bool
	// Unsure is true if the rule is Absent or Waiting according to the first polls since the operator
	// started. If it was evaluated before, too few polls agree to report it.
	Unsure bool
	// Message is the error if the outcome is Failed. If it is Absent, it names the first rule that differs from the loaded
	// version, or is "".
	Message string
	// Firing and Pending are the last known numbers of its alerts, if Seen is true.
	Firing, Pending int32
	Seen            bool
	// Missing are selectors of its expression that match no series, if Checked is true.
	Missing []string
	Checked bool
}

// LoadingTime is the time that an evaluator may take to load a rule before it is reported. The kubelet
// usually brings a changed ConfigMap into a pod within 60 to 90 s.
const LoadingTime = 5 * time.Minute

// Prove determines the phase of a rule in a spoke that holds its current version, given the evaluators
// that select it and their evaluations. It sets phase, reason, message, evaluators, firing and missing
// metrics of the row. If all is true, every evaluator counts; otherwise the best result is enough.
func Prove(o *monitoringv1.PrometheusRule, s Selection, of func(*rule.Evaluator) State, all bool) v1alpha1.ClusterStatus {
	row := v1alpha1.ClusterStatus{Phase: v1alpha1.PhaseApplied, Reason: s.Reason, Message: s.Message}
	for _, e := range s.By[:min(len(s.By), maxRowEvaluators)] {
		row.Evaluators = append(row.Evaluators, clip.Marked(e.String(), maxRowEvaluator))
	}
	if s.Reason == v1alpha1.ReasonNamespaceEnforced {
		row.Phase = v1alpha1.PhaseSelected
	}
	says := make([]said, len(s.By))
	for i, e := range s.By {
		says[i] = said{State: of(e), by: e}
		says[i].accepted, says[i].refusal = bindingOf(o, e)
		row.Firing = max(row.Firing, says[i].Firing)
	}
	if s.Reason != "" {
		return row
	}
	is := decisive(says, all)
	row.MissingMetrics = is.Missing
	if is.refused() {
		row.Reason, row.Message = v1alpha1.ReasonRejected, fmt.Sprintf("prometheus-operator does not pass the rule to %s: %s", is.by, is.refusal)
		return row
	}
	row.Phase, row.Reason, row.Message = conclude(is.by, is.State, is.accepted)
	return row
}

// said is the state of a rule in one of the evaluators that select it.
type said struct {
	State

	by       *rule.Evaluator
	accepted bool
	refusal  string // of prometheus-operator
}

// refused reports whether a refusal of prometheus-operator counts. It does not count for an evaluator
// that has the rule, or that has not been queried yet.
func (s *said) refused() bool {
	return s.refusal != "" && s.Outcome != Evaluates && s.Outcome != Failed && s.Outcome != Unasked
}

// decisive returns the worst evaluation if all count, and the best otherwise.
func decisive(says []said, all bool) *said {
	order := best
	if all {
		order = worst
	}
	rank := func(s *said) int {
		switch {
		case s.refused():
			return slices.Index(order, refused)
		case s.Outcome == Absent && !s.Late:
			return slices.Index(order, Waiting)
		}
		return slices.Index(order, s.Outcome)
	}
	out := &says[0]
	for i := range says {
		switch is, was := rank(&says[i]), rank(out); {
		case all && is < was, !all && is > was:
			out = &says[i]
		}
	}
	return out
}

// refused means that the evaluator does not get the rule.
const refused Outcome = -1

// best and worst order outcomes, if one evaluator is enough and if all count. While an evaluator that
// could still decide has not been queried, nothing is reported, so that restarts are not visible.
var (
	best  = []Outcome{refused, NotGranted, Unreachable, Absent, Waiting, Failed, Unasked, Evaluates}
	worst = []Outcome{Unasked, refused, Failed, Absent, Unreachable, Waiting, NotGranted, Evaluates}
)

// conclude returns the phase of a rule that an evaluator selects.
func conclude(e *rule.Evaluator, is State, accepted bool) (phase v1alpha1.Phase, reason, message string) {
	switch is.Outcome {
	case Evaluates:
		return v1alpha1.PhaseEvaluating, "", ""
	case Failed:
		return v1alpha1.PhaseSelected, v1alpha1.ReasonEvaluationFailed, fmt.Sprintf("%s can't evaluate the rule: %s", e, is.Message)
	case Absent, Waiting:
		if is.Outcome == Absent && is.Late {
			differs := ""
			if is.Message != "" {
				differs = " (first difference: " + is.Message + ")"
			}
			return v1alpha1.PhaseSelected, v1alpha1.ReasonNotLoaded, fmt.Sprintf(
				"%s selects the rule, but has not loaded its current version for more than %d minutes%s; see the events of the PrometheusRule, and the logs of prometheus-operator and of that %s's config-reloader; one invalid rule of any owner makes the reload of all rules fail",
				e, int(LoadingTime.Minutes()), differs, e.Kind)
		}
		return v1alpha1.PhaseSelected, v1alpha1.ReasonLoading, e.String() + " selects the rule, but has not loaded and evaluated its current version yet; this takes a minute or two"
	case Unreachable:
		return v1alpha1.PhaseSelected, v1alpha1.ReasonEvaluatorUnreachable, e.String() + " gives no answer that Rulefleet can use; see the condition Evaluating of the SpokeCluster"
	case NotGranted:
		reason = v1alpha1.ReasonPredicted
		message = e.String() + " selects the rule, as computed from its selectors; see the condition Evaluating of the SpokeCluster for why Rulefleet can't query it"
		if accepted {
			reason, message = v1alpha1.ReasonConfirmed, "prometheus-operator passes the rule to "+e.String()+"; see the condition Evaluating of the SpokeCluster for why Rulefleet can't query it"
		}
		return v1alpha1.PhaseSelected, reason, message
	}
	return v1alpha1.PhaseSelected, ReasonUnproven, ""
}

// bindingOf reads the state that prometheus-operator reports of a PrometheusRule and an evaluator, if
// its feature gate StatusForConfigurationResources is on.
func bindingOf(o *monitoringv1.PrometheusRule, e *rule.Evaluator) (accepted bool, refusal string) {
	for i := range o.Status.Bindings {
		b := &o.Status.Bindings[i]
		if b.Namespace != e.Namespace || b.Name != e.Name || b.Resource != resources[e.Kind] {
			continue
		}
		for _, c := range b.Conditions {
			if c.Type != monitoringv1.Accepted || c.ObservedGeneration != o.Generation {
				continue
			}
			if c.Status == monitoringv1.ConditionTrue {
				return true, ""
			}
			return false, clip.Marked(strings.TrimPrefix(c.Reason+": "+c.Message, ": "), maxRefusal)
		}
	}
	return false, ""
}

var resources = map[string]string{rule.KindPrometheus: "prometheuses", rule.KindThanosRuler: "thanosrulers"}

// Bounds of the API.
const (
	maxRowEvaluators = 16
	maxRowEvaluator  = 329
)

// maxRefusal limits the message of a refusal by prometheus-operator, in bytes.
const maxRefusal = 256

// Loaded is a rule as an evaluator has loaded it.
type Loaded struct {
	// Group is the name of its group. Recording is false for an alert.
	Group     string
	Interval  time.Duration // of the group
	Recording bool

	Name, Query        string
	For, KeepFiringFor time.Duration
	Labels             map[string]string
	Annotations        map[string]string
}

// loadedDigest returns a digest of a rule that an evaluator has loaded. It equals the contentDigest of the rule in the
// PrometheusRule from which it comes, if that was not changed since.
func loadedDigest(r *Loaded, confined string) string {
	text := []string{r.Name, promql.Canonical(r.Query), milliseconds(r.For), milliseconds(r.KeepFiringFor)}
	if confined != "" {
		text[1] = "" // prometheus-operator rewrites it
	}
	if r.Recording {
		text = append(text, "record")
	}
	return rule.Hash(slices.Concat(text, sorted(r.Labels, confined), []string{""}, sorted(r.Annotations, ""))...)
}

// contentDigest returns a digest of the part of a rule in a PrometheusRule of this hub that an evaluator loads. confined
// is the result of Confined.
func contentDigest(c *Content, confined string) string {
	r := c.Rule
	loaded := Loaded{Name: r.Alert + r.Record, Recording: r.Alert == "", Query: r.Expr.String(), Labels: c.labels(), Annotations: r.Annotations}
	if r.For != nil {
		loaded.For = parsedDuration(string(*r.For))
	}
	if r.KeepFiringFor != nil {
		loaded.KeepFiringFor = parsedDuration(string(*r.KeepFiringFor))
	}
	return loadedDigest(&loaded, confined)
}

// Content is a rule in a PrometheusRule, and its group.
type Content struct {
	Group *monitoringv1.RuleGroup
	Rule  *monitoringv1.Rule
}

// labels returns the labels of a rule, with those of its group.
func (c *Content) labels() map[string]string {
	if len(c.Group.Labels) == 0 {
		return c.Rule.Labels
	}
	out := maps.Clone(c.Group.Labels)
	maps.Copy(out, c.Rule.Labels)
	return out
}

// Interval returns the interval of the group, or 0 if it is the default of the evaluator.
func (c *Content) Interval() time.Duration {
	if c.Group.Interval == nil {
		return 0
	}
	return parsedDuration(string(*c.Group.Interval))
}

// Age returns how old the newest series of a recording rule can be: the interval of its group, and its query offset.
func (c *Content) Age() time.Duration {
	age := c.Interval()
	if c.Group.QueryOffset != nil {
		age += parsedDuration(string(*c.Group.QueryOffset))
	}
	return age
}

// Contents returns the rules of a PrometheusRule in the order in which Prometheus returns them: sorted by group.
func Contents(o *monitoringv1.PrometheusRule) []Content {
	var out []Content
	for i := range o.Spec.Groups {
		g := &o.Spec.Groups[i]
		for j := range g.Rules {
			out = append(out, Content{g, &g.Rules[j]})
		}
	}
	slices.SortStableFunc(out, func(a, b Content) int { return strings.Compare(a.Group.Name, b.Group.Name) })
	return out
}

// Exprs returns the expressions of a PrometheusRule of this hub.
func Exprs(o *monitoringv1.PrometheusRule) []string {
	all := Contents(o)
	out := make([]string, 0, len(all))
	for i := range all {
		out = append(out, all[i].Rule.Expr.String())
	}
	return out
}

// Mismatch compares what an evaluator has loaded, sorted by group, with a PrometheusRule of this hub. It returns the first
// difference, or "".
func Mismatch(o *monitoringv1.PrometheusRule, e *rule.Evaluator, loaded []Loaded) string {
	all, confined := Contents(o), Confined(e, o)
	for i := range all {
		if i < len(loaded) {
			is := loaded[i]
			is.Labels = given(e, &all[i], is.Labels)
			if is.Group == all[i].Group.Name && sameInterval(&all[i], is.Interval) && loadedDigest(&is, confined) == contentDigest(&all[i], confined) {
				continue
			}
		}
		return fmt.Sprintf("rule %s of group %s", clip.Marked(all[i].Rule.Alert+all[i].Rule.Record, maxRefusal), clip.Marked(all[i].Group.Name, maxRefusal))
	}
	if len(all) < len(loaded) {
		return "an additional rule"
	}
	return ""
}

// sameInterval reports whether the interval of a group is that with which it is loaded, if both are known.
func sameInterval(c *Content, loaded time.Duration) bool {
	is := c.Interval()
	return is == 0 || loaded == 0 || is == loaded
}

// Confined returns the label that an evaluator sets on every alert of a PrometheusRule, and with which
// it rewrites the expression. It returns "" if there is none.
func Confined(e *rule.Evaluator, o *monitoringv1.PrometheusRule) string {
	if enforces(e, o) {
		return e.EnforcedNamespaceLabel
	}
	return ""
}

// given returns the labels that an evaluator received for a rule, of those that it reports. A ThanosRuler
// reports its external labels as labels of the rule, in place of labels of the same name.
// prometheus-operator gives it at least one, with the name of its pod.
func given(e *rule.Evaluator, c *Content, told map[string]string) map[string]string {
	if e.Kind != rule.KindThanosRuler {
		return told
	}
	out := map[string]string{}
	for key, value := range c.labels() {
		is, has := told[key]
		switch {
		case key == clusterKey && e.ClusterLabel != "" && is == e.ClusterLabel:
			out[key] = value
		case has:
			out[key] = is
		}
	}
	return out
}

// clusterKey is the external label whose value is Evaluator.ClusterLabel.
const clusterKey = "cluster"

// milliseconds returns a duration in milliseconds, which is the precision of Prometheus. The seconds
// that Prometheus reports may differ by less.
func milliseconds(d time.Duration) string {
	return strconv.FormatInt(d.Round(time.Millisecond).Milliseconds(), 10)
}

func sorted(texts map[string]string, without string) []string {
	out := make([]string, 0, len(texts))
	for key, value := range texts {
		if key != without && value != "" {
			out = append(out, strconv.Quote(key)+strconv.Quote(value))
		}
	}
	slices.Sort(out)
	return out
}

// parsedDuration reads a duration that the API has validated.
func parsedDuration(s string) time.Duration {
	d, err := model.ParseDuration(s)
	if err != nil {
		return 0
	}
	return time.Duration(d)
}
