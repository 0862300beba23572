package distribute

import (
	"context"
	"fmt"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/controller/brake"
	"github.com/rulefleet/rulefleet/pkg/rule"
)

// brake asks whether what a plan deletes may go, and returns for how long it is held.
// What is left of a rule that moved is not asked for: the rule is there, elsewhere or under
// another name.
func (r *Reconciler) brake(ctx context.Context, t *task, plan rule.Plan) (time.Duration, error) {
	q := brake.Question{Hop: brake.Distribute, Spoke: t.spoke.Name, Owner: t.req.NamespacedName}
	if t.rule != nil {
		q.UID = t.rule.UID
	}
	if plan.Action == rule.None && len(plan.Delete) > 0 && !t.moved {
		suspect, err := r.suspect(ctx, t, plan)
		if err != nil {
			return 0, err
		}
		q.Deletions = []brake.Deletion{{Key: t.req.NamespacedName, Suspect: suspect}}
		q.Holds = func() (int, error) { return r.holds(ctx, t) }
	}
	answer, err := r.Brake.Ask(q)
	if err != nil {
		return 0, err //nolint:wrapcheck // it says all
	}
	return answer.Wait, nil
}

// holds counts the AlertRules of this hub that a spoke has PrometheusRules of.
func (r *Reconciler) holds(ctx context.Context, t *task) (int, error) {
	var list monitoringv1.PrometheusRuleList
	err := t.spoke.Reader.List(ctx, &list, client.MatchingLabels{v1alpha1.HubLabel: r.Render.HubID})
	if err != nil {
		return 0, fmt.Errorf("listing PrometheusRules: %w", err)
	}
	rules := map[types.NamespacedName]bool{}
	for i := range list.Items {
		if key, ok := rule.ParseRuleKey(&list.Items[i]); ok {
			rules[key] = true
		}
	}
	return len(rules), nil
}
