package hub

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/spoke"
)

const (
	// maxWitnessed bounds the objects of which something is remembered; those that were
	// used longest ago go first.
	maxWitnessed = 10_000
	// maxFormer bounds the former versions that are remembered of an object.
	maxFormer = 8
)

// Witness remembers what this process saw being decided on the hub, so that what follows
// from it is not taken for a loss. Memory is all it has: after a restart, the ages of
// objects decide. What it forgot waits for an acknowledgement, at worst. NewWitness makes one.
type Witness struct {
	mu sync.Mutex
	// deleted has when the objects that were deleted had been made, by witnessed.
	deleted *lru.Cache
	// former has the versions of an object before its present one, by its UID: as
	// []client.Object, with no more than a decision reads.
	former *lru.Cache
	// left has the SpokeClusters that were deleted, as []rule.Cluster by their identity.
	left *lru.Cache
}

type witnessed struct {
	kind Kind
	key  types.NamespacedName
}

// NewWitness returns a Witness that saw nothing yet.
func NewWitness() *Witness {
	return &Witness{deleted: lru.New(maxWitnessed), former: lru.New(maxWitnessed), left: lru.New(maxWitnessed)}
}

// Before returns a handler that remembers an event before another one handles it: what that
// one enqueues may be decided at once.
func (w *Witness) Before(next spoke.EventHandler) spoke.EventHandler {
	return &witnessing{EventHandler: next, w: w}
}

type witnessing struct {
	spoke.EventHandler

	w *Witness
}

// Create implements spoke.EventHandler.
func (h *witnessing) Create(ctx context.Context, e event.TypedCreateEvent[client.Object], q spoke.WorkQueue) {
	h.w.sawCreated(e.Object)
	h.EventHandler.Create(ctx, e, q)
}

// Update implements spoke.EventHandler.
func (h *witnessing) Update(ctx context.Context, e event.TypedUpdateEvent[client.Object], q spoke.WorkQueue) {
	h.w.sawUpdated(e.ObjectOld, e.ObjectNew)
	h.EventHandler.Update(ctx, e, q)
}

// Delete implements spoke.EventHandler.
func (h *witnessing) Delete(ctx context.Context, e event.TypedDeleteEvent[client.Object], q spoke.WorkQueue) {
	h.w.sawDeleted(e.Object)
	h.EventHandler.Delete(ctx, e, q)
}

// kindOf returns the kind of an object. ok is false for one that nothing depends on.
func kindOf(o client.Object) (kind Kind, ok bool) {
	switch o.(type) {
	case *v1alpha1.AlertRule:
		return AlertRules, true
	case *v1alpha1.AlertRuleTemplate:
		return AlertRuleTemplates, true
	case *v1alpha1.SpokeCluster:
		return SpokeClusters, true
	}
	return Kind{}, false
}

func (w *Witness) sawCreated(o client.Object) {
	if kind, ok := kindOf(o); ok {
		w.deleted.Remove(witnessed{kind, Key(o)})
	}
}

func (w *Witness) sawDeleted(o client.Object) {
	kind, ok := kindOf(o)
	if !ok {
		return
	}
	w.former.Remove(o.GetUID())
	w.deleted.Add(witnessed{kind, Key(o)}, o.GetCreationTimestamp().Time)
	if sc, ok := o.(*v1alpha1.SpokeCluster); ok {
		w.sawLeave(*ClusterOf(sc))
	}
}

func (w *Witness) sawLeave(c rule.Cluster) {
	if c.Identity == "" {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	left := slices.DeleteFunc(slices.Clone(w.leftOf(c.Identity)), func(o rule.Cluster) bool { return o.Name == c.Name })
	left = append(left, c)
	w.left.Add(c.Identity, left[max(0, len(left)-maxFormer):])
}

// sawUpdated remembers the old version, if a decision may differ by the new one. Another
// object of the same name is none: what was there before may have been lost.
func (w *Witness) sawUpdated(before, after client.Object) {
	if before.GetUID() != after.GetUID() {
		w.former.Remove(before.GetUID())
		w.sawCreated(after)
		return
	}
	was, is := read(before), read(after)
	if was == nil || equality.Semantic.DeepEqual(was, is) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	versions := slices.DeleteFunc(slices.Clone(w.versions(before.GetUID())), func(o client.Object) bool {
		return equality.Semantic.DeepEqual(o, was) // two controllers tell of each event
	})
	versions = append(versions, was)
	w.former.Add(before.GetUID(), versions[max(0, len(versions)-maxFormer):])
}

// read returns what decisions read of an object, or nil for one of another kind.
func read(o client.Object) client.Object {
	switch o := o.(type) {
	case *v1alpha1.AlertRule:
		out := &v1alpha1.AlertRule{}
		out.Spec.Placement, out.Spec.State = o.Spec.Placement, o.Spec.State
		for i := range o.Spec.Overrides {
			out.Spec.Overrides = append(out.Spec.Overrides, v1alpha1.Override{
				ClusterSelection: o.Spec.Overrides[i].ClusterSelection, State: o.Spec.Overrides[i].State,
			})
		}
		return out
	case *v1alpha1.AlertRuleTemplate:
		out := &v1alpha1.AlertRuleTemplate{Spec: o.Spec}
		out.Name = o.Name
		return out
	case *v1alpha1.SpokeCluster:
		out := &v1alpha1.SpokeCluster{}
		out.Labels = o.Labels
		return out
	}
	return nil
}

func (w *Witness) versions(uid types.UID) []client.Object {
	if found, ok := w.former.Get(uid); ok {
		return found.([]client.Object)
	}
	return nil
}

// Deleted tells whether an object was seen to be deleted that had been made since its kind
// was defined. When the kind is deleted, all of its objects are, too: that is nobody's
// decision about any of them.
func (w *Witness) Deleted(kind Kind, key types.NamespacedName, since time.Time) bool {
	made, ok := w.deleted.Get(witnessed{kind, key})
	return ok && !made.(time.Time).Before(since)
}

// Seen returns what was seen of what a decision follows from: of an AlertRule or a
// template, by its UID, and of a SpokeCluster.
func (w *Witness) Seen(uid types.UID, c rule.Cluster) rule.Seen {
	w.mu.Lock()
	defer w.mu.Unlock()
	var seen rule.Seen
	for _, o := range w.versions(uid) {
		switch o := o.(type) {
		case *v1alpha1.AlertRule:
			seen.Rules = append(seen.Rules, o)
		case *v1alpha1.AlertRuleTemplate:
			seen.Templates = append(seen.Templates, o)
		}
	}
	for _, o := range w.versions(c.UID) {
		seen.Labels = append(seen.Labels, o.GetLabels())
	}
	return seen
}

// Left returns the SpokeClusters of other names that were a cluster, and were seen to be
// deleted after they had been made since their kind was defined.
func (w *Witness) Left(c rule.Cluster, since time.Time) []rule.Cluster {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(w.leftOf(c.Identity)), func(o rule.Cluster) bool {
		return o.Name == c.Name || o.Created.Before(since)
	})
}

func (w *Witness) leftOf(identity string) []rule.Cluster {
	if found, ok := w.left.Get(identity); ok && identity != "" {
		return found.([]rule.Cluster)
	}
	return nil
}
