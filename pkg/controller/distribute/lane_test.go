package distribute

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/controller/hub"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/spoke"
	"github.com/rulefleet/rulefleet/pkg/spoke/queue"
)

func TestLane(t *testing.T) {
	for name, tc := range map[string]struct {
		do   func(w *world)
		want queue.Lane
	}{
		"its own namespace": {do: func(w *world) { w.put(w.hub, alertRule()) }, want: queue.Lane{Namespace: "shop", Origin: "shop"}},
		"the namespace that it names": {do: func(w *world) {
			ar := alertRule()
			ar.Spec.RuleNamespace = "monitoring"
			w.put(w.hub, ar)
		}, want: queue.Lane{Namespace: "monitoring", Origin: "shop"}},
		"its workload's": {do: func(w *world) {
			ar := alertRule()
			ar.Spec.WorkloadRef = &v1alpha1.WorkloadReference{Cluster: "s", Namespace: "web", Name: "web"}
			w.put(w.hub, ar)
		}, want: queue.Lane{Namespace: "web", Origin: "shop"}},
		"it is gone, and its PrometheusRule is there": {do: func(w *world) {
			w.put(w.hub, alertRule())
			w.want("create shop")
			moved := w.object()
			moved.Namespace, moved.ResourceVersion = "monitoring", ""
			w.drop(w.server, w.object())
			w.put(w.server, moved)
			w.sync()
			w.drop(w.hub, alertRule())
		}, want: queue.Lane{Namespace: "monitoring", Origin: "shop"}},
		"it is gone without a trace": {do: func(*world) {}, want: queue.Lane{Namespace: "shop", Origin: "shop"}},
		"it is gone, and PrometheusRules are not served": {do: func(w *world) {
			w.spoke.RulesServed, w.spoke.Reader = false, nil
		}, want: queue.Lane{Namespace: "shop", Origin: "shop"}},
		"the spoke is gone": {do: func(w *world) { w.spoke = &spoke.Spoke{Name: "t"} }, want: queue.Lane{Namespace: "shop", Origin: "shop"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			tc.do(w)
			if got := w.lane(t.Context(), request("s", "down")); got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
	t.Run("where the spoke's Prometheus is", func(t *testing.T) {
		w := newWorld(t)
		ar := alertRule()
		ar.Namespace = admin
		w.put(w.hub, ar)
		req := request("s", "down")
		req.Namespace = admin
		if got := w.lane(t.Context(), req); got.Namespace != "monitoring" {
			t.Errorf("by default: %+v", got)
		}
		w.evaluators = spoke.Evaluators{Known: true, List: []v1alpha1.Evaluator{{
			Kind: rule.KindPrometheus, Namespace: "platform", Name: "k", Chosen: true, RuleSelector: &metav1.LabelSelector{},
		}}}
		if got := w.lane(t.Context(), req); got.Namespace != "platform" {
			t.Errorf("with an evaluator: %+v", got)
		}
	})
}

// A key that timed out or was refused comes after all others, even if it was the most urgent.
func TestFailedGoesToTheBack(t *testing.T) {
	for name, refusal := range map[string]error{
		"timed out": &spoke.HangError{After: writeTimeout, Err: context.DeadlineExceeded},
		"refused":   apierrors.NewBadRequest(`admission webhook "x" denied the request: no`),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.put(w.hub, alertRule())
				w.refuse["create"] = refusal
				var order []string
				var c controller.TypedController[queue.Request]
				q := queue.New(queue.Options{Name: "distribute", Workers: 1})
				reconciler := reconcile.TypedFunc[queue.Request](func(ctx context.Context, req queue.Request) (reconcile.Result, error) {
					order = append(order, req.Name)
					result, err := w.Reconcile(ctx, req)
					if req.Name != "down" {
						<-time.After(2 * refusalRetry / 3) // until down is due again, and they are not done
					}
					return result, err
				})
				c, err := controller.NewTypedUnmanaged("distribute", controller.TypedOptions[queue.Request]{
					Reconciler: reconciler, MaxConcurrentReconciles: 1, SkipNameValidation: new(true),
					NewQueue: func(string, workqueue.TypedRateLimiter[queue.Request]) workqueue.TypedRateLimitingInterface[queue.Request] {
						return q
					},
				})
				if err != nil {
					t.Fatal(err)
				}
				spoke.Enqueue(q, 0, hub.Request("s", rule.AlertRuleKey("shop", "down")))
				for _, other := range []string{"a", "b", "c"} {
					spoke.Enqueue(q, handler.LowPriority, hub.Request("s", rule.AlertRuleKey("shop", other)))
				}
				synctest.Wait()
				ctx, cancel := context.WithTimeout(t.Context(), 3*refusalRetry-time.Second)
				defer cancel()
				if err := c.Start(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
					t.Fatal(err)
				}
				if len(order) < 5 || !slices.Equal(order[:5], []string{"down", "a", "b", "c", "down"}) {
					t.Errorf("they came in the order %v", order)
				}
				synctest.Wait()
			})
		})
	}
}

// A row names the probable cause if the spoke answers everything except this write.
func TestHangIsShown(t *testing.T) {
	w := newWorld(t)
	w.put(w.hub, alertRule())
	w.refuse["create"] = &spoke.HangError{After: writeTimeout, Err: context.DeadlineExceeded}
	w.wantError("create shop")
	row := w.wantRow("Pending/" + v1alpha1.ReasonError)
	for _, words := range []string{"admission webhook", "15s", "timeoutSeconds"} {
		if !strings.Contains(row.Message, words) {
			t.Errorf("the message does not tell of %q: %s", words, row.Message)
		}
	}
	// A spoke without answers is shown on the SpokeCluster.
	w.refuse["create"] = context.DeadlineExceeded
	w.wantError("create shop")
	w.wantRow("")
}

// A rule that waits behind a write that hangs says so, once, if it has a write to make.
func TestWaitingIsShown(t *testing.T) {
	w := newWorld(t)
	w.put(w.hub, alertRule())
	w.want("create shop")
	w.sync()
	other := func(name, namespace string) {
		ar := alertRule()
		ar.Name, ar.UID, ar.Spec.RuleNamespace = name, types.UID(name), v1alpha1.NamespaceName(namespace)
		w.put(w.hub, ar)
	}
	other("hangs", "")
	other("waits", "")
	other("elsewhere", "monitoring")
	w.refuse["create"] = &spoke.HangError{After: writeTimeout, Err: context.DeadlineExceeded}
	p := spoke.NewProvider(spoke.Options{})
	r := p.Answering("distribute", w)
	o := p.ControllerOptions("distribute", logr.Discard(), func(req queue.Request) queue.Lane { return w.lane(t.Context(), req) })
	q := o.NewQueue("distribute", nil)
	defer q.ShutDown()
	for _, name := range []string{"hangs", "waits", "down", "elsewhere", "gone"} {
		spoke.Enqueue(q, 0, hub.Request("s", rule.AlertRuleKey("shop", name)))
	}
	working := map[string]queue.Request{}
	for range 2 { // one in each namespace of the spoke
		req, _ := q.Get()
		working[req.Name] = req
	}
	const message = `waiting for another rule: writes to namespace "shop" of the spoke time out; most likely an admission webhook in the spoke hangs. Fix the webhook for PrometheusRules in this namespace. If you do not know which one hangs, set timeoutSeconds to 10 in webhooks that match PrometheusRules and have 15 or more. The next error of the API server then names the webhook`
	for _, first := range []bool{true, false} {
		w.reports = map[string]*v1alpha1.ClusterStatus{}
		if _, err := r.Reconcile(t.Context(), working["hangs"]); err == nil {
			t.Error("it does not hang")
		}
		if row := w.reports["hangs in s"]; row == nil || !strings.Contains(row.Message, "an admission webhook in the spoke hangs") {
			t.Errorf("the one that hangs: %+v", row)
		}
		row := w.reports["waits in s"]
		if first && (row == nil || row.Phase != v1alpha1.PhasePending || row.Reason != v1alpha1.ReasonError || row.Message != message) {
			t.Errorf("the one that waits: %+v", row)
		}
		if !first && row != nil {
			t.Errorf("it is told again: %+v", row)
		}
		for _, name := range []string{"down in s", "elsewhere in s", "gone in s"} {
			if row, ok := w.reports[name]; ok {
				t.Errorf("%s is said to wait: %+v", name, row)
			}
		}
	}
}
