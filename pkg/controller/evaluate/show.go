package evaluate

import (
	"cmp"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/controller/hub"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/spoke"
)

// supported is how many rules of this hub one Prometheus is supported with, and crowding from how many on
// that is told.
const (
	supported = 2000
	crowding  = supported * 8 / 10
)

func crowded(loaded int) bool { return loaded > crowding }

// Show implements spoke.Evaluation. A Finding without a status is a condition that there is no
// reason for, and one that is missing is one of which nothing is known yet.
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
	out := s.list(sc, c, list, read.Known)
	findings := map[string]spoke.Finding{}
	if read.Known || read.WhyNot != "" {
		findings[v1alpha1.ConditionEvaluatorsFound] = found(c, read)
	}
	if f, known := s.evaluating(c); known {
		findings[v1alpha1.ConditionEvaluating] = f
	}
	if f, known := s.metricsPresent(); known && p.Metrics {
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

// list returns what status.evaluators is to list. fresh tells that they were just read.
func (s *spokeState) list(sc *v1alpha1.SpokeCluster, c *rule.Cluster, list []v1alpha1.Evaluator, fresh bool) []v1alpha1.Evaluator {
	out := make([]v1alpha1.Evaluator, 0, len(list))
	for i := range list {
		e := *list[i].DeepCopy()
		if !fresh && e.Chosen {
			e.Message = "" // it is what this showed before
		}
		if e.Chosen = c.Evaluators[i].Chosen; e.Chosen {
			e.Message = s.message(sc, &e, c.Evaluators[i].String())
		}
		out = append(out, e)
	}
	return out
}

// message returns what to show of an evaluator that is to evaluate rules.
func (s *spokeState) message(sc *v1alpha1.SpokeCluster, e *v1alpha1.Evaluator, name string) string {
	es := s.evaluators[name]
	if es == nil || es.outcome == rule.Unasked {
		return cmp.Or(shownOf(sc, e), e.Message) // until it was asked
	}
	return cmp.Or(es.message, e.Message)
}

// shownOf returns what is shown of an evaluator at present.
func shownOf(sc *v1alpha1.SpokeCluster, e *v1alpha1.Evaluator) string {
	for i := range sc.Status.Evaluators {
		if was := &sc.Status.Evaluators[i]; was.Kind == e.Kind && was.Namespace == e.Namespace && was.Name == e.Name {
			return was.Message
		}
	}
	return ""
}

// found is the condition EvaluatorsFound.
func found(c *rule.Cluster, read spoke.Evaluators) spoke.Finding {
	missing := rule.Choose(c.Evaluators, c.EvaluatorRefs)
	var names []string
	for _, e := range c.Chosen() {
		names = append(names, e.String())
	}
	switch {
	case read.WhyNot != "":
		return spoke.Finding{Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonEvaluatorsUnknown, Message: read.WhyNot}
	case len(missing) > 0:
		return spoke.Finding{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNoSuchEvaluator, Message: fmt.Sprintf(
			"the spoke has no %s %s/%s; correct spec.evaluatorRefs", missing[0].Kind, missing[0].Namespace, missing[0].Name)}
	case len(c.Evaluators) == 0:
		return spoke.Finding{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNoEvaluator, Message: "the spoke has no Prometheus or ThanosRuler object; whether anything evaluates the rules can't be known"}
	case len(names) == 0:
		return spoke.Finding{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNotSelected, Message: c.Evaluators[0].String() + " " + rule.TakesNone}
	}
	if problem := rule.LabelProblem(*c); problem != "" {
		return spoke.Finding{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNotSelected, Message: problem}
	}
	return spoke.Finding{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonEvaluatorsFound, Message: strings.Join(names, ", ")}
}

// evaluating is the condition Evaluating. known is false while it is not known of all.
func (s *spokeState) evaluating(c *rule.Cluster) (f spoke.Finding, known bool) {
	var names, crowds []string
	for _, e := range c.Chosen() {
		es := s.evaluators[e.String()]
		if es == nil || es.outcome == rule.Unasked {
			return f, false
		}
		names = append(names, e.String())
		switch {
		case es.outcome == rule.Unreachable:
			return spoke.Finding{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonEvaluatorUnreachable, Message: fmt.Sprintf(
				"%s: %s. Look at its pods in namespace %s of the spoke, and at their logs", e, es.message, e.Namespace)}, true
		case es.outcome == rule.NotGranted:
			f = spoke.Finding{Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonNotGranted, Message: e.String() + ": " + es.message}
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
			"%s has more than %d alerting rules, of %d that are supported; narrow the templates or placements, or add a Prometheus", strings.Join(crowds, " and "), crowding, supported)}, true
	}
	return spoke.Finding{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonEvaluating, Message: cmp.Or(strings.Join(names, " and "), "it") + " can be asked, and answers"}, true
}

// metricsPresent is the condition MetricsPresent of a spoke.
func (s *spokeState) metricsPresent() (spoke.Finding, bool) {
	switch {
	case !s.series.checked:
		return spoke.Finding{}, false
	case s.series.ksmMissing != "":
		return spoke.Finding{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonKubeStateMetricsMissing, Message: fmt.Sprintf(
			"Prometheus has none of kube-state-metrics' metrics that rules need, such as %s: they can't fire. Install kube-state-metrics in the spoke, or look why it is not scraped", s.series.ksmMissing)}, true
	}
	return spoke.Finding{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonMetricsPresent, Message: "the metrics of kube-state-metrics that rules need are there"}, true
}
