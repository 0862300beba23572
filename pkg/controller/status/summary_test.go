package status

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule/validation"
	spokequeue "github.com/rulefleet/rulefleet/pkg/spoke/queue"
)

type summaries map[string]*v1alpha1.TemplateSummary

func (s summaries) Summary(template string) *v1alpha1.TemplateSummary { return s[template] }
func (s summaries) Changes() *spokequeue.Feed[string]                 { return nil }

// TestSummary keeps the summary of a template until another one is known, and does not write it again.
func TestSummary(t *testing.T) {
	scheme := runtime.NewScheme()
	must(t, v1alpha1.AddToScheme(scheme))
	art := &v1alpha1.AlertRuleTemplate{ObjectMeta: metav1.ObjectMeta{Name: "down"}}
	art.Status.Summary = &v1alpha1.TemplateSummary{Matched: 7, Generated: 7}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(art).WithStatusSubresource(art).Build()
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
