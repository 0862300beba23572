package delivery

import (
	"cmp"
	"slices"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"

	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/evaluation"
)

// KeepLabels keeps the labels that a PrometheusRule has for an evaluator while there is no single
// answer to which labels it needs: the selectors of the chosen evaluators contradict each other, or
// the choice is open.
func KeepLabels(desired, existing *monitoringv1.PrometheusRule, c rule.Cluster, hubID string) {
	_, open := evaluation.DemandedLabels(&c, desired.Labels)
	undecided := evaluation.Undecided(&c)
	if !open && !undecided || !rule.Owned(existing, hubID) {
		return
	}
	for _, key := range rule.ExtraLabels(existing) {
		value, has := existing.Labels[key]
		if _, decided := desired.Labels[key]; has && !decided && (undecided || evaluation.Wants(&c, key, value)) {
			desired.Labels[key] = value
		}
	}
	rule.NoteExtra(desired.Annotations, desired.Labels)
}

// KeepMark keeps the cluster label of alerts while the choice of the evaluator with that external
// label is open. With another value, it would be another alert.
func KeepMark(desired, existing *monitoringv1.PrometheusRule, c rule.Cluster, o Options) {
	if mark, _ := evaluation.MarkOf(existing, o.ClusterLabel); mark != "" && o.ClusterLabel != "" && evaluation.Undecided(&c) && rule.Owned(existing, o.HubID) {
		for _, c := range evaluation.Contents(desired) {
			if c.Rule.Alert != "" {
				c.Rule.Labels[o.ClusterLabel] = mark
			}
		}
	}
}

// KeepNamespace keeps a PrometheusRule that belongs into the evaluator's namespace in its present
// namespace while the choice of the evaluator is open. If several objects claim to be the rule's, the
// oldest one counts, because others may be copies.
func KeepNamespace(desired *monitoringv1.PrometheusRule, s rule.Source, claimed []*monitoringv1.PrometheusRule, c rule.Cluster, o Options) {
	if !Anywhere(s, o) || !evaluation.Undecided(&c) {
		return
	}
	ours := slices.DeleteFunc(slices.Clone(claimed), func(p *monitoringv1.PrometheusRule) bool {
		return !rule.Owned(p, o.HubID) || p.DeletionTimestamp != nil
	})
	if len(ours) > 0 {
		desired.Namespace = slices.MinFunc(ours, func(a, b *monitoringv1.PrometheusRule) int {
			return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace, b.Namespace))
		}).Namespace
	}
}
