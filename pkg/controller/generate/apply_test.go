package generate

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule/templating"
)

// made is an AlertRule as a template makes it.
func made() *v1alpha1.AlertRule {
	return &v1alpha1.AlertRule{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "rulefleet-generated", Name: "down-spoke-shop-web-abc",
			Labels: map[string]string{v1alpha1.ManagedByLabel: v1alpha1.ManagedByValue, v1alpha1.TemplateLabel: "down"},
		},
		Spec: v1alpha1.AlertRuleSpec{
			AlertSpec: v1alpha1.AlertSpec{
				Alert: "DeploymentDown", Expr: "up == 0", For: "1m", Severity: "critical",
				Labels:      map[string]v1alpha1.LabelText{"namespace": "shop", "deployment": "web", "team": "shop"},
				Annotations: map[string]v1alpha1.LabelText{"summary": "It is down."},
			},
			WorkloadRef: &v1alpha1.WorkloadReference{Cluster: "spoke", Kind: "Deployment", Namespace: "shop", Name: "web"},
			Placement:   v1alpha1.ClusterSelection{Names: []v1alpha1.ClusterName{"spoke"}},
			State:       v1alpha1.Enabled,
		},
	}
}

// owned is an entry of managedFields, as the API server writes it.
func owned(manager string, operation metav1.ManagedFieldsOperationType, fields string) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{
		Manager: manager, Operation: operation, APIVersion: v1alpha1.GroupVersion.String(),
		FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields),
	}
}

func byKubectl(fields string) metav1.ManagedFieldsEntry {
	return owned("kubectl-edit", metav1.ManagedFieldsOperationUpdate, fields)
}

// stored is what the API server holds after the operator applied what a template
// makes, and after somebody changed it.
func stored(change func(*v1alpha1.AlertRule), edits ...metav1.ManagedFieldsEntry) *v1alpha1.AlertRule {
	ar := made()
	ar.UID, ar.ResourceVersion, ar.Generation, ar.CreationTimestamp = "uid", "7", 2, metav1.NewTime(time.Unix(1, 0))
	status := owned("rulefleet-manager", metav1.ManagedFieldsOperationUpdate, `{"f:status":{".":{},"f:summary":{}},"f:spec":{"f:for":{}}}`)
	status.Subresource = "status"
	ar.Status = v1alpha1.RuleStatus{ObservedGeneration: 2, Summary: &v1alpha1.RuleSummary{Ready: "1/1"}}
	ar.ManagedFields = append([]metav1.ManagedFieldsEntry{
		owned(v1alpha1.FieldManager, metav1.ManagedFieldsOperationApply, `{"f:metadata":{"f:labels":{"f:app.kubernetes.io/managed-by":{},"f:rulefleet.io/template":{}}},
			"f:spec":{"f:alert":{},"f:annotations":{"f:summary":{}},"f:expr":{},"f:for":{},"f:labels":{"f:deployment":{},"f:namespace":{},"f:team":{}},
			"f:placement":{"f:names":{}},"f:severity":{},"f:state":{},"f:workloadRef":{"f:cluster":{},"f:kind":{},"f:name":{},"f:namespace":{}}}}`),
		status,
	}, edits...)
	if change != nil {
		change(ar)
	}
	if ar.Annotations == nil {
		ar.Annotations = map[string]string{}
	}
	ar.Annotations[v1alpha1.AppliedFieldsAnnotation] = templating.Applied(made(), ar) // as after the operator's next write
	return ar
}

func TestDifference(t *testing.T) {
	for name, tc := range map[string]struct {
		template func(*v1alpha1.AlertRule) // changes what the template makes by now
		existing *v1alpha1.AlertRule
		differs  bool
		left     []string // left out of what is applied
		applied  []string // with the template's values
	}{
		"a new object": {differs: true, applied: []string{"spec.for", "spec.labels.team"}},
		"what is not to be applied": {
			template: func(ar *v1alpha1.AlertRule) {
				ar.Status.ObservedGeneration, ar.CreationTimestamp = 1, metav1.NewTime(time.Unix(1, 0))
			},
			differs: true,
		},
		"nothing differs": {existing: stored(nil)},
		"a field changed in the template": {
			template: func(ar *v1alpha1.AlertRule) { ar.Spec.Expr = "up < 1" },
			existing: stored(nil), differs: true, applied: []string{"spec.expr"},
		},
		"a field removed from the template": {
			template: func(ar *v1alpha1.AlertRule) { ar.Spec.For = "" },
			existing: stored(nil), differs: true, left: []string{"spec.for"},
		},
		"a label removed from the template": {
			template: func(ar *v1alpha1.AlertRule) { delete(ar.Spec.Labels, "team") },
			existing: stored(nil), differs: true, left: []string{"spec.labels.team"}, applied: []string{"spec.labels.namespace"},
		},
		"all annotations removed from the template": {
			template: func(ar *v1alpha1.AlertRule) { ar.Spec.Annotations = nil },
			existing: stored(nil), differs: true, left: []string{"spec.annotations"},
		},
		"a label added to the template": {
			template: func(ar *v1alpha1.AlertRule) { ar.Spec.Labels["tier"] = "1" },
			existing: stored(nil), differs: true, applied: []string{"spec.labels.tier"},
		},
		"the object's own labels": {
			existing: stored(func(ar *v1alpha1.AlertRule) { delete(ar.Labels, v1alpha1.TemplateLabel) }), differs: true,
		},
		"labels and annotations on the object by somebody else": {
			existing: stored(func(ar *v1alpha1.AlertRule) {
				ar.Labels["argocd"], ar.Annotations = "x", map[string]string{"note": "x"}
			}, byKubectl(`{"f:metadata":{"f:annotations":{".":{},"f:note":{}},"f:labels":{"f:argocd":{}}}}`)),
		},

		"an alert's label added by somebody else": {
			existing: stored(func(ar *v1alpha1.AlertRule) { ar.Spec.Labels["owner"] = "jane" }, byKubectl(`{"f:spec":{"f:labels":{"f:owner":{}}}}`)),
			applied:  []string{"spec.labels.namespace", "spec.labels.deployment", "spec.labels.team"},
		},
		"such a label, and a change of the template": {
			template: func(ar *v1alpha1.AlertRule) { ar.Spec.Labels["team"] = "web" },
			existing: stored(func(ar *v1alpha1.AlertRule) { ar.Spec.Labels["owner"] = "jane" }, byKubectl(`{"f:spec":{"f:labels":{"f:owner":{}}}}`)),
			differs:  true, left: []string{"spec.labels.owner"}, applied: []string{"spec.labels.namespace", "spec.labels.deployment", "spec.labels.team"},
		},
		"the label of an edited severity, which is the same": {
			template: func(ar *v1alpha1.AlertRule) { ar.Spec.Severity, ar.Spec.Labels["severity"] = "", "page" },
			existing: stored(func(ar *v1alpha1.AlertRule) { ar.Spec.Severity = "info" }, byKubectl(`{"f:spec":{"f:severity":{}}}`)),
			differs:  true, left: []string{"spec.severity", "spec.labels.severity"},
		},
		"the severity of an edited label, which is the same": {
			template: func(ar *v1alpha1.AlertRule) { ar.Spec.Severity = "page" },
			existing: stored(func(ar *v1alpha1.AlertRule) {
				ar.Spec.Severity, ar.Spec.Labels["severity"] = "", "info"
			}, byKubectl(`{"f:spec":{"f:labels":{"f:severity":{}}}}`)),
			left: []string{"spec.severity", "spec.labels.severity"},
		},
		"an edited label": {
			existing: stored(func(ar *v1alpha1.AlertRule) { ar.Spec.Labels["team"] = "web" }, byKubectl(`{"f:spec":{"f:labels":{".":{},"f:team":{}}}}`)),
			left:     []string{"spec.labels.team"}, applied: []string{"spec.labels.namespace", "spec.labels.deployment"},
		},
		"the only annotation, edited": {
			existing: stored(func(ar *v1alpha1.AlertRule) { ar.Spec.Annotations["summary"] = "Oh." }, byKubectl(`{"f:spec":{"f:annotations":{"f:summary":{}}}}`)),
			left:     []string{"spec.annotations.summary"},
		},
		"an annotation of somebody's, and none in the template": {
			template: func(ar *v1alpha1.AlertRule) { ar.Spec.Annotations = nil },
			existing: stored(func(ar *v1alpha1.AlertRule) {
				ar.Spec.Annotations = map[string]v1alpha1.LabelText{"runbook": "x"}
			}, byKubectl(`{"f:spec":{"f:annotations":{"f:runbook":{}}}}`)),
			differs: true, left: []string{"spec.annotations"}, // for the record of what is applied

		},
		"an edited for": {
			existing: stored(func(ar *v1alpha1.AlertRule) { ar.Spec.For = "10m" }, byKubectl(`{"f:spec":{"f:for":{}}}`)),
			left:     []string{"spec.for"}, applied: []string{"spec.expr"},
		},
		"an edited expr": {
			existing: stored(func(ar *v1alpha1.AlertRule) { ar.Spec.Expr = "vector(1)" }, byKubectl(`{"f:spec":{"f:expr":{}}}`)),
			left:     []string{"spec.expr"}, applied: []string{"spec.for"},
		},
		"an edited severity": {
			existing: stored(func(ar *v1alpha1.AlertRule) { ar.Spec.Severity = "info" }, byKubectl(`{"f:spec":{"f:severity":{}}}`)),
			left:     []string{"spec.severity"},
		},
		"disabled": {
			existing: stored(func(ar *v1alpha1.AlertRule) { ar.Spec.State = v1alpha1.Disabled }, byKubectl(`{"f:spec":{"f:state":{}}}`)),
			left:     []string{"spec.state"},
		},
		"applied by GitOps, with two fields": {
			existing: stored(func(ar *v1alpha1.AlertRule) { ar.Spec.For, ar.Spec.State = "10m", v1alpha1.Disabled },
				owned("argocd-controller", metav1.ManagedFieldsOperationApply, `{"f:spec":{"f:for":{},"f:state":{}}}`)),
			left: []string{"spec.for", "spec.state"},
		},
		"an edited field, and a change of the template's": {
			template: func(ar *v1alpha1.AlertRule) { ar.Spec.For = "2m" },
			existing: stored(func(ar *v1alpha1.AlertRule) { ar.Spec.For = "10m" }, byKubectl(`{"f:spec":{"f:for":{}}}`)),
			left:     []string{"spec.for"},
		},
		"an edited field, and another changed in the template": {
			template: func(ar *v1alpha1.AlertRule) { ar.Spec.Expr = "up < 1" },
			existing: stored(func(ar *v1alpha1.AlertRule) { ar.Spec.For = "10m" }, byKubectl(`{"f:spec":{"f:for":{}}}`)),
			differs:  true, left: []string{"spec.for"}, applied: []string{"spec.expr"},
		},
		"a field that somebody took out, which nobody owns then": {
			existing: stored(func(ar *v1alpha1.AlertRule) { ar.Spec.For = "" }), left: []string{"spec.for"}, applied: []string{"spec.expr"},
		},
		"such a field, changed in the template": {
			template: func(ar *v1alpha1.AlertRule) { ar.Spec.For = "2m" },
			existing: stored(func(ar *v1alpha1.AlertRule) { ar.Spec.For = "" }), left: []string{"spec.for"},
		},
		"a field that another manager has given up": {
			existing: func() *v1alpha1.AlertRule {
				ar := stored(nil, byKubectl(`{"f:spec":{"f:for":{}}}`))
				ar.ManagedFields, ar.Spec.For = ar.ManagedFields[:2], ""
				return ar
			}(),
			differs: true, applied: []string{"spec.for"},
		},
		"a first edit, which is noted": {
			existing: func() *v1alpha1.AlertRule {
				ar := stored(nil)
				ar.ManagedFields, ar.Spec.For = append(ar.ManagedFields, byKubectl(`{"f:spec":{"f:for":{}}}`)), "10m"
				return ar
			}(),
			differs: true, left: []string{"spec.for"},
		},
		"an annotation of the Deployment that is ignored by now": {
			template: func(ar *v1alpha1.AlertRule) { ar.Annotations = map[string]string{v1alpha1.IgnoredAnnotation: "x"} },
			existing: stored(nil), differs: true, applied: []string{"spec.for"},
		},
		"none that is ignored any more": {
			existing: stored(func(ar *v1alpha1.AlertRule) { ar.Annotations = map[string]string{v1alpha1.IgnoredAnnotation: "x"} }), differs: true,
		},
		"none that was ignored": {
			existing: stored(func(ar *v1alpha1.AlertRule) { ar.Annotations = map[string]string{v1alpha1.IgnoredAnnotation: ""} }),
		},
		"managedFields that can't be read": {
			existing: stored(nil, byKubectl(`[]`), byKubectl(`{"f:spec":{"v:for":{},"f:labels":{"k:team":{}}}}`), metav1.ManagedFieldsEntry{Manager: "x"}),
			applied:  []string{"spec.for", "spec.labels.team"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			desired := made()
			if tc.template != nil {
				tc.template(desired)
			}
			before := tc.existing.DeepCopy()
			fields, differs, err := difference(desired, tc.existing)
			if err != nil {
				t.Fatal(err)
			}
			if differs != tc.differs {
				t.Errorf("differs: %v, want %v", differs, tc.differs)
			}
			if differs && unchanged(desired, tc.existing) {
				t.Error("it counts as unchanged, and would not be applied")
			}
			for _, path := range append(tc.left, "status", "metadata.creationTimestamp", "metadata.uid", "metadata.managedFields") {
				if value, found := at(t, fields, path); found && value != nil {
					t.Errorf("%s is applied: %v", path, value)
				}
			}
			if version, found := at(t, fields, "metadata.resourceVersion"); found != (tc.existing != nil) || (found && version != "7") {
				t.Errorf("it is applied to version %v", version)
			}
			want, _, _ := difference(desired, nil)
			for _, path := range append(tc.applied, "apiVersion", "kind", "metadata.name", "metadata.namespace", "metadata.labels", "spec.placement.names", "spec.workloadRef") {
				value, found := at(t, fields, path)
				if wanted, _ := at(t, want, path); !found || !equality.Semantic.DeepEqual(value, wanted) {
					t.Errorf("%s is applied as %v, want %v", path, value, wanted)
				}
			}
			if tc.existing != nil && !equality.Semantic.DeepEqual(before, tc.existing) {
				t.Error("the AlertRule, which is the cache's, was changed")
			}
		})
	}
}

// TestUnchanged spares the comparison of fields if nothing differs.
func TestUnchanged(t *testing.T) {
	if !unchanged(made(), stored(nil)) {
		t.Error("what a template generated again counts as changed")
	}
	if unchanged(made(), nil) {
		t.Error("a missing AlertRule counts as unchanged")
	}
}

// at returns the field of a path, whose names are separated by dots.
func at(t *testing.T, fields map[string]any, path string) (any, bool) {
	t.Helper()
	value, found, err := unstructured.NestedFieldNoCopy(fields, strings.Split(path, ".")...)
	if err != nil {
		t.Errorf("%s: %v", path, err)
	}
	return value, found
}

func TestFixed(t *testing.T) {
	if !fixed(made(), stored(func(ar *v1alpha1.AlertRule) { ar.Spec.For = "9m" })) {
		t.Error("an edit of another field makes it somebody else's")
	}
	for name, edit := range map[string]func(*v1alpha1.AlertRule){
		"a cluster": func(ar *v1alpha1.AlertRule) { ar.Spec.Placement.Names = append(ar.Spec.Placement.Names, "other") },
		"workload":  func(ar *v1alpha1.AlertRule) { ar.Spec.WorkloadRef.Name = "other" },
		"none":      func(ar *v1alpha1.AlertRule) { ar.Spec.WorkloadRef = nil },
	} {
		t.Run(name, func(t *testing.T) {
			if fixed(made(), stored(edit)) {
				t.Errorf("%s: it is taken for the template's", name)
			}
		})
	}
}
