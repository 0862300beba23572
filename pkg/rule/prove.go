package rule

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/prometheus/common/model"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// ReasonUnproven is the reason of a verdict on a rule that is selected, and whose evaluator was
// not asked since the operator started: what the status says of it stands. No status has it.
const ReasonUnproven = "Unproven"

// Outcome is what came of asking an evaluator about a rule.
type Outcome int

const (
	// Unasked is an evaluator that was not asked yet. It is the zero value.
	Unasked Outcome = iota
	// NotGranted is one that the operator may not ask.
	NotGranted
	// Unreachable is one that did not answer, or not as a Prometheus does.
	Unreachable
	// Absent is a rule that the evaluator has not loaded, or not as it is now.
	Absent
	// Waiting is a rule that was loaded, and not evaluated yet.
	Waiting
	// Failed is a rule whose last evaluation ended with an error.
	Failed
	// Evaluates is a rule that was evaluated.
	Evaluates
)

// Evaluation is what an evaluator says of a rule.
type Evaluation struct {
	Outcome Outcome
	// Late tells that the rule is Absent for longer than loading takes.
	Late bool
	// Unsure tells that the rule is Absent or Waiting by the first polls since the operator started:
	// where it was evaluated before, too few of them agree for that to be news.
	Unsure bool
	// Message is the error of the evaluation.
	Message string
	// Firing and Pending count its alerts, as they were last seen, where Seen tells that they were.
	Firing, Pending int32
	Seen            bool
	// Missing are selectors of its expression that match no series, where Checked tells that
	// they were looked for.
	Missing []string
	Checked bool
}

// LoadingTime is how long an evaluator may take to load a rule before that is told: the kubelet
// brings a changed ConfigMap into a pod within 60 to 90 s, most of the time.
const LoadingTime = 5 * time.Minute

// Prove says how far a rule is in a spoke that holds it as it should, given who selects it, and
// what each of those says of it. Of the row, it sets phase, reason, message, evaluators,
// firing and missing metrics. all tells that every evaluator counts; otherwise, the one
// that says the best is enough.
func Prove(o *monitoringv1.PrometheusRule, s Selection, of func(*Evaluator) Evaluation, all bool) v1alpha1.ClusterStatus {
	row := v1alpha1.ClusterStatus{Phase: v1alpha1.PhaseApplied, Reason: s.Reason, Message: s.Message}
	for _, e := range s.By[:min(len(s.By), maxRowEvaluators)] {
		row.Evaluators = append(row.Evaluators, bounded(e.String(), maxRowEvaluator))
	}
	if s.Reason == v1alpha1.ReasonNamespaceEnforced {
		row.Phase = v1alpha1.PhaseSelected
	}
	says := make([]said, len(s.By))
	for i, e := range s.By {
		says[i] = said{Evaluation: of(e), by: e}
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
	row.Phase, row.Reason, row.Message = conclude(is.by, is.Evaluation, is.accepted)
	return row
}

// said is what is known of a rule and one of the evaluators that select it.
type said struct {
	Evaluation

	by       *Evaluator
	accepted bool
	refusal  string // of prometheus-operator
}

// refused tells whether a refusal counts: not against an evaluator that has the rule, and not
// before it was asked.
func (s *said) refused() bool {
	return s.refusal != "" && s.Outcome != Evaluates && s.Outcome != Failed && s.Outcome != Unasked
}

// decisive returns what says the worst if all count, and the best otherwise.
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

// refused is what came of an evaluator that does not get the rule.
const refused Outcome = -1

// best and worst order outcomes, where one evaluator is enough and where all count. Before one
// was asked that could still decide it, nothing is said, or a restart would be seen.
var (
	best  = []Outcome{refused, NotGranted, Unreachable, Absent, Waiting, Failed, Unasked, Evaluates}
	worst = []Outcome{Unasked, refused, Failed, Absent, Unreachable, Waiting, NotGranted, Evaluates}
)

// conclude says how far a rule is that an evaluator selects.
func conclude(e *Evaluator, is Evaluation, accepted bool) (phase v1alpha1.Phase, reason, message string) {
	switch is.Outcome {
	case Evaluates:
		return v1alpha1.PhaseEvaluating, "", ""
	case Failed:
		return v1alpha1.PhaseSelected, v1alpha1.ReasonEvaluationFailed, fmt.Sprintf("%s can't evaluate the rule: %s", e, is.Message)
	case Absent, Waiting:
		if is.Outcome == Absent && is.Late {
			return v1alpha1.PhaseSelected, v1alpha1.ReasonNotLoaded, fmt.Sprintf(
				"%s selects the rule, but has not loaded its present version for more than %d minutes; see the events of the PrometheusRule, and the logs of prometheus-operator and of that %s's config-reloader",
				e, int(LoadingTime.Minutes()), e.Kind)
		}
		return v1alpha1.PhaseSelected, v1alpha1.ReasonLoading, e.String() + " selects the rule, but has not loaded and evaluated its present version yet; this takes a minute or two"
	case Unreachable:
		return v1alpha1.PhaseSelected, v1alpha1.ReasonEvaluatorUnreachable, e.String() + " does not answer; see the condition Evaluating of the SpokeCluster"
	case NotGranted:
		reason = v1alpha1.ReasonPredicted
		message = e.String() + " selects the rule, as computed from its selectors; Rulefleet may not query it"
		if accepted {
			reason, message = v1alpha1.ReasonConfirmed, "prometheus-operator passes the rule to "+e.String()+"; Rulefleet may not query it"
		}
		return v1alpha1.PhaseSelected, reason, message
	}
	return v1alpha1.PhaseSelected, ReasonUnproven, ""
}

// bindingOf reads what prometheus-operator says of a PrometheusRule and an evaluator, where its
// feature gate StatusForConfigurationResources is on.
func bindingOf(o *monitoringv1.PrometheusRule, e *Evaluator) (accepted bool, refusal string) {
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
			return false, bounded(strings.TrimPrefix(c.Reason+": "+c.Message, ": "), toldBytes)
		}
	}
	return false, ""
}

var resources = map[string]string{KindPrometheus: "prometheuses", KindThanosRuler: "thanosrulers"}

// Bounds of the API.
const (
	maxRowEvaluators = 16
	maxRowEvaluator  = 329
)

// LoadedRule is an alert as an evaluator has loaded it.
type LoadedRule struct {
	Name, Query        string
	For, KeepFiringFor time.Duration
	Labels             map[string]string
	Annotations        map[string]string
}

// LoadedDigest returns a digest of an alert that an evaluator has loaded. It is that of the
// PrometheusRule which the alert comes from, by ContentDigest, if that was not changed since.
func LoadedDigest(r *LoadedRule, confined string) string {
	text := []string{r.Name, canonical(r.Query), milliseconds(r.For), milliseconds(r.KeepFiringFor)}
	if confined != "" {
		text[1] = "" // prometheus-operator rewrites it
	}
	return digestOf(slices.Concat(text, sorted(r.Labels, confined), []string{""}, sorted(r.Annotations, ""))...)[:hashLength]
}

// ContentDigest returns a digest of what an evaluator loads of a PrometheusRule of this hub.
func ContentDigest(o *monitoringv1.PrometheusRule, e *Evaluator) string {
	r := only(o)
	if r == nil {
		return ""
	}
	loaded := LoadedRule{Name: r.Alert, Query: r.Expr.String(), Labels: r.Labels, Annotations: r.Annotations}
	if r.For != nil {
		loaded.For = parsedDuration(string(*r.For))
	}
	if r.KeepFiringFor != nil {
		loaded.KeepFiringFor = parsedDuration(string(*r.KeepFiringFor))
	}
	return LoadedDigest(&loaded, e.Confined(o))
}

// ExprOf returns the expression of a PrometheusRule of this hub.
func ExprOf(o *monitoringv1.PrometheusRule) string {
	if r := only(o); r != nil {
		return r.Expr.String()
	}
	return ""
}

// only returns the one rule of a PrometheusRule of this hub, or nil for one that is not as a hub
// pushes it: it is about to be put right.
func only(o *monitoringv1.PrometheusRule) *monitoringv1.Rule {
	if len(o.Spec.Groups) != 1 || len(o.Spec.Groups[0].Rules) != 1 {
		return nil
	}
	return &o.Spec.Groups[0].Rules[0]
}

// Confined returns the label that an evaluator sets on every alert of a PrometheusRule, whose
// expression it rewrites; "" where it does not.
func (e *Evaluator) Confined(o *monitoringv1.PrometheusRule) string {
	if e.enforces(o) {
		return e.EnforcedNamespaceLabel
	}
	return ""
}

// Given returns which labels an evaluator was given for the alert of a PrometheusRule, of those
// that it tells of. A ThanosRuler tells of its external labels as if they were the alert's, in
// place of labels of the same name; prometheus-operator gives it one at least, with its pod's name.
func (e *Evaluator) Given(o *monitoringv1.PrometheusRule, told map[string]string) map[string]string {
	r := only(o)
	if e.Kind != KindThanosRuler || r == nil {
		return told
	}
	out := map[string]string{}
	for key, value := range r.Labels {
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

// clusterKey is the external label that Evaluator.ClusterLabel is the value of.
const clusterKey = "cluster"

// canonical returns an expression as this version of Prometheus writes it. One that is refused stays
// as it is: no hub pushed it.
func canonical(expr string) string {
	tree, f := parsePromQL(expr, anyPromQL)
	if f != nil {
		return expr
	}
	return tree.String()
}

// milliseconds tells a duration to the millisecond, as exact as Prometheus' are: what it says in
// seconds may be off by less.
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
