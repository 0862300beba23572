package rule

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// candidates are the evaluators that could be chosen.
func (c *Cluster) candidates() []*Evaluator {
	var out []*Evaluator
	for i := range c.Evaluators {
		if e := &c.Evaluators[i]; e.RuleSelector != nil && !e.Missing {
			out = append(out, e)
		}
	}
	return out
}

// undecided tells that a person has to say which evaluator is meant: of several, none is chosen, or
// one that is named is not there, or the one that was chosen is gone. Meanwhile, what is in the
// spoke stays as it is.
func (c *Cluster) undecided() bool {
	if len(c.EvaluatorRefs) > 0 {
		return len(missing(c.Evaluators, c.EvaluatorRefs)) > 0
	}
	gone := slices.ContainsFunc(c.Evaluators, func(e Evaluator) bool { return e.Missing })
	return len(c.Chosen()) == 0 && (gone || len(c.candidates()) > 0)
}

// maxCandidates is how many candidates a message names.
const maxCandidates = 3

// Ambiguity says that of several evaluators none is chosen, and how to choose one; "" where
// that is not so.
func Ambiguity(c Cluster) string {
	candidates := c.candidates()
	if len(c.Chosen()) > 0 || len(candidates) == 0 || len(c.EvaluatorRefs) > 0 {
		return ""
	}
	names := make([]string, 0, maxCandidates+1)
	for _, e := range candidates[:min(len(candidates), maxCandidates)] {
		names = append(names, e.String())
	}
	if more := len(candidates) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	e := candidates[0]
	return fmt.Sprintf("the spoke has several Prometheus or ThanosRuler objects (%s), and none is chosen; existing rules stay unchanged. Name the one that evaluates them: "+
		`kubectl patch spokecluster %s --type merge -p '{"spec":{"evaluatorRefs":[{"kind":%q,"namespace":%q,"name":%q}]}}'`,
		strings.Join(names, ", "), c.Name, e.Kind, e.Namespace, e.Name)
}

// KeepLabels leaves on a PrometheusRule the labels that it has for an evaluator's sake, where there
// is no one answer to which it should have: the selectors of those that are chosen contradict
// each other, or it is undecided which one is meant.
func KeepLabels(desired, existing *monitoringv1.PrometheusRule, c Cluster, hubID string) {
	_, open := c.demandedLabels(desired.Labels)
	undecided := c.undecided()
	if len(open) == 0 && !undecided || !Owned(existing, hubID) {
		return
	}
	for _, key := range extraLabels(existing) {
		value, has := existing.Labels[key]
		if _, decided := desired.Labels[key]; has && !decided && (undecided || c.wants(key, value)) {
			desired.Labels[key] = value
		}
	}
	noteExtra(desired.Annotations, desired.Labels)
}

// KeepMark leaves on an alert what it says of its cluster while it is undecided whose external label
// that is: with another value, it would be another alert.
func KeepMark(desired, existing *monitoringv1.PrometheusRule, c Cluster, o RenderOptions) {
	if mark := markOf(existing, o.ClusterLabel); mark != "" && o.ClusterLabel != "" && c.undecided() && Owned(existing, o.HubID) {
		desired.Spec.Groups[0].Rules[0].Labels[o.ClusterLabel] = mark
	}
}

// KeepNamespace leaves a PrometheusRule that goes where the spoke's evaluator is in its namespace
// while it is undecided which one that is. Of several that say that they are the rule's, it
// is the oldest: somebody may have made a copy.
func KeepNamespace(desired *monitoringv1.PrometheusRule, ar *v1alpha1.AlertRule, claimed []*monitoringv1.PrometheusRule, c Cluster, o RenderOptions) {
	if !Anywhere(ar, o) || !c.undecided() {
		return
	}
	ours := slices.DeleteFunc(slices.Clone(claimed), func(p *monitoringv1.PrometheusRule) bool {
		return !Owned(p, o.HubID) || p.DeletionTimestamp != nil
	})
	if len(ours) > 0 {
		desired.Namespace = slices.MinFunc(ours, func(a, b *monitoringv1.PrometheusRule) int {
			return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace, b.Namespace))
		}).Namespace
	}
}

// markOf returns what the one alert of a PrometheusRule has for a label.
func markOf(o *monitoringv1.PrometheusRule, label string) string {
	if len(o.Spec.Groups) != 1 || len(o.Spec.Groups[0].Rules) != 1 {
		return ""
	}
	return o.Spec.Groups[0].Rules[0].Labels[label]
}

// wants tells whether a chosen evaluator's ruleSelector asks for a label, and takes this value of it.
func (c *Cluster) wants(key, value string) bool {
	return slices.ContainsFunc(c.Chosen(), func(e *Evaluator) bool {
		selector, err := metav1.LabelSelectorAsSelector(e.RuleSelector)
		if err != nil {
			return false
		}
		requirements, _ := selector.Requirements()
		asks := false
		for i := range requirements {
			r := &requirements[i]
			if r.Key() != key {
				continue
			}
			if !r.Matches(labels.Set{key: value}) {
				return false
			}
			asks = asks || !r.Matches(labels.Set{})
		}
		return asks
	})
}
