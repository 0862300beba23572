package distribute

import (
	"context"
	"fmt"
	"slices"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/pkg/controller/hub"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/delivery"
	"github.com/rulefleet/rulefleet/pkg/rule/suspect"
)

// confirm repeats the decision before a removal, with what the hub's API server has, and returns when to retry
// if the outcome differs. The cache can be old, for example on a replica that has just become the leader, and
// old data must not remove anything. Afterwards the task has what was read.
func (r *Reconciler) confirm(ctx context.Context, t *task, plan delivery.Plan) (time.Duration, error) {
	if !r.anyStands(plan.Delete) {
		return 0, nil
	}
	reader := r.Guard.Live.Reading()
	now := &task{req: t.req, spoke: t.spoke, kind: t.kind}
	same, err := r.decidesSame(ctx, t, now, plan, reader)
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
		*t = *now
		return 0, nil
	}
	return reader.Again(r.Intervals), nil
}

// decidesSame reports whether a decision with another reader, for a task of the same key, removes the same
// objects. Both use the same objects in the spoke.
func (r *Reconciler) decidesSame(ctx context.Context, t, now *task, plan delivery.Plan, reader hub.Getter) (bool, error) {
	known, err := r.want(ctx, now, reader)
	if err != nil || !known {
		return false, err
	}
	now.claimed, now.existing, now.adopting = t.claimed, t.existing, t.adopting
	if now.desired != nil {
		delivery.KeepNamespace(now.desired, now.rule, now.claimed, now.cluster, r.Render)
	}
	if !sameAim(t, now) {
		return false, nil
	}
	if now.desired != nil {
		now.desired.Name = t.desired.Name
		r.keep(now)
	}
	again, wait, err := r.inherit(ctx, now, r.plan(now), reader)
	return err == nil && wait == 0 && slices.EqualFunc(again.Delete, plan.Delete, sameVersion), err
}

// sameAim reports whether two tasks of a key want the same PrometheusRule in the same namespace, or none for
// the same reason. A move writes from old data as well, and its result would be taken for the spoke's answer
// to the new rule. An AlertRule that the API server lacks may be lost.
func sameAim(a, b *task) bool {
	if (a.rule == nil) != (b.rule == nil) {
		return false
	}
	if a.desired == nil || b.desired == nil {
		return a.desired == nil && b.desired == nil
	}
	return a.meant == b.meant && a.desired.Namespace == b.desired.Namespace && slices.Equal(a.cluster.AdoptHubIDs, b.cluster.AdoptHubIDs)
}

func sameVersion(a, b *monitoringv1.PrometheusRule) bool {
	return a.UID == b.UID && a.ResourceVersion == b.ResourceVersion
}

// suspect reports whether a removal follows from something that may have been lost, and needs an
// acknowledgement. The times of the hub and the spoke come from two API servers. If the spoke's clock is ahead, that
// is taken into account.
func (r *Reconciler) suspect(ctx context.Context, t *task, plan delivery.Plan) (bool, error) {
	made := t.spoke.Made(oldest(plan.Delete))
	if t.rule == nil {
		if r.Witness.Deleted(hub.AlertRules, t.req.NamespacedName, t.kind) {
			return false, nil
		}
		if suspect.Absent(made, t.kind.Since, false) {
			return true, nil
		}
		return r.undone(ctx, t, plan)
	}
	seen := r.Witness.Seen(t.rule.UID, t.cluster)
	if seen.Placed(t.rule, t.cluster) {
		return false, nil
	}
	// The kind is read after the SpokeCluster, and each time, because both may be new.
	kind, served, err := r.Guard.Kinds.Defined(ctx, hub.SpokeClusters)
	if err != nil || !served {
		return true, err //nolint:wrapcheck // it says all
	}
	seen.Left = r.Witness.Left(t.cluster, kind)
	if seen.Placed(t.rule, t.cluster) {
		return false, nil
	}
	if undone, err := r.undone(ctx, t, plan); err != nil || undone {
		return undone, err
	}
	if suspect.Unplaced(made, t.rule, kind.Dated(t.cluster), seen) {
		return true, nil
	}
	return r.lacksPredecessor(ctx, t, made)
}

// lacksPredecessor reports whether a rule may be in the spoke because it is placed on another name of the same
// cluster, whose SpokeCluster was lost with its CustomResourceDefinition. A SpokeCluster that was created
// again is not known to be that cluster. It reads from the API server, because the cache may still have the
// former one, and reads the kind last, as suspect does.
func (r *Reconciler) lacksPredecessor(ctx context.Context, t *task, made time.Time) (bool, error) {
	for _, name := range t.rule.Spec.Placement.Names {
		if string(name) == t.spoke.Name {
			continue
		}
		if there, err := rule.PlacedIn(t.rule, rule.Cluster{Name: string(name)}); err != nil || !there {
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
func (r *Reconciler) undone(ctx context.Context, t *task, plan delivery.Plan) (bool, error) {
	var made []time.Time
	for _, o := range plan.Delete {
		made = append(made, t.spoke.Made(o.CreationTimestamp.Time))
	}
	return r.Guard.Kinds.Undone(ctx, made...) //nolint:wrapcheck // it says all
}

// oldest returns the earliest creation time of the objects.
func oldest(objects []*monitoringv1.PrometheusRule) time.Time {
	return slices.MinFunc(objects, func(a, b *monitoringv1.PrometheusRule) int {
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	}).CreationTimestamp.Time
}
