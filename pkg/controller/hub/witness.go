package hub

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/suspect"
	"github.com/rulefleet/rulefleet/pkg/spoke"
)

const (
	// maxWitnessed bounds the remembered objects; the least recently used ones are dropped.
	maxWitnessed = 10_000
	// maxFormer bounds the remembered former versions of an object.
	maxFormer = 8
)

// Witness remembers changes that this process saw on the hub, so that their consequences are not taken for a
// loss. It is only in memory: after a restart, the ages of objects decide, and a forgotten change at worst
// requires an acknowledgement. Use NewWitness to create one.
type Witness struct {
	mu sync.Mutex
	// deleted has the deleted objects, as deletion by witnessed.
	deleted *lru.Cache
	// former has the earlier versions of an object by its UID, as []version.
	former *lru.Cache
	// since has the resourceVersion with which a SpokeCluster was first seen, by its UID.
	since *lru.Cache
	// left has the deleted SpokeClusters, as []departed by identity.
	left *lru.Cache
}

// deletion is the deletion of an object.
type deletion struct {
	made    time.Time
	version string
	// versions are the versions before the deletion, and the last one; only of a source.
	versions []version
}

// version is a former version of an object, with only the fields that decisions use.
type version struct {
	client.Object

	// until is the resourceVersion of the next one.
	until string
}

// departed is a deleted SpokeCluster.
type departed struct {
	rule.Cluster

	version string
}

type witnessed struct {
	kind Kind
	key  types.NamespacedName
}

// NewWitness returns an empty Witness.
func NewWitness() *Witness {
	return &Witness{deleted: lru.New(maxWitnessed), former: lru.New(maxWitnessed), since: lru.New(maxWitnessed), left: lru.New(maxWitnessed)}
}

// Before returns a handler that remembers an event before next handles it, because next may cause a decision
// at once.
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

// kindOf returns the kind of an object. ok is false for an irrelevant one.
func kindOf(o client.Object) (kind Kind, ok bool) {
	switch o.(type) {
	case *v1alpha1.AlertRule:
		return AlertRules, true
	case *v1alpha1.RulePack:
		return RulePacks, true
	case *v1alpha1.AlertRuleTemplate:
		return AlertRuleTemplates, true
	case *v1alpha1.SpokeCluster:
		return SpokeClusters, true
	}
	return Kind{}, false
}

// sawCreated drops the deletion of an object. If an AlertRule is deleted and created again, for example by
// kubectl replace --force, it inherits the former versions, because a person made the change. The manager
// itself creates SpokeClusters and built-in templates again.
func (w *Witness) sawCreated(o client.Object) {
	kind, ok := kindOf(o)
	if !ok {
		return
	}
	if kind == SpokeClusters {
		w.sawFirst(o)
	}
	id := witnessed{kind, Key(o)}
	if found, ok := w.deleted.Get(id); ok && len(found.(deletion).versions) > 0 {
		w.former.Add(o.GetUID(), found.(deletion).versions)
	}
	w.deleted.Remove(id)
}

// sawFirst remembers the first version of a SpokeCluster. Two controllers report each event.
func (w *Witness) sawFirst(o client.Object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, seen := w.since.Get(o.GetUID()); !seen {
		w.since.Add(o.GetUID(), o.GetResourceVersion())
	}
}

func (w *Witness) sawDeleted(o client.Object) {
	kind, ok := kindOf(o)
	if !ok {
		return
	}
	d := deletion{made: o.GetCreationTimestamp().Time, version: o.GetResourceVersion()}
	if slices.Contains(sourceKinds, kind) {
		d.versions = latest(append(slices.Clone(w.versions(o.GetUID())), version{read(o), d.version}))
	}
	w.former.Remove(o.GetUID())
	w.since.Remove(o.GetUID())
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

// latest returns the last maxFormer versions.
func latest[T any](versions []T) []T { return versions[max(0, len(versions)-maxFormer):] }

// sawUpdated remembers the old version if the new one may change a decision. A replacement by another object
// is not a change, because the former object may have been lost.
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
	versions := slices.DeleteFunc(slices.Clone(w.versions(before.GetUID())), func(v version) bool {
		return equality.Semantic.DeepEqual(v.Object, was) // two controllers report each event
	})
	w.former.Add(before.GetUID(), latest(append(versions, version{was, after.GetResourceVersion()})))
}

// read returns the fields of an object that decisions use, or nil for an irrelevant kind.
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
	case *v1alpha1.RulePack:
		out := &v1alpha1.RulePack{}
		out.Spec.Placement, out.Spec.State = o.Spec.Placement, o.Spec.State
		return out
	case *v1alpha1.AlertRuleTemplate:
		out := &v1alpha1.AlertRuleTemplate{Spec: o.Spec}
		out.Name = o.Name
		return out
	case *v1alpha1.SpokeCluster:
		out := &v1alpha1.SpokeCluster{}
		out.Labels, out.Spec.Tenants = o.Labels, o.Spec.Tenants
		return out
	}
	return nil
}

func (w *Witness) versions(uid types.UID) []version {
	if found, ok := w.former.Get(uid); ok {
		return found.([]version)
	}
	return nil
}

// Deleted reports whether an object was seen to be deleted under this definition of its kind.
func (w *Witness) Deleted(kind Kind, key types.NamespacedName, defined Defined) bool {
	found, ok := w.deleted.Get(witnessed{kind, key})
	if !ok {
		return false
	}
	d := found.(deletion)
	return defined.Has(d.made, d.version)
}

// Seen returns the remembered versions of a source or a template, by its UID, and of a SpokeCluster.
//
// A version that was replaced before the SpokeCluster was created is left out: that change was made while a
// former SpokeCluster had other labels. It would explain a removal that follows from the loss of these labels.
func (w *Witness) Seen(uid types.UID, c rule.Cluster) suspect.Seen {
	w.mu.Lock()
	defer w.mu.Unlock()
	var seen suspect.Seen
	since, known := w.since.Get(c.UID)
	for _, v := range w.versions(uid) {
		if !known || !later(v.until, since.(string)) {
			continue
		}
		switch o := v.Object.(type) {
		case rule.Source:
			seen.Sources = append(seen.Sources, o)
		case *v1alpha1.AlertRuleTemplate:
			seen.Templates = append(seen.Templates, o)
		}
	}
	for _, v := range w.versions(c.UID) {
		if sc, ok := v.Object.(*v1alpha1.SpokeCluster); ok {
			seen.Spokes = append(seen.Spokes, suspect.FormerSpoke{Labels: sc.Labels, Tenants: sc.Spec.Tenants})
		}
	}
	return seen
}

// later reports whether a resourceVersion is later than another one, or can't be compared with it.
func later(version, than string) bool {
	order, err := resourceversion.CompareResourceVersion(version, than)
	return err != nil || order > 0
}

// Left returns the deleted SpokeClusters of other names that were the same cluster, under this definition of
// the kind.
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
