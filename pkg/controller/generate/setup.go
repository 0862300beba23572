package generate

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
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

// recent is the age up to which a workload counts as new, so that its alert is urgent. Older ones come with
// a spoke's first list.
const recent = 5 * time.Minute

// SetupWithManager adds the Reconciler to the manager.
func (r *Reconciler) SetupWithManager(mgr mcmanager.Manager, provider *spoke.Provider) error {
	onHub, notInSpokes := mcbuilder.WithEngageWithLocalCluster(true), mcbuilder.WithEngageWithProviderClusters(false)
	content := predicate.Or(hub.Edited, predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{})
	c, err := mcbuilder.TypedControllerManagedBy[queue.Request](mgr).
		Named("generate").
		Watches(&v1alpha1.AlertRule{}, r.onAlertRule, onHub, notInSpokes, mcbuilder.WithPredicates(content)).
		Watches(&v1alpha1.AlertRuleTemplate{}, r.onTemplate, onHub, notInSpokes, mcbuilder.WithPredicates(hub.Edited)).
		Watches(&v1alpha1.SpokeCluster{}, r.onSpokeCluster, onHub, notInSpokes, mcbuilder.WithPredicates(hub.Decided)).
		WatchesRawSource(r.Brake.Woken(brake.Generate)).
		WatchesRawSource(provider.Started()).
		WithOptions(provider.ControllerOptions("generate", mgr.GetLogger(), nil)).
		Build(r)
	if err != nil {
		return fmt.Errorf("setting up generate: %w", err)
	}
	sources := []spoke.Source{mcsource.TypedKind[client.Object, queue.Request](spoke.NamespaceMetadata(), r.onNamespace, predicate.LabelChangedPredicate{}), spoke.Engaged(r.replay)}
	for _, kind := range rule.WorkloadKinds() {
		sources = append(sources, mcsource.TypedKind[client.Object, queue.Request](spoke.WorkloadMetadata(kind), r.onWorkload(kind), read).WithClusterFilter(provider.Reads(kind)))
	}
	if err := spoke.Watch(mgr, c, sources...); err != nil {
		return fmt.Errorf("setting up generate: %w", err)
	}
	return nil
}

// read passes updates of the labels and annotations of a workload, which are all that templates read. Its
// status changes frequently.
var read = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		return !maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels()) ||
			!maps.Equal(e.ObjectOld.GetAnnotations(), e.ObjectNew.GetAnnotations()) ||
			e.ObjectOld.GetDeletionTimestamp().IsZero() != e.ObjectNew.GetDeletionTimestamp().IsZero()
	},
}

// replay enqueues every workload of a spoke that has an AlertRule. Existing ones also come with the spoke's
// first list, deleted ones do not.
func (r *Reconciler) replay(ctx context.Context, name string, q spoke.WorkQueue) {
	rules, err := hub.GeneratedOn(ctx, r.Hub, name)
	if err != nil {
		// The cache has synced and the index exists, so the error means that the process is ending.
		return
	}
	for i := range rules {
		enqueueWorkload(q, &rules[i])
	}
	for _, workload := range r.quota.waiting(name) { // they may be gone and have no AlertRule
		enqueue(q, handler.LowPriority, name, workload)
	}
	for _, workload := range r.Brake.Owners(brake.Generate, name) { // their AlertRules may be gone
		enqueue(q, handler.LowPriority, name, workload)
	}
}

func enqueue(q spoke.WorkQueue, priority int, name string, workload rule.Key) {
	spoke.Enqueue(q, priority, hub.Request(name, workload))
}

func (r *Reconciler) onWorkload(kind v1alpha1.WorkloadKind) func(multicluster.ClusterName, cluster.Cluster) spoke.EventHandler {
	return func(name multicluster.ClusterName, _ cluster.Cluster) spoke.EventHandler {
		return spoke.OnEvent(func(_ context.Context, q spoke.WorkQueue, versions ...client.Object) {
			priority, key := 0, rule.WorkloadKeyOf(kind, versions[0])
			if len(versions) == 1 && r.Outcomes != nil {
				r.Outcomes.Changed(name.String())
			}
			if len(versions) == 1 && time.Since(versions[0].GetCreationTimestamp().Time) > recent {
				priority = handler.LowPriority
			} else {
				r.Propagation.WorkloadChanged(name.String(), key)
			}
			enqueue(q, priority, name.String(), key)
		})
	}
}

func (r *Reconciler) onNamespace(name multicluster.ClusterName, _ cluster.Cluster) spoke.EventHandler {
	return spoke.OnEvent(func(ctx context.Context, q spoke.WorkQueue, versions ...client.Object) {
		if len(versions) == 1 {
			return // a new namespace has no workload yet, or its key waits; a deleted one deletes them too
		}
		namespace := versions[0].GetName()
		r.replays.Do(name.String(), namespace, func() int {
			return r.enqueueWorkloads(ctx, q, name.String(), client.InNamespace(namespace))
		})
	})
}

// onAlertRule enqueues the workload of a generated AlertRule that was changed or deleted, and records the
// echoes of the operator's own writes.
func (r *Reconciler) onAlertRule(multicluster.ClusterName, cluster.Cluster) spoke.EventHandler {
	seen := func(q spoke.WorkQueue, versions ...client.Object) {
		r.writes.Seen(hub.Key(versions[0]), versions[0].GetResourceVersion())
		for _, v := range versions {
			if ar, ok := v.(*v1alpha1.AlertRule); ok && hub.Generated(ar) {
				enqueueWorkload(q, ar)
			}
		}
	}
	return handler.TypedFuncs[client.Object, queue.Request]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[client.Object], q spoke.WorkQueue) {
			r.count(e.Object)
			seen(q, e.Object)
		},
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[client.Object], q spoke.WorkQueue) {
			seen(q, e.ObjectNew, e.ObjectOld)
		},
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[client.Object], q spoke.WorkQueue) {
			r.discount(q, e.Object)
			seen(q, e.Object)
		},
	}
}

// count and discount update the quota of the spoke of a generated AlertRule.
func (r *Reconciler) count(o client.Object) {
	if ar, ok := o.(*v1alpha1.AlertRule); ok && hub.Generated(ar) && ar.Namespace == r.Namespace {
		r.quota.add(string(ar.Spec.WorkloadRef.Cluster), string(ar.Spec.WorkloadRef.Namespace), hub.Key(ar))
	}
}

func (r *Reconciler) discount(q spoke.WorkQueue, o client.Object) {
	ar, ok := o.(*v1alpha1.AlertRule)
	if !ok || ar.Spec.WorkloadRef == nil || ar.Namespace != r.Namespace {
		return
	}
	name := string(ar.Spec.WorkloadRef.Cluster)
	if workload, found := r.quota.drop(name, hub.Key(ar)); found {
		enqueue(q, handler.LowPriority, name, workload)
	}
}

// onTemplate enqueues every workload, and every one that has an AlertRule of that template.
func (r *Reconciler) onTemplate(multicluster.ClusterName, cluster.Cluster) spoke.EventHandler {
	return r.Witness.Before(spoke.OnEvent(func(ctx context.Context, q spoke.WorkQueue, versions ...client.Object) {
		if otherKinds(versions) {
			r.Spokes.KindsChanged()
		}
		for _, s := range r.Spokes.Spokes() {
			r.enqueueWorkloads(ctx, q, s.Name)
		}
		rules, err := hub.GeneratedBy(ctx, r.Hub, versions[0].GetName())
		if err != nil {
			return // as in replay
		}
		for i := range rules {
			enqueueWorkload(q, &rules[i])
		}
	}))
}

// otherKinds reports whether a template that was created, changed or deleted names other kinds of workloads than before, or
// names them in other spokes.
func otherKinds(versions []client.Object) bool {
	type scope struct {
		kinds     []v1alpha1.WorkloadKind
		placement *v1alpha1.ClusterSelection
		state     v1alpha1.State
		overrides []v1alpha1.TemplateOverride
	}
	var scopes []scope
	for _, o := range versions {
		if t, ok := o.(*v1alpha1.AlertRuleTemplate); ok && rule.MaybeGenerates(t) {
			if kinds := rule.KindsOf(t); slices.ContainsFunc(kinds, func(kind v1alpha1.WorkloadKind) bool { return kind != v1alpha1.DeploymentKind }) {
				scopes = append(scopes, scope{kinds, t.Spec.Placement, t.Spec.State, t.Spec.Overrides})
			}
		}
	}
	return len(scopes) == 1 || len(scopes) == 2 && !reflect.DeepEqual(scopes[0], scopes[1])
}

func (r *Reconciler) onSpokeCluster(multicluster.ClusterName, cluster.Cluster) spoke.EventHandler {
	return r.Witness.Before(spoke.OnEvent(func(ctx context.Context, q spoke.WorkQueue, versions ...client.Object) {
		r.enqueueWorkloads(ctx, q, versions[0].GetName())
	}))
}

// enqueueWorkloads enqueues workloads of a spoke, and returns their number.
func (r *Reconciler) enqueueWorkloads(ctx context.Context, q spoke.WorkQueue, name string, opts ...client.ListOption) int {
	s := r.Spokes.Spoke(name)
	if s == nil {
		return 0 // engaging it enqueues all its keys
	}
	n := 0
	// After an error, engaging the spoke again enqueues all its keys.
	_ = s.Workloads(ctx, func(kind v1alpha1.WorkloadKind, workloads []metav1.PartialObjectMetadata) {
		for i := range workloads {
			enqueue(q, handler.LowPriority, name, rule.WorkloadKeyOf(kind, &workloads[i]))
		}
		n += len(workloads)
	}, opts...)
	return n
}

func enqueueWorkload(q spoke.WorkQueue, ar *v1alpha1.AlertRule) {
	enqueue(q, handler.LowPriority, string(ar.Spec.WorkloadRef.Cluster), rule.WorkloadKey(ar.Spec.WorkloadRef))
}
