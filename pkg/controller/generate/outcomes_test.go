package generate

import (
	"context"
	"errors"
	"maps"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/controller/brake"
	"github.com/rulefleet/rulefleet/pkg/controller/hub"
	"github.com/rulefleet/rulefleet/pkg/metrics"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/coverage"
	"github.com/rulefleet/rulefleet/pkg/rule/validation"
	"github.com/rulefleet/rulefleet/pkg/spoke"
	"github.com/rulefleet/rulefleet/pkg/spoke/queue"
)

// recorded are the outcomes that a Reconciler reports.
type recorded map[rule.Key]coverage.Outcomes

func (r recorded) Record(_ *spoke.Spoke, workload rule.Key, of coverage.Outcomes) { r[workload] = of }

func (recorded) Changed(string) {}

// announced counts the workloads that were created or deleted.
type announced struct {
	recorded

	n int
}

func (a *announced) Changed(string) { a.n++ }

// TestAnnounced has the creation and the deletion of a workload reported before it is processed.
func TestAnnounced(t *testing.T) {
	is := &announced{}
	r := NewReconciler(Options{Outcomes: is, Propagation: metrics.NewPropagation(clock.RealClock{})})
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[queue.Request]())
	defer q.ShutDown()
	handler, d := r.onWorkload(v1alpha1.DeploymentKind)("spoke", nil), spoke.WorkloadMetadata(v1alpha1.DeploymentKind)
	d.Namespace, d.Name = "shop", "web"
	handler.Create(t.Context(), event.TypedCreateEvent[client.Object]{Object: d}, q)
	handler.Update(t.Context(), event.TypedUpdateEvent[client.Object]{ObjectOld: d, ObjectNew: d}, q)
	handler.Delete(t.Context(), event.TypedDeleteEvent[client.Object]{Object: d}, q)
	if is.n != 2 {
		t.Errorf("%d of 2 changes are reported", is.n)
	}
}

// TestOutcomes reports one outcome for each template that selects a Deployment, and none for one that is gone.
func TestOutcomes(t *testing.T) {
	template := func(name string, change func(*v1alpha1.AlertRuleTemplate)) *v1alpha1.AlertRuleTemplate {
		out := &v1alpha1.AlertRuleTemplate{ObjectMeta: metav1.ObjectMeta{Name: name}}
		out.Spec.AlertSpec = v1alpha1.AlertSpec{Alert: "Down", Expr: "up == 0", For: "1m", Severity: "critical"}
		change(out)
		return out
	}
	onHub := newPruning(t, 0) // a hub with its indexes
	for _, o := range []client.Object{
		&v1alpha1.SpokeCluster{ObjectMeta: metav1.ObjectMeta{Name: "spoke"}, Spec: v1alpha1.SpokeClusterSpec{MaxRules: new(int32(1))}},
		template("a-down", func(*v1alpha1.AlertRuleTemplate) {}),
		template("b-full", func(*v1alpha1.AlertRuleTemplate) {}),
		template("c-off", func(*v1alpha1.AlertRuleTemplate) {}),
		template("d-other", func(o *v1alpha1.AlertRuleTemplate) {
			o.Spec.Namespaces = &v1alpha1.NamespaceSelection{Names: []v1alpha1.NamespaceName{"other"}}
		}),
		template("e-invalid", func(o *v1alpha1.AlertRuleTemplate) { o.Spec.Expr = "up ==" }),
		template("f-kept", func(o *v1alpha1.AlertRuleTemplate) { o.Spec.Expr = "up ==" }),
		template("g-disabled", func(o *v1alpha1.AlertRuleTemplate) { o.Spec.State = v1alpha1.Disabled }),
		kept("f-kept"),
	} {
		must(t, onHub.Hub.Create(t.Context(), o))
	}
	inSpoke := fake.NewClientBuilder().WithScheme(spoke.Scheme).WithObjects(
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}},
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Annotations: map[string]string{v1alpha1.AdjustmentPrefix + string(v1alpha1.AdjustDisable): "c-off"}}},
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "new", Name: "web"}},
	).Build()
	is, refuse := recorded{}, error(nil)
	refusing := interceptor.NewClient(onHub.Hub.(client.WithWatch), interceptor.Funcs{
		Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			if refuse != nil {
				return refuse
			}
			return c.Apply(ctx, o, opts...)
		},
	})
	r := NewReconciler(Options{
		Hub: refusing, Guard: guarded(onHub.Hub), Brake: brake.New(clock.RealClock{}, 0), Witness: hub.NewWitness(), Recorder: events.NewFakeRecorder(10), Outcomes: is,
		Spokes:    &emptied{one: spoke.Spoke{Name: "spoke", Reader: inSpoke, Identity: &identity{}}},
		Namespace: "rulefleet-generated", Validator: validation.New(validation.Options{GeneratedNamespace: "rulefleet-generated"}),
	})
	r.quota.add("spoke", "shop", types.NamespacedName{Namespace: "rulefleet-generated", Name: "down-1"}) // the AlertRule that is kept
	reconcile := func(namespace, name string) coverage.Outcomes {
		t.Helper()
		req := queue.Request{Kind: string(v1alpha1.DeploymentKind), ClusterName: "spoke"}
		req.NamespacedName = types.NamespacedName{Namespace: namespace, Name: name}
		if _, err := r.Reconcile(t.Context(), req); !errors.Is(err, refuse) {
			t.Fatal(err)
		}
		of, told := is[rule.Key{Kind: "Deployment", Namespace: namespace, Name: name}]
		if !told {
			t.Errorf("nothing is reported of %s", req)
		}
		return of
	}
	want := coverage.Outcomes{"a-down": coverage.Refused, "b-full": coverage.Refused, "c-off": coverage.Disabled, "f-kept": coverage.Generated}
	if got := reconcile("shop", "web"); !maps.Equal(got, want) {
		t.Errorf("with no room, got %v", got)
	}
	sc := &v1alpha1.SpokeCluster{}
	must(t, onHub.Hub.Get(t.Context(), client.ObjectKey{Name: "spoke"}, sc))
	sc.Spec.MaxRules = new(int32(2))
	must(t, onHub.Hub.Update(t.Context(), sc))
	refuse = errors.New("the hub is away")
	want["a-down"], want["b-full"] = coverage.Failed, coverage.Failed
	if got := reconcile("shop", "web"); !maps.Equal(got, want) {
		t.Errorf("without a write, got %v", got)
	}
	refuse = nil
	want["a-down"], want["b-full"] = coverage.Generated, coverage.Refused
	if got := reconcile("shop", "web"); !maps.Equal(got, want) {
		t.Errorf("got %v", got)
	}
	if got := reconcile("shop", "gone"); got != nil {
		t.Errorf("a Deployment that does not exist has %v", got)
	}
	if got := reconcile("new", "web"); got == nil || len(got) > 0 {
		t.Errorf("a Deployment whose namespace was not seen has %v", got)
	}
}

// kept is an AlertRule of a template.
func kept(template string) *v1alpha1.AlertRule {
	ar := made()
	ar.Name, ar.Labels[v1alpha1.TemplateLabel] = "down-1", template
	return ar
}
