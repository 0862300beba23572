package generate

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// writing and resetting are the writes of an AlertRule as the contest package sees them. The intention is the applied
// content. It changes when people take over a field or give it back, which is not a contest.
func (r *Reconciler) writing(ar, existing *v1alpha1.AlertRule, fields map[string]any) contest.Write {
	applied := runtime.DeepCopyJSON(fields)
	unstructured.RemoveNestedField(applied, "metadata", "resourceVersion")
	data, err := json.Marshal(applied)
	if err != nil { // strings, numbers, lists and maps of them can't fail
		panic(fmt.Sprintf("generate: digest of AlertRule %s: %v", hub.Key(ar), err))
	}
	return r.writeOf(ar, existing, string(data))
}

func (r *Reconciler) writeOf(ar, existing *v1alpha1.AlertRule, meant string) contest.Write {
	write := contest.Write{Object: object(ar), Rule: rule.KeyOf(ar), Meant: meant, Gone: existing == nil, Definition: r.Guard.Kinds.Definition(hub.AlertRules)}
	if existing != nil {
		write.Base = string(existing.UID) + "/" + existing.ResourceVersion
	}
	return write
}

// resetting removes the request to reset fields from an AlertRule. A GitOps tool may set it again.
func (r *Reconciler) resetting(ar *v1alpha1.AlertRule) contest.Write {
	write := r.writeOf(ar, ar, ar.Annotations[v1alpha1.ResetFieldsAnnotation])
	write.Annotation = v1alpha1.ResetFieldsAnnotation
	return write
}

// defined completes the write of a missing AlertRule. While a CustomResourceDefinition is being deleted, the API server may
// still accept an apply, and then deletes the new object. So defined reads the CustomResourceDefinition before a second
// revert counts. It returns an error if the kind is not served.
func (r *Reconciler) defined(ctx context.Context, write contest.Write) (contest.Write, error) {
	if !write.Gone || !r.Contests.Reverted(write) {
		return write, nil
	}
	switch _, served, err := r.Guard.Kinds.Defined(ctx, hub.AlertRules); {
	case err != nil:
		return write, fmt.Errorf("applying AlertRule %s again: %w", write.NamespacedName, err)
	case !served:
		return write, fmt.Errorf("applying AlertRule %s again: the hub does not serve AlertRules, or is deleting their CustomResourceDefinition; install the CustomResourceDefinitions of the chart again", write.NamespacedName)
	}
	write.Definition = r.Guard.Kinds.Definition(hub.AlertRules)
	return write, nil
}

// wrote records a write and the answer of the API server.
func (r *Reconciler) wrote(write contest.Write, existing *v1alpha1.AlertRule, answer metav1.Object) {
	if existing != nil && answer.GetResourceVersion() == existing.ResourceVersion {
		write.Base = "" // the API server found no change, so the cache may show this version
	}
	r.Contests.Wrote(write, answer)
}

// lost returns how long to delay a write after another client was faster.
func (r *Reconciler) lost(write contest.Write, existing *v1alpha1.AlertRule) time.Duration {
	if existing == nil {
		return 0 // the cache was behind
	}
	return r.Contests.LostTo(write, existing.ResourceVersion, existing, func(message string) { r.tellContested(existing, write, message) })
}

// yield returns how long to delay a write that another client keeps reverting, and reports that. An edit by
// people is not a contest; it takes precedence. A write also waits while the cache does not show the last one.
func (r *Reconciler) yield(write contest.Write, existing *v1alpha1.AlertRule) time.Duration {
	turn := r.Contests.Yield(write, existing, func(message string) { r.tellContested(existing, write, message) })
	if turn.Behind {
		return staleRetry
	}
	return turn.Wait
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
