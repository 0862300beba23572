package distribute

import (
	"context"
	"fmt"
	"slices"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/controller/brake"
	"github.com/rulefleet/rulefleet/pkg/controller/hub"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/delivery"
)

// brake asks the Brake about the deletions of a plan, and returns how long they are held. The leftovers of a
// rule that moved are exempt: the rule is still there, elsewhere or under another name.
func (r *Reconciler) brake(ctx context.Context, t *task, plan delivery.Plan) (time.Duration, error) {
	q := brake.Question{Hop: brake.Distribute, Spoke: t.spoke.Name, Owner: t.req.NamespacedName}
	if t.rule != nil {
		q.UID = t.rule.UID
	}
	if plan.Action == delivery.None && r.anyStands(plan.Delete) && t.successor == nil {
		suspect, err := r.suspect(ctx, t, plan)
		if err != nil {
			return 0, err
		}
		q.Deletions = []brake.Deletion{{Key: t.req.NamespacedName, Suspect: suspect}}
		q.Holds = func() (sets.Set[types.NamespacedName], error) { return r.holds(ctx, t) }
	}
	answer, err := r.Brake.Ask(q)
	if err != nil {
		return 0, err //nolint:wrapcheck // it says all
	}
	return answer.Wait, nil
}

// anyStands reports whether any object stands for an AlertRule. Other objects with this hub's labels were
// created in the spoke. Their removal can't be due to a loss on the hub and does not count.
func (r *Reconciler) anyStands(objects []*monitoringv1.PrometheusRule) bool {
	return slices.ContainsFunc(objects, func(o *monitoringv1.PrometheusRule) bool {
		_, stands := rule.StandsFor(o, r.Render.HubID)
		return stands
	})
}

// holds returns the AlertRules of this hub that have PrometheusRules in a spoke. It ignores objects that name
// an AlertRule that does not exist and was not seen to be deleted, because anybody could create those.
func (r *Reconciler) holds(ctx context.Context, t *task) (sets.Set[types.NamespacedName], error) {
	var list monitoringv1.PrometheusRuleList
	err := t.spoke.Reader.List(ctx, &list, client.MatchingLabels{v1alpha1.HubLabel: r.Render.HubID})
	if err != nil {
		return nil, fmt.Errorf("listing PrometheusRules: %w", err)
	}
	rules := sets.New[types.NamespacedName]()
	for i := range list.Items {
		key, stands := rule.StandsFor(&list.Items[i], r.Render.HubID)
		if !stands {
			continue
		}
		switch err := r.Hub.Get(ctx, key, &v1alpha1.AlertRule{}); {
		case err == nil || r.Witness.Deleted(hub.AlertRules, key, hub.Defined{}):
			rules.Insert(key)
		case !apierrors.IsNotFound(err):
			return nil, fmt.Errorf("reading AlertRule %s: %w", key, err)
		}
	}
	return rules, nil
}
