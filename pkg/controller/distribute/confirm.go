package distribute

import (
	"context"
	"fmt"
	"slices"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/controller/brake"
	"github.com/rulefleet/rulefleet/pkg/controller/hub"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/delivery"
	"github.com/rulefleet/rulefleet/pkg/rule/suspect"
)

// confirm repeats the decision before a removal, with what the hub's API server has, and returns when to retry
// if the outcome differs. The cache can be old, for example on a replica that has just become the leader, and
// old data must not remove anything. Afterwards the observation has what was read.
func (r *Reconciler) confirm(ctx context.Context, o *observation, plan delivery.Plan) (time.Duration, error) {
	if !r.anyStands(plan.Delete) {
		return 0, nil
	}
	reader := r.Guard.Live.Reading()
	now := &observation{req: o.req, spoke: o.spoke, kind: o.kind}
	same, err := r.decidesSame(ctx, o, now, plan, reader)
	stands := true
	if err == nil && same {
		stands, err = r.stands(ctx, now)
	}
	switch {
	case err != nil:
		return 0, fmt.Errorf("confirming that PrometheusRules are to be removed: %w", err)
	case !stands:
		return r.Intervals.Of(successorRetry), nil
	case same:
		*o = *now
		return 0, nil
	}
	return reader.Again(r.Intervals), nil
}

// decidesSame reports whether a decision with another reader, for an observation of the same key, removes the same
// objects. Both use the same objects in the spoke.
func (r *Reconciler) decidesSame(ctx context.Context, o, now *observation, plan delivery.Plan, reader hub.Getter) (bool, error) {
	known, err := r.intend(ctx, now, reader)
	if err != nil || !known {
		return false, err
	}
	now.claimed, now.existing, now.adopting = o.claimed, o.existing, o.adopting
	if now.desired != nil {
		delivery.KeepNamespace(now.desired, now.source, now.claimed, now.cluster, r.Render)
	}
	if !sameAim(o, now) {
		return false, nil
	}
	if now.desired != nil {
		now.desired.Name = o.desired.Name
		r.keep(now)
	}
	wait, err := r.inherit(ctx, now, reader)
	return err == nil && wait == 0 && slices.EqualFunc(decide(now, r.Render.HubID).Delete, plan.Delete, func(a, b *monitoringv1.PrometheusRule) bool {
		return a.UID == b.UID && a.ResourceVersion == b.ResourceVersion
	}), err
}

// sameAim reports whether two observations of a key want the same PrometheusRule in the same namespace, or none for
// the same reason. A move writes from old data as well, and its result would be taken for the spoke's answer
// to the new rule. A source that the API server lacks may be lost.
func sameAim(a, b *observation) bool {
	if (a.source == nil) != (b.source == nil) {
		return false
	}
	if a.desired == nil || b.desired == nil {
		return a.desired == nil && b.desired == nil
	}
	return a.meant == b.meant && a.desired.Namespace == b.desired.Namespace && slices.Equal(a.cluster.AdoptHubIDs, b.cluster.AdoptHubIDs)
}

// suspect reports whether a removal follows from something that may have been lost, and needs an
// acknowledgement. The times of the hub and the spoke come from two API servers. If the spoke's clock is ahead, that
// is taken into account.
func (r *Reconciler) suspect(ctx context.Context, o *observation, plan delivery.Plan) (bool, error) {
	made := o.spoke.Made(oldest(plan.Delete))
	if o.source == nil {
		if r.Witness.Deleted(hub.KindOf(o.key()), o.key().NamespacedName(), o.kind) {
			return false, nil
		}
		if suspect.Absent(made, o.kind.Since, false) {
			return true, nil
		}
		return r.undone(ctx, o, plan)
	}
	seen := r.Witness.Seen(o.source.GetUID(), o.cluster)
	if seen.Placed(o.source, o.cluster) {
		return false, nil
	}
	// The kind is read after the SpokeCluster, and each time, because both may be new.
	kind, served, err := r.Guard.Kinds.Defined(ctx, hub.SpokeClusters)
	if err != nil || !served {
		return true, err //nolint:wrapcheck // it says all
	}
	seen.Left = r.Witness.Left(o.cluster, kind)
	if seen.Placed(o.source, o.cluster) {
		return false, nil
	}
	if undone, err := r.undone(ctx, o, plan); err != nil || undone {
		return undone, err
	}
	if suspect.Unplaced(made, o.source, kind.Dated(o.cluster), seen) {
		return true, nil
	}
	return r.lacksPredecessor(ctx, o, made)
}

// lacksPredecessor reports whether a rule may be in the spoke because it is placed on another name of the same
// cluster, whose SpokeCluster was lost with its CustomResourceDefinition. A SpokeCluster that was created
// again is not known to be that cluster. It reads from the API server, because the cache may still have the
// former one, and reads the kind last, as suspect does.
func (r *Reconciler) lacksPredecessor(ctx context.Context, o *observation, made time.Time) (bool, error) {
	for _, name := range o.source.GetPlacement().Names {
		if string(name) == o.spoke.Name {
			continue
		}
		if !suspect.Placeable(o.source, string(name)) {
			continue // it would not be there either
		}
		other, err := hub.Cluster(ctx, r.Guard.Live, string(name))
		if err != nil {
			return false, err //nolint:wrapcheck // it says all
		}
		if other != nil && other.Identity != "" {
			continue
		}
		kind, served, err := r.Guard.Kinds.Defined(ctx, hub.SpokeClusters)
		if err != nil || !served {
			return true, err //nolint:wrapcheck // it says all
		}
		if suspect.Absent(made, kind.Since, r.Witness.Deleted(hub.SpokeClusters, client.ObjectKey{Name: string(name)}, kind)) {
			return true, nil
		}
	}
	return false, nil
}

// undone reports whether a removal may follow from a restore of the hub's etcd, which has brought back an older
// AlertRule, older labels of the SpokeCluster, or none.
func (r *Reconciler) undone(ctx context.Context, o *observation, plan delivery.Plan) (bool, error) {
	var made []hub.Times
	for _, p := range plan.Delete {
		created := p.CreationTimestamp.Time
		made = append(made, hub.Times{Earliest: o.spoke.Made(created), Latest: created})
	}
	return r.Guard.Kinds.Undone(ctx, made...) //nolint:wrapcheck // it says all
}

// oldest returns the earliest creation time of the objects.
func oldest(objects []*monitoringv1.PrometheusRule) time.Time {
	return slices.MinFunc(objects, func(a, b *monitoringv1.PrometheusRule) int {
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	}).CreationTimestamp.Time
}

// brake asks the Brake about the deletions of a plan, and returns how long they are held. The leftovers of a
// rule that moved are exempt: the rule is still there, elsewhere or under another name.
func (r *Reconciler) brake(ctx context.Context, o *observation, plan delivery.Plan) (time.Duration, error) {
	q := brake.Question{Hop: brake.Distribute, Spoke: o.spoke.Name, Owner: o.key()}
	if o.source != nil {
		q.UID = o.source.GetUID()
	}
	if plan.Action == delivery.None && r.anyStands(plan.Delete) && o.successor == nil {
		suspect, err := r.suspect(ctx, o, plan)
		if err != nil {
			return 0, err
		}
		q.Deletions = []brake.Deletion{{Key: o.key(), Suspect: suspect}}
		q.Holds = func() (sets.Set[rule.Key], error) { return r.holds(ctx, o) }
	}
	answer, err := r.Brake.Ask(q)
	if err != nil {
		return 0, err //nolint:wrapcheck // it says all
	}
	return answer.Wait, nil
}

// anyStands reports whether any object stands for a source. Other objects with this hub's labels were
// created in the spoke. Their removal can't be due to a loss on the hub and does not count.
func (r *Reconciler) anyStands(objects []*monitoringv1.PrometheusRule) bool {
	return slices.ContainsFunc(objects, func(p *monitoringv1.PrometheusRule) bool {
		_, stands := rule.StandsFor(p, r.Render.HubID)
		return stands
	})
}

// holds returns the sources of this hub that have PrometheusRules in a spoke. It ignores objects that name
// a source that does not exist and was not seen to be deleted, because anybody could create those.
func (r *Reconciler) holds(ctx context.Context, o *observation) (sets.Set[rule.Key], error) {
	var list monitoringv1.PrometheusRuleList
	err := o.spoke.Reader.List(ctx, &list, client.MatchingLabels{v1alpha1.HubLabel: r.Render.HubID})
	if err != nil {
		return nil, fmt.Errorf("listing PrometheusRules: %w", err)
	}
	rules := sets.New[rule.Key]()
	for i := range list.Items {
		key, stands := rule.StandsFor(&list.Items[i], r.Render.HubID)
		if !stands {
			continue
		}
		src, err := hub.Source(ctx, r.Hub, key)
		if err != nil {
			return nil, err
		}
		if src != nil || r.Witness.Deleted(hub.KindOf(key), key.NamespacedName(), hub.Defined{}) {
			rules.Insert(key)
		}
	}
	return rules, nil
}
