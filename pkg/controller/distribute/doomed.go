package distribute

import (
	"context"
	"slices"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/controller/hub"
	"github.com/rulefleet/rulefleet/pkg/rule"
)

// Doomed returns the AlertRules, as namespace/name, whose PrometheusRules are still in a spoke and are to be
// removed. known is false if the spoke has not been read since the operator started.
func (r *Reconciler) Doomed(ctx context.Context, name string) (rules []string, known bool) {
	s := r.Spokes.Spoke(name)
	if s == nil || !s.RulesServed {
		return nil, false
	}
	cluster, err := hub.Cluster(ctx, r.Hub, name)
	if err != nil || cluster == nil {
		return nil, false
	}
	var list monitoringv1.PrometheusRuleList
	if err := s.Reader.List(ctx, &list, client.MatchingLabels{v1alpha1.HubLabel: r.Render.HubID}); err != nil {
		return nil, false
	}
	for i := range list.Items {
		key, stands := rule.StandsFor(&list.Items[i], r.Render.HubID)
		if stands && r.doomed(ctx, key, *cluster) {
			rules = append(rules, key.String())
		}
	}
	slices.Sort(rules)
	return slices.Compact(rules), true
}

func (r *Reconciler) doomed(ctx context.Context, key types.NamespacedName, cluster rule.Cluster) bool {
	ar := &v1alpha1.AlertRule{}
	if err := r.Hub.Get(ctx, key, ar); err != nil {
		return apierrors.IsNotFound(err)
	}
	if !rule.MaybeEnabled(ar) {
		return true
	}
	if accepted, err := r.accepts(ctx, ar); err != nil || !accepted {
		return false // the last accepted rule stays
	}
	if known, err := r.ask(ctx, r.Hub, key.Namespace, &cluster); err != nil || !known {
		return false
	}
	placed, err := rule.PlacedIn(ar, cluster)
	return err == nil && !placed
}
