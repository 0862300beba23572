package status

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/rollup"
	"github.com/rulefleet/rulefleet/pkg/rule/templating"
	"github.com/rulefleet/rulefleet/pkg/rule/validation"
	spokequeue "github.com/rulefleet/rulefleet/pkg/spoke/queue"
)

// Summaries reports the workloads that templates select.
type Summaries interface {
	// Summary returns those of a template, or nil after a start, until they are known.
	Summary(template string) *v1alpha1.TemplateSummary
	// Changes reports the templates whose summary has changed.
	Changes() *spokequeue.Feed[string]
}

// TemplateReconciler writes AlertRuleTemplate.status, which says whether the template is valid, and counts its workloads.
type TemplateReconciler struct {
	// Client reads the hub's cache and writes to the hub.
	Client client.Client
	// Validator validates templates.
	Validator *validation.Validator
	// Summaries reports the workloads that templates select; it may be nil.
	Summaries Summaries
}

// lookAgain is how long after a change of a template its status is compared again. Another client may have changed the status,
// or a write of the manager that seemed to fail. The two would overwrite each other without a pause if it were done at once.
const lookAgain = 10 * time.Second

var looksAgain = handler.Funcs{UpdateFunc: func(_ context.Context, e event.UpdateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	q.AddAfter(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(e.ObjectNew)}, lookAgain)
}}

// SetupWithManager adds the TemplateReconciler to the hub's manager.
func (r *TemplateReconciler) SetupWithManager(mgr manager.Manager) error {
	var changes *spokequeue.Feed[string]
	if r.Summaries != nil {
		changes = r.Summaries.Changes()
	}
	err := ctrl.NewControllerManagedBy(mgr).
		Named("template-status").
		For(&v1alpha1.AlertRuleTemplate{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.AlertRuleTemplate{}, looksAgain).
		WatchesRawSource(spokequeue.Source(changes, func(q workqueue.TypedRateLimitingInterface[reconcile.Request], name string) {
			q.Add(reconcile.Request{NamespacedName: client.ObjectKey{Name: name}})
		})).
		WithOptions(options[reconcile.Request]()).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up template-status: %w", err)
	}
	return nil
}

// Reconcile updates the status of one AlertRuleTemplate.
func (r *TemplateReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	t := &v1alpha1.AlertRuleTemplate{}
	if err := r.Client.Get(ctx, req.NamespacedName, t); err != nil {
		if client.IgnoreNotFound(err) != nil {
			return reconcile.Result{}, fmt.Errorf("reading AlertRuleTemplate %s: %w", req.Name, err)
		}
		return reconcile.Result{}, nil
	}
	next := t.DeepCopy()
	next.Status.ObservedGeneration = t.Generation
	next.Status.Conditions = rollup.Conditions(t.Status.Conditions, r.conditions(t), t.Generation, metav1.Now())
	if r.Summaries != nil {
		if summary := r.Summaries.Summary(t.Name); summary != nil { // otherwise the last one stays
			next.Status.Summary = summary
		}
	}
	if equality.Semantic.DeepEqual(next.Status, t.Status) {
		return reconcile.Result{}, nil
	}
	// The base may be old. Without the lock, the patch would omit fields that it considers unchanged.
	err := r.Client.Status().Patch(ctx, next, client.MergeFromWithOptions(t, client.MergeFromWithOptimisticLock{}))
	switch {
	case apierrors.IsConflict(err):
		return reconcile.Result{RequeueAfter: debounce}, nil
	case client.IgnoreNotFound(err) != nil:
		return reconcile.Result{}, fmt.Errorf("writing the status of AlertRuleTemplate %s: %w", req.Name, err)
	}
	return reconcile.Result{}, nil
}

// conditions returns the conditions of a template. Ready and Stalled, which is absent for a valid template, repeat
// Accepted for tools that know only those.
func (r *TemplateReconciler) conditions(t *v1alpha1.AlertRuleTemplate) []metav1.Condition {
	invalid := r.Validator.ValidateTemplate(t)
	use := "the template is in use"
	switch {
	case templating.Frozen(t):
		use = "the template is suspended and leaves its AlertRules unchanged"
	case !rule.MaybeGenerates(t):
		use = "the template is disabled and generates no AlertRules"
	}
	if invalid == nil {
		return []metav1.Condition{
			{
				Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAccepted,
				Message: rollup.AcceptedMessage(r.Validator.TemplateWarnings(t)),
			},
			{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAccepted, Message: use},
		}
	}
	const see = "the template is not valid, see condition Accepted"
	return []metav1.Condition{
		{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionFalse, Reason: invalid.Reason, Message: invalid.Error()},
		{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: invalid.Reason, Message: see},
		{Type: v1alpha1.ConditionStalled, Status: metav1.ConditionTrue, Reason: invalid.Reason, Message: see},
	}
}
