package spoke

import (
	"fmt"
	"strings"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// Scheme knows what is read in a spoke.
var Scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(appsv1.AddToScheme(s))
	utilruntime.Must(corev1.AddToScheme(s))
	utilruntime.Must(monitoringv1.AddToScheme(s))
	return s
}()

// DeploymentMetadata returns an object to read Deployments of a spoke with. They
// are cached as metadata alone: nothing else of them is used.
func DeploymentMetadata() *metav1.PartialObjectMetadata {
	return metadataOf(appsv1.SchemeGroupVersion.WithKind("Deployment"))
}

// NamespaceMetadata returns an object to read Namespaces of a spoke with.
func NamespaceMetadata() *metav1.PartialObjectMetadata {
	return metadataOf(corev1.SchemeGroupVersion.WithKind("Namespace"))
}

var ruleKind = monitoringv1.SchemeGroupVersion.WithKind(monitoringv1.PrometheusRuleKind)

func metadataOf(gvk schema.GroupVersionKind) *metav1.PartialObjectMetadata {
	o := &metav1.PartialObjectMetadata{}
	o.SetGroupVersionKind(gvk)
	return o
}

// restMapper knows the few kinds that are used in a spoke. Asking the spoke for
// them (discovery) would be a wait that no context bounds.
func restMapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	m.Add(appsv1.SchemeGroupVersion.WithKind("Deployment"), meta.RESTScopeNamespace)
	m.Add(corev1.SchemeGroupVersion.WithKind("Namespace"), meta.RESTScopeRoot)
	m.Add(ruleKind, meta.RESTScopeNamespace)
	return m
}

// newInformerFunc makes an informer.
type newInformerFunc = func(toolscache.ListerWatcher, runtime.Object, time.Duration, toolscache.Indexers) toolscache.SharedIndexInformer

// cacheOptions keeps of a spoke what is read, and no more.
func cacheOptions(hubID string, informer newInformerFunc) cache.Options {
	shared := true // every reader copies before it changes anything
	return cache.Options{
		ReaderFailOnMissingInformer: true,
		NewInformer:                 informer,
		ByObject: map[client.Object]cache.ByObject{
			DeploymentMetadata():           {Transform: trimMetadata, UnsafeDisableDeepCopy: &shared},
			NamespaceMetadata():            {Transform: trimMetadata, UnsafeDisableDeepCopy: &shared},
			&monitoringv1.PrometheusRule{}: {Transform: trimRule(hubID), UnsafeDisableDeepCopy: &shared},
		},
	}
}

// trimListed trims an object in a list, in place, as the cache is going to.
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
		return nil
	}
}

// These bound the value of an annotation in the cache, in bytes: an object may carry
// 256 KiB. No template inserts more than 1024, and it has to see that there are more.
const (
	maxAnnotation = 1025
	maxAdjustment = 8 << 10 // of those that adjust a Deployment's AlertRules
)

// trimMetadata drops what Kubernetes and kubectl keep for themselves.
func trimMetadata(in any) (any, error) {
	o, err := meta.Accessor(in)
	if err != nil {
		return nil, fmt.Errorf("trimming %T for the cache: %w", in, err)
	}
	o.SetManagedFields(nil)
	o.SetOwnerReferences(nil)
	o.SetFinalizers(nil)
	annotations := o.GetAnnotations()
	for key, value := range annotations {
		limit := maxAnnotation
		if strings.HasPrefix(key, v1alpha1.AdjustmentPrefix) {
			limit = maxAdjustment
		}
		switch {
		case strings.HasPrefix(key, "kubectl.kubernetes.io/"), strings.HasPrefix(key, "deployment.kubernetes.io/"):
			delete(annotations, key)
		case len(value) > limit:
			annotations[key] = strings.Clone(value[:limit]) // a part would keep the whole in memory
		}
	}
	o.SetAnnotations(annotations)
	return in, nil
}

// trimRule keeps this hub's PrometheusRules as they are, because an update sends
// them back whole, and of all others only the name, to see a conflict before it is
// written. Those of other hubs keep what tells whose they are, too.
func trimRule(hubID string) func(any) (any, error) {
	return func(in any) (any, error) {
		r, ok := in.(*monitoringv1.PrometheusRule)
		if !ok {
			return in, nil
		}
		r.SetManagedFields(nil)
		if r.Labels[v1alpha1.HubLabel] == hubID {
			return r, nil
		}
		var labels, annotations map[string]string
		if r.Labels[v1alpha1.ManagedByLabel] == v1alpha1.ManagedByValue { // another hub's, which may be adopted
			labels = keep(r.Labels, v1alpha1.ManagedByLabel, v1alpha1.HubLabel)
			annotations = keep(r.Annotations, v1alpha1.AlertRuleAnnotation)
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

// keep returns the entries of a map with these keys.
func keep(in map[string]string, keys ...string) map[string]string {
	out := make(map[string]string, len(keys))
	for _, key := range keys {
		if value, ok := in[key]; ok {
			out[key] = value
		}
	}
	return out
}
