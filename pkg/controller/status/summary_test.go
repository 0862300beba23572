package status

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule/validation"
	spokequeue "github.com/rulefleet/rulefleet/pkg/spoke/queue"
)

type summaries map[string]*v1alpha1.TemplateSummary

func (s summaries) Summary(template string) *v1alpha1.TemplateSummary { return s[template] }
func (s summaries) Changes() *spokequeue.Feed[string]                 { return nil }

// templateWith returns an API server that has a template with a summary.
func templateWith(t *testing.T, summary v1alpha1.TemplateSummary) (client.WithWatch, *v1alpha1.AlertRuleTemplate) {
	t.Helper()
	scheme := runtime.NewScheme()
	must(t, v1alpha1.AddToScheme(scheme))
	art := &v1alpha1.AlertRuleTemplate{ObjectMeta: metav1.ObjectMeta{Name: "down"}}
	art.Status.Summary = &summary
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(art).WithStatusSubresource(art).Build(), art
}

// TestSummary keeps the summary of a template until another one is known, and does not write it again.
func TestSummary(t *testing.T) {
	c, art := templateWith(t, v1alpha1.TemplateSummary{Matched: 7, Generated: 7})
	is := summaries{}
	r := &TemplateReconciler{Client: c, Validator: validation.New(validate), Summaries: is}
	reconciled := func() *v1alpha1.AlertRuleTemplate {
		t.Helper()
		_, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(art)})
		must(t, err)
		out := &v1alpha1.AlertRuleTemplate{}
		must(t, c.Get(t.Context(), client.ObjectKeyFromObject(art), out))
		return out
	}
	if got := reconciled().Status.Summary; got == nil || got.Matched != 7 {
		t.Errorf("nothing is known, and the summary is %+v", got)
	}
	is["down"] = &v1alpha1.TemplateSummary{}
	first := reconciled()
	if got := first.Status.Summary; got == nil || *got != (v1alpha1.TemplateSummary{}) {
		t.Errorf("the summary is %+v", got)
	}
	if again := reconciled(); again.ResourceVersion != first.ResourceVersion {
		t.Error("it is written once more with no news")
	}
}

// TestSummaryWithAnOldCache writes a summary while the cache does not show the last write, of which there was no answer.
func TestSummaryWithAnOldCache(t *testing.T) {
	server, art := templateWith(t, v1alpha1.TemplateSummary{Matched: 10, Generated: 10})
	key := client.ObjectKeyFromObject(art)
	old, now := &v1alpha1.AlertRuleTemplate{}, &v1alpha1.AlertRuleTemplate{}
	must(t, server.Get(t.Context(), key, old))
	unanswered := old.DeepCopy()
	unanswered.Status.Summary = &v1alpha1.TemplateSummary{Matched: 11, Generated: 10, Failed: 1}
	must(t, server.Status().Update(t.Context(), unanswered))

	behind := true
	cached := interceptor.NewClient(server, interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
		if behind {
			old.DeepCopyInto(o.(*v1alpha1.AlertRuleTemplate))
			return nil
		}
		return c.Get(ctx, key, o, opts...)
	}})
	want := v1alpha1.TemplateSummary{Matched: 11, Generated: 11}
	r := &TemplateReconciler{Client: cached, Validator: validation.New(validate), Summaries: summaries{"down": &want}}
	result, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: key})
	must(t, err)
	if result.RequeueAfter == 0 {
		t.Error("it is not tried again")
	}
	behind = false
	_, err = r.Reconcile(t.Context(), reconcile.Request{NamespacedName: key})
	must(t, err)
	must(t, server.Get(t.Context(), key, now))
	if *now.Status.Summary != want {
		t.Errorf("the summary is %+v", now.Status.Summary)
	}
}

// TestStatusChangedByAnother compares a template again some time after its status was changed.
func TestStatusChangedByAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		defer q.ShutDown()
		art := &v1alpha1.AlertRuleTemplate{ObjectMeta: metav1.ObjectMeta{Name: "down"}}
		looksAgain.Update(t.Context(), event.UpdateEvent{ObjectOld: art, ObjectNew: art}, q)
		for _, after := range []time.Duration{0, lookAgain} {
			time.Sleep(after) //nolint:forbidigo // of the bubble's clock
			synctest.Wait()
			if due := q.Len() > 0; due != (after > 0) {
				t.Errorf("after %v, it is due: %v", after, due)
			}
		}
	})
}
