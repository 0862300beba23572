package distribute

import (
	"context"
	"fmt"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/controller/hub"
	"github.com/rulefleet/rulefleet/pkg/rule"
)

// successorRetry is when to look again whether a rule of a spoke's predecessor has a
// successor: no event of it leads to the predecessor's.
const successorRetry = 5 * time.Second

// inherit decides about what is to be deleted because it is not placed on the spoke, but
// was placed on its predecessor: the same cluster under another name, whose Secret is
// gone. A Secret that was renamed takes no alert away. What a template made for the
// predecessor goes when that which it makes now is in the spoke; all else stays until the
// predecessor's SpokeCluster is deleted, or the placement changes. A wait that is not 0
// is when to look again: until then, there is nothing to do.
func (r *Reconciler) inherit(ctx context.Context, t *task, plan rule.Plan, reader hub.Getter) (rule.Plan, time.Duration, error) {
	if plan.Action != rule.None || len(plan.Delete) == 0 || t.rule == nil {
		return plan, 0, nil
	}
	for _, former := range r.Spokes.Predecessors(t.spoke.Name) {
		// For any news of its SpokeCluster. Wait first and look then, as for a namespace.
		news := namespaceKey{spoke: former}
		r.waiting.add(news, t.req)
		c, err := hub.Cluster(ctx, reader, former)
		if err != nil {
			return plan, 0, err
		}
		placed := false
		if c != nil {
			placed, err = rule.PlacedIn(t.rule, *c)
		}
		if err != nil || !placed {
			r.waiting.drop(news, t.req)
			continue // one that can't be told to be placed is left to Validate, which stops before
		}
		if !hub.Generated(t.rule) {
			plan.Delete = nil
			return plan, 0, nil
		}
		succeeded, err := r.succeeded(ctx, t)
		if err != nil || !succeeded {
			return plan, r.Intervals.Of(successorRetry), err
		}
		t.moved = true
		return plan, 0, nil
	}
	return plan, 0, nil
}

// succeeded tells whether the spoke has the rule that the same template makes for the same
// workload under the spoke's present name.
func (r *Reconciler) succeeded(ctx context.Context, t *task) (bool, error) {
	w := t.rule.Spec.WorkloadRef
	rules, err := hub.GeneratedFor(ctx, r.Hub, t.spoke.Name, string(w.Namespace), w.Name)
	if err != nil {
		return false, fmt.Errorf("looking for the successor of AlertRule %s: %w", t.req.NamespacedName, err)
	}
	for i := range rules {
		ar := &rules[i]
		if ar.Labels[v1alpha1.TemplateLabel] != t.rule.Labels[v1alpha1.TemplateLabel] {
			continue
		}
		var there monitoringv1.PrometheusRuleList
		err := t.spoke.Reader.List(ctx, &there, client.MatchingFields{ruleIndex: hub.Key(ar).String()})
		if err != nil {
			return false, fmt.Errorf("looking up PrometheusRules of %s: %w", hub.Key(ar), err)
		}
		return len(there.Items) > 0, nil
	}
	return false, nil
}
