package generate

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/contest"
	"github.com/rulefleet/rulefleet/pkg/controller/hub"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/spoke"
)

func object(ar *v1alpha1.AlertRule) contest.Object {
	return contest.Object{Spoke: string(ar.Spec.WorkloadRef.Cluster), Kind: v1alpha1.AlertRuleKind, NamespacedName: hub.Key(ar)}
}

// writing, removing and resetting are the writes of an AlertRule as the contest package sees them. The
// intention is the applied content. It changes when people take over a field or give it back, which is not a
// contest.
//
// An AlertRule may also be missing because its kind was deleted: while a CustomResourceDefinition is being deleted, the API
// server accepts an apply, and deletes what it creates. So writing reads the definition before a second revert counts. It
// returns an error if the kind is not served.
func (r *Reconciler) writing(ctx context.Context, ar, existing *v1alpha1.AlertRule, fields map[string]any) (contest.Write, error) {
	applied := runtime.DeepCopyJSON(fields)
	unstructured.RemoveNestedField(applied, "metadata", "resourceVersion")
	data, err := json.Marshal(applied)
	if err != nil { // strings, numbers, lists and maps of them can't fail
		panic(fmt.Sprintf("generate: digest of AlertRule %s: %v", hub.Key(ar), err))
	}
	write := r.writeOf(ar, string(data))
	write.Gone = existing == nil
	if existing != nil || !r.Contests.Reverted(write) {
		return write, nil
	}
	switch _, served, err := r.Guard.Kinds.Defined(ctx, hub.AlertRules); {
	case err != nil:
		return contest.Write{}, fmt.Errorf("applying AlertRule %s again: %w", hub.Key(ar), err)
	case !served:
		return contest.Write{}, fmt.Errorf("applying AlertRule %s again: the hub does not serve AlertRules, or is deleting their CustomResourceDefinition", hub.Key(ar))
	}
	write.Definition = r.Guard.Kinds.Definition(hub.AlertRules)
	return write, nil
}

func (r *Reconciler) removing(ar *v1alpha1.AlertRule) contest.Write {
	return r.writeOf(ar, contest.Absent)
}

func (r *Reconciler) writeOf(ar *v1alpha1.AlertRule, meant string) contest.Write {
	return contest.Write{Object: object(ar), Rule: rule.KeyOf(ar), Meant: meant, Definition: r.Guard.Kinds.Definition(hub.AlertRules)}
}

// resetting removes the request to reset fields from an AlertRule. A GitOps tool may set it again.
func (r *Reconciler) resetting(ar *v1alpha1.AlertRule) contest.Write {
	write := r.writeOf(ar, ar.Annotations[v1alpha1.ResetFieldsAnnotation])
	write.Annotation = v1alpha1.ResetFieldsAnnotation
	return write
}

// lost returns how long to delay a write after another client was faster.
func (r *Reconciler) lost(write contest.Write, existing *v1alpha1.AlertRule) time.Duration {
	if existing == nil {
		return 0 // the cache was behind
	}
	return r.Contests.LostTo(write, existing.ResourceVersion, existing, func(message string) { r.tellContested(existing, write, message) })
}

// yield returns how long to delay a write that another client keeps reverting, and reports that. An edit by
// people is not a contest; it takes precedence.
func (r *Reconciler) yield(write contest.Write, existing *v1alpha1.AlertRule) time.Duration {
	return r.Contests.Yield(write, existing, func(message string) { r.tellContested(existing, write, message) }).Wait
}

func (r *Reconciler) tellContested(existing *v1alpha1.AlertRule, write contest.Write, message string) {
	if existing != nil {
		r.Recorder.Eventf(existing, nil, corev1.EventTypeWarning, v1alpha1.ReasonContested, "Generate", "%s", spoke.Clip(message, spoke.MaxNote))
	}
	r.Spokes.ChangedSoon(write.Spoke)
	if r.Changed != nil {
		r.Changed(write.Rule)
	}
}
