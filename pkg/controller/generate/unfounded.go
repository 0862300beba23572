package generate

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/controller/hub"
	"github.com/rulefleet/rulefleet/pkg/rule"
)

// behindRetry is when to look again where the hub's cache is behind its API server. The
// event that it lacks brings the key back.
const behindRetry = 30 * time.Second

// unfounded finds out whether an AlertRule that the hub's cache has no ground for has lost
// it: the Deployment is gone, or the template is there and does not match it, or the template
// was deleted. The template and the SpokeCluster are read past the cache, which may be old:
// old knowledge removes nothing. Where the AlertRule stays, it returns when to look again.
func (r *Reconciler) unfounded(ctx context.Context, w *rule.Workload, ar *v1alpha1.AlertRule) (doomed, time.Duration, error) {
	d := doomed{rule: ar}
	if w == nil {
		return d, 0, nil
	}
	t, reader := &v1alpha1.AlertRuleTemplate{}, r.Guard.Live.Reading()
	key := client.ObjectKey{Name: ar.Labels[v1alpha1.TemplateLabel]}
	switch err := reader.Get(ctx, key, t); {
	case apierrors.IsNotFound(err):
		gone, since, err := r.Guard.Gone(ctx, reader, hub.AlertRuleTemplates, key)
		if err != nil || !gone {
			return d, r.Intervals.Of(guardRetry), err //nolint:wrapcheck // it says all
		}
		d.suspect = rule.SuspectAbsent(madeAt(ar), since, r.Witness.Deleted(hub.AlertRuleTemplates, key, since))
		return d, 0, nil
	case err != nil:
		return d, 0, fmt.Errorf("before deleting AlertRule %s: reading AlertRuleTemplate %s: %w", hub.Key(ar), key.Name, err)
	}
	cluster, err := hub.Cluster(ctx, reader, w.Cluster.Name)
	if err != nil {
		return d, 0, fmt.Errorf("before deleting AlertRule %s: %w", hub.Key(ar), err)
	}
	if cluster != nil {
		present := *w
		present.Cluster = *cluster
		if !r.keeps(t, present, ar) {
			d.suspect = rule.SuspectUnmatched(madeAt(ar), t, present, r.Witness.Seen(t.UID, *cluster))
			return d, 0, nil
		}
	}
	if reader.Old() { // and the cache may be right
		return d, staleRetry, nil
	}
	return d, r.Intervals.Of(behindRetry), nil
}

// keeps tells whether a template is the ground of an AlertRule, or can't be said not to be.
func (r *Reconciler) keeps(t *v1alpha1.AlertRuleTemplate, w rule.Workload, ar *v1alpha1.AlertRule) bool {
	if ar.Name != rule.GeneratedName(t.Name, w.Cluster.Name, w.Namespace, w.Name) {
		return false
	}
	matches, err := rule.Matches(t, w)
	return matches || err != nil || r.Validator.ValidateTemplate(t) != nil
}

// madeAt returns when an AlertRule was made. Where the operator did not apply it, it comes from
// a backup, and what stands for it in the spoke may be of any age.
func madeAt(ar *v1alpha1.AlertRule) time.Time {
	applied := slices.ContainsFunc(ar.ManagedFields, func(e metav1.ManagedFieldsEntry) bool {
		return e.Manager == v1alpha1.FieldManager && e.Operation == metav1.ManagedFieldsOperationApply && e.Subresource == ""
	})
	if !applied {
		return time.Time{}
	}
	return ar.CreationTimestamp.Time
}
