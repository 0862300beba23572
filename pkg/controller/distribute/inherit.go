package distribute

import (
	"context"
	"fmt"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/controller/hub"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/delivery"
	"github.com/rulefleet/rulefleet/pkg/spoke"
)

// successorRetry is when to check again whether a rule of a spoke's predecessor has a successor, because no
// event of the successor leads there.
const successorRetry = 5 * time.Second

// inherit handles deletions of rules that are not placed on the spoke but were placed on its predecessor: the
// same cluster under another name, whose Secret is gone. Renaming a Secret must not remove alerts. Rules that
// a template generated for the predecessor are deleted when their successors are in the spoke. Others stay
// until the predecessor's SpokeCluster is deleted or the placement changes. A wait other than 0 is when to
// check again; until then there is nothing to do.
func (r *Reconciler) inherit(ctx context.Context, t *task, plan delivery.Plan, reader hub.Getter) (delivery.Plan, time.Duration, error) {
	if plan.Action != delivery.None || len(plan.Delete) == 0 || t.rule == nil {
		return plan, 0, nil
	}
	for _, former := range r.Spokes.Predecessors(t.spoke.Name) {
		// Wait for changes of its SpokeCluster, and before reading, to not miss an event in between.
		news := namespaceKey{spoke: former}
		r.waiting.add(news, t.req)
		c, err := hub.Cluster(ctx, reader, former)
		if err != nil {
			return plan, 0, err
		}
		placed := false
		if c != nil {
			known, err := r.ask(ctx, reader, t.req.Namespace, c)
			if err != nil || !known {
				return plan, r.Intervals.Of(successorRetry), err
			}
			placed, err = rule.PlacedIn(t.rule, *c)
			if err != nil {
				placed = false // an invalid placement is left to Validate, which stops before this
			}
		}
		if !placed {
			r.waiting.drop(news, t.req)
			continue
		}
		if !hub.Generated(t.rule) {
			plan.Delete = nil
			return plan, 0, nil
		}
		t.successor, err = r.successor(ctx, t, reader)
		if err != nil || t.successor == nil {
			return plan, r.Intervals.Of(successorRetry), err
		}
		return plan, 0, nil
	}
	return plan, 0, nil
}

// successor returns the spoke's PrometheusRule of the AlertRule that the same template generates for the same
// workload under the spoke's present name, or nil. It finds the AlertRule in the caches, and uses reader to
// check that it exists.
func (r *Reconciler) successor(ctx context.Context, t *task, reader hub.Getter) (*monitoringv1.PrometheusRule, error) {
	w := t.rule.Spec.WorkloadRef
	rules, err := hub.GeneratedFor(ctx, r.Hub, t.spoke.Name, string(w.Namespace), w.Name)
	if err != nil {
		return nil, fmt.Errorf("finding the successor of AlertRule %s: %w", t.req.NamespacedName, err)
	}
	for i := range rules {
		key := hub.Key(&rules[i])
		if rules[i].Labels[v1alpha1.TemplateLabel] != t.rule.Labels[v1alpha1.TemplateLabel] {
			continue
		}
		var there monitoringv1.PrometheusRuleList
		if err := t.spoke.Reader.List(ctx, &there, client.MatchingFields{ruleIndex: key.String()}); err != nil {
			return nil, fmt.Errorf("listing the PrometheusRules of AlertRule %s: %w", key, err)
		}
		ar := &v1alpha1.AlertRule{}
		switch err := reader.Get(ctx, key, ar); {
		case apierrors.IsNotFound(err):
			return nil, nil
		case err != nil:
			return nil, fmt.Errorf("reading AlertRule %s, the successor of %s: %w", key, t.req.NamespacedName, err)
		case !ar.DeletionTimestamp.IsZero(), len(there.Items) == 0:
			return nil, nil
		}
		return &there.Items[0], nil
	}
	return nil, nil
}

// stands reports whether the spoke's API server still has the successor of what is to be deleted.
func (r *Reconciler) stands(ctx context.Context, t *task) (bool, error) {
	if t.successor == nil {
		return true, nil
	}
	o, key := &monitoringv1.PrometheusRule{}, hub.Key(t.successor)
	switch err := t.spoke.Live.Get(ctx, key, o); {
	case spoke.Absent(err, monitoringv1.PrometheusRuleName, key.Name):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("reading PrometheusRule %s, the replacement: %w", key, err)
	}
	return o.UID == t.successor.UID && o.DeletionTimestamp.IsZero(), nil
}
