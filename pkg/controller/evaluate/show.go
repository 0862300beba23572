package evaluate

import (
	"cmp"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/controller/hub"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/evaluation"
	"github.com/rulefleet/rulefleet/pkg/spoke"
)

// supported is the number of this hub's rules that are supported in one Prometheus. From crowding on, the
// status says so.
const (
	supported = 2000
	crowding  = supported * 8 / 10
)

func crowded(loaded int) bool { return loaded > crowding }

// Show implements membership.Evaluation. A Finding without a status removes the condition. A missing one means that
// nothing is known yet.
func (p *Poller) Show(sc *v1alpha1.SpokeCluster, read spoke.Evaluators) ([]v1alpha1.Evaluator, map[string]spoke.Finding) {
	c := hub.ClusterOf(sc)
	list := sc.Status.Evaluators
	if read.Known {
		list = read.List
	}
	hub.WithEvaluators(c, list, read.WhyNot)
	s := p.state(sc.Name)
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.list(sc, c, read.Known, list)
	findings := map[string]spoke.Finding{}
	if read.Known || read.WhyNot != "" {
		findings[v1alpha1.ConditionEvaluatorsFound] = found(c, read)
	}
	if f, known := s.evaluating(c); known {
		findings[v1alpha1.ConditionEvaluating] = f
	}
	f, known := s.metricsPresent()
	if was := meta.FindStatusCondition(sc.Status.Conditions, v1alpha1.ConditionMetricsPresent); known || (was != nil && was.Status == metav1.ConditionUnknown) {
		findings[v1alpha1.ConditionMetricsPresent] = f
	}
	none := len(c.Chosen()) == 0
	if none && read.Known {
		findings[v1alpha1.ConditionEvaluating] = spoke.Finding{}
	}
	if none && read.Known || !p.Metrics {
		findings[v1alpha1.ConditionMetricsPresent] = spoke.Finding{}
	}
	return out, findings
}

// maxShown bounds status.evaluators.
const maxShown = 16

// list returns the entries of status.evaluators: the chosen evaluators, including those that are gone. If a
// person has to choose, it also lists the others by name only, because their other fields do not matter. fresh
// means that they were just read.
func (s *spokeState) list(sc *v1alpha1.SpokeCluster, c *rule.Cluster, fresh bool, list []v1alpha1.Evaluator) []v1alpha1.Evaluator {
	var out, others []v1alpha1.Evaluator
	for i := range list {
		e := *list[i].DeepCopy()
		if !fresh && e.Chosen {
			e.Message = "" // it comes from the status
		}
		e.Chosen = c.Evaluators[i].Chosen
		switch {
		case e.Chosen:
			e.Message = s.message(sc, &e, c.Evaluators[i].String())
			out = append(out, e)
		case !e.MissingTime.IsZero():
			out = append(out, e)
		default:
			others = append(others, v1alpha1.Evaluator{Kind: e.Kind, Namespace: e.Namespace, Name: e.Name, Message: e.Message})
		}
	}
	if len(c.Chosen()) == 0 || len(evaluation.ApplyRefs(c.Evaluators, c.EvaluatorRefs)) > 0 {
		out = append(out, others...)
	}
	return out[:min(len(out), maxShown)]
}

// message returns the message of a chosen evaluator.
func (s *spokeState) message(sc *v1alpha1.SpokeCluster, e *v1alpha1.Evaluator, name string) string {
	es := s.evaluators[name]
	if es == nil || es.outcome == evaluation.Unasked {
		return cmp.Or(shownOf(sc, e), e.Message) // until it was polled
	}
	return cmp.Or(es.message, e.Message)
}

// shownOf returns the present message of an evaluator in the status.
func shownOf(sc *v1alpha1.SpokeCluster, e *v1alpha1.Evaluator) string {
	for i := range sc.Status.Evaluators {
		if was := &sc.Status.Evaluators[i]; was.Kind == e.Kind && was.Namespace == e.Namespace && was.Name == e.Name {
			return was.Message
		}
	}
	return ""
}

// found returns the condition EvaluatorsFound.
func found(c *rule.Cluster, read spoke.Evaluators) spoke.Finding {
	missing := evaluation.ApplyRefs(c.Evaluators, c.EvaluatorRefs)
	var names, gone []string
	for _, e := range c.Chosen() {
		names = append(names, e.String())
		if e.Missing {
			gone = append(gone, e.String())
		}
	}
	not := func(reason, message string) spoke.Finding {
		return spoke.Finding{Status: metav1.ConditionFalse, Reason: reason, Message: message}
	}
	switch {
	case read.WhyNot != "":
		return spoke.Finding{Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonEvaluatorsUnknown, Message: read.WhyNot}
	case len(missing) > 0:
		return not(v1alpha1.ReasonNoSuchEvaluator, fmt.Sprintf("%s %s/%s not found in the spoke; correct spec.evaluatorRefs", missing[0].Kind, missing[0].Namespace, missing[0].Name))
	case len(gone) > 0:
		return spoke.Finding{Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonEvaluatorsUnknown, Message: fmt.Sprintf(
			"%s not found in the spoke any more; the rules stay as they are for %d minutes. If it was deleted by mistake, create it again within this time. After that, Rulefleet chooses another one, if it can, and may change the labels and the namespace of the rules", strings.Join(gone, " and "), int(evaluation.MissingGrace.Minutes()))}
	case len(names) == 0:
		return noneFound(c, not)
	}
	if problem := evaluation.LabelProblem(*c); problem != "" {
		return not(v1alpha1.ReasonNotSelected, problem)
	}
	return spoke.Finding{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonEvaluatorsFound, Message: strings.Join(names, ", ")}
}

// noneFound returns the reason why no evaluator is chosen.
func noneFound(c *rule.Cluster, not func(reason, message string) spoke.Finding) spoke.Finding {
	if message := evaluation.Ambiguity(*c); message != "" {
		return not(v1alpha1.ReasonAmbiguous, message)
	}
	for i := range c.Evaluators {
		if e := &c.Evaluators[i]; !e.Missing {
			return not(v1alpha1.ReasonNotSelected, e.String()+" "+evaluation.TakesNone(e))
		}
	}
	return not(v1alpha1.ReasonNoEvaluator, "the spoke has no Prometheus or ThanosRuler object, so it is unknown whether the rules are evaluated")
}

// evaluating returns the condition Evaluating. known is false while some evaluator is unknown.
func (s *spokeState) evaluating(c *rule.Cluster) (f spoke.Finding, known bool) {
	var names, crowds, slow []string
	for _, e := range c.Chosen() {
		es := s.evaluators[e.String()]
		if es == nil || es.outcome == evaluation.Unasked {
			return spoke.Finding{Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonEvaluatorUnreachable, Message: slowly([]string{e.String()})}, s.slow[e.String()]
		}
		if s.slow[e.String()] {
			slow = append(slow, e.String())
		}
		names = append(names, e.String())
		switch {
		case es.outcome == evaluation.Unreachable:
			reason := v1alpha1.ReasonEvaluatorUnreachable
			if es.gist == tooLarge {
				reason = v1alpha1.ReasonTooLarge
			}
			return spoke.Finding{Status: metav1.ConditionFalse, Reason: reason, Message: fmt.Sprintf(
				"%s: %s%s", e, es.message, advice(c, e, es.fault))}, true
		case es.outcome == evaluation.NotGranted:
			f = spoke.Finding{Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonNotGranted, Message: fmt.Sprintf(
				"%s: %s%s", e, es.message, advice(c, e, es.fault))}
		case crowded(es.loaded):
			crowds = append(crowds, e.String())
		}
	}
	switch {
	case len(names) == 0:
		return f, false
	case f.Reason != "":
		return f, true
	case len(crowds) > 0:
		return spoke.Finding{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonTooManyRules, Message: fmt.Sprintf(
			"%s more than %d rules of Rulefleet; at most %d are supported. Narrow the templates or placements", together(crowds, "has", "have"), crowding, supported)}, true
	}
	f = spoke.Finding{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonEvaluating, Message: together(names, "answers", "answer") + " queries"}
	if len(slow) > 0 {
		f.Message += "; " + slowly(slow)
	}
	return f, true
}

// slowly says that an answer takes long.
func slowly(names []string) string {
	return fmt.Sprintf("%s took more than %v to answer. Until an answer is complete, the state of the rules is not updated. Check the network link and the Prometheus", strings.Join(names, " and "), slowAnswer)
}

// together joins names, and adds the verb for one or for several.
func together(names []string, one, several string) string {
	if len(names) == 1 {
		several = one
	}
	return strings.Join(names, " and ") + " " + several
}

// metricsPresent returns the condition MetricsPresent of a spoke.
func (s *spokeState) metricsPresent() (spoke.Finding, bool) {
	switch {
	case s.series.failures >= metricsPatience:
		reason := v1alpha1.ReasonEvaluatorUnreachable
		if isTooLarge(s.series.problem) {
			reason = v1alpha1.ReasonTooLarge
		}
		return spoke.Finding{Status: metav1.ConditionUnknown, Reason: reason, Message: "it is unknown whether Prometheus has the metrics that rules need: " +
			spoke.Clip(s.series.problem.Error(), maxMessage)}, true
	case !s.series.checked:
		return spoke.Finding{}, false
	case s.series.ksmMissing != "":
		return spoke.Finding{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonKubeStateMetricsMissing, Message: fmt.Sprintf(
			"Prometheus has none of the metrics of kube-state-metrics that rules need, such as %s, so these rules can't fire. Install kube-state-metrics in the spoke, find out why it is not scraped or, if its series have other labels, correct the chart value kubeStateMetricsSelector", s.series.ksmMissing)}, true
	}
	return spoke.Finding{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonMetricsPresent, Message: "Prometheus has the metrics of kube-state-metrics that rules need"}, true
}
