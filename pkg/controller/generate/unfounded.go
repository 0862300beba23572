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
	"github.com/rulefleet/rulefleet/pkg/interval"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/suspect"
	"github.com/rulefleet/rulefleet/pkg/rule/templating"
)

// unfounded determines whether an AlertRule is no longer required: its workload is gone, its template does
// not match it, or its template was deleted. It reads the template and the SpokeCluster from the API server,
// because old data must not remove anything. For the same reason, confirmed reads from the spoke. If the
// AlertRule stays, it returns when to check again.
func (r *Reconciler) unfounded(ctx context.Context, w *templating.Workload, ar *v1alpha1.AlertRule) (doomed, time.Duration, error) {
	d := doomed{rule: ar}
	if w == nil {
		return d, 0, nil
	}
	t, reader := &v1alpha1.AlertRuleTemplate{}, r.Guard.Live.Reading()
	key := client.ObjectKey{Name: ar.Labels[v1alpha1.TemplateLabel]}
	switch err := reader.Get(ctx, key, t); {
	case apierrors.IsNotFound(err):
		gone, kind, err := r.Guard.Gone(ctx, reader, hub.AlertRuleTemplates, key)
		if err != nil || !gone {
			return d, r.Intervals.Of(guardRetry), err //nolint:wrapcheck // it says all
		}
		d.suspect = suspect.Absent(madeAt(ar), kind.Since, r.Witness.Deleted(hub.AlertRuleTemplates, key, kind))
		return d, 0, nil
	case err != nil:
		return d, 0, fmt.Errorf("confirming that AlertRule %s is to be deleted: reading AlertRuleTemplate %s: %w", hub.Key(ar), key.Name, err)
	}
	cluster, err := hub.Cluster(ctx, reader, w.Cluster.Name)
	if err != nil {
		return d, 0, fmt.Errorf("confirming that AlertRule %s is to be deleted: %w", hub.Key(ar), err)
	}
	if cluster != nil {
		present := *w
		present.Cluster = *cluster
		d, stays, err := r.judge(ctx, ground{t, *cluster}, present, ar)
		if err != nil || !stays {
			return d, 0, err
		}
	}
	return d, reader.Again(r.Intervals), nil
}

// judge decides about an AlertRule with its template and SpokeCluster, and a workload and its namespace. It
// reports whether the AlertRule stays.
func (r *Reconciler) judge(ctx context.Context, g ground, w templating.Workload, ar *v1alpha1.AlertRule) (d doomed, stays bool, err error) {
	d.rule = ar
	if r.keeps(g.template, w, ar) {
		return d, true, nil
	}
	t, made, since, served := g.template, madeAt(ar), g.template.CreationTimestamp.Time, true
	seen := r.Witness.Seen(t.UID, g.cluster)
	if suspect.Unmatched(time.Time{}, since, t, w, seen) { // it may be suspect if it is old
		if since, w.Cluster, served, err = r.dated(ctx, g); err != nil {
			return d, false, err
		}
	}
	d.suspect = !served || suspect.Unmatched(made, since, t, w, seen)
	if templating.DecidedInSpoke(made, since, t, w) {
		d.ground = &g
	}
	return d, false, nil
}

// dated returns since when a template and a SpokeCluster are known to have their content: neither is older
// than its CustomResourceDefinition. served reports whether the hub serves the kinds, which are read after the
// objects.
func (r *Reconciler) dated(ctx context.Context, g ground) (since time.Time, c rule.Cluster, served bool, err error) {
	since = g.template.CreationTimestamp.Time
	templates, served, err := r.Guard.Kinds.Defined(ctx, hub.AlertRuleTemplates)
	if err != nil || !served {
		return since, g.cluster, false, err //nolint:wrapcheck // it says all
	}
	members, served, err := r.Guard.Kinds.Defined(ctx, hub.SpokeClusters)
	if err != nil || !served {
		return since, g.cluster, false, err //nolint:wrapcheck // it says all
	}
	if since.Before(templates.Since) {
		since = templates.Since
	}
	return since, members.Dated(g.cluster), true, nil
}

// keeps reports whether an AlertRule follows from a template, or whether that is unknown.
func (r *Reconciler) keeps(t *v1alpha1.AlertRuleTemplate, w templating.Workload, ar *v1alpha1.AlertRule) bool {
	if ar.Name != rule.GeneratedName(t.Name, w.Cluster.Name, w.Kind, w.Namespace, w.Name) {
		return false
	}
	matches, err := templating.Matches(t, w)
	return matches || err != nil || templating.Frozen(t) || r.Validator.ValidateTemplate(t) != nil
}

// misplaced confirms with the API servers of the hub and the spoke that an AlertRule occupies the place of one
// that a template generates. If it does not, it returns when to check again.
func (r *Reconciler) misplaced(ctx context.Context, w *templating.Workload, ar, existing *v1alpha1.AlertRule) (time.Duration, error) {
	reader, before := r.Guard.Live.Reading(), "confirming that AlertRule "+hub.Key(existing).String()+" is to be deleted"
	live, t := &v1alpha1.AlertRule{}, &v1alpha1.AlertRuleTemplate{}
	err := reader.Get(ctx, hub.Key(existing), live)
	if client.IgnoreNotFound(err) != nil {
		return 0, fmt.Errorf("%s: reading it: %w", before, err)
	}
	err = reader.Get(ctx, client.ObjectKey{Name: ar.Labels[v1alpha1.TemplateLabel]}, t)
	if client.IgnoreNotFound(err) != nil {
		return 0, fmt.Errorf("%s: reading its AlertRuleTemplate: %w", before, err)
	}
	cluster, err := hub.Cluster(ctx, reader, w.Cluster.Name)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", before, err)
	}
	s := r.Spokes.Spoke(w.Cluster.Name)
	if s == nil || cluster == nil || live.UID != existing.UID || fixed(ar, live) || t.Name == "" || templating.Frozen(t) {
		return reader.Again(r.Intervals), nil
	}
	inSpoke := s.Live.Reading()
	now, err := present(ctx, inSpoke, w.Key())
	if err != nil {
		return 0, fmt.Errorf("%s: %w", before, err)
	}
	if now != nil {
		now.Cluster = *cluster
		if matches, err := templating.Matches(t, *now); err == nil && matches {
			bounded, cancel := s.Patient(ctx)
			defer cancel()
			if err := s.Identity.Confirm(bounded); err != nil { // another cluster has other workloads
				return 0, fmt.Errorf("%s: %w", before, err)
			}
			return 0, nil
		}
	}
	return interval.Soonest(reader.Again(r.Intervals), inSpoke.Again(r.Intervals)), nil
}

// madeAt returns when an AlertRule was created. If the operator did not apply it, it comes from a backup, and
// its object in the spoke may have any age.
func madeAt(ar *v1alpha1.AlertRule) time.Time {
	applied := slices.ContainsFunc(ar.ManagedFields, func(e metav1.ManagedFieldsEntry) bool {
		return e.Manager == v1alpha1.FieldManager && e.Operation == metav1.ManagedFieldsOperationApply && e.Subresource == ""
	})
	if !applied {
		return time.Time{}
	}
	return ar.CreationTimestamp.Time
}
