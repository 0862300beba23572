package generate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/contest"
	"github.com/rulefleet/rulefleet/pkg/controller/hub"
	"github.com/rulefleet/rulefleet/pkg/interval"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/coverage"
	"github.com/rulefleet/rulefleet/pkg/rule/templating"
	"github.com/rulefleet/rulefleet/pkg/spoke"
)

// apply writes the AlertRules that differ from their desired state, each independently of the others. It
// returns how long to wait for the cache to show an earlier write, when to retry failed writes or to check that a
// creation was seen, and whether the spoke's quota is full.
func (r *Reconciler) apply(ctx context.Context, w *templating.Workload, desired map[string]*v1alpha1.AlertRule) (unseen, again time.Duration, full bool, err error) {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(desired)) {
		ar := desired[name]
		// Check for pending writes before reading: the cache shows every write that is no longer pending.
		if left := r.writes.Pending(hub.Key(ar)); left > 0 {
			unseen = max(unseen, left)
			continue
		}
		existing := &v1alpha1.AlertRule{}
		switch err := r.Hub.Get(ctx, hub.Key(ar), existing); {
		case apierrors.IsNotFound(err):
			existing = nil
		case err != nil:
			errs = append(errs, fmt.Errorf("reading AlertRule %s: %w", hub.Key(ar), err))
			continue
		}
		if existing == nil {
			err, left := r.overdue(ctx, ar), r.writes.Pending(hub.Key(ar))
			if err != nil || left > 0 {
				unseen, errs = max(unseen, left), append(errs, err)
				continue
			}
		}
		if existing == nil && !r.quota.take(w.Cluster.Name, w.Cluster.MaxRules, w.Namespace, hub.Key(ar)) {
			full = true
			tell(ctx, ar.Labels[v1alpha1.TemplateLabel], coverage.Refused)
			continue
		}
		left, err := r.applyOne(ctx, w, ar, existing)
		errs = append(errs, err)
		if existing == nil && err == nil && left == 0 {
			// If it is deleted before the watch shows it, and the watch breaks, there is never an event.
			left = r.writes.Pending(hub.Key(ar))
		}
		again = interval.Soonest(again, left)
	}
	return unseen, again, full, errors.Join(errs...)
}

// overdue reads an AlertRule from the hub that the cache lacks, if that is long after it was created; then its write is
// pending if it is there.
func (r *Reconciler) overdue(ctx context.Context, ar *v1alpha1.AlertRule) error {
	err := r.writes.Confirm(hub.Key(ar), func() (string, error) {
		live := &v1alpha1.AlertRule{}
		err := r.Guard.Live.Get(ctx, hub.Key(ar), live)
		return live.ResourceVersion, err
	})
	if err != nil {
		return fmt.Errorf("reading AlertRule %s, which the cache does not show: %w", hub.Key(ar), err)
	}
	return nil
}

// applyOne writes an AlertRule if it differs from its desired state. It makes at most one write, because the
// event of a write triggers another reconcile.
func (r *Reconciler) applyOne(ctx context.Context, w *templating.Workload, ar, existing *v1alpha1.AlertRule) (time.Duration, error) {
	switch {
	case existing == nil:
	case !fixed(ar, existing):
		return r.displace(ctx, w, ar, existing)
	case existing.Annotations[v1alpha1.ResetFieldsAnnotation] != "":
		return r.reset(ctx, ar, existing)
	}
	created := false // also by another client
	defer func() {
		if existing == nil && !created {
			r.quota.release(w.Cluster.Name, hub.Key(ar))
			tell(ctx, ar.Labels[v1alpha1.TemplateLabel], coverage.Failed)
		}
	}()
	fields, err := toApply(ar, existing)
	if err != nil {
		return 0, err
	}
	if fields == nil {
		r.Contests.Stands(object(ar))
		return 0, nil
	}
	write, err := r.defined(ctx, r.writing(ar, existing, fields))
	if err != nil {
		return 0, err
	}
	if wait := r.yield(write, existing); wait > 0 {
		return wait, nil
	}
	err = r.send(ctx, ar, existing, fields, write)
	created = err == nil || apierrors.IsConflict(err)
	if err != nil {
		return r.failed(ctx, ar, existing, write, err)
	}
	return 0, nil
}

// send applies the fields of an AlertRule. The error is that of the API server.
func (r *Reconciler) send(ctx context.Context, ar, existing *v1alpha1.AlertRule, fields map[string]any, write contest.Write) error {
	// Without force, an AlertRule that the cache does not show yet, such as a restored one, keeps the values that
	// others set. A field that a person removed has no owner, and returns.
	options := []client.ApplyOption{client.FieldOwner(v1alpha1.FieldManager)}
	if existing != nil {
		options = append(options, client.ForceOwnership)
	}
	u := &unstructured.Unstructured{Object: fields}
	r.writes.Begin(hub.Key(ar))
	count(ctx)
	source := ar.Spec.WorkloadRef
	workload := rule.WorkloadKey(source)
	r.Propagation.RuleMade(string(source.Cluster), workload, rule.KeyOf(ar))
	err := r.Hub.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), options...)
	if err != nil || (existing != nil && existing.Generation == u.GetGeneration()) {
		r.Propagation.RuleNotMade(rule.KeyOf(ar)) // spokes do not see it
	}
	if err != nil {
		r.writes.Failed(hub.Key(ar))
		return err //nolint:wrapcheck // failed does
	}
	r.writes.Wrote(hub.Key(ar), u.GetResourceVersion())
	r.wrote(write, existing, u)
	ignored := ar.Annotations[v1alpha1.IgnoredAnnotation]
	if ignored != "" && (existing == nil || existing.Annotations[v1alpha1.IgnoredAnnotation] != ignored) {
		note := fmt.Sprintf("%s in spoke %s: %s", workload, source.Cluster, ignored)
		r.Recorder.Eventf(u, nil, corev1.EventTypeWarning, "AnnotationIgnored", "Generate", "%s", spoke.Clip(note, spoke.MaxNote))
	}
	return nil
}

// displace deletes an object in the place of an AlertRule, so that the AlertRule can be created. A contest is
// about the creation. It returns when to check again.
func (r *Reconciler) displace(ctx context.Context, w *templating.Workload, ar, existing *v1alpha1.AlertRule) (time.Duration, error) {
	fields, _, err := difference(ar, nil)
	if err != nil {
		return 0, err
	}
	if wait, err := r.misplaced(ctx, w, ar, existing); err != nil || wait > 0 {
		return wait, err
	}
	if wait := r.yield(r.writing(ar, existing, fields), existing); wait > 0 {
		return wait, nil
	}
	_, _, err = r.remove(ctx, existing)
	return staleRetry, err // its event does not name this workload
}

// failed handles a failed write, and returns when to retry.
func (r *Reconciler) failed(ctx context.Context, ar, existing *v1alpha1.AlertRule, write contest.Write, err error) (time.Duration, error) {
	if maps := nulled(err); existing != nil && len(maps) > 0 {
		return staleRetry, r.empty(ctx, existing, maps)
	}
	if existing != nil && (apierrors.IsInvalid(err) || apierrors.IsForbidden(err)) {
		tell(ctx, existing.Labels[v1alpha1.TemplateLabel], coverage.Failed)
	}
	switch {
	case apierrors.IsConflict(err):
		return max(r.lost(write, existing), staleRetry), nil // it was changed meanwhile, so the fields of others have to be determined again
	case apierrors.IsInvalid(err) && existing != nil:
		// The fields that others have changed conflict with the template. A change of either triggers another
		// reconcile.
		r.Recorder.Eventf(existing, nil, corev1.EventTypeWarning, "NotApplied", "Generate", "%s",
			spoke.Clip(fmt.Sprintf("template %s and the edited fields of this AlertRule (status.overriddenFields) are not valid together; change the template, or discard the edit: set annotation %s of this AlertRule to the name of the conflicting field ('*' discards all edits). The hub's API server says: %v",
				existing.Labels[v1alpha1.TemplateLabel], v1alpha1.ResetFieldsAnnotation, err), spoke.MaxNote))
		return r.Intervals.Of(refusalRetry), nil
	}
	r.Contests.Refused(write, err)
	if err := r.remakeNamespace(ctx, err); err != nil {
		return 0, err
	}
	return 0, fmt.Errorf("applying AlertRule %s: %w", hub.Key(ar), err)
}

// nulled returns the fields of the spec that an apply would make null, so that it is refused. That happens when it
// removes the last key of a map, and other managers own the map, but none of its keys (kubernetes/kubernetes#135841).
func nulled(err error) []string {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || !apierrors.IsInvalid(err) || status.ErrStatus.Details == nil {
		return nil
	}
	var out []string
	for _, c := range status.ErrStatus.Details.Causes {
		for _, name := range []string{"labels", "annotations"} {
			if c.Type == metav1.CauseType(field.ErrorTypeTypeInvalid) && c.Field == "spec."+name {
				out = append(out, name)
			}
		}
	}
	return out
}

// empty removes maps that have no keys any more, because an apply can't. The event of this write triggers the
// reconcile that applies the rest.
func (r *Reconciler) empty(ctx context.Context, existing *v1alpha1.AlertRule, maps []string) error {
	next := existing.DeepCopy()
	for _, name := range maps {
		switch name {
		case "labels":
			next.Spec.Labels = nil
		case "annotations":
			next.Spec.Annotations = nil
		}
	}
	if err := r.patch(ctx, existing, next); err != nil && !apierrors.IsConflict(err) { // a conflict is tried again
		return fmt.Errorf("removing empty fields of AlertRule %s: %w", hub.Key(existing), err)
	}
	return nil
}

// patch writes an AlertRule if it is unchanged since it was read. The error is that of the API server.
func (r *Reconciler) patch(ctx context.Context, existing, next *v1alpha1.AlertRule) error {
	// The lock is not only for order: a patch of managedFields replaces all of them.
	patch := client.MergeFromWithOptions(existing, client.MergeFromWithOptimisticLock{})
	r.writes.Begin(hub.Key(existing))
	count(ctx)
	if err := r.Hub.Patch(ctx, next, patch, client.FieldOwner(v1alpha1.FieldManager)); err != nil {
		r.writes.Failed(hub.Key(existing))
		return err //nolint:wrapcheck // its callers do
	}
	r.writes.Wrote(hub.Key(existing), next.ResourceVersion)
	return nil
}

// refusalRetry is when to retry after the hub found an AlertRule invalid: a new version of its
// CustomResourceDefinition may accept it.
const refusalRetry = 10 * time.Minute

// reset gives fields back to the template, as an annotation requests. The event of this write triggers the
// reconcile that applies the template's values.
func (r *Reconciler) reset(ctx context.Context, desired, existing *v1alpha1.AlertRule) (time.Duration, error) {
	write := r.resetting(existing)
	if wait := r.yield(write, existing); wait > 0 {
		return wait, nil
	}
	next, given, unknown := templating.Reset(existing, desired)
	switch err := r.patch(ctx, existing, next); {
	case apierrors.IsConflict(err):
		return staleRetry, nil
	case err != nil:
		return 0, fmt.Errorf("resetting fields of AlertRule %s: %w", hub.Key(existing), err)
	}
	r.wrote(write, existing, next)
	if len(given) > 0 {
		r.Recorder.Eventf(next, nil, corev1.EventTypeNormal, "FieldsReset", "Generate", "%s",
			spoke.Clip("fields reset to the template: "+strings.Join(given, ", "), spoke.MaxNote))
	}
	if len(unknown) > 0 {
		r.Recorder.Eventf(next, nil, corev1.EventTypeWarning, "FieldsNotReset", "Generate", "%s",
			spoke.Clip(fmt.Sprintf("fields not reset, because they are not in status.overriddenFields: %s. Correct the names, and set annotation %s again",
				strings.Join(unknown, ", "), v1alpha1.ResetFieldsAnnotation), spoke.MaxNote))
	}
	return 0, nil
}

// guardRetry is when to check again a template that vanished together with its CustomResourceDefinition.
const guardRetry = 2 * time.Minute

// remakeNamespace creates the namespace of generated AlertRules again if the error says that it is gone.
func (r *Reconciler) remakeNamespace(ctx context.Context, cause error) error {
	status, ok := errors.AsType[*apierrors.StatusError](cause)
	if !ok || !apierrors.IsNotFound(cause) || status.ErrStatus.Details == nil || status.ErrStatus.Details.Kind != "namespaces" {
		return nil
	}
	err := r.Hub.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: r.Namespace}})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating namespace %s: %w", r.Namespace, err)
	}
	return nil
}

// unfoundedOf returns the AlertRules of a workload that it should no longer have, and how long to wait if
// that is not known yet. One that is being deleted is left to its finalizers.
func (r *Reconciler) unfoundedOf(ctx context.Context, w *templating.Workload, desired map[string]*v1alpha1.AlertRule, keep map[string]bool, existing []v1alpha1.AlertRule) ([]doomed, time.Duration, error) {
	var out []doomed
	var wait time.Duration
	for i := range existing {
		ar := &existing[i]
		template := ar.Labels[v1alpha1.TemplateLabel]
		if desired[ar.Name] != nil || keep[template] || ar.Namespace != r.Namespace || !ar.DeletionTimestamp.IsZero() {
			continue
		}
		if left := r.writes.Pending(hub.Key(ar)); left > 0 {
			wait = max(wait, left)
			continue
		}
		d, left, err := r.unfounded(ctx, w, ar)
		if err != nil {
			return nil, 0, err
		}
		if left > 0 {
			wait = max(wait, left)
			continue
		}
		out = append(out, d)
	}
	return out, wait, nil
}

// remove deletes an AlertRule if it is unchanged since it was read. Otherwise it returns when to check again. deleted is
// false also if the AlertRule was gone.
func (r *Reconciler) remove(ctx context.Context, ar *v1alpha1.AlertRule) (deleted bool, again time.Duration, err error) {
	r.writes.Begin(hub.Key(ar))
	count(ctx)
	err = r.Hub.Delete(ctx, ar, client.Preconditions{UID: &ar.UID, ResourceVersion: &ar.ResourceVersion})
	if err == nil {
		r.writes.Deleted(hub.Key(ar), ar.ResourceVersion)
		return true, 0, nil
	}
	r.writes.Failed(hub.Key(ar))
	switch {
	case apierrors.IsNotFound(err):
		return false, 0, nil
	case apierrors.IsConflict(err): // most likely its status was written
		return false, staleRetry, nil
	}
	return false, 0, fmt.Errorf("deleting AlertRule %s: %w", hub.Key(ar), err)
}
