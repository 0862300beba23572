package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// person is the field manager of a manual edit.
const person = client.FieldOwner("kubectl-edit")

// promptly is enough for the event of a change, or one retry. It is less than the timers for missed events.
const promptly = 5 * time.Second

// TestDriftIsPutBack changes a PrometheusRule in a spoke by hand, in each field that the hub decides.
func TestDriftIsPutBack(t *testing.T) {
	parallelOnShared(t)
	a, ns := shared().Spoke(spokeA), unique(t)
	namespace(t, ns, a)
	otherKey := create(t, shared().Hub, alertRule(ns+"-other", ns, onNamed(spokeA)))
	other := expectPushed(t, a, otherKey, 1)

	// Each case has its own rule, because a rule that is changed repeatedly is contested.
	for i, c := range []struct {
		name   string
		change func(pr *monitoringv1.PrometheusRule)
	}{
		{"expr", func(pr *monitoringv1.PrometheusRule) {
			pr.Spec.Groups[0].Rules[0].Expr = intstr.FromString("vector(0)")
		}},
		{"alert's label", func(pr *monitoringv1.PrometheusRule) { delete(pr.Spec.Groups[0].Rules[0].Labels, "severity") }},
		{"added group", func(pr *monitoringv1.PrometheusRule) {
			pr.Spec.Groups = append(pr.Spec.Groups, monitoringv1.RuleGroup{Name: "mine", Rules: pr.Spec.Groups[0].Rules})
		}},
		{"no group", func(pr *monitoringv1.PrometheusRule) { pr.Spec.Groups = nil }},
		{"hash label", func(pr *monitoringv1.PrometheusRule) { pr.Labels[v1alpha1.AlertRuleHashLabel] = "0" }},
		{"no hash label", func(pr *monitoringv1.PrometheusRule) { delete(pr.Labels, v1alpha1.AlertRuleHashLabel) }},
		{"annotation of another AlertRule", func(pr *monitoringv1.PrometheusRule) {
			pr.Annotations[v1alpha1.AlertRuleAnnotation] = otherKey.String()
		}},
		{"annotation of no AlertRule", func(pr *monitoringv1.PrometheusRule) {
			pr.Annotations[v1alpha1.AlertRuleAnnotation] = otherKey.String() + "-gone"
		}},
		{"annotation of nonsense", func(pr *monitoringv1.PrometheusRule) {
			pr.Annotations[v1alpha1.AlertRuleAnnotation] = "../..//\n"
		}},
		{"no annotation", func(pr *monitoringv1.PrometheusRule) { delete(pr.Annotations, v1alpha1.AlertRuleAnnotation) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			key := create(t, shared().Hub, alertRule(fmt.Sprintf("%s-%d", ns, i), ns, onNamed(spokeA)))
			good := expectPushed(t, a, key, 1)
			pr := &monitoringv1.PrometheusRule{ObjectMeta: metav1.ObjectMeta{Namespace: good.Namespace, Name: good.Name}}
			update(t, a, pr, c.change)
			within(t, promptly, c.name+" is put back", func(ctx context.Context) error {
				if err := read(ctx, a, client.ObjectKeyFromObject(good), pr); err != nil {
					return err
				}
				if !equality.Semantic.DeepEqual(pr.Spec, good.Spec) || !maps.Equal(pr.Labels, good.Labels) || !maps.Equal(pr.Annotations, good.Annotations) {
					return fmt.Errorf("it is %+v", pr)
				}
				return nil
			})
			expectPushed(t, a, otherKey, 1)
			must(t, untouched(t.Context(), a, other))
			expectReady(t, shared(), key, metav1.ConditionTrue, v1alpha1.ReasonAllApplied)
		})
	}

	key := create(t, shared().Hub, alertRule(ns, ns, onNamed(spokeA)))
	good := expectPushed(t, a, key, 1)
	must(t, a.Client.Delete(t.Context(), good))
	if again := expectPushed(t, a, key, 1); again.Name != good.Name || again.UID == good.UID || !equality.Semantic.DeepEqual(again.Spec, good.Spec) {
		t.Errorf("after it was deleted: %+v", again)
	}
	expectReady(t, shared(), key, metav1.ConditionTrue, v1alpha1.ReasonAllApplied)
}

// TestForeignMetadataIsKept adds metadata to our PrometheusRule that the hub does not decide.
func TestForeignMetadataIsKept(t *testing.T) {
	parallelOnShared(t)
	a, ns := shared().Spoke(spokeA), unique(t)
	namespace(t, ns, a)
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "owner"}}
	create(t, a, owner)
	ar := alertRule(ns, ns, onNamed(spokeA))
	key := create(t, shared().Hub, ar)
	pr := expectPushed(t, a, key, 1)
	update(t, a, pr, func(pr *monitoringv1.PrometheusRule) {
		pr.Labels["team"], pr.Annotations["example.com/note"] = "shop", "seen {{ here }}"
		pr.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID}}
	})
	version := pr.ResourceVersion
	kept := func(pr *monitoringv1.PrometheusRule) error {
		if pr.Labels["team"] != "shop" || pr.Annotations["example.com/note"] != "seen {{ here }}" || len(pr.OwnerReferences) != 1 {
			return fmt.Errorf("the metadata is %+v", pr.ObjectMeta)
		}
		return nil
	}

	// It does not cause a write, ...
	throughout(t, time.Second, "foreign metadata stays", func(ctx context.Context) error { return untouched(ctx, a, pr) })
	// ... and every write keeps it.
	update(t, shared().Hub, ar, func(r *v1alpha1.AlertRule) { r.Spec.Expr = "up == 2" })
	pr = expectRule(t, a, key, "the new expression", func(r *monitoringv1.Rule) bool { return r.Expr.String() == "up == 2" })
	must(t, kept(pr))
	update(t, a, pr, func(pr *monitoringv1.PrometheusRule) {
		pr.Spec.Groups[0].Rules[0].Expr = intstr.FromString("vector(0)")
	})
	pr = expectRule(t, a, key, "the expression is put back", func(r *monitoringv1.Rule) bool { return r.Expr.String() == "up == 2" })
	must(t, kept(pr))
	if pr.ResourceVersion == version || pr.UID == "" {
		t.Error("nothing was written")
	}
	expectReady(t, shared(), key, metav1.ConditionTrue, v1alpha1.ReasonAllApplied)
	// It goes before its owner does: the garbage collector would otherwise delete it, which counts as a second undo.
	must(t, shared().Hub.Client.Delete(t.Context(), ar))
	expectPushed(t, a, key, 0)
}

// TestDisownedRuleIsLeftAlone removes this hub's label from a PrometheusRule: it is no longer ours until the
// label is back.
func TestDisownedRuleIsLeftAlone(t *testing.T) {
	parallelOnShared(t)
	a, ns := shared().Spoke(spokeA), unique(t)
	namespace(t, ns, a)
	ar := alertRule(ns, ns, onNamed(spokeA))
	key := create(t, shared().Hub, ar)
	pr := expectPushed(t, a, key, 1)
	remove(t, a, pr)
	for _, label := range []string{v1alpha1.HubLabel, v1alpha1.ManagedByLabel} {
		ours := pr.Labels[label]
		update(t, a, pr, func(pr *monitoringv1.PrometheusRule) { pr.Labels[label] = "somebody" })
		update(t, shared().Hub, ar, func(r *v1alpha1.AlertRule) { r.Spec.Expr += " or vector(1)" })
		expectRow(t, shared(), key, spokeA, v1alpha1.PhasePending, v1alpha1.ReasonConflict)
		must(t, untouched(t.Context(), a, pr))

		update(t, a, pr, func(pr *monitoringv1.PrometheusRule) { pr.Labels[label] = ours })
		pr = expectRule(t, a, key, "up to date again", func(r *monitoringv1.Rule) bool { return r.Expr.String() == ar.Spec.Expr })
	}
	expectReady(t, shared(), key, metav1.ConditionTrue, v1alpha1.ReasonAllApplied)
}

// TestGeneratedRuleIsPutBack deletes and changes a generated AlertRule on the hub.
func TestGeneratedRuleIsPutBack(t *testing.T) {
	parallelOnShared(t)
	a, b, ns := shared().Spoke(spokeA), shared().Spoke(spokeB), unique(t)
	namespace(t, ns, a, b)
	create(t, a, deployment(ns, "web"))
	ar := expectGenerated(t, shared(), spokeA, ns, "web", 1)
	key := client.ObjectKeyFromObject(ar)
	expectPushed(t, a, key, 1)

	must(t, shared().Hub.Client.Delete(t.Context(), ar))
	eventually(t, "the deleted AlertRule comes back", func(ctx context.Context) error {
		again := &v1alpha1.AlertRule{}
		if err := read(ctx, shared().Hub, key, again); err != nil {
			return err
		}
		if again.UID == ar.UID {
			return errors.New("it was not deleted")
		}
		return nil
	})
	expectPushed(t, a, key, 1)

	// The labels of ownership are not for editing; the API itself protects the placement. Each case has its own
	// rule, because a rule that is changed repeatedly is contested.
	for i, c := range []struct {
		name   string
		change func(r *v1alpha1.AlertRule)
	}{
		{"no label of the template", func(r *v1alpha1.AlertRule) { delete(r.Labels, v1alpha1.TemplateLabel) }},
		{"label of another template", func(r *v1alpha1.AlertRule) { r.Labels[v1alpha1.TemplateLabel] = "other" }},
		{"not managed", func(r *v1alpha1.AlertRule) { r.Labels[v1alpha1.ManagedByLabel] = "somebody" }},
	} {
		t.Run(c.name, func(t *testing.T) {
			name := fmt.Sprintf("web-%d", i)
			create(t, a, deployment(ns, name))
			ar := expectGenerated(t, shared(), spokeA, ns, name, 1)
			key := client.ObjectKeyFromObject(ar)
			expectPushed(t, a, key, 1)
			spoiled := &v1alpha1.AlertRule{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
			update(t, shared().Hub, spoiled, c.change)
			within(t, promptly, c.name+" is put back", func(ctx context.Context) error {
				now := &v1alpha1.AlertRule{}
				if err := read(ctx, shared().Hub, key, now); err != nil {
					return err
				}
				if !equality.Semantic.DeepEqual(now.Spec, ar.Spec) || !maps.Equal(now.Labels, ar.Labels) {
					return fmt.Errorf("it has labels %v, spec %+v", now.Labels, now.Spec)
				}
				return nil
			})
			expectPushed(t, b, key, 0)
			expectGenerated(t, shared(), spokeA, ns, name, 1)
			expectReady(t, shared(), key, metav1.ConditionTrue, v1alpha1.ReasonAllApplied)
		})
	}
	expectGenerated(t, shared(), spokeA, ns, "web", 1)
	expectPushed(t, a, key, 1)
	expectReady(t, shared(), key, metav1.ConditionTrue, v1alpha1.ReasonAllApplied)
}
