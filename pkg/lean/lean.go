// Package lean lets the objects of caches share what many of them have in common: texts, maps of labels, and the fields
// in managedFields. Whoever reads an object from a cache copies it before changing anything, so nobody notices. It also
// leaves out index entries that nobody looks up.
package lean

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/cespare/xxhash/v2"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/lru"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
)

const (
	// maxText is the length of a text, in bytes, above which it is unlikely to be found twice.
	maxText = 256
	// texts is how many texts are remembered to be shared.
	texts = 1 << 12
	// maxShared is how many maps, and how many sets of managed fields, are remembered to be shared, and maxBytes limits
	// the length of each.
	maxShared, maxBytes = 1 << 8, 4 << 10
)

var sharedMaps, sharedFields = lru.New(maxShared), lru.New(maxShared)

// sharedTexts has for each hash the text that was seen last. So it takes the same memory whatever a spoke sends, and no
// text costs more than without it. The hash has no random seed, so tests are deterministic. A collision only costs memory.
var sharedTexts struct {
	sync.Mutex

	seen [texts]string
}

// text makes a text share its bytes with equal ones.
func text[T ~string](s *T) {
	if s == nil || *s == "" || len(*s) > maxText {
		return
	}
	i := xxhash.Sum64String(string(*s)) % texts
	sharedTexts.Lock()
	defer sharedTexts.Unlock()
	if seen := &sharedTexts.seen[i]; *seen == string(*s) {
		*s = T(*seen)
	} else {
		*seen = string(*s)
	}
}

// keys returns a map whose keys share their bytes with equal ones.
func keys[T ~string](m map[string]T) map[string]T {
	return shared(m, func(string) bool { return false })
}

// Labels returns a map whose keys and values share their bytes with equal ones, except the values of keys that differ
// in every object.
func Labels[T ~string](m map[string]T, differ func(key string) bool) map[string]T {
	return shared(m, func(key string) bool { return !differ(key) })
}

func shared[T ~string](m map[string]T, values func(key string) bool) map[string]T {
	if m == nil {
		return nil
	}
	out := make(map[string]T, len(m))
	for key, value := range m {
		text(&key)
		if values(key) {
			text(&value)
		}
		out[key] = value
	}
	return out
}

// sharedMap returns an equal map that others have as well, for labels and annotations that are the same in many objects.
func sharedMap(m map[string]string) map[string]string {
	var id strings.Builder
	for _, key := range slices.Sorted(maps.Keys(m)) {
		id.WriteString(key)
		id.WriteByte(0)
		id.WriteString(m[key])
		id.WriteByte(0)
	}
	if len(m) == 0 || id.Len() > maxBytes {
		return m
	}
	if known, ok := sharedMaps.Get(id.String()); ok {
		return known.(map[string]string)
	}
	sharedMaps.Add(id.String(), m)
	return m
}

// managed makes entries of managedFields share their fields, which are the same for all objects of a kind that one client
// writes.
func managed(entries []metav1.ManagedFieldsEntry) {
	for i := range entries {
		e := &entries[i]
		text(&e.Manager)
		text(&e.Operation)
		text(&e.APIVersion)
		text(&e.FieldsType)
		text(&e.Subresource)
		id := e.FieldsV1.GetRawString()
		if id == "" || len(id) > maxBytes {
			continue
		}
		if known, ok := sharedFields.Get(id); ok {
			e.FieldsV1 = known.(*metav1.FieldsV1)
			continue
		}
		sharedFields.Add(id, e.FieldsV1)
	}
}

func kind(t *metav1.TypeMeta) {
	text(&t.APIVersion)
	text(&t.Kind)
}

// Metadata makes the metadata of a Deployment or namespace lean.
func Metadata(o *metav1.PartialObjectMetadata) {
	kind(&o.TypeMeta)
	text(&o.Namespace)
	// Most values are names, or versions of one Deployment.
	o.Labels, o.Annotations = keys(o.Labels), keys(o.Annotations)
}

// AlertRule makes an AlertRule lean. It is a cache.TransformFunc; other objects stay as they are.
func AlertRule(in any) (any, error) {
	r, ok := in.(*v1alpha1.AlertRule)
	if !ok {
		return in, nil
	}
	kind(&r.TypeMeta)
	text(&r.Namespace)
	if r.Labels[v1alpha1.TemplateLabel] != "" { // all that a template generates for a spoke have the same
		r.Labels, r.Annotations = sharedMap(r.Labels), sharedMap(r.Annotations)
	}
	managed(r.ManagedFields)
	alert(&r.Spec.AlertSpec)
	for i := range r.Spec.Placement.Names {
		text(&r.Spec.Placement.Names[i])
	}
	text(&r.Spec.RuleNamespace)
	text(&r.Spec.RuleNamespaceFrom)
	text(&r.Spec.State)
	if w := r.Spec.WorkloadRef; w != nil {
		text(&w.Cluster)
		text(&w.Kind)
		text(&w.Namespace)
	}
	for i := range r.Status.Conditions {
		c := &r.Status.Conditions[i]
		text(&c.Type)
		text(&c.Status)
		text(&c.Reason)
		text(&c.Message)
	}
	for i := range r.Status.Clusters {
		c := &r.Status.Clusters[i]
		text(&c.Name)
		text(&c.Phase)
		text(&c.Reason)
		text(&c.Message)
		for j := range c.Evaluators {
			text(&c.Evaluators[j])
		}
	}
	return r, nil
}

func alert(a *v1alpha1.AlertSpec) {
	text(&a.Alert)
	text(&a.For)
	text(&a.Severity)
	text(&a.KeepFiringFor)
	text(&a.Interval)
	a.Labels = Labels(a.Labels, rule.NamesWorkload)
	a.Annotations = keys(a.Annotations)
}

// PrometheusRule makes a PrometheusRule of this hub lean.
func PrometheusRule(p *monitoringv1.PrometheusRule) {
	kind(&p.TypeMeta)
	text(&p.Namespace)
	p.Labels = Labels(p.Labels, func(key string) bool { return key == v1alpha1.AlertRuleHashLabel })
	p.Annotations = keys(p.Annotations)
	for i := range p.Spec.Groups {
		g := &p.Spec.Groups[i]
		text(g.Interval)
		for j := range g.Rules {
			r := &g.Rules[j]
			text(&r.Alert)
			text(r.For)
			text(r.KeepFiringFor)
			r.Labels = Labels(r.Labels, rule.NamesWorkload)
			r.Annotations = keys(r.Annotations)
		}
	}
}

// RulePack makes a RulePack lean. It is a cache.TransformFunc; other objects stay as they are. The texts of its rules are
// not shared, because few of them repeat.
func RulePack(in any) (any, error) {
	p, ok := in.(*v1alpha1.RulePack)
	if ok {
		kind(&p.TypeMeta)
		text(&p.Namespace)
		managed(p.ManagedFields)
	}
	return in, nil
}
