package e2e

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	toolswatch "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/spoke"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
)

// floorWrites is how many writes of the floor to one cluster are in flight: as many as the manager allows itself for
// one spoke.
const floorWrites = 64

// floor makes the writes of the manager after the same watches, and does nothing else: it keeps no state, compares
// nothing and retries nothing. Any controller pays that much to the API servers and the network.
type floor struct {
	t      *testing.T
	wg     sync.WaitGroup
	hub    *floorMember
	spokes map[string]*floorMember
	model  *model
}

// model is what the manager wrote for one Deployment. The floor writes copies of it.
type model struct {
	alertRule v1alpha1.AlertRule
	promRule  monitoringv1.PrometheusRule
}

type floorMember struct {
	client client.WithWatch
	turns  chan struct{}
}

func newFloorMember(t *testing.T, cfg *rest.Config) *floorMember {
	t.Helper()
	cfg.QPS, cfg.WarningHandlerWithContext = -1, rest.NoWarnings{}
	c, err := client.NewWithWatch(cfg, client.Options{Scheme: fleet.Scheme})
	must(t, err)
	return &floorMember{client: c, turns: make(chan struct{}, floorWrites)}
}

// startFloor opens the watches, and returns a function that ends them.
func startFloor(t *testing.T, m *model, hub *rest.Config, spokes map[string]*rest.Config) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	f := &floor{t: t, hub: newFloorMember(t, hub), spokes: map[string]*floorMember{}, model: m}
	for name, cfg := range spokes {
		f.spokes[name] = newFloorMember(t, cfg)
	}
	f.watch(ctx, f.hub, &v1alpha1.AlertRuleList{}, f.onAlertRule)
	for name, m := range f.spokes {
		deployments := &metav1.PartialObjectMetadataList{}
		deployments.SetGroupVersionKind(spoke.WorkloadMetadata(v1alpha1.DeploymentKind).GroupVersionKind())
		f.watch(ctx, m, deployments, func(ctx context.Context, o client.Object) { f.onDeployment(ctx, name, o) })
		f.watch(ctx, m, &monitoringv1.PrometheusRuleList{}, f.onPrometheusRule)
	}
	return func() { cancel(); f.wg.Wait() }
}

// watch calls a function for each object that exists or is created.
func (f *floor) watch(ctx context.Context, m *floorMember, list client.ObjectList, added func(context.Context, client.Object)) {
	follow(ctx, f.t, &f.wg, m.client, list, func(e watch.Event) {
		if o, ok := e.Object.(client.Object); ok && e.Type == watch.Added {
			added(ctx, o)
		}
	})
}

// follow calls a function for each event of a kind, beginning with those for the objects that exist. If the API server ends
// the watch, as it does if events are read too slowly, another one goes on. It ends with the context.
func follow(ctx context.Context, t *testing.T, wg *sync.WaitGroup, c client.WithWatch, list client.ObjectList, handle func(watch.Event), in ...client.ListOption) {
	t.Helper()
	existing := list.DeepCopyObject().(client.ObjectList)
	must(t, c.List(ctx, existing, in...))
	options := (&client.ListOptions{}).ApplyOptions(in)
	w, err := toolswatch.NewRetryWatcherWithContext(ctx, existing.GetResourceVersion(), &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, raw metav1.ListOptions) (watch.Interface, error) {
			o := *options
			o.Raw = &raw
			return c.Watch(ctx, list, &o)
		},
	})
	must(t, err)
	t.Cleanup(wg.Wait) // it uses t
	wg.Go(func() {
		defer w.Stop()
		_ = apimeta.EachListItem(existing, func(o runtime.Object) error {
			handle(watch.Event{Type: watch.Added, Object: o})
			return nil
		})
		for e := range w.ResultChan() {
			if e.Type == watch.Error && ctx.Err() == nil {
				t.Errorf("watching %T: %v", list, apierrors.FromObject(e.Object))
			}
			handle(e)
		}
	})
}

// write makes a write to a cluster when fewer than floorWrites are in flight.
func (f *floor) write(ctx context.Context, m *floorMember, what func() error) {
	f.wg.Go(func() {
		select {
		case m.turns <- struct{}{}:
		case <-ctx.Done():
			return
		}
		defer func() { <-m.turns }()
		if err := what(); err != nil && ctx.Err() == nil {
			f.t.Errorf("the floor: %v", err)
		}
	})
}

func (f *floor) onDeployment(ctx context.Context, in string, o client.Object) {
	if o.GetNamespace() != benchNamespace {
		return
	}
	ar := &v1alpha1.AlertRule{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "AlertRule"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: fleet.GeneratedNamespace, Name: in + "." + o.GetName(),
			Labels: f.model.alertRule.Labels, Annotations: f.model.alertRule.Annotations,
		},
		Spec: *f.model.alertRule.Spec.DeepCopy(),
	}
	ar.Spec.Placement.Names = []v1alpha1.ClusterName{v1alpha1.ClusterName(in)}
	ar.Spec.WorkloadRef.Cluster, ar.Spec.WorkloadRef.Name = v1alpha1.ClusterName(in), o.GetName()
	ar.Spec.Labels[rule.WorkloadLabel(v1alpha1.DeploymentKind)] = v1alpha1.LabelText(o.GetName())
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(ar)
	must(f.t, err)
	delete(fields, "status")
	apply := client.ApplyConfigurationFromUnstructured(&unstructured.Unstructured{Object: fields})
	f.write(ctx, f.hub, func() error {
		return f.hub.client.Apply(ctx, apply, client.FieldOwner(v1alpha1.FieldManager), client.ForceOwnership)
	})
}

func (f *floor) onAlertRule(ctx context.Context, o client.Object) {
	ar, ok := o.(*v1alpha1.AlertRule)
	if !ok || len(ar.Spec.Placement.Names) != 1 {
		return
	}
	m := f.spokes[string(ar.Spec.Placement.Names[0])]
	if m == nil {
		return
	}
	key := client.ObjectKeyFromObject(ar).String()
	is := f.model.promRule.DeepCopy()
	pr := &monitoringv1.PrometheusRule{
		ObjectMeta: metav1.ObjectMeta{Namespace: benchNamespace, Name: ar.Name, Labels: is.Labels, Annotations: map[string]string{v1alpha1.AlertRuleAnnotation: key}},
		Spec:       is.Spec,
	}
	pr.Spec.Groups[0].Name = key
	pr.Spec.Groups[0].Rules[0].Labels[rule.WorkloadLabel(v1alpha1.DeploymentKind)] = string(ar.Spec.Labels[rule.WorkloadLabel(v1alpha1.DeploymentKind)])
	f.write(ctx, m, func() error { return m.client.Create(ctx, pr) })
}

func (f *floor) onPrometheusRule(ctx context.Context, o client.Object) {
	ar := &v1alpha1.AlertRule{}
	ar.Namespace, ar.Name, _ = strings.Cut(o.GetAnnotations()[v1alpha1.AlertRuleAnnotation], "/")
	data, err := json.Marshal(map[string]any{"status": f.model.alertRule.Status})
	must(f.t, err)
	f.write(ctx, f.hub, func() error {
		return f.hub.client.Status().Patch(ctx, ar, client.RawPatch(types.MergePatchType, data))
	})
}
