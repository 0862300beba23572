package webhook

import (
	"context"
	"errors"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/validation"
)

func newRule(expr string) *v1alpha1.AlertRule {
	return &v1alpha1.AlertRule{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
		Spec: v1alpha1.AlertRuleSpec{
			AlertSpec: v1alpha1.AlertSpec{Alert: "Down", Expr: expr},
			Placement: v1alpha1.ClusterSelection{Selector: &metav1.LabelSelector{}},
		},
	}
}

func newTemplate(expr string) *v1alpha1.AlertRuleTemplate {
	return &v1alpha1.AlertRuleTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       v1alpha1.AlertRuleTemplateSpec{AlertSpec: v1alpha1.AlertSpec{Alert: "Down", Expr: expr}},
	}
}

func TestRefusal(t *testing.T) {
	t.Parallel()
	o := validation.Options{AdminNamespace: "admin", GeneratedNamespace: "generated"}
	elsewhere := newRule("up")
	elsewhere.Spec.RuleNamespace = "kube-system"
	generated := newRule("up ==")
	generated.Name, generated.GenerateName = "", "web-"
	for name, c := range map[string]struct {
		refuse     func(ctx context.Context) error
		invalid    *rule.Invalid
		kind, name string
		cause      metav1.CauseType
	}{
		"expression": {
			func(ctx context.Context) error {
				_, err := alertRules(o).ValidateCreate(ctx, newRule("up =="))
				return err
			},
			validation.Rule(newRule("up =="), o), "AlertRule", "web", metav1.CauseTypeFieldValueInvalid,
		},
		"tenancy": {
			func(ctx context.Context) error { _, err := alertRules(o).ValidateCreate(ctx, elsewhere); return err },
			validation.Rule(elsewhere, o), "AlertRule", "web", metav1.CauseTypeForbidden,
		},
		"a name that is made": {
			func(ctx context.Context) error { _, err := alertRules(o).ValidateCreate(ctx, generated); return err },
			validation.Rule(generated, o), "AlertRule", "web-", metav1.CauseTypeFieldValueInvalid,
		},
		"template": {
			func(ctx context.Context) error {
				_, err := templates(o).ValidateUpdate(ctx, newTemplate("up"), newTemplate("up =="))
				return err
			},
			validation.Template(newTemplate("up =="), validation.Options{}), "AlertRuleTemplate", "web", metav1.CauseTypeFieldValueInvalid,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var status *apierrors.StatusError
			if err := c.refuse(t.Context()); !errors.As(err, &status) {
				t.Fatalf("the answer is %v", err)
			}
			want := metav1.Status{
				Status: metav1.StatusFailure, Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid,
				Message: c.kind + `.rulefleet.io "` + c.name + `" is invalid: ` + c.invalid.Error(),
				Details: &metav1.StatusDetails{
					Group: "rulefleet.io", Kind: c.kind, Name: c.name,
					Causes: []metav1.StatusCause{{Type: c.cause, Field: c.invalid.Field, Message: c.invalid.Message}},
				},
			}
			if !reflect.DeepEqual(status.ErrStatus, want) {
				t.Errorf("the answer is\n%+v\nand not\n%+v", status.ErrStatus, want)
			}
		})
	}
}

// TestRatchet changes objects that came past validation.
func TestRatchet(t *testing.T) {
	t.Parallel()
	v, bad := alertRules(validation.Options{}), newRule("up ==")
	labeled := newRule("up ==")
	labeled.Labels, labeled.Finalizers = map[string]string{"a": "b"}, []string{"example.com/mine"}
	labeled.Spec.Labels = map[string]v1alpha1.LabelText{} // as good as none
	worse := newRule("up ==")
	worse.Spec.Placement.Selector = nil
	for name, c := range map[string]struct {
		after *v1alpha1.AlertRule
		fine  bool
	}{
		"the same spec": {labeled, true},
		"another spec":  {worse, false},
		"corrected":     {newRule("up"), true},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := v.ValidateUpdate(t.Context(), bad, c.after); (err == nil) != c.fine {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	if _, err := v.ValidateDelete(t.Context(), bad); err != nil {
		t.Errorf("it can't be deleted: %v", err)
	}
	if _, err := templates(validation.Options{}).ValidateUpdate(t.Context(), newTemplate("up =="), newTemplate("up ==")); err != nil {
		t.Errorf("a template that came past can't be labeled: %v", err)
	}
}

func TestWarnings(t *testing.T) {
	t.Parallel()
	o := validation.Options{AdminNamespace: "shop"}
	warned := validation.Warnings(newRule("up"), o)
	if len(warned) == 0 {
		t.Fatal("there is nothing to warn of")
	}
	for name, c := range map[string]struct {
		ask  func() ([]string, error)
		want []string
	}{
		"create": {func() ([]string, error) { return alertRules(o).ValidateCreate(t.Context(), newRule("up")) }, warned},
		"update": {func() ([]string, error) {
			return alertRules(o).ValidateUpdate(t.Context(), newRule("up"), newRule("up == 1"))
		}, warned},
		"nothing new": {func() ([]string, error) {
			return alertRules(o).ValidateUpdate(t.Context(), newRule("up"), newRule("up"))
		}, nil},
		"template": {func() ([]string, error) { return templates(o).ValidateCreate(t.Context(), newTemplate("up")) }, validation.TemplateWarnings(newTemplate("up"), o)},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := c.ask(); err != nil || !slices.Equal(got, c.want) {
				t.Errorf("%s: %q, %v", name, got, err)
			}
		})
	}
}

// A process that stops cancels the contexts of its requests, and still answers them: nothing
// is refused for that.
func TestAnswersWhileItStops(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := alertRules(validation.Options{}).ValidateCreate(ctx, newRule("up")); err != nil {
		t.Errorf("a good AlertRule: %v", err)
	}
	if _, err := alertRules(validation.Options{}).ValidateCreate(ctx, newRule("up ==")); !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
		t.Errorf("a bad AlertRule: %v", err)
	}
}

// TestManifest reads what is generated.
func TestManifest(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../../charts/rulefleet/files/webhook/manifests.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var config admissionv1.ValidatingWebhookConfiguration
	if err := yaml.UnmarshalStrict(data, &config); err != nil {
		t.Fatal(err)
	}
	var names []string
	for i := range config.Webhooks {
		w := &config.Webhooks[i]
		names = append(names, w.Name)
		r := w.Rules[0]
		if len(w.Rules) != 1 || len(r.Resources) != 1 || strings.Contains(r.Resources[0], "/") || r.APIGroups[0] != v1alpha1.Group ||
			!slices.Equal(r.Operations, []admissionv1.OperationType{admissionv1.Create, admissionv1.Update}) {
			t.Errorf("%s is asked about %+v", w.Name, w.Rules)
		}
		if *w.FailurePolicy != admissionv1.Fail || *w.SideEffects != admissionv1.SideEffectClassNone ||
			*w.MatchPolicy != admissionv1.Equivalent || *w.TimeoutSeconds > 10 {
			t.Errorf("%s is %+v", w.Name, w)
		}
	}
	if !slices.Equal(names, Names) {
		t.Errorf("the webhooks are %v, and not %v", names, Names)
	}
}
