package delivery

import (
	"maps"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
)

// withLabels renders a rule for a spoke with rule labels.
func withLabels(t *testing.T, labels map[string]string) *monitoringv1.PrometheusRule {
	t.Helper()
	ar := &v1alpha1.AlertRule{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "down"},
		Spec:       v1alpha1.AlertRuleSpec{AlertSpec: v1alpha1.AlertSpec{Alert: "Down", Expr: "up == 0"}},
	}
	pr, err := Render(ar, rule.Cluster{Name: "s", RuleLabels: labels}, Options{HubID: "hub"})
	if err != nil {
		t.Fatal(err)
	}
	return pr
}

// The labels of a spoke come and go, and no other is touched.
func TestRuleLabels(t *testing.T) {
	plain := withLabels(t, nil)
	if _, listed := plain.Annotations[v1alpha1.RuleLabelsAnnotation]; listed || len(plain.Labels) != len(rule.OwnLabels)-1 { // without that of the other kind
		t.Errorf("without any: %+v", plain.ObjectMeta)
	}
	given := map[string]string{"release": "kps", "team": "a", v1alpha1.HubLabel: "another"}
	two := withLabels(t, given)
	if two.Labels["release"] != "kps" || two.Labels[v1alpha1.HubLabel] != "hub" || given[v1alpha1.HubLabel] != "another" || len(given) != 3 {
		t.Errorf("with two: %+v, of %v", two.ObjectMeta, given)
	}
	if Digest(two) == Digest(plain) {
		t.Error("labels make no difference")
	}

	there := two.DeepCopy()
	there.Labels["theirs"], there.Annotations["theirs"] = "too", "too"
	if Digest(there) != Digest(two) {
		t.Error("what others add is a difference")
	}
	for name, drift := range map[string]func(o *monitoringv1.PrometheusRule){
		"a value":  func(o *monitoringv1.PrometheusRule) { o.Labels["release"] = "x" },
		"a label":  func(o *monitoringv1.PrometheusRule) { delete(o.Labels, "team") },
		"the list": func(o *monitoringv1.PrometheusRule) { delete(o.Annotations, v1alpha1.RuleLabelsAnnotation) },
	} {
		t.Run(name, func(t *testing.T) {
			o := there.DeepCopy()
			drift(o)
			plan := Decide(two, o, nil, "hub", "")
			if plan.Action != Update || plan.Object.Labels["release"] != "kps" || plan.Object.Labels["team"] != "a" || plan.Object.Labels["theirs"] != "too" {
				t.Errorf("%s drifted: %+v", name, plan)
			}
		})
	}

	one := withLabels(t, map[string]string{"release": "kps"})
	want := maps.Clone(one.Labels)
	want["theirs"] = "too"
	if plan := Decide(one, there, nil, "hub", ""); plan.Action != Update || !maps.Equal(plan.Object.Labels, want) || Digest(plan.Object) != Digest(one) {
		t.Errorf("with one less: %+v", plan)
	}
	plan := Decide(plain, there, nil, "hub", "")
	if _, listed := plan.Object.Annotations[v1alpha1.RuleLabelsAnnotation]; plan.Action != Update || listed || plan.Object.Labels["release"] != "" || Digest(plan.Object) != Digest(plain) {
		t.Errorf("with none any more: %+v", plan)
	}

	// The list stands where anybody can write: it never takes our own labels away.
	there.Annotations[v1alpha1.RuleLabelsAnnotation] = v1alpha1.HubLabel + ",release,," + v1alpha1.ManagedByLabel
	if plan := Decide(plain, there, nil, "hub", ""); plan.Action != Update || !rule.Owned(plan.Object, "hub") {
		t.Errorf("with a list that names our own: %+v", plan)
	}
}

func TestAdoption(t *testing.T) {
	key := rule.AlertRuleKey("shop", "down")
	desired := withLabels(t, nil)
	old := desired.DeepCopy()
	old.Name, old.ResourceVersion = rule.ObjectName("former", rule.AlertRuleKey("shop", "down")), "7"
	old.Labels[v1alpha1.HubLabel], old.Labels["theirs"] = "former", "too"
	old.Spec.Groups[0].Rules[0].Alert = "Former"
	if !rule.Adopts(old, "former", key) || rule.Adopts(old, "other", key) || rule.Adopts(old, "former", rule.AlertRuleKey("shop", "up")) {
		t.Error("it is taken for another's")
	}
	own := desired.DeepCopy()
	desired.Name = old.Name
	plan := Adopt(old, desired, []*monitoringv1.PrometheusRule{own}, "hub")
	o := plan.Object
	if plan.Action != Update || o.Name != old.Name || o.ResourceVersion != "7" || !rule.Owned(o, "hub") || o.Labels["theirs"] != "too" || Digest(o) != Digest(desired) {
		t.Errorf("got %+v", plan)
	}
	if len(plan.Delete) != 1 || plan.Delete[0] != own {
		t.Errorf("it deletes %v", plan.Delete)
	}
	if name, ok := rule.AdoptedName(o, key); !ok || name != old.Name {
		t.Errorf("its name is %q, %v", name, ok)
	}
	for what, change := range map[string]func(o *monitoringv1.PrometheusRule){
		"without the annotation": func(o *monitoringv1.PrometheusRule) { delete(o.Annotations, v1alpha1.AdoptedFromAnnotation) },
		"with another's":         func(o *monitoringv1.PrometheusRule) { o.Annotations[v1alpha1.AdoptedFromAnnotation] = "third" },
		"under another name":     func(o *monitoringv1.PrometheusRule) { o.Name = "mine" },
	} {
		t.Run(what, func(t *testing.T) {
			o := o.DeepCopy()
			change(o)
			if _, ok := rule.AdoptedName(o, key); ok {
				t.Errorf("%s it counts as adopted", what)
			}
		})
	}
}
