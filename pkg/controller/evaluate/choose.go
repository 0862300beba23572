package evaluate

import (
	"context"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/controller/hub"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/spoke"
)

// Choose implements spoke.Evaluation: the choice of this process stands or, after a restart, the one
// that the status records.
func (p *Poller) Choose(ctx context.Context, sc *v1alpha1.SpokeCluster, before spoke.Evaluators, seen *spoke.Sighting) []v1alpha1.Evaluator {
	c := hub.ClusterOf(sc)
	in := &rule.Choice{
		Seen: seen.List, More: seen.More, Refs: sc.Spec.EvaluatorRefs, Record: sc.Status.Evaluators, Open: decidedNone(sc),
		Pushed:  func() []rule.Held { return p.pushed(ctx, seen.Rules) },
		Cluster: c, ClusterLabel: p.Render.ClusterLabel, Now: time.Now(), Grace: p.Intervals.Of(rule.MissingGrace),
	}
	if before.Known {
		in.Record, in.Open = before.List, true
	}
	return rule.ChooseEvaluators(in)
}

// decidedNone tells whether a status records that no evaluator is chosen.
func decidedNone(sc *v1alpha1.SpokeCluster) bool {
	c := apimeta.FindStatusCondition(sc.Status.Conditions, v1alpha1.ConditionEvaluatorsFound)
	return c != nil && (c.Reason == v1alpha1.ReasonAmbiguous || c.Reason == v1alpha1.ReasonNoEvaluator)
}

// pushed returns what this hub has in a spoke, for one of its AlertRules each: what somebody labeled
// so says nothing about who evaluates ours.
func (p *Poller) pushed(ctx context.Context, reader client.Reader) []rule.Held {
	if reader == nil {
		return nil
	}
	var list monitoringv1.PrometheusRuleList
	if reader.List(ctx, &list, client.MatchingLabels{v1alpha1.HubLabel: p.Render.HubID}) != nil {
		return nil // the cache has ended
	}
	var out []rule.Held
	for i := range list.Items {
		o := &list.Items[i]
		if _, ours, err := hub.RuleOfObject(ctx, p.Hub, o.Name); err != nil || !ours || !rule.Owned(o, p.Render.HubID) {
			continue
		}
		namespace := spoke.NamespaceMetadata()
		if reader.Get(ctx, client.ObjectKey{Name: o.Namespace}, namespace) == nil {
			out = append(out, rule.Held{Rule: o, Namespace: rule.Namespace{Name: o.Namespace, Labels: namespace.Labels}})
		}
	}
	return out
}
