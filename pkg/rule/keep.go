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
func candidates(c *Cluster) []*Evaluator {
	var out []*Evaluator
	for i := range c.Evaluators {
		if e := &c.Evaluators[i]; e.RuleSelector != nil && !e.Missing {
			out = append(out, e)
		}
	}
	return out
}

// undecided reports whether the choice of an evaluator is open: there are several and none is chosen,
// a named one does not exist, or the chosen one has disappeared. In the meantime, existing rules in
// the spoke stay unchanged.
func undecided(c *Cluster) bool {
	if len(c.EvaluatorRefs) > 0 {
		return len(missing(c.Evaluators, c.EvaluatorRefs)) > 0
	}
	gone := slices.ContainsFunc(c.Evaluators, func(e Evaluator) bool { return e.Missing })
	return len(c.Chosen()) == 0 && (gone || len(candidates(c)) > 0)
}

const (
	// maxCandidates is the number of candidates that a message names.
	maxCandidates = 3
	// maxAmbiguity bounds that message, in bytes. A longer one would be cut off in a status, with its command.
	maxAmbiguity = 512
)

// Ambiguity explains that none of several evaluators is chosen, and how to choose one. It returns ""
// if that is not the case.
func Ambiguity(c Cluster) string {
	candidates := candidates(&c)
	if len(c.Chosen()) > 0 || len(candidates) == 0 || len(c.EvaluatorRefs) > 0 {
		return ""
	}
	e := candidates[0]
	command := fmt.Sprintf(`for example the first one: kubectl patch spokecluster %s --type merge -p '{"spec":{"evaluatorRefs":[{"kind":%q,"namespace":%q,"name":%q}]}}'`,
		c.Name, e.Kind, e.Namespace, e.Name)
	for named := min(len(candidates), maxCandidates); named >= 0; named-- {
		if message := ambiguity(candidates, named, command); len(message) <= maxAmbiguity {
			return message
		}
	}
	return ambiguity(candidates, 0, "in spec.evaluatorRefs: kubectl edit spoke "+c.Name)
}

// ambiguity names some of the candidates. The command comes last so that it can be copied.
func ambiguity(candidates []*Evaluator, named int, command string) string {
	names := make([]string, 0, named+1)
	for _, e := range candidates[:named] {
		names = append(names, e.String())
	}
	if more := len(candidates) - named; more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return fmt.Sprintf("the spoke has several Prometheus or ThanosRuler objects (%s), and none is chosen; existing rules keep their labels and their namespace. Name the one that evaluates them, %s",
		strings.Join(names, ", "), command)
}

// KeepLabels keeps the labels that a PrometheusRule has for an evaluator while there is no single
// answer to which labels it needs: the selectors of the chosen evaluators contradict each other, or
// the choice is open.
func KeepLabels(desired, existing *monitoringv1.PrometheusRule, c Cluster, hubID string) {
	_, open := demandedLabels(&c, desired.Labels)
	undecided := undecided(&c)
	if len(open) == 0 && !undecided || !Owned(existing, hubID) {
		return
	}
	for _, key := range extraLabels(existing) {
		value, has := existing.Labels[key]
		if _, decided := desired.Labels[key]; has && !decided && (undecided || wants(&c, key, value)) {
			desired.Labels[key] = value
		}
	}
	noteExtra(desired.Annotations, desired.Labels)
}

// KeepMark keeps the cluster label of an alert while the choice of the evaluator with that external
// label is open. With another value, it would be another alert.
func KeepMark(desired, existing *monitoringv1.PrometheusRule, c Cluster, o RenderOptions) {
	if mark := markOf(existing, o.ClusterLabel); mark != "" && o.ClusterLabel != "" && undecided(&c) && Owned(existing, o.HubID) {
		desired.Spec.Groups[0].Rules[0].Labels[o.ClusterLabel] = mark
	}
}

// KeepNamespace keeps a PrometheusRule that belongs into the evaluator's namespace in its present
// namespace while the choice of the evaluator is open. If several objects claim to be the rule's, the
// oldest one counts, because others may be copies.
func KeepNamespace(desired *monitoringv1.PrometheusRule, ar *v1alpha1.AlertRule, claimed []*monitoringv1.PrometheusRule, c Cluster, o RenderOptions) {
	if !Anywhere(ar, o) || !undecided(&c) {
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

// markOf returns the value of a label of the only alert in a PrometheusRule.
func markOf(o *monitoringv1.PrometheusRule, label string) string {
	if len(o.Spec.Groups) != 1 || len(o.Spec.Groups[0].Rules) != 1 {
		return ""
	}
	return o.Spec.Groups[0].Rules[0].Labels[label]
}

// wants reports whether the ruleSelector of a chosen evaluator requires a label and accepts this
// value.
func wants(c *Cluster, key, value string) bool {
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
