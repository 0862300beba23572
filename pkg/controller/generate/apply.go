package generate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/controller/hub"
	"github.com/rulefleet/rulefleet/pkg/rule"
)

// apply writes the AlertRules that differ from what they should be. It returns for
// how long to wait for the cache to show a write that was made before.
func (r *Reconciler) apply(ctx context.Context, desired map[string]*v1alpha1.AlertRule) (time.Duration, error) {
	var wait time.Duration
	for _, ar := range sorted(desired) {
		// Ask first and look then: the cache shows every write that is not pending any more.
		if left := r.writes.Pending(hub.Key(ar)); left > 0 {
			wait = max(wait, left)
			continue
		}
		existing := &v1alpha1.AlertRule{}
		switch err := r.Hub.Get(ctx, hub.Key(ar), existing); {
		case apierrors.IsNotFound(err):
			existing = nil
		case err != nil:
			return 0, fmt.Errorf("reading AlertRule %s: %w", hub.Key(ar), err)
		}
		fields, differs, err := difference(ar, existing)
		if err != nil {
			return 0, err
		}
		if !differs {
			continue
		}
		if fixed, tampered := restored(ar, existing); tampered {
			if err := r.Hub.Patch(ctx, existing.DeepCopy(), fixed, client.FieldOwner(v1alpha1.FieldManager)); err != nil {
				return 0, fmt.Errorf("restoring AlertRule %s: %w", hub.Key(ar), err)
			}
			continue // its event brings the key back
		}
		u := &unstructured.Unstructured{Object: fields}
		r.writes.Begin(hub.Key(ar))
		err = r.Hub.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(v1alpha1.FieldManager), client.ForceOwnership)
		if err != nil {
			r.writes.Failed(hub.Key(ar))
			if err := r.remakeNamespace(ctx, err); err != nil {
				return 0, err
			}
			return 0, fmt.Errorf("applying AlertRule %s: %w", hub.Key(ar), err)
		}
		r.writes.Wrote(hub.Key(ar), u.GetResourceVersion())
	}
	return wait, nil
}

// guardRetry is when to ask again whether a template that vanished together with its
// CustomResourceDefinition is to be missed.
const guardRetry = 2 * time.Minute

// remakeNamespace makes the namespace of generated AlertRules anew where an error says
// that it is gone.
func (r *Reconciler) remakeNamespace(ctx context.Context, cause error) error {
	status, ok := errors.AsType[*apierrors.StatusError](cause)
	if !ok || !apierrors.IsNotFound(cause) || status.ErrStatus.Details == nil || status.ErrStatus.Details.Kind != "namespaces" {
		return nil
	}
	err := r.Hub.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: r.Namespace}})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("making namespace %s: %w", r.Namespace, err)
	}
	return nil
}

// restored returns a patch that puts the fields back that are nobody's to edit, and
// whether they were edited. Server-side apply would not do: it never takes an entry
// out of a list that somebody else put in.
func restored(desired, existing *v1alpha1.AlertRule) (client.Patch, bool) {
	if existing == nil || (equality.Semantic.DeepEqual(existing.Spec.Placement, desired.Spec.Placement) &&
		equality.Semantic.DeepEqual(existing.Spec.WorkloadRef, desired.Spec.WorkloadRef)) {
		return nil, false
	}
	before := existing.DeepCopy()
	after := existing.DeepCopy()
	after.Spec.Placement, after.Spec.WorkloadRef = desired.Spec.Placement, desired.Spec.WorkloadRef
	data, err := client.MergeFrom(before).Data(after)
	if err != nil {
		return nil, false // it is two objects of our own: there is nothing to fail
	}
	return client.RawPatch(types.MergePatchType, data), true
}

// difference returns what to apply for an AlertRule, and whether that would change
// anything. A field of the spec that somebody else owns by now is left out: an edit
// on the hub wins (DESIGN §2).
func difference(desired, existing *v1alpha1.AlertRule) (map[string]any, bool, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(desired)
	if err != nil {
		return nil, false, fmt.Errorf("AlertRule %s: %w", hub.Key(desired), err)
	}
	delete(fields, "status")
	unstructured.RemoveNestedField(fields, "metadata", "creationTimestamp")
	fields["apiVersion"], fields["kind"] = v1alpha1.GroupVersion.String(), "AlertRule"
	if existing == nil {
		return fields, true, nil
	}
	current, err := runtime.DefaultUnstructuredConverter.ToUnstructured(existing)
	if err != nil {
		return nil, false, fmt.Errorf("AlertRule %s: %w", hub.Key(existing), err)
	}
	want, _ := fields["spec"].(map[string]any)
	have, _ := current["spec"].(map[string]any)
	for _, path := range edited(existing) {
		unstructured.RemoveNestedField(want, path...)
		unstructured.RemoveNestedField(have, path...)
	}
	return fields, !sameSpec(want, have) || !holds(existing.Labels, desired.Labels), nil
}

// sameSpec compares what is left of two specs. A map that lost its last entry is as
// good as none.
func sameSpec(want, have map[string]any) bool {
	for _, spec := range []map[string]any{want, have} {
		for _, field := range mapFields {
			if m, ok := spec[field].(map[string]any); ok && len(m) == 0 {
				delete(spec, field)
			}
		}
	}
	return equality.Semantic.DeepEqual(want, have)
}

// mapFields are the fields of a spec whose entries have owners of their own.
var mapFields = []string{"labels", "annotations"}

// fixedFields are the fields of a generated AlertRule that are nobody's to edit.
var fixedFields = []string{"placement", "workloadRef"}

// edited returns the paths within the spec that somebody other than the operator
// owns. managedFields is the record of it (KEP-555).
func edited(ar *v1alpha1.AlertRule) [][]string {
	var paths [][]string
	for _, entry := range ar.ManagedFields {
		if entry.Manager == v1alpha1.FieldManager || entry.Subresource != "" || entry.FieldsV1 == nil {
			continue
		}
		var fields struct {
			Spec map[string]map[string]json.RawMessage `json:"f:spec"`
		}
		if json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) != nil {
			continue
		}
		for key, entries := range fields.Spec {
			field, ok := strings.CutPrefix(key, "f:")
			switch {
			case !ok, slices.Contains(fixedFields, field):
			case !slices.Contains(mapFields, field):
				paths = append(paths, []string{field})
			default:
				for entry := range entries {
					if name, ok := strings.CutPrefix(entry, "f:"); ok {
						paths = append(paths, []string{field, name})
					}
				}
			}
		}
	}
	return paths
}

func holds(have, want map[string]string) bool {
	for key, value := range want {
		if have[key] != value {
			return false
		}
	}
	return true
}

// prune deletes the AlertRules that the Deployment should not have any more. It
// returns for how long to wait for the cache to show a write that was made before.
func (r *Reconciler) prune(ctx context.Context, w *rule.Workload, desired map[string]*v1alpha1.AlertRule, keep map[string]bool, existing []v1alpha1.AlertRule) (time.Duration, error) {
	var wait time.Duration
	for i := range existing {
		ar := &existing[i]
		template := ar.Labels[v1alpha1.TemplateLabel]
		if desired[ar.Name] != nil || keep[template] || ar.Namespace != r.Namespace {
			continue
		}
		if left := r.writes.Pending(hub.Key(ar)); left > 0 {
			wait = max(wait, left)
			continue
		}
		unfounded, err := r.unfounded(ctx, w, template)
		if err != nil {
			return 0, err
		}
		if !unfounded {
			wait = max(wait, guardRetry)
			continue
		}
		left, err := r.remove(ctx, ar)
		if err != nil {
			return 0, err
		}
		wait = max(wait, left)
	}
	return wait, nil
}

// remove deletes an AlertRule, if it still is as it was seen. If it is not, it returns
// when to look again.
func (r *Reconciler) remove(ctx context.Context, ar *v1alpha1.AlertRule) (time.Duration, error) {
	r.writes.Begin(hub.Key(ar))
	err := r.Hub.Delete(ctx, ar, client.Preconditions{UID: &ar.UID, ResourceVersion: &ar.ResourceVersion})
	if err == nil {
		r.writes.Deleted(hub.Key(ar), ar.ResourceVersion)
		return 0, nil
	}
	r.writes.Failed(hub.Key(ar))
	switch {
	case apierrors.IsNotFound(err):
		return 0, nil
	case apierrors.IsConflict(err): // its status was written meanwhile, most likely
		return staleRetry, nil
	}
	return 0, fmt.Errorf("deleting AlertRule %s: %w", hub.Key(ar), err)
}

// unfounded tells whether an AlertRule has lost its ground: the Deployment is gone,
// or the template is there and does not match it, or the template was deleted.
func (r *Reconciler) unfounded(ctx context.Context, w *rule.Workload, template string) (bool, error) {
	if w == nil {
		return true, nil
	}
	err := r.Hub.Get(ctx, client.ObjectKey{Name: template}, &v1alpha1.AlertRuleTemplate{})
	switch {
	case err == nil:
		return true, nil
	case !apierrors.IsNotFound(err):
		return false, fmt.Errorf("reading AlertRuleTemplate %s: %w", template, err)
	}
	return r.Guard.Gone(ctx, hub.AlertRuleTemplates, client.ObjectKey{Name: template})
}

func sorted(m map[string]*v1alpha1.AlertRule) []*v1alpha1.AlertRule {
	out := make([]*v1alpha1.AlertRule, 0, len(m))
	for _, ar := range m {
		out = append(out, ar)
	}
	slices.SortFunc(out, func(a, b *v1alpha1.AlertRule) int { return strings.Compare(a.Name, b.Name) })
	return out
}
