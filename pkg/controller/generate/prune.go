package generate

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/contest"
	"github.com/rulefleet/rulefleet/pkg/controller/brake"
	"github.com/rulefleet/rulefleet/pkg/controller/hub"
	"github.com/rulefleet/rulefleet/pkg/interval"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/spoke/queue"
)

// doomed is an AlertRule to delete.
type doomed struct {
	rule *v1alpha1.AlertRule
	// suspect means that the template, or the labels by which it selected the spoke, may have been lost.
	suspect bool
	// ground has the deciding objects on the hub, read from the API server, if the labels or annotations of the
	// workload or its namespace decided as well.
	ground *ground
}

// ground has the objects on the hub from which an AlertRule follows.
type ground struct {
	template *v1alpha1.AlertRuleTemplate
	cluster  rule.Cluster
}

// prune deletes the doomed AlertRules of a workload that the brake does not hold. It must be called without
// doomed AlertRules as well, to withdraw earlier ones. It returns when to check again, or 0.
func (r *Reconciler) prune(ctx context.Context, req queue.Request, rules []doomed) (time.Duration, error) {
	cluster := req.ClusterName.String()
	q := brake.Question{
		Hop: brake.Generate, Spoke: cluster, Owner: hub.KeyOf(req),
		Holds: func() (sets.Set[rule.Key], error) {
			all, err := hub.GeneratedOn(ctx, r.Hub, cluster)
			keys := sets.New[rule.Key]()
			for i := range all {
				keys.Insert(rule.KeyOf(&all[i]))
			}
			return keys, err
		},
	}
	for _, d := range rules {
		q.Deletions = append(q.Deletions, brake.Deletion{Key: rule.KeyOf(d.rule), Suspect: d.suspect})
	}
	answer, err := r.Brake.Ask(q)
	if err != nil {
		return 0, err //nolint:wrapcheck // it says all
	}
	wait := answer.Wait
	for _, d := range rules {
		key := rule.KeyOf(d.rule)
		if answer.Held.Has(key) {
			continue
		}
		write := r.writeOf(d.rule, d.rule, contest.Absent)
		if left := r.yield(write, d.rule); left > 0 {
			wait = interval.Soonest(wait, left)
			continue
		}
		r.Brake.Vouch(cluster, key, d.rule.UID)
		deleted, left, err := r.remove(ctx, d.rule)
		if err != nil || left > 0 {
			r.Brake.Withdraw(cluster, key, d.rule.UID)
		}
		if err != nil {
			return 0, err
		}
		if left == 0 {
			if !deleted {
				write.Base = "" // if it is still there, it is deleted again
			}
			r.Contests.Wrote(write, nil)
		} else {
			left = max(left, r.lost(write, d.rule))
		}
		wait = interval.Soonest(wait, left)
	}
	return wait, nil
}
