package templating

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule/internal/ruletest"
)

// generatedByDown is what a template makes.
func generatedByDown(t *testing.T) *v1alpha1.AlertRule {
	t.Helper()
	template := ruletest.Template(func(t *v1alpha1.AlertRuleTemplate) {
		t.Spec.For, t.Spec.Severity = "1m", "critical"
		t.Spec.Annotations = ruletest.Texts{"summary": "down"}
	})
	r, err := Rule(template, newWorkload(), "rulefleet-generated")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// onHub is the same as the hub holds it, after people have made fields their own.
func onHub(t *testing.T, edit func(*v1alpha1.AlertRule), entries ...metav1.ManagedFieldsEntry) *v1alpha1.AlertRule {
	t.Helper()
	r := generatedByDown(t)
	r.Annotations = map[string]string{v1alpha1.AppliedFieldsAnnotation: Applied(generatedByDown(t), nil)}
	r.ManagedFields = append([]metav1.ManagedFieldsEntry{owner(v1alpha1.FieldManager, `{"f:spec":{"f:for":{},"f:labels":{"f:namespace":{}}}}`)}, entries...)
	edit(r)
	return r
}

func owner(manager, fields string) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{
		Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: v1alpha1.GroupVersion.String(),
		FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields),
	}
}

func unchanged(*v1alpha1.AlertRule) {}

func TestOverridden(t *testing.T) {
	ofStatus := owner("rulefleet-manager", `{"f:spec":{"f:for":{}},"f:status":{"f:summary":{}}}`)
	ofStatus.Subresource = "status"
	for name, c := range map[string]struct {
		rule *v1alpha1.AlertRule
		want string
	}{
		"nothing":                        {onHub(t, unchanged), ""},
		"without records":                {ruletest.Rule(), ""},
		"by the operator, in other ways": {onHub(t, unchanged, owner(v1alpha1.FieldManager, `{"f:spec":{"f:expr":{}}}`), ofStatus), ""},
		"records that can't be read":     {onHub(t, unchanged, owner("x", `[]`), owner("x", `{"f:spec":{"k:x":{}}}`), metav1.ManagedFieldsEntry{Manager: "x"}), ""},
		"by two": {onHub(t, unchanged, owner("kubectl-edit", `{"f:spec":{"f:for":{},"f:labels":{".":{},"f:team":{}}}}`),
			owner("argocd", `{"f:metadata":{"f:labels":{"f:x":{}}},"f:spec":{"f:state":{},"f:for":{},"f:annotations":{"f:summary":{}}}}`)),
			"annotations.summary,for,labels.team,state"},
		"what nobody may edit": {onHub(t, unchanged, owner("x", `{"f:spec":{"f:placement":{"f:names":{"v:\"eu-1\"":{}}},"f:workloadRef":{"f:name":{}}}}`)), ""},
		"a list":               {onHub(t, unchanged, owner("x", `{"f:spec":{"f:overrides":{},"f:suspend":{}}}`)), "overrides,suspend"},
		"removed":              {onHub(t, func(r *v1alpha1.AlertRule) { r.Spec.For = ""; delete(r.Spec.Labels, "namespace") }), "for,labels.namespace"},
		"all of a map removed": {onHub(t, func(r *v1alpha1.AlertRule) { r.Spec.Annotations = nil }), "annotations.summary"},
		"never set by the template": {onHub(t, func(r *v1alpha1.AlertRule) {
			r.Annotations[v1alpha1.AppliedFieldsAnnotation] = "expr"
			r.Spec.For = ""
		}), ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := strings.Join(Overridden(c.rule), ","); got != c.want {
				t.Errorf("%s: got %s, want %s", name, got, c.want)
			}
		})
	}
}

func TestApplied(t *testing.T) {
	const all = "alert,annotations.summary,expr,for,labels.deployment,labels.namespace,severity,state"
	if got := Applied(generatedByDown(t), nil); got != all {
		t.Errorf("of a new one: %s", got)
	}
	edited := onHub(t, func(r *v1alpha1.AlertRule) { r.Spec.Severity = "" }, owner("x", `{"f:spec":{"f:for":{},"f:labels":{"f:team":{}}}}`))
	if got, want := Applied(generatedByDown(t), edited), strings.Replace(all, "for,", "", 1); got != want {
		t.Errorf("of an edited one: %s, want %s: what was removed stays, what others set does not", got, want)
	}
}

func TestReset(t *testing.T) {
	edited := func() *v1alpha1.AlertRule {
		r := onHub(t, func(r *v1alpha1.AlertRule) {
			r.Spec.For, r.Spec.Severity, r.Spec.Labels["team"], r.Spec.KeepFiringFor = "9m", "", "shop", "1h"
		}, owner("kubectl-edit", `{"f:metadata":{"f:annotations":{"f:note":{}}},"f:spec":{"f:for":{},"f:keepFiringFor":{},"f:labels":{"f:team":{}}}}`))
		r.Annotations[v1alpha1.AppliedFieldsAnnotation] = Applied(generatedByDown(t), r)
		return r
	}
	for ask, c := range map[string]struct{ given, unknown, left string }{
		"for":                 {"for", "", "keepFiringFor,labels.team,severity"},
		"severity, for":       {"for,severity", "", "keepFiringFor,labels.team"},
		"labels.team,for,for": {"for,labels.team", "", "keepFiringFor,severity"},
		"*":                   {"for,keepFiringFor,labels.team,severity", "", ""},
		"*,for,fro":           {"for,keepFiringFor,labels.team,severity", "fro", ""},
		"expr,labels":         {"", "expr,labels", "for,keepFiringFor,labels.team,severity"},
	} {
		t.Run(ask, func(t *testing.T) {
			existing := edited()
			existing.Annotations[v1alpha1.ResetFieldsAnnotation] = ask
			before := existing.DeepCopy()
			next, given, unknown := Reset(existing, generatedByDown(t))
			if got := strings.Join(given, ","); got != c.given {
				t.Errorf("%s: gives %s back", ask, got)
			}
			if got := strings.Join(unknown, ","); got != c.unknown {
				t.Errorf("%s: does not know %s", ask, got)
			}
			if got := strings.Join(Overridden(next), ","); got != c.left {
				t.Errorf("%s: leaves %s", ask, got)
			}
			if _, asked := next.Annotations[v1alpha1.ResetFieldsAnnotation]; asked {
				t.Errorf("%s: the annotation stays", ask)
			}
			// What the template does not set is gone; what it sets is left for it to set.
			_, team := next.Spec.Labels["team"]
			if team == slices.Contains(given, "labels.team") || (next.Spec.KeepFiringFor == "") != slices.Contains(given, "keepFiringFor") || next.Spec.For != "9m" {
				t.Errorf("%s: the spec is %+v", ask, next.Spec)
			}
			if !slices.ContainsFunc(next.ManagedFields, func(e metav1.ManagedFieldsEntry) bool {
				return e.Manager == "kubectl-edit" && strings.Contains(e.FieldsV1.GetRawString(), `"f:note"`)
			}) {
				t.Errorf("%s: what others own outside of the spec is lost: %v", ask, next.ManagedFields)
			}
			if !equalRules(before, existing) {
				t.Errorf("%s: the AlertRule, which is the cache's, was changed", ask)
			}
		})
	}
}

func equalRules(a, b *v1alpha1.AlertRule) bool {
	return strings.Join(Overridden(a), ",") == strings.Join(Overridden(b), ",") && a.Spec.For == b.Spec.For &&
		len(a.Annotations) == len(b.Annotations) && len(a.Spec.Labels) == len(b.Spec.Labels)
}
