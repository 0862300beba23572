package spoke

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/clip"
	"github.com/rulefleet/rulefleet/pkg/lean"
	"github.com/rulefleet/rulefleet/pkg/rule"
)

// Scheme has the types that are read in a spoke.
var Scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(appsv1.AddToScheme(s))
	utilruntime.Must(corev1.AddToScheme(s))
	utilruntime.Must(monitoringv1.AddToScheme(s))
	return s
}()

// WorkloadMetadata returns an object for reading workloads of a kind. Only their metadata is used and cached.
func WorkloadMetadata(kind v1alpha1.WorkloadKind) *metav1.PartialObjectMetadata {
	gv := appsv1.SchemeGroupVersion
	if kind == v1alpha1.CronJobKind {
		gv = batchv1.SchemeGroupVersion
	}
	return metadataOf(gv.WithKind(string(kind)))
}

// WorkloadResource returns the name of the resource of a kind of workloads.
func WorkloadResource(kind v1alpha1.WorkloadKind) string { return strings.ToLower(string(kind)) + "s" }

// NamespaceMetadata returns an object for reading Namespaces of a spoke.
func NamespaceMetadata() *metav1.PartialObjectMetadata {
	return metadataOf(corev1.SchemeGroupVersion.WithKind("Namespace"))
}

var ruleKind = monitoringv1.SchemeGroupVersion.WithKind(monitoringv1.PrometheusRuleKind)

func metadataOf(gvk schema.GroupVersionKind) *metav1.PartialObjectMetadata {
	o := &metav1.PartialObjectMetadata{}
	o.SetGroupVersionKind(gvk)
	return o
}

// restMapper maps the kinds that are used in a spoke. Discovery would be a wait that no context bounds.
func restMapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	for _, kind := range rule.WorkloadKinds() {
		m.Add(WorkloadMetadata(kind).GroupVersionKind(), meta.RESTScopeNamespace)
	}
	m.Add(corev1.SchemeGroupVersion.WithKind("Namespace"), meta.RESTScopeRoot)
	m.Add(ruleKind, meta.RESTScopeNamespace)
	return m
}

// newInformerFunc creates an informer.
type newInformerFunc = func(toolscache.ListerWatcher, runtime.Object, time.Duration, toolscache.Indexers) toolscache.SharedIndexInformer

// cacheOptions limits the cache of a spoke to the objects and fields that are read.
func cacheOptions(hubID string, informer newInformerFunc) cache.Options {
	shared := true // every reader copies before it changes anything
	metadata := cache.ByObject{Transform: trimMetadata, UnsafeDisableDeepCopy: &shared}
	objects := map[client.Object]cache.ByObject{
		NamespaceMetadata():            metadata,
		&monitoringv1.PrometheusRule{}: {Transform: trimRule(hubID), UnsafeDisableDeepCopy: &shared},
	}
	for _, kind := range rule.WorkloadKinds() {
		objects[WorkloadMetadata(kind)] = metadata
	}
	return cache.Options{ReaderFailOnMissingInformer: true, NewInformer: informer, ByObject: objects}
}

// trimListed trims an object of a list in place, as the cache would do later.
func trimListed(hubID string) func(runtime.Object) error {
	rules := trimRule(hubID)
	return func(o runtime.Object) error {
		switch o := o.(type) {
		case *metav1.PartialObjectMetadata:
			_, err := trimMetadata(o)
			return err
		case *monitoringv1.PrometheusRule:
			trimmed, err := rules(o)
			if r, ok := trimmed.(*monitoringv1.PrometheusRule); ok && r != o {
				*o = *r
			}
			return err
		}
		return fmt.Errorf("a %T is not expected", o)
	}
}

// These bound the annotation values in the cache, in bytes: an object may carry 256 KiB. Templates insert at
// most 1024 bytes, and have to detect longer values.
const (
	maxAnnotation = 1025
	maxAdjustment = rule.MaxAdjustment + 1 // of those that adjust a workload's AlertRules, which are then ignored
)

// ownAnnotations are the prefixes of annotations that Kubernetes and kubectl write. Some of them change with each rollout.
var ownAnnotations = []string{"kubectl.kubernetes.io/", "deployment.kubernetes.io/", "deprecated.daemonset.template.generation"}

// cutNames shortens names that no API server accepts. Queues keep the names of deleted objects, which no other limit
// counts.
func cutNames(o metav1.Object) {
	const limit = validation.DNS1123SubdomainMaxLength
	if name := o.GetName(); len(name) > limit {
		o.SetName(strings.Clone(clip.Bytes(name, limit)))
	}
	if ns := o.GetNamespace(); len(ns) > limit {
		o.SetNamespace(strings.Clone(clip.Bytes(ns, limit)))
	}
}

// trimMetadata drops the metadata that Kubernetes and kubectl keep for themselves.
func trimMetadata(in any) (any, error) {
	o, err := meta.Accessor(in)
	if err != nil {
		return nil, fmt.Errorf("trimming %T for the cache: %w", in, err)
	}
	cutNames(o)
	o.SetManagedFields(nil)
	o.SetSelfLink("") // API servers no longer send it
	o.SetOwnerReferences(nil)
	o.SetFinalizers(nil)
	annotations := o.GetAnnotations()
	for key, value := range annotations {
		limit := maxAnnotation
		if strings.HasPrefix(key, v1alpha1.AdjustmentPrefix) {
			limit = maxAdjustment
		}
		switch {
		case slices.ContainsFunc(ownAnnotations, func(prefix string) bool { return strings.HasPrefix(key, prefix) }):
			delete(annotations, key)
		case len(value) > limit:
			annotations[key] = strings.Clone(value[:limit]) // a substring would keep the whole value in memory
		}
	}
	o.SetAnnotations(annotations)
	if m, ok := in.(*metav1.PartialObjectMetadata); ok {
		lean.Metadata(m)
	}
	return in, nil
}

// leanReader is a reader that trims what it reads as the cache does, and leaves out specs. What it reads is kept for a
// second (live.MaxAge), and a spoke chooses how much it is.
type leanReader struct{ client.Reader }

// maxKeys bounds the labels, and the annotations, of an object that is read past the cache. Usual ones have a few dozen.
const maxKeys = 4096

// Get implements client.Reader.
func (r leanReader) Get(ctx context.Context, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
	if err := r.Reader.Get(ctx, key, o, options...); err != nil {
		return err //nolint:wrapcheck // a reader is transparent
	}
	if p, ok := o.(*monitoringv1.PrometheusRule); ok {
		p.Spec = monitoringv1.PrometheusRuleSpec{}
	}
	if n := max(len(o.GetLabels()), len(o.GetAnnotations())); n > maxKeys {
		o.SetLabels(nil)
		o.SetAnnotations(nil)
		return &TooLargeError{What: "the metadata of " + key.String(), Value: int64(n), Bound: maxKeys, Unit: "labels or annotations"}
	}
	_, err := trimMetadata(o)
	return err
}

// trimRule keeps this hub's PrometheusRules whole, because an update sends them back whole. Of all others it
// keeps the name, to detect conflicts before a write, and the labels that name another hub.
func trimRule(hubID string) func(any) (any, error) {
	return func(in any) (any, error) {
		r, ok := in.(*monitoringv1.PrometheusRule)
		if !ok {
			return in, nil
		}
		cutNames(r)
		r.SetManagedFields(nil)
		r.SetSelfLink("")
		if r.Labels[v1alpha1.HubLabel] == hubID {
			lean.PrometheusRule(r)
			return r, nil
		}
		var labels, annotations map[string]string
		if r.Labels[v1alpha1.ManagedByLabel] == v1alpha1.ManagedByValue { // belongs to another hub, and may be adopted
			labels = keep(r.Labels, v1alpha1.ManagedByLabel, v1alpha1.HubLabel)
			annotations = keep(r.Annotations, rule.OwnAnnotations...)
		}
		return &monitoringv1.PrometheusRule{
			TypeMeta: r.TypeMeta,
			ObjectMeta: metav1.ObjectMeta{
				Namespace: r.Namespace, Name: r.Name, UID: r.UID,
				ResourceVersion: r.ResourceVersion, CreationTimestamp: r.CreationTimestamp,
				Labels: labels, Annotations: annotations,
			},
		}, nil
	}
}

// keep returns the entries of a map with the given keys.
func keep(in map[string]string, keys ...string) map[string]string {
	out := make(map[string]string, len(keys))
	for _, key := range keys {
		if value, ok := in[key]; ok {
			out[key] = value
		}
	}
	return out
}
