package evaluate

import (
	"context"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/controller/hub"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/evaluation"
	"github.com/rulefleet/rulefleet/pkg/spoke"
)

// Choose implements membership.Evaluation: the choice of this process stands or, after a restart, the one
// that the status records.
func (p *Poller) Choose(ctx context.Context, sc *v1alpha1.SpokeCluster, before spoke.Evaluators, seen *spoke.Sighting) []v1alpha1.Evaluator {
	c := hub.ClusterOf(sc)
	in := &evaluation.Choice{
		Seen: seen.List, More: seen.More, Refs: sc.Spec.EvaluatorRefs, Record: sc.Status.Evaluators, Open: decidedNone(sc),
		Pushed:  func() []evaluation.Held { return p.pushed(ctx, seen.Rules, *c) },
		Cluster: c, ClusterLabel: p.Render.ClusterLabel, Now: time.Now(), Grace: p.Intervals.Of(evaluation.MissingGrace),
	}
	if before.Known {
		in.Record, in.Open = before.List, true
	}
	return evaluation.Choose(in)
}

// decidedNone tells whether a status records that no evaluator is chosen.
func decidedNone(sc *v1alpha1.SpokeCluster) bool {
	c := apimeta.FindStatusCondition(sc.Status.Conditions, v1alpha1.ConditionEvaluatorsFound)
	return c != nil && (c.Reason == v1alpha1.ReasonAmbiguous || c.Reason == v1alpha1.ReasonNoEvaluator)
}

// pushed returns the PrometheusRules of this hub in a spoke, one for each AlertRule. Objects that only
// carry the hub's labels do not count: a tenant can set those.
func (p *Poller) pushed(ctx context.Context, reader client.Reader, c rule.Cluster) []evaluation.Held {
	if reader == nil {
		return nil
	}
	standing, err := p.standing(ctx, reader, c)
	if err != nil {
		return nil // the cache has ended
	}
	var out []evaluation.Held
	for _, o := range standing {
		namespace := spoke.NamespaceMetadata()
		if reader.Get(ctx, client.ObjectKey{Name: o.Namespace}, namespace) == nil {
			out = append(out, evaluation.Held{Rule: o, Namespace: evaluation.Namespace{Name: o.Namespace, Labels: namespace.Labels}})
		}
	}
	return out
}
