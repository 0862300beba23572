package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
)

// editing is a generated AlertRule that people edit.
type editing struct {
	*testing.T
	template *v1alpha1.AlertRuleTemplate
	key      client.ObjectKey
	changes  int // of the template
}

// edit creates a template, a matching Deployment, and their AlertRule.
func edit(t *testing.T) *editing {
	t.Helper()
	a, ns := shared().Spoke(spokeA), unique(t)
	namespace(t, ns, a)
	tpl := template(ns, v1alpha1.NamespaceName(ns))
	tpl.Spec.Annotations = map[string]v1alpha1.LabelText{"summary": "as in the template"}
	create(t, shared().Hub, tpl)
	create(t, a, deployment(ns, "web"))
	e := &editing{T: t, template: tpl, key: expectMade(t, tpl.Name, path(spokeA, ns, "web"))[0]}
	e.expect("", "5m", "warning", "as in the template")
	return e
}

// patch changes the AlertRule with a merge patch, as a person does.
func (e *editing) patch(patch string) {
	e.Helper()
	ar := &v1alpha1.AlertRule{ObjectMeta: metav1.ObjectMeta{Namespace: e.key.Namespace, Name: e.key.Name}}
	must(e.T, shared().Hub.Client.Patch(e.Context(), ar, client.RawPatch(types.MergePatchType, []byte(patch)), person))
}

// apply applies an AlertRule as a GitOps tool does.
func (e *editing) apply(spec map[string]any) {
	e.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "AlertRule",
		"metadata": map[string]any{"namespace": e.key.Namespace, "name": e.key.Name}, "spec": spec,
	}}
	must(e.T, shared().Hub.Client.Apply(e.Context(), client.ApplyConfigurationFromUnstructured(u), client.FieldOwner("argocd"), client.ForceOwnership))
}

// expect waits until the status lists these fields as overridden, and the hub and the spoke have these values.
func (e *editing) expect(overridden, wait string, severity v1alpha1.Severity, summary string) {
	e.Helper()
	eventually(e.T, fmt.Sprintf("overridden: %q, for %q, severity %q, summary %q", overridden, wait, severity, summary), func(ctx context.Context) error {
		ar := &v1alpha1.AlertRule{}
		if err := read(ctx, shared().Hub, e.key, ar); err != nil {
			return err
		}
		if got := strings.Join(ar.Status.OverriddenFields, " "); got != overridden {
			return fmt.Errorf("the status lists %q", got)
		}
		if string(ar.Spec.For) != wait || ar.Spec.Severity != severity || string(ar.Spec.Annotations["summary"]) != summary {
			return fmt.Errorf("the spec is %+v", ar.Spec)
		}
		found, err := pushed(ctx, shared().Spoke(spokeA), e.key)
		if err != nil || len(found) != 1 {
			return fmt.Errorf("the spoke has %d rules: %w", len(found), err)
		}
		r := found[0].Spec.Groups[0].Rules[0]
		if got := duration(r.For); got != wait || r.Labels["severity"] != string(severity) || r.Annotations["summary"] != summary {
			return fmt.Errorf("the spoke has %+v", r)
		}
		return nil
	})
}

func duration(d *monitoringv1.Duration) string {
	if d == nil {
		return ""
	}
	return string(*d)
}

// change changes three fields of the template.
func (e *editing) change(wait v1alpha1.Duration) {
	e.Helper()
	e.arrives(func(r *v1alpha1.AlertRuleTemplate) {
		r.Spec.For, r.Spec.Severity, r.Spec.Annotations["summary"] = wait, "critical", "changed"
	})
}

// arrives changes the template, and a label that nobody overrides. When the AlertRule has the label, the
// manager has processed this change and everything before it.
func (e *editing) arrives(change func(*v1alpha1.AlertRuleTemplate)) {
	e.Helper()
	e.changes++
	mark := v1alpha1.LabelText(fmt.Sprint(e.changes))
	update(e.T, shared().Hub, e.template, func(r *v1alpha1.AlertRuleTemplate) {
		change(r)
		r.Spec.Labels["change"] = mark
	})
	eventually(e.T, "the AlertRule follows its template", func(ctx context.Context) error {
		ar := &v1alpha1.AlertRule{}
		if err := read(ctx, shared().Hub, e.key, ar); err != nil {
			return err
		}
		if got := ar.Spec.Labels["change"]; got != mark {
			return fmt.Errorf("it has change %q of %s", got, mark)
		}
		return nil
	})
}

// quiet checks that nobody writes the AlertRule any more.
func (e *editing) quiet() {
	e.Helper()
	e.arrives(func(*v1alpha1.AlertRuleTemplate) {})
	ar := &v1alpha1.AlertRule{}
	var since time.Time
	eventually(e.T, "the AlertRule comes to rest", func(ctx context.Context) error {
		was := ar.ResourceVersion
		if err := read(ctx, shared().Hub, e.key, ar); err != nil {
			return err
		}
		if was != ar.ResourceVersion {
			since = time.Now()
		}
		ready := meta.FindStatusCondition(ar.Status.Conditions, v1alpha1.ConditionReady)
		if ready == nil || ready.Status != metav1.ConditionTrue || ready.ObservedGeneration != ar.Generation {
			return fmt.Errorf("generation %d is not ready: %+v", ar.Generation, ready)
		}
		if time.Since(since) < time.Second { // what counts spokes writes the status once a second
			return errors.New("it was written")
		}
		return nil
	})
	throughout(e.T, 2*time.Second, "nobody writes the AlertRule", func(ctx context.Context) error { return untouched(ctx, shared().Hub, ar) })
}

func (e *editing) expectEvent(reason, text string) {
	e.Helper()
	eventually(e.T, "the Event "+reason, func(ctx context.Context) error {
		var list eventsv1.EventList
		if err := shared().Hub.Client.List(ctx, &list, client.InNamespace(e.key.Namespace)); err != nil {
			return err
		}
		for i := range list.Items {
			if o := &list.Items[i]; o.Regarding.Name == e.key.Name && o.Reason == reason && strings.Contains(o.Note, text) {
				return nil
			}
		}
		return fmt.Errorf("there is none among %d that says %q", len(list.Items), text)
	})
}

// TestEditOfAField edits fields by hand: they stay, the template decides the others, and an annotation resets
// them.
func TestEditOfAField(t *testing.T) {
	parallelOnShared(t)
	e := edit(t)
	e.patch(`{"spec":{"for":"7m","labels":{"team":"shop"},"suspend":false}}`)
	e.expect("for labels.team suspend", "7m", "warning", "as in the template")
	e.change("9m")
	e.expect("for labels.team suspend", "7m", "critical", "changed")
	e.quiet()

	e.patch(`{"metadata":{"annotations":{"rulefleet.io/reset-fields":"for,fro"}}}`)
	e.expect("labels.team suspend", "9m", "critical", "changed")
	e.expectEvent("FieldsReset", "fields reset to the template: for")
	e.expectEvent("FieldsNotReset", "fields not reset, because they are not in status.overriddenFields: fro. Correct the names")
	e.change("3m")
	e.expect("labels.team suspend", "3m", "critical", "changed")
	e.patch(`{"metadata":{"annotations":{"rulefleet.io/reset-fields":"*"}}}`)
	e.expect("", "3m", "critical", "changed")
	expectRule(t, shared().Spoke(spokeA), e.key, "the label is gone", func(r *monitoringv1.Rule) bool { return r.Labels["team"] == "" })
	ar := &v1alpha1.AlertRule{}
	must(t, read(t.Context(), shared().Hub, e.key, ar))
	if _, asked := ar.Annotations[v1alpha1.ResetFieldsAnnotation]; asked || ar.Spec.Suspend != nil {
		t.Errorf("what was reset stays: %v, %v", ar.Annotations, ar.Spec.Suspend)
	}
	e.quiet()
}

// TestEditIsTakenBack removes a field that a person had set: the template's value is restored.
func TestEditIsTakenBack(t *testing.T) {
	parallelOnShared(t)
	e := edit(t)
	e.patch(`{"spec":{"for":"7m"}}`)
	e.expect("for", "7m", "warning", "as in the template")
	e.quiet()
	e.patch(`{"spec":{"for":null}}`)
	e.expect("", "5m", "warning", "as in the template")
	e.change("9m")
	e.expect("", "9m", "critical", "changed")
	e.quiet()
}

// TestRemovedFieldStaysRemoved removes a field that the template has set.
func TestRemovedFieldStaysRemoved(t *testing.T) {
	parallelOnShared(t)
	e := edit(t)
	e.patch(`{"spec":{"for":null,"annotations":null}}`)
	e.expect("annotations.summary for", "", "warning", "")
	e.change("9m")
	e.expect("annotations.summary for", "", "critical", "")
	e.quiet()
	e.patch(`{"metadata":{"annotations":{"rulefleet.io/reset-fields":"for"}}}`)
	e.expect("annotations.summary", "9m", "critical", "")
	e.patch(`{"metadata":{"annotations":{"rulefleet.io/reset-fields":"annotations.summary"}}}`)
	e.expect("", "9m", "critical", "changed")
	e.quiet()
}

// TestRestoredValueStaysOverridden changes a field, and then sets it to the template's value: the field's
// owner decides, not its value.
func TestRestoredValueStaysOverridden(t *testing.T) {
	parallelOnShared(t)
	e := edit(t)
	e.patch(`{"spec":{"for":"7m"}}`)
	e.expect("for", "7m", "warning", "as in the template")
	e.patch(`{"spec":{"for":"5m"}}`)
	e.expect("for", "5m", "warning", "as in the template")
	e.change("9m")
	e.expect("for", "5m", "critical", "changed")
	e.quiet()
}

// TestWholeObjectIsApplied applies the whole object with another manager, which then owns all fields. The
// template gets back those that a later apply omits.
func TestWholeObjectIsApplied(t *testing.T) {
	parallelOnShared(t)
	e := edit(t)
	ar := &v1alpha1.AlertRule{}
	must(t, read(t.Context(), shared().Hub, e.key, ar))
	spec, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&ar.Spec)
	must(t, err)
	const all = "alert annotations.summary expr for labels.deployment labels.namespace labels.spoke severity state"
	e.apply(spec)
	e.expect(all, "5m", "warning", "as in the template")
	e.change("9m")
	e.expect(all, "5m", "warning", "as in the template")
	e.quiet()

	e.apply(map[string]any{"alert": spec["alert"], "expr": spec["expr"], "placement": spec["placement"], "workloadRef": spec["workloadRef"], "for": "7m"})
	e.expect("alert expr for", "7m", "critical", "changed")
	e.quiet()
	e.patch(`{"metadata":{"annotations":{"rulefleet.io/reset-fields":"*"}}}`)
	e.expect("", "9m", "critical", "changed")
	e.quiet()
}

// TestPlacementOfAGeneratedRuleIsFixed edits immutable fields, and creates an AlertRule in the place of a
// generated one.
func TestPlacementOfAGeneratedRuleIsFixed(t *testing.T) {
	parallelOnShared(t)
	a, ns := shared().Spoke(spokeA), unique(t)
	namespace(t, ns, a)
	tpl := template(ns, v1alpha1.NamespaceName(ns))
	name := rule.GeneratedName(tpl.Name, spokeA, v1alpha1.DeploymentKind, ns, "web")
	squatter := &v1alpha1.AlertRule{
		ObjectMeta: metav1.ObjectMeta{Namespace: fleet.GeneratedNamespace, Name: name},
		Spec: v1alpha1.AlertRuleSpec{
			AlertSpec:   v1alpha1.AlertSpec{Alert: "Squatter", Expr: "vector(1)"},
			WorkloadRef: &v1alpha1.WorkloadReference{Cluster: spokeB, Kind: "Deployment", Namespace: v1alpha1.NamespaceName(ns), Name: "web"},
			Placement:   onNamed(spokeB),
		},
	}
	create(t, shared().Hub, squatter)
	create(t, a, deployment(ns, "web"))
	create(t, shared().Hub, tpl)
	key := expectMade(t, tpl.Name, path(spokeA, ns, "web"))[0]
	if key.Name != name {
		t.Errorf("the AlertRule is %s, not %s", key.Name, name)
	}
	ar := &v1alpha1.AlertRule{}
	must(t, read(t.Context(), shared().Hub, key, ar))
	for field, patch := range map[string]string{
		"spec.placement":   `{"spec":{"placement":{"names":["` + spokeA + `","` + spokeB + `"]}}}`,
		"spec.workloadRef": `{"spec":{"workloadRef":{"name":"other"}}}`,
	} {
		err := shared().Hub.Client.Patch(t.Context(), ar.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch)))
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), field) || !strings.Contains(err.Error(), "is immutable") {
			t.Errorf("%s: %v", field, err)
		}
	}
	expectPushed(t, shared().Spoke(spokeB), key, 0)
}

// TestAnnotationsOfADeployment adjusts an alert from the spoke, as far as the template allows.
func TestAnnotationsOfADeployment(t *testing.T) {
	parallelOnShared(t)
	e := edit(t)
	a, d := shared().Spoke(spokeA), deployment(e.template.Name, "web")
	annotate := func(annotations map[string]string) {
		t.Helper()
		update(t, a, d, func(d *appsv1.Deployment) { d.Annotations = annotations })
	}
	const prefix = v1alpha1.AdjustmentPrefix
	update(t, shared().Hub, e.template, func(r *v1alpha1.AlertRuleTemplate) {
		if want := []v1alpha1.Adjustment{v1alpha1.AdjustAlerts, v1alpha1.AdjustDisable, v1alpha1.AdjustFor}; !slices.Equal(r.Spec.Allow, want) {
			t.Errorf("by default, it allows %v", r.Spec.Allow)
		}
		r.Spec.Allow = append(r.Spec.Allow, v1alpha1.AdjustSeverity, v1alpha1.AdjustLabels)
	})
	expectCondition(t, shared(), e.template, v1alpha1.ConditionAccepted, metav1.ConditionTrue, v1alpha1.ReasonAccepted)
	annotate(map[string]string{prefix + "for": "2m", prefix + "severity": "page", prefix + "labels": "team=shop,quote={{ $value }}"})
	e.expect("", "2m", "page", "as in the template")
	pr := expectRule(t, a, e.key, "the labels", func(r *monitoringv1.Rule) bool { return r.Labels["team"] == "shop" })
	if got := rendered(t, pr.Spec.Groups[0].Rules[0].Labels["quote"]); got != "{{ $value }}" {
		t.Errorf("the label comes out as %q", got)
	}

	annotate(map[string]string{prefix + "for": "soon", prefix + "severity": "page"})
	e.expect("", "5m", "page", "as in the template")
	e.expectEvent("AnnotationIgnored", `rulefleet.io/for: "soon" is not a Prometheus duration`)
	e.quiet()

	// An edit on the hub takes precedence over the Deployment, as over the template.
	e.patch(`{"spec":{"severity":"info"}}`)
	e.expect("severity", "5m", "info", "as in the template")

	update(t, shared().Hub, e.template, func(r *v1alpha1.AlertRuleTemplate) {
		r.Spec.Allow = []v1alpha1.Adjustment{v1alpha1.AdjustDisable}
	})
	// Otherwise the annotations may be faster than the template, which allowed them before.
	expectCondition(t, shared(), e.template, v1alpha1.ConditionAccepted, metav1.ConditionTrue, v1alpha1.ReasonAccepted)
	annotate(map[string]string{prefix + "for": "2m", prefix + "alerts": "disabled"})
	e.expectEvent("AnnotationIgnored", "rulefleet.io/for: template "+e.template.Name+" does not allow it")
	e.expect("severity", "5m", "info", "as in the template")
	annotate(map[string]string{prefix + "disable": "other," + e.template.Name})
	expectMade(t, e.template.Name)
	annotate(nil)
	if keys := expectMade(t, e.template.Name, path(spokeA, e.template.Name, "web")); !slices.Contains(keys, e.key) {
		t.Errorf("it came back as %v", keys)
	}
}
