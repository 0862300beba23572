package webhook

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/validation"
)

// +kubebuilder:webhook:mutating=false,name=alertrules.rulefleet.io,path=/validate-rulefleet-io-v1alpha1-alertrule,groups=rulefleet.io,versions=v1alpha1,resources=alertrules,verbs=create;update,failurePolicy=fail,matchPolicy=Equivalent,sideEffects=None,timeoutSeconds=5,admissionReviewVersions=v1,serviceName=rulefleet-webhook,serviceNamespace=rulefleet-system
// +kubebuilder:webhook:mutating=false,name=rulepacks.rulefleet.io,path=/validate-rulefleet-io-v1alpha1-rulepack,groups=rulefleet.io,versions=v1alpha1,resources=rulepacks,verbs=create;update,failurePolicy=fail,matchPolicy=Equivalent,sideEffects=None,timeoutSeconds=5,admissionReviewVersions=v1,serviceName=rulefleet-webhook,serviceNamespace=rulefleet-system
// +kubebuilder:webhook:mutating=false,name=alertruletemplates.rulefleet.io,path=/validate-rulefleet-io-v1alpha1-alertruletemplate,groups=rulefleet.io,versions=v1alpha1,resources=alertruletemplates,verbs=create;update,failurePolicy=fail,matchPolicy=Equivalent,sideEffects=None,timeoutSeconds=5,admissionReviewVersions=v1,serviceName=rulefleet-webhook,serviceNamespace=rulefleet-system

// Names are the names of the webhooks in the ValidatingWebhookConfiguration.
var Names = []string{"alertrules." + v1alpha1.Group, "alertruletemplates." + v1alpha1.Group, "rulepacks." + v1alpha1.Group}

// SetupWithManager registers the webhooks with a manager's webhook server.
func SetupWithManager(mgr manager.Manager, o validation.Options) error {
	if err := ctrl.NewWebhookManagedBy(mgr, &v1alpha1.AlertRule{}).WithValidator(alertRules(o)).Complete(); err != nil {
		return fmt.Errorf("setting up the webhook for AlertRules: %w", err)
	}
	if err := ctrl.NewWebhookManagedBy(mgr, &v1alpha1.RulePack{}).WithValidator(rulePacks(o)).Complete(); err != nil {
		return fmt.Errorf("setting up the webhook for RulePacks: %w", err)
	}
	if err := ctrl.NewWebhookManagedBy(mgr, &v1alpha1.AlertRuleTemplate{}).WithValidator(templates(o)).Complete(); err != nil {
		return fmt.Errorf("setting up the webhook for AlertRuleTemplates: %w", err)
	}
	return nil
}

func alertRules(o validation.Options) *validator[*v1alpha1.AlertRule] {
	return &validator[*v1alpha1.AlertRule]{
		kind:  "AlertRule",
		check: func(r *v1alpha1.AlertRule) *rule.Invalid { return validation.Rule(r, o) },
		warn:  func(r *v1alpha1.AlertRule) []string { return validation.Warnings(r, o) },
		spec:  func(r *v1alpha1.AlertRule) any { return &r.Spec },
	}
}

func rulePacks(o validation.Options) *validator[*v1alpha1.RulePack] {
	return &validator[*v1alpha1.RulePack]{
		kind:  "RulePack",
		check: func(p *v1alpha1.RulePack) *rule.Invalid { return validation.Pack(p, o) },
		warn:  func(p *v1alpha1.RulePack) []string { return validation.PackWarnings(p, o) },
		spec:  func(p *v1alpha1.RulePack) any { return &p.Spec },
	}
}

func templates(o validation.Options) *validator[*v1alpha1.AlertRuleTemplate] {
	return &validator[*v1alpha1.AlertRuleTemplate]{
		kind:  "AlertRuleTemplate",
		check: func(t *v1alpha1.AlertRuleTemplate) *rule.Invalid { return validation.Template(t, o) },
		warn:  func(t *v1alpha1.AlertRuleTemplate) []string { return validation.TemplateWarnings(t, o) },
		spec:  func(t *v1alpha1.AlertRuleTemplate) any { return &t.Spec },
	}
}

// validator is an admission.Validator that calls functions of package rule.
type validator[T client.Object] struct {
	kind  string
	check func(T) *rule.Invalid
	spec  func(T) any
	warn  func(T) []string
}

// ValidateUpdate refuses an invalid spec unless it is unchanged: objects that were stored without
// validation can still be labeled, and lose their finalizers.
func (v *validator[T]) ValidateUpdate(ctx context.Context, before, o T) (admission.Warnings, error) {
	if equality.Semantic.DeepEqual(v.spec(before), v.spec(o)) {
		return nil, nil
	}
	return v.ValidateCreate(ctx, o)
}

// ValidateDelete refuses nothing, and is never called.
func (v *validator[T]) ValidateDelete(context.Context, T) (admission.Warnings, error) {
	return nil, nil
}

// ValidateCreate refuses invalid objects. It answers even if its context has ended, which is also the case while the
// process stops and completes its requests. It takes milliseconds.
func (v *validator[T]) ValidateCreate(_ context.Context, o T) (admission.Warnings, error) {
	if bad := v.check(o); bad != nil {
		return nil, v.refusal(o, bad)
	}
	var warnings admission.Warnings
	for _, w := range v.warn(o) {
		warnings = append(warnings, oneLine(w))
	}
	return warnings, nil
}

// refusal is the answer of an API server to an invalid object. kubectl prints the causes, as "field:
// message", with their line breaks. Other clients show the message. Both contain the message of the
// condition Accepted.
func (v *validator[T]) refusal(o T, bad *rule.Invalid) error {
	cause := metav1.CauseTypeFieldValueInvalid
	if bad.Reason == v1alpha1.ReasonNamespaceNotAllowed {
		cause = metav1.CauseTypeForbidden
	}
	name := o.GetName()
	if name == "" {
		name = o.GetGenerateName()
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure,
		Code:   http.StatusUnprocessableEntity,
		Reason: metav1.StatusReasonInvalid,
		Details: &metav1.StatusDetails{
			Group: v1alpha1.Group, Kind: v.kind, Name: name,
			Causes: []metav1.StatusCause{{Type: cause, Field: bad.Field, Message: bad.Message}},
		},
		Message: fmt.Sprintf("%s.%s %q is invalid: %s", v.kind, v1alpha1.Group, name, bad.Error()),
	}}
}

// oneLine makes a warning suitable for a header: API servers silently drop warnings with control
// characters.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
}
