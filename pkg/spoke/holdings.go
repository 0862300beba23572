package spoke

import (
	"hash/maphash"
	"math"
	"sync"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// amount is a number of objects and their approximate size in bytes.
type amount struct{ objects, bytes int64 }

func (a *amount) add(o any) {
	a.objects++
	a.bytes += sizeOf(o)
}

func (a amount) plus(b amount) amount  { return amount{a.objects + b.objects, a.bytes + b.bytes} }
func (a amount) minus(b amount) amount { return amount{a.objects - b.objects, a.bytes - b.bytes} }

// held counts the cached objects of a kind.
type held struct {
	amount
	// ours is the number of objects of this hub.
	ours int64
	// each has the weight that is counted for each object, by a hash of its namespace and name. An event does not show
	// how the cache changes: a spoke may send the deletion of an object that never existed, or with another size,
	// and a watch that was resumed repeats deletions (pkg/continuity).
	each map[uint64]weight
}

// weight is the share of an object in the counts.
type weight struct {
	bytes int32
	ours  bool
}

// names hashes the names of objects, so that a spoke can't choose names with the same hash.
var names = maphash.MakeSeed()

// set replaces the weight that is counted for the name of an object. nil removes it.
func (h *held) set(o metav1.Object, is *weight) {
	name := maphash.Comparable(names, types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()})
	if was, known := h.each[name]; known {
		h.count(was, -1)
		delete(h.each, name)
	}
	if is != nil {
		h.count(*is, 1)
		h.each[name] = *is
	}
}

func (h *held) count(one weight, by int64) {
	h.objects += by
	h.bytes += by * int64(one.bytes)
	if one.ours {
		h.ours += by
	}
}

// holdings counts the objects in the caches of a session by kind, and reports when a limit is exceeded.
type holdings struct {
	limits Limits
	// tell is called on an excess; it may be nil.
	tell func(*TooLargeError)
	// charge counts the memory together with that of other spokes; it may be nil.
	charge *Charge

	mu    sync.Mutex
	kinds map[string]*held
	// lists are the sizes of those that are being read, by kind. Each will replace what is cached of its kind, which is kept
	// until then.
	lists map[string]int64
}

// fits checks whether a list of a kind fits beside the objects and the lists of other kinds, which may be read at the same
// time. bytes is its size so far, and objects is how many it will have. The list counts until it has ended.
func (h *holdings) fits(kind string, list amount) *TooLargeError {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lists == nil {
		h.lists = map[string]int64{}
	}
	h.lists[kind] = list.bytes
	return h.exceeded(kind, list)
}

// ended is called when a list has ended.
func (h *holdings) ended(kind string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.lists, kind)
	h.charge.Set(h.total())
}

// forget drops what is counted of a kind whose cache is gone.
func (h *holdings) forget(kind string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.kinds, kind)
	delete(h.lists, kind)
	h.charge.Set(h.total())
}

// total returns the size of all kinds.
func (h *holdings) total() (total int64) {
	for k, held := range h.kinds {
		total += max(held.bytes, h.lists[k])
	}
	for k, bytes := range h.lists {
		if _, held := h.kinds[k]; !held {
			total += bytes
		}
	}
	return total
}

// exceeded checks the limits after an amount of a kind, cached or listed, has changed.
func (h *holdings) exceeded(kind string, is amount) *TooLargeError {
	total := h.total()
	h.charge.Set(total)
	if most := h.limits.objects(); is.objects > most {
		return &TooLargeError{What: "the spoke holds too many " + kind + "s", Value: is.objects, Bound: most, Unit: "objects", Flag: objectsFlag}
	}
	if most := h.limits.memory(); total > most {
		return &TooLargeError{What: "the cache of the spoke is too large", Value: total, Bound: most, Unit: "bytes", Flag: memoryFlag}
	}
	return nil
}

// counting returns a handler that counts the cached objects of a kind, in place of former handlers for the kind. ours
// reports whether an object belongs to this hub. It may be nil.
func (h *holdings) counting(kind string, ours func(metav1.Object) bool) toolscache.ResourceEventHandler {
	of := &held{each: map[uint64]weight{}}
	h.mu.Lock()
	if h.kinds == nil {
		h.kinds = map[string]*held{}
	}
	h.kinds[kind] = of
	h.mu.Unlock()
	set := func(in any) {
		if o, ok := in.(metav1.Object); ok {
			h.set(kind, of, o, &weight{bytes: int32(min(sizeOf(in), math.MaxInt32)), ours: ours != nil && ours(o)})
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    set,
		UpdateFunc: func(_, after any) { set(after) },
		DeleteFunc: func(in any) {
			if tombstone, ok := in.(toolscache.DeletedFinalStateUnknown); ok {
				in = tombstone.Obj
			}
			if o, ok := in.(metav1.Object); ok {
				h.set(kind, of, o, nil)
			}
		},
	}
}

func (h *holdings) set(kind string, of *held, o metav1.Object, is *weight) {
	h.mu.Lock()
	if h.kinds[kind] != of { // a late event of an informer that was removed
		h.mu.Unlock()
		return
	}
	of.set(o, is)
	excess := h.exceeded(kind, of.amount)
	h.mu.Unlock()
	if excess != nil && h.tell != nil {
		h.tell(excess)
	}
}

// counts returns the numbers of Deployments and of this hub's PrometheusRules.
func (h *holdings) counts() Counts {
	h.mu.Lock()
	defer h.mu.Unlock()
	is := Counts{Known: true}
	if k := h.kinds[string(v1alpha1.DeploymentKind)]; k != nil {
		is.Deployments = int32(k.objects)
	}
	if k := h.kinds[monitoringv1.PrometheusRuleKind]; k != nil {
		is.Rules = int32(k.ours)
	}
	return is
}

// Overhead of an object, and of an entry of a map or list in it, beside their texts. It includes the cache's
// indexes. TestSizes compares it with measurements.
const (
	objectSize = 700
	entrySize  = 56
	ruleSize   = 200
	refSize    = 112
	stringSize = 16
)

// sizeOf estimates the size of an object in the cache, in bytes.
func sizeOf(in any) int64 {
	switch o := in.(type) {
	case *metav1.PartialObjectMetadata:
		return sizeOfMetadata(&o.ObjectMeta) + int64(len(o.APIVersion)+len(o.Kind))
	case *monitoringv1.PrometheusRule:
		size := sizeOfMetadata(&o.ObjectMeta) + int64(len(o.APIVersion)+len(o.Kind))
		for i := range o.Spec.Groups {
			size += sizeOfGroup(&o.Spec.Groups[i])
		}
		for i := range o.Status.Bindings {
			size += sizeOfBinding(&o.Status.Bindings[i])
		}
		return size
	}
	return objectSize
}

func sizeOfMetadata(o *metav1.ObjectMeta) int64 {
	size := objectSize + len(o.Namespace) + 2*len(o.Name) + len(o.GenerateName) + len(o.UID) + len(o.ResourceVersion)
	for i := range o.OwnerReferences {
		r := &o.OwnerReferences[i]
		size += refSize + len(r.APIVersion) + len(r.Kind) + len(r.Name) + len(r.UID)
	}
	for _, f := range o.Finalizers {
		size += stringSize + len(f)
	}
	return int64(size) + sizeOfMap(o.Labels) + sizeOfMap(o.Annotations)
}

func sizeOfGroup(g *monitoringv1.RuleGroup) int64 {
	size := int64(ruleSize+len(g.Name)+len(g.PartialResponseStrategy)) + sizeOfMap(g.Labels) + sizeOfText(g.Interval) + sizeOfText(g.QueryOffset)
	for i := range g.Rules {
		r := &g.Rules[i]
		size += int64(ruleSize+len(r.Record)+len(r.Alert)+len(r.Expr.StrVal)) + sizeOfMap(r.Labels) + sizeOfMap(r.Annotations) + sizeOfText(r.For) + sizeOfText(r.KeepFiringFor)
	}
	return size
}

func sizeOfBinding(b *monitoringv1.WorkloadBinding) int64 {
	size := refSize + len(b.Group) + len(b.Resource) + len(b.Namespace) + len(b.Name)
	for i := range b.Conditions {
		c := &b.Conditions[i]
		size += refSize + len(c.Type) + len(c.Status) + len(c.Reason) + len(c.Message)
	}
	return int64(size)
}

func sizeOfText[T ~string](s *T) int64 {
	if s == nil {
		return 0
	}
	return int64(stringSize + len(*s))
}

func sizeOfMap(m map[string]string) int64 {
	size := 0
	for key, value := range m {
		size += entrySize + len(key) + len(value)
	}
	return int64(size)
}
