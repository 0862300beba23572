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
	// deleted has the objects that were deleted, as deletion by witnessed.
	deleted *lru.Cache
	// former has the versions of an object before its present one, by its UID: as
	// []client.Object, with no more than a decision reads.
	former *lru.Cache
	// left has the SpokeClusters that were deleted, as []departed by their identity.
	left *lru.Cache
}

// deletion is what is remembered of an object that was deleted.
type deletion struct {
	made    time.Time
	version string
	// versions are those before its deletion, and its last one: of an AlertRule alone.
	versions []client.Object
}

// departed is a SpokeCluster that was deleted.
type departed struct {
	rule.Cluster

	version string
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

// sawCreated forgets that an object was deleted. Of an AlertRule that was deleted and made
// anew, such as by kubectl replace --force, the former one's versions are this one's: a person
// made the change. SpokeClusters and built-in templates are made anew by the manager.
func (w *Witness) sawCreated(o client.Object) {
	kind, ok := kindOf(o)
	if !ok {
		return
	}
	id := witnessed{kind, Key(o)}
	if found, ok := w.deleted.Get(id); ok && len(found.(deletion).versions) > 0 {
		w.former.Add(o.GetUID(), found.(deletion).versions)
	}
	w.deleted.Remove(id)
}

func (w *Witness) sawDeleted(o client.Object) {
	kind, ok := kindOf(o)
	if !ok {
		return
	}
	d := deletion{made: o.GetCreationTimestamp().Time, version: o.GetResourceVersion()}
	if kind == AlertRules {
		d.versions = latest(append(slices.Clone(w.versions(o.GetUID())), read(o)))
	}
	w.former.Remove(o.GetUID())
	w.deleted.Add(witnessed{kind, Key(o)}, d)
	if sc, ok := o.(*v1alpha1.SpokeCluster); ok {
		w.sawLeave(departed{*ClusterOf(sc), sc.ResourceVersion})
	}
}

func (w *Witness) sawLeave(c departed) {
	if c.Identity == "" {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	left := slices.DeleteFunc(slices.Clone(w.leftOf(c.Identity)), func(o departed) bool { return o.Name == c.Name })
	w.left.Add(c.Identity, latest(append(left, c)))
}

// latest returns the last of some versions, as many as are remembered.
func latest[T any](versions []T) []T { return versions[max(0, len(versions)-maxFormer):] }

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
	w.former.Add(before.GetUID(), latest(append(versions, was)))
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

// Deleted tells whether an object of a kind that was defined so was seen to be deleted.
func (w *Witness) Deleted(kind Kind, key types.NamespacedName, defined Defined) bool {
	found, ok := w.deleted.Get(witnessed{kind, key})
	if !ok {
		return false
	}
	d := found.(deletion)
	return defined.Has(d.made, d.version)
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
// deleted, of a kind that was defined so.
func (w *Witness) Left(c rule.Cluster, defined Defined) []rule.Cluster {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []rule.Cluster
	for _, o := range w.leftOf(c.Identity) {
		if o.Name != c.Name && defined.Has(o.Created, o.version) {
			out = append(out, o.Cluster)
		}
	}
	return out
}

func (w *Witness) leftOf(identity string) []departed {
	if found, ok := w.left.Get(identity); ok && identity != "" {
		return found.([]departed)
	}
	return nil
}
