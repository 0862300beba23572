package distribute

import (
	"context"
	"slices"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/controller/hub"
	"github.com/rulefleet/rulefleet/pkg/live"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/delivery"
	"github.com/rulefleet/rulefleet/pkg/spoke/queue"
)

// belongs reads the source of an observation, and determines whether it belongs in the cluster. It returns false if
// that is unknown, or if the source is not accepted: the status shows it, and the last accepted rule stays.
func (r *Reconciler) belongs(ctx context.Context, o *observation, reader hub.Getter) (known bool, err error) {
	o.source, err = hub.Source(ctx, reader, o.key())
	if err != nil || o.source == nil || !rule.MaybeEnabled(o.source) {
		return err == nil, err
	}
	if accepted, err := r.accepts(ctx, o.source); err != nil || !accepted {
		return false, err
	}
	if known, err := r.ask(ctx, reader, o.key().Namespace, &o.cluster); err != nil || !known {
		return false, err
	}
	o.placed, err = rule.PlacedIn(o.source, o.cluster)
	return err == nil, err //nolint:wrapcheck // it says all
}

// accepts reports whether a source is valid and has a place in its namespace.
func (r *Reconciler) accepts(ctx context.Context, s rule.Source) (bool, error) {
	if r.Validator.Validate(s) != nil {
		return false, nil //nolint:nilerr // the status says why
	}
	waits, err := r.Places.Waits(ctx, s)
	return waits == nil, err //nolint:wrapcheck // it says all
}

// ask sets the tenant of a namespace of the hub in a spoke, with the same reader as the spoke.
func (r *Reconciler) ask(ctx context.Context, reader hub.Getter, namespace string, c *rule.Cluster) (known bool, err error) {
	if _, past := reader.(*live.Reading); !past {
		reader = nil // Tenants has a cache of its own
	}
	return r.Tenants.Ask(ctx, reader, namespace, c) //nolint:wrapcheck // it says all
}

// Doomed returns the sources, as lists name them, whose PrometheusRules are still in a spoke and are to be
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
		if !stands {
			continue
		}
		o := &observation{req: hub.Request(name, key), spoke: s, cluster: *cluster}
		if known, err := r.belongs(ctx, o, r.Hub); err == nil && known && !o.placed {
			rules = append(rules, key.Listed())
		}
	}
	slices.Sort(rules)
	return slices.Compact(rules), true
}

// lane returns where a key waits: with the keys whose PrometheusRules are in the same namespace of the spoke,
// because an admission webhook that hangs there affects all of them. It reads only caches. If a source is
// gone, its PrometheusRule has the namespace.
func (r *Reconciler) lane(ctx context.Context, req queue.Request) queue.Lane {
	in := queue.Lane{Namespace: req.Namespace, Origin: req.Namespace}
	name := req.ClusterName.String()
	if src, err := hub.Source(ctx, r.Hub, hub.KeyOf(req)); err == nil && src != nil {
		c, err := hub.Cluster(ctx, r.Hub, name)
		if err != nil || c == nil {
			return in
		}
		if e := r.Spokes.Evaluators(name); e.Known {
			hub.WithEvaluators(c, e.List, e.WhyNot)
		}
		in.Namespace = delivery.TargetNamespace(src, *c, r.Render)
		return in
	}
	var held monitoringv1.PrometheusRuleList
	if s := r.Spokes.Spoke(name); s != nil && s.RulesServed &&
		s.Reader.List(ctx, &held, client.MatchingFields{ruleIndex: hub.KeyOf(req).Listed()}) == nil && len(held.Items) > 0 {
		in.Namespace = held.Items[0].Namespace
	}
	return in
}
