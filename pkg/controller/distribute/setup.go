package distribute

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	mcbuilder "sigs.k8s.io/multicluster-runtime/pkg/builder"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	mcsource "sigs.k8s.io/multicluster-runtime/pkg/source"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/controller/brake"
	"github.com/rulefleet/rulefleet/pkg/controller/hub"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/spoke"
	"github.com/rulefleet/rulefleet/pkg/spoke/queue"
)

// ruleIndex indexes this hub's PrometheusRules in a spoke's cache by source.
const ruleIndex = "alertrule"

func ruleKeys(hubID string) client.IndexerFunc {
	return func(o client.Object) []string {
		if key, ok := rule.ParseRuleKey(o); ok && rule.Owned(o, hubID) {
			return []string{key.Listed()}
		}
		return nil
	}
}

// SetupWithManager adds the Reconciler to the manager.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr mcmanager.Manager, provider *spoke.Provider) error {
	err := mgr.GetFieldIndexer().IndexField(ctx, &monitoringv1.PrometheusRule{}, ruleIndex, ruleKeys(r.Render.HubID))
	if err != nil {
		return fmt.Errorf("indexing PrometheusRules: %w", err)
	}
	onHub, notInSpokes := mcbuilder.WithEngageWithLocalCluster(true), mcbuilder.WithEngageWithProviderClusters(false)
	c, err := mcbuilder.TypedControllerManagedBy[queue.Request](mgr).
		Named("distribute").
		Watches(&v1alpha1.AlertRule{}, r.onSource, onHub, notInSpokes, mcbuilder.WithPredicates(hub.Edited)).
		Watches(&v1alpha1.RulePack{}, r.onSource, onHub, notInSpokes, mcbuilder.WithPredicates(hub.Edited)).
		Watches(&v1alpha1.SpokeCluster{}, r.onSpokeCluster, onHub, notInSpokes, mcbuilder.WithPredicates(hub.Decided)).
		WatchesRawSource(r.Brake.Woken(brake.Distribute)).
		WatchesRawSource(provider.Started()).
		WatchesRawSource(queue.Source(&r.evaluators, func(q spoke.WorkQueue, name string) { go r.replay(ctx, name, q) })).
		WatchesRawSource(queue.Source(r.Evaluations.News(), onNews)).
		WatchesRawSource(queue.Source(r.Tenants.Changes(), func(q spoke.WorkQueue, namespace string) { go r.replayTenant(ctx, namespace, q) })).
		WithOptions(provider.ControllerOptions("distribute", mgr.GetLogger(), func(req queue.Request) queue.Lane { return r.lane(ctx, req) })).
		Build(provider.Answering("distribute", r))
	if err != nil {
		return fmt.Errorf("setting up distribute: %w", err)
	}
	rules := mcsource.TypedKind[client.Object, queue.Request](&monitoringv1.PrometheusRule{}, r.onPrometheusRule).WithClusterFilter(provider.RulesServed)
	namespaces := mcsource.TypedKind[client.Object, queue.Request](spoke.NamespaceMetadata(), r.onNamespace)
	if err := spoke.Watch(mgr, c, rules, namespaces, spoke.Engaged(r.onEngaged)); err != nil {
		return fmt.Errorf("setting up distribute: %w", err)
	}
	return nil
}

// onEngaged enqueues the AlertRules that may be placed on a newly engaged spoke, those whose deletions the brake held,
// and those that could not be removed: their objects may be gone by now, without an event.
func (r *Reconciler) onEngaged(ctx context.Context, name string, q spoke.WorkQueue) {
	r.Propagation.Forget(name)
	r.replay(ctx, name, q)
	for _, owner := range r.Brake.Owners(brake.Distribute, name) {
		spoke.Enqueue(q, handler.LowPriority, hub.Request(name, owner))
	}
	for _, req := range r.notes.leftovers(name) {
		spoke.Enqueue(q, handler.LowPriority, req)
	}
}

// newsAtOnce is how many changed rules of a spoke are enqueued per second. When its Prometheus goes down or
// recovers, thousands change, and each is a write to the hub.
const newsAtOnce = 50

// EvaluatorsChanged enqueues every AlertRule that may be placed on a spoke whose evaluators changed, because rules may
// need other labels.
func (r *Reconciler) EvaluatorsChanged(name string) { r.evaluators.Send(name) }

// onNews enqueues the AlertRules of a spoke whose evaluation changed.
func onNews(q spoke.WorkQueue, rules []queue.Request) {
	for i, req := range rules {
		spoke.EnqueueAfter(q, req, time.Duration(i/newsAtOnce)*time.Second)
	}
}

// replayTenant enqueues the AlertRules of a namespace of the hub whose labels changed, or of all if it is "", for the
// spokes that select tenants by labels.
func (r *Reconciler) replayTenant(ctx context.Context, namespace string, q spoke.WorkQueue) {
	sources, err := hub.Sources(ctx, r.Hub, client.InNamespace(namespace))
	if err != nil {
		return // as in replay
	}
	sources = slices.DeleteFunc(sources, func(s rule.Source) bool { return s.GetNamespace() == r.Generated })
	for _, s := range r.Spokes.Spokes() {
		c, err := hub.Cluster(ctx, r.Hub, s.Name)
		if err != nil || c == nil || c.Tenants == nil || c.Tenants.Selector == nil {
			continue
		}
		for _, source := range sources {
			spoke.Enqueue(q, handler.LowPriority, hub.Request(s.Name, rule.KeyOf(source)))
		}
	}
	for _, source := range sources {
		if r.Changed != nil {
			r.Changed(rule.KeyOf(source))
		}
	}
}

// replay enqueues every AlertRule that may be placed on a spoke.
func (r *Reconciler) replay(ctx context.Context, name string, q spoke.WorkQueue) {
	rules, err := hub.RulesMaybeOn(ctx, r.Hub, name)
	if err != nil {
		// The cache has synced and the index exists, so the error means that the process is ending.
		return
	}
	for _, source := range rules {
		spoke.Enqueue(q, handler.LowPriority, hub.Request(name, rule.KeyOf(source)))
	}
}

// onSource enqueues a changed source for every engaged spoke where it is or was placed, or that has an
// object of it.
func (r *Reconciler) onSource(multicluster.ClusterName, cluster.Cluster) spoke.EventHandler {
	changed := func(ctx context.Context, q spoke.WorkQueue, versions ...client.Object) {
		key := rule.KeyOf(versions[0].(rule.Source))
		concerned, away := r.concerned(ctx, key, versions)
		r.Propagation.RuleChanged(key, concerned)
		for _, name := range slices.Concat(concerned, away) {
			r.enqueue(ctx, q, name, key)
		}
	}
	return r.Witness.Before(&placing{EventHandler: spoke.OnEvent(changed), r: r, changed: changed})
}

// concerned returns the engaged spokes that a change of a source concerns. No change is under way for those that are
// away; engaging them enqueues all they need.
func (r *Reconciler) concerned(ctx context.Context, key rule.Key, versions []client.Object) (engaged, away []string) {
	placement := versions[0].(rule.Source).GetPlacement()
	if len(versions) > 1 || placement.Selector != nil {
		for _, s := range r.Spokes.Spokes() {
			if r.concerns(ctx, s, key, versions) {
				engaged = append(engaged, s.Name)
			}
		}
		return engaged, nil
	}
	// This covers all generated AlertRules. A spoke that has an object of it and is not named enqueued it when it was
	// engaged.
	for _, name := range placement.Names {
		if r.Spokes.Spoke(string(name)) != nil {
			engaged = append(engaged, string(name))
			continue
		}
		away = append(away, string(name))
		// The object in its cluster may belong to another spoke by now.
		if successor := r.Spokes.Successor(string(name)); successor != "" {
			away = append(away, successor)
		}
	}
	return engaged, away
}

// placing tells Places of new, changed and deleted sources. One that gets a place is handled as if it were new.
type placing struct {
	spoke.EventHandler

	r       *Reconciler
	changed func(ctx context.Context, q spoke.WorkQueue, versions ...client.Object)
}

// Create implements spoke.EventHandler.
func (h *placing) Create(ctx context.Context, e event.TypedCreateEvent[client.Object], q spoke.WorkQueue) {
	h.saw(ctx, e.Object, q)
	h.EventHandler.Create(ctx, e, q)
}

// Update implements spoke.EventHandler.
func (h *placing) Update(ctx context.Context, e event.TypedUpdateEvent[client.Object], q spoke.WorkQueue) {
	h.saw(ctx, e.ObjectNew, q)
	h.EventHandler.Update(ctx, e, q)
}

func (h *placing) saw(ctx context.Context, o client.Object, q spoke.WorkQueue) {
	next, err := h.r.Places.Saw(ctx, o.(rule.Source))
	if err != nil {
		return // the cache has synced, so the process is ending
	}
	h.place(ctx, next, q)
}

// Delete implements spoke.EventHandler.
func (h *placing) Delete(ctx context.Context, e event.TypedDeleteEvent[client.Object], q spoke.WorkQueue) {
	h.EventHandler.Delete(ctx, e, q)
	h.place(ctx, h.r.Places.Gone(rule.KeyOf(e.Object.(rule.Source))), q)
}

// place handles the sources that get a place.
func (h *placing) place(ctx context.Context, next []rule.Key, q spoke.WorkQueue) {
	for _, key := range next {
		src, err := hub.Source(ctx, h.r.Hub, key)
		if err != nil || src == nil {
			continue // it was deleted as well, and its event passes the place on
		}
		h.changed(ctx, q, src.(client.Object))
		if h.r.Changed != nil {
			h.r.Changed(key)
		}
	}
}

// enqueue enqueues a changed AlertRule. If the spoke can't be written to at present, it also updates what is
// shown as pending deletion.
func (r *Reconciler) enqueue(ctx context.Context, q spoke.WorkQueue, name string, key rule.Key) {
	spoke.Enqueue(q, 0, hub.Request(name, key))
	if c, err := hub.Cluster(ctx, r.Hub, name); r.Spokes.Away(name) || (err == nil && c != nil && c.Suspended) {
		r.Spokes.ChangedSoon(name)
	}
}

// concerns reports whether any version of an AlertRule concerns a spoke.
func (r *Reconciler) concerns(ctx context.Context, s *spoke.Spoke, key rule.Key, versions []client.Object) bool {
	if c, err := hub.Cluster(ctx, r.Hub, s.Name); err == nil && c != nil {
		for _, v := range versions {
			if placed, err := rule.Places(v.(rule.Source).GetPlacement(), *c); err == nil && placed {
				return true
			}
		}
	}
	if !s.RulesServed {
		return false
	}
	var held monitoringv1.PrometheusRuleList
	err := s.Reader.List(ctx, &held, client.MatchingFields{ruleIndex: key.Listed()})
	return err != nil || len(held.Items) > 0
}

// onSpokeCluster enqueues, when a spoke's labels or spec changed, every AlertRule that may be or may have been
// placed on it.
func (r *Reconciler) onSpokeCluster(multicluster.ClusterName, cluster.Cluster) spoke.EventHandler {
	return r.Witness.Before(spoke.OnEvent(func(ctx context.Context, q spoke.WorkQueue, versions ...client.Object) {
		name := versions[0].GetName()
		r.saw(name, versions[0].GetUID())
		for _, req := range r.notes.take(namespaceKey{spoke: name}) {
			spoke.Enqueue(q, 0, req)
		}
		s := r.Spokes.Spoke(name)
		if s == nil {
			return
		}
		r.replay(ctx, name, q)
		// While there was no SpokeCluster, nothing was removed.
		created := len(versions) == 1 || versions[0].GetUID() != versions[1].GetUID()
		if created || versions[0].GetGeneration() != versions[1].GetGeneration() {
			r.replayHeld(ctx, s, q)
			r.Spokes.ChangedSoon(name)
		}
	}))
}

// replayHeld enqueues every AlertRule that a spoke has an object of, including deleted ones, because a spoke
// that was suspended still has the objects of those. It returns the number of objects.
func (r *Reconciler) replayHeld(ctx context.Context, s *spoke.Spoke, q spoke.WorkQueue, in ...client.ListOption) int {
	var held monitoringv1.PrometheusRuleList
	if !s.RulesServed || s.Reader.List(ctx, &held, append(in, client.MatchingLabels{v1alpha1.HubLabel: r.Render.HubID})...) != nil {
		return 0 // as in replay
	}
	for i := range held.Items {
		if key, ok := rule.ParseRuleKey(&held.Items[i]); ok {
			spoke.Enqueue(q, handler.LowPriority, hub.Request(s.Name, key))
		}
	}
	return len(held.Items)
}

// onPrometheusRule enqueues the AlertRule to which a PrometheusRule belongs by its name, and those that it
// names or named. They have low priority: most of these events are echoes of writes or come from a spoke's
// first list.
func (r *Reconciler) onPrometheusRule(name multicluster.ClusterName, _ cluster.Cluster) spoke.EventHandler {
	return spoke.OnEvent(func(ctx context.Context, q spoke.WorkQueue, versions ...client.Object) {
		o := versions[0]
		r.writes.Seen(objectKey{name.String(), hub.Key(o)}, o.GetResourceVersion())
		// The cache has synced and the index exists, so an error means that the process is ending.
		if key, found, err := hub.RuleOfObject(ctx, r.Hub, o.GetName()); err == nil && found {
			spoke.Enqueue(q, handler.LowPriority, hub.Request(name.String(), key))
		}
		for _, v := range versions {
			if key, ok := rule.ParseRuleKey(v); ok && rule.Owned(v, r.Render.HubID) {
				spoke.Enqueue(q, handler.LowPriority, hub.Request(name.String(), key))
			}
		}
	})
}

// onNamespace enqueues the AlertRules that wait for a namespace and, if its labels changed, by which a
// Prometheus may select it, those with an object in it.
func (r *Reconciler) onNamespace(name multicluster.ClusterName, _ cluster.Cluster) spoke.EventHandler {
	return spoke.OnEvent(func(ctx context.Context, q spoke.WorkQueue, versions ...client.Object) {
		if len(versions) == 2 && !maps.Equal(versions[0].GetLabels(), versions[1].GetLabels()) {
			namespace := versions[0].GetName()
			r.replays.Do(name.String(), namespace, func() int {
				if s := r.Spokes.Spoke(name.String()); s != nil {
					return r.replayHeld(ctx, s, q, client.InNamespace(namespace))
				}
				return 0 // engaging it enqueues all its keys
			})
		}
		for _, req := range r.notes.take(namespaceKey{name.String(), versions[0].GetName()}) {
			spoke.Enqueue(q, 0, req)
		}
	})
}
