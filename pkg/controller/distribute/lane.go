package distribute

import (
	"context"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/controller/hub"
	"github.com/rulefleet/rulefleet/pkg/rule/delivery"
	"github.com/rulefleet/rulefleet/pkg/spoke/queue"
)

// lane returns where a key waits: with the keys whose PrometheusRules are in the same namespace of the spoke,
// because an admission webhook that hangs there affects all of them. It reads only caches. If an AlertRule is
// gone, its PrometheusRule has the namespace.
func (r *Reconciler) lane(ctx context.Context, req mcreconcile.Request) queue.Lane {
	in := queue.Lane{Namespace: req.Namespace, Origin: req.Namespace}
	name := req.ClusterName.String()
	ar := &v1alpha1.AlertRule{}
	if err := r.Hub.Get(ctx, req.NamespacedName, ar); err == nil {
		c, err := hub.Cluster(ctx, r.Hub, name)
		if err != nil || c == nil {
			return in
		}
		if e := r.Spokes.Evaluators(name); e.Known {
			hub.WithEvaluators(c, e.List, e.WhyNot)
		}
		in.Namespace = delivery.TargetNamespace(ar, *c, r.Render)
		return in
	}
	var held monitoringv1.PrometheusRuleList
	if s := r.Spokes.Spoke(name); s != nil && s.RulesServed &&
		s.Reader.List(ctx, &held, client.MatchingFields{ruleIndex: req.NamespacedName.String()}) == nil && len(held.Items) > 0 {
		in.Namespace = held.Items[0].Namespace
	}
	return in
}
