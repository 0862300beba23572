package distribute

import (
	"context"
	"errors"
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
	"github.com/rulefleet/rulefleet/pkg/spoke/queue"
)

// observation is what is known about one source and one spoke.
type observation struct {
	req   queue.Request
	spoke *spoke.Spoke

	// cluster is the spoke as the hub describes it. renewed means that the status may concern a former spoke of the
	// same name.
	cluster rule.Cluster
	renewed bool
	// source is nil if it is gone; then kind is the state of its CustomResourceDefinition.
	source rule.Source
	kind   hub.Defined
	// placed reports whether the source belongs in the spoke. desired is what should be there, or nil. unrendered is
	// the verdict if that can't be rendered.
	placed     bool
	desired    *monitoringv1.PrometheusRule
	unrendered verdict
	// meant is a digest of desired as the hub decides it, independent of the spoke.
	meant string

	// existing has the name of desired. claimed are the objects that name this source.
	existing *monitoringv1.PrometheusRule
	claimed  []*monitoringv1.PrometheusRule
	// adopting is a former hub's object that has the name of desired and will be adopted.
	adopting *monitoringv1.PrometheusRule
	// answer is what the spoke last made of the rule, if that differs from what was sent.
	answer string
	// inherited means that the objects stay, because the spoke took them over from its predecessor. successor
	// replaces the objects to delete; it may be nil.
	inherited bool
	successor *monitoringv1.PrometheusRule
}

// key returns the key of the source.
func (o *observation) key() rule.Key { return hub.KeyOf(o.req) }

// row returns what the status of the source shows of the spoke, or nil.
func (o *observation) row() *v1alpha1.ClusterStatus {
	rows := o.source.GetStatus().Clusters
	for i := range rows {
		if string(rows[i].Name) == o.spoke.Name {
			return &rows[i]
		}
	}
	return nil
}

// observe reads what should be in the spoke, and what is there. It is not complete if there is nothing to decide, or
// not yet.
func (r *Reconciler) observe(ctx context.Context, o *observation) (out outcome, complete bool, err error) {
	if o.spoke == nil {
		return outcome{}, false, nil // engaging it enqueues all its keys again
	}
	known, err := r.intend(ctx, o, r.Hub)
	if err != nil {
		return outcome{}, false, err
	}
	if !known {
		// Nothing is to be deleted at present, so the brake holds nothing.
		_, err := r.brake(ctx, o, delivery.Plan{})
		return outcome{verdict: o.unrendered}, false, err
	}
	if o.desired == nil {
		r.done(o)
	}
	if !o.spoke.RulesServed {
		return outcome{verdict: pending(o.spoke.WhyNot.Reason, o.spoke.WhyNot.Message)}, false, nil
	}
	wait, err := r.look(ctx, o)
	return after(wait), err == nil && wait == 0, err
}

// intend determines the desired state of the spoke with a reader of the hub. It returns false if that is
// unknown; then the objects stay.
func (r *Reconciler) intend(ctx context.Context, o *observation, reader hub.Getter) (bool, error) {
	cluster, err := hub.Cluster(ctx, reader, o.spoke.Name)
	if err != nil || cluster == nil {
		return false, err
	}
	o.cluster = *cluster
	r.saw(cluster.Name, cluster.UID)
	o.renewed = r.lives.ChangedSince(cluster.Name, 0)
	if e := r.Spokes.Evaluators(o.spoke.Name); e.Known {
		hub.WithEvaluators(&o.cluster, e.List, e.WhyNot)
	} else {
		o.cluster.EvaluatorsUnknown = e.WhyNot
	}
	if known, err := r.belongs(ctx, o, reader); err != nil || !known || !o.placed {
		return known, err
	}
	desired, err := delivery.Render(o.source, o.cluster, r.Render)
	if invalid, ok := errors.AsType[*rule.Invalid](err); ok {
		o.unrendered = pending(invalid.Reason, invalid.Error())
		return false, nil // the last valid one stays in the spoke, too
	}
	if err != nil {
		return false, err
	}
	o.desired, o.meant, o.answer = desired, delivery.Digest(desired), r.answer(o)
	return true, nil
}

// look reads what the spoke has, and returns how long to wait before that is complete.
func (r *Reconciler) look(ctx context.Context, o *observation) (time.Duration, error) {
	// Check for pending writes before reading: the cache shows every write that is no longer pending.
	left := r.unseen(o)
	if left == 0 {
		if err := r.find(ctx, o); err != nil {
			return 0, err
		}
		left = r.unseen(o)
	}
	if left > 0 {
		// Its event triggers another reconcile, unless another key made the write.
		return min(left, staleRetry), nil
	}
	if wait, err := r.gone(ctx, o); err != nil || wait > 0 {
		return wait, err
	}
	if left := r.settling(o); left > 0 {
		return left, nil
	}
	return r.inherit(ctx, o, r.Hub)
}

// find reads the existing objects from the spoke's cache.
func (r *Reconciler) find(ctx context.Context, o *observation) error {
	var list monitoringv1.PrometheusRuleList
	if err := o.spoke.Reader.List(ctx, &list, client.MatchingFields{ruleIndex: o.key().Listed()}); err != nil {
		return fmt.Errorf("listing the PrometheusRules of %s: %w", o.key(), err)
	}
	for i := range list.Items {
		// An object with the name of another source's object belongs to that source, even if its annotations
		// name this one.
		owner, found, err := hub.RuleOfObject(ctx, r.Hub, list.Items[i].Name)
		if err != nil {
			return err
		}
		if !found || owner == o.key() {
			o.claimed = append(o.claimed, &list.Items[i])
		}
	}
	if o.desired == nil {
		return nil
	}
	delivery.KeepNamespace(o.desired, o.source, o.claimed, o.cluster, r.Render)
	if err := r.place(ctx, o); err != nil {
		return err
	}
	existing := &monitoringv1.PrometheusRule{}
	switch err := o.spoke.Reader.Get(ctx, client.ObjectKeyFromObject(o.desired), existing); {
	case err == nil:
		o.existing = existing
		r.keep(o)
	case apierrors.IsNotFound(err):
		return r.overdue(ctx, o)
	default:
		return fmt.Errorf("reading PrometheusRule %s: %w", client.ObjectKeyFromObject(o.desired), err)
	}
	return nil
}

// keep retains parts of the object in the spoke whose desired state is unknown.
func (r *Reconciler) keep(o *observation) {
	if o.existing != nil {
		delivery.KeepLabels(o.desired, o.existing, o.cluster, r.Render.HubID)
		delivery.KeepMark(o.desired, o.existing, o.cluster, r.Render)
	}
}

// unseen returns how long to wait for an own write that the spoke's cache does not show yet.
func (r *Reconciler) unseen(o *observation) time.Duration {
	var left time.Duration
	if o.desired != nil {
		left = r.writes.Pending(objectKey{o.spoke.Name, hub.Key(o.desired)})
	}
	for _, c := range o.claimed {
		left = max(left, r.writes.Pending(objectKey{o.spoke.Name, hub.Key(c)}))
	}
	return left
}

// overdue reads the object from the spoke if the cache lacks it long after it was created; then unseen tells whether
// it is there.
func (r *Reconciler) overdue(ctx context.Context, o *observation) error {
	name := hub.Key(o.desired)
	err := r.writes.Confirm(objectKey{o.spoke.Name, name}, func() (string, error) {
		p := &monitoringv1.PrometheusRule{}
		err := o.spoke.Live.Get(ctx, name, p)
		return p.ResourceVersion, spoke.Genuine(err, monitoringv1.PrometheusRuleName, name.Name)
	})
	if err != nil {
		return fmt.Errorf("reading PrometheusRule %s, which the cache does not show: %w", name, err)
	}
	return nil
}

// gone confirms, before a removal because the hub's cache lacks the source, that the source was deleted.
// If it was not, gone returns when to check again.
func (r *Reconciler) gone(ctx context.Context, o *observation) (time.Duration, error) {
	if o.source != nil {
		return 0, nil
	}
	if len(o.claimed) == 0 {
		r.remember(o, "")
		return 0, nil
	}
	if !r.anyStands(o.claimed) {
		return 0, nil
	}
	reader := r.Guard.Live.Reading()
	gone, kind, err := r.Guard.Gone(ctx, reader, hub.KindOf(o.key()), o.key().NamespacedName())
	switch {
	case err != nil:
		return 0, fmt.Errorf("confirming that its PrometheusRules are to be removed: %w", err)
	case gone:
		o.kind = kind
		return 0, nil
	case reader.Old(): // it was read shortly before it was deleted
		return staleRetry, nil
	}
	return r.Intervals.Of(guardRetry), nil
}

// settling returns how long to wait before removing the object of a generated source that does not exist.
// In a newly engaged spoke, the template may be about to generate it, for example in a spoke that left with
// its rules in place and is back.
func (r *Reconciler) settling(o *observation) time.Duration {
	if o.source != nil || len(o.claimed) == 0 || o.req.Namespace != r.Generated {
		return 0
	}
	return r.Intervals.Of(settle) - time.Since(o.spoke.Since)
}
