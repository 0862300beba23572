package generate

import (
	"context"
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/workqueue"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/metrics"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/spoke"
	"github.com/rulefleet/rulefleet/pkg/spoke/queue"
)

// measured returns the measured latency of Deployments' changes, in seconds.
func measured(t *testing.T) float64 {
	t.Helper()
	families, err := ctrlmetrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, f := range families {
		if f.GetName() != "rulefleet_propagation_duration_seconds" {
			continue
		}
		for _, m := range f.GetMetric() {
			if m.GetLabel()[0].GetValue() == "Deployment" {
				sum += m.GetHistogram().GetSampleSum()
			}
		}
	}
	return sum
}

// The latency of a new Deployment's rule counts from the Deployment's event, if that caused the rule.
func TestPropagation(t *testing.T) {
	for name, tc := range map[string]struct {
		age     time.Duration // of the Deployment
		refused error         // what the first write is answered with
		same    bool          // the AlertRule's generation is the same as before
		want    float64
	}{
		"a new Deployment":                           {want: 2},
		"an old Deployment":                          {age: time.Hour},
		"a new Deployment, and a write that fails":   {refused: errors.New("no"), want: 3},
		"a change that the AlertRule's spec has not": {same: true},
	} {
		t.Run(name, func(t *testing.T) {
			scheme := runtime.NewScheme()
			if err := v1alpha1.AddToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			refused := tc.refused
			c := fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(interceptor.Funcs{
				Apply: func(context.Context, client.WithWatch, runtime.ApplyConfiguration, ...client.ApplyOption) error {
					err := refused
					refused = nil
					return err
				},
			}).Build()
			clock := clocktesting.NewFakePassiveClock(time.Unix(1e9, 0))
			later := func() { clock.SetTime(clock.Now().Add(time.Second)) }
			p := metrics.NewPropagation(clock)
			r := NewReconciler(Options{Hub: c, Guard: guarded(c), Namespace: "rulefleet-generated", Propagation: p})
			queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[queue.Request]())
			defer queue.ShutDown()

			d := spoke.WorkloadMetadata(v1alpha1.DeploymentKind)
			d.Namespace, d.Name, d.CreationTimestamp = "shop", "web", metav1.NewTime(time.Now().Add(-tc.age))
			r.onWorkload(v1alpha1.DeploymentKind)("spoke", nil).Create(t.Context(), event.TypedCreateEvent[client.Object]{Object: d}, queue)
			later()
			ar, existing := made(), (*v1alpha1.AlertRule)(nil)
			if tc.same { // the fake's answer has none
				existing = made()
				existing.Spec.Expr = "up == 1"
			}
			before := measured(t)
			if _, err := r.applyOne(t.Context(), deploymentWeb(), ar, existing); !errors.Is(err, tc.refused) {
				t.Fatal(err)
			}
			if tc.refused != nil {
				later()
				if _, err := r.applyOne(t.Context(), deploymentWeb(), ar, nil); err != nil {
					t.Fatal(err)
				}
			}
			p.WorkloadDone("spoke", rule.WorkloadKeyOf(v1alpha1.DeploymentKind, d))
			p.RuleChanged(rule.KeyOf(ar), []string{"spoke"})
			later()
			p.Applied("spoke", rule.KeyOf(ar), func(time.Time) bool { return false })
			if got := measured(t) - before; got != tc.want {
				t.Errorf("%v s are measured, want %v", got, tc.want)
			}
		})
	}
}
