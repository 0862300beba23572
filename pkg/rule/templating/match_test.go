package templating

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule/internal/ruletest"
)

func TestMatches(t *testing.T) {
	web := newWorkload(func(w *Workload) {
		w.Cluster.Labels = map[string]string{"env": "prod"}
		w.NamespaceLabels = map[string]string{"tier": "gold"}
		w.Labels = map[string]string{"app": "web"}
	})
	system := newWorkload(func(w *Workload) { w.Namespace = "kube-system" })
	labeled := func(key, value string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
	}
	names := func(n ...v1alpha1.NamespaceName) []v1alpha1.NamespaceName { return n }
	for name, c := range map[string]struct {
		spec        v1alpha1.AlertRuleTemplateSpec
		web, system bool
	}{
		"everything":          {v1alpha1.AlertRuleTemplateSpec{}, true, false},
		"enabled":             {v1alpha1.AlertRuleTemplateSpec{State: v1alpha1.Enabled}, true, false},
		"disabled":            {v1alpha1.AlertRuleTemplateSpec{State: v1alpha1.Disabled}, false, false},
		"clusters by name":    {v1alpha1.AlertRuleTemplateSpec{Placement: &v1alpha1.ClusterSelection{Names: []v1alpha1.ClusterName{"eu-1"}}}, true, false},
		"other clusters":      {v1alpha1.AlertRuleTemplateSpec{Placement: &v1alpha1.ClusterSelection{Names: []v1alpha1.ClusterName{"eu-2"}}}, false, false},
		"clusters by label":   {v1alpha1.AlertRuleTemplateSpec{Placement: &v1alpha1.ClusterSelection{Selector: ruletest.ProdSelector}}, true, false},
		"no namespaces":       {v1alpha1.AlertRuleTemplateSpec{Namespaces: &v1alpha1.NamespaceSelection{}}, true, false},
		"system, by name":     {v1alpha1.AlertRuleTemplateSpec{Namespaces: &v1alpha1.NamespaceSelection{Names: names("kube-system")}}, false, true},
		"namespaces by label": {v1alpha1.AlertRuleTemplateSpec{Namespaces: &v1alpha1.NamespaceSelection{Selector: labeled("tier", "gold")}}, true, false},
		"other namespaces":    {v1alpha1.AlertRuleTemplateSpec{Namespaces: &v1alpha1.NamespaceSelection{Selector: labeled("tier", "plain")}}, false, false},
		"name or label":       {v1alpha1.AlertRuleTemplateSpec{Namespaces: &v1alpha1.NamespaceSelection{Names: names("other", "kube-system"), Selector: labeled("tier", "gold")}}, true, true},
		"excluded":            {v1alpha1.AlertRuleTemplateSpec{Namespaces: &v1alpha1.NamespaceSelection{Exclude: names("shop")}}, false, false},
		"excluded, though named": {v1alpha1.AlertRuleTemplateSpec{Namespaces: &v1alpha1.NamespaceSelection{
			Names: names("shop", "kube-system"), Exclude: names("shop", "kube-system")}}, false, false},
		"workloads by label":       {v1alpha1.AlertRuleTemplateSpec{Workloads: &v1alpha1.WorkloadSelection{Selector: labeled("app", "web")}}, true, false},
		"all workloads":            {v1alpha1.AlertRuleTemplateSpec{Workloads: &v1alpha1.WorkloadSelection{Selector: &metav1.LabelSelector{}}}, true, false},
		"workloads of other label": {v1alpha1.AlertRuleTemplateSpec{Workloads: &v1alpha1.WorkloadSelection{Selector: labeled("app", "db")}}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			template := &v1alpha1.AlertRuleTemplate{Spec: c.spec}
			for w, want := range map[*Workload]bool{&web: c.web, &system: c.system} {
				if got, err := Matches(template, *w); got != want || err != nil {
					t.Errorf("%s: Matches(%s) = %v, %v", name, w.Name, got, err)
				}
			}
		})
	}
	for name, spec := range map[string]v1alpha1.AlertRuleTemplateSpec{
		"clusters":   {Placement: &v1alpha1.ClusterSelection{Selector: ruletest.BadSelector}},
		"namespaces": {Namespaces: &v1alpha1.NamespaceSelection{Selector: ruletest.BadSelector}},
		"workloads":  {Workloads: &v1alpha1.WorkloadSelection{Selector: ruletest.BadSelector}},
	} {
		t.Run(name, func(t *testing.T) {
			if ok, err := Matches(&v1alpha1.AlertRuleTemplate{Spec: spec}, web); ok || err == nil {
				t.Errorf("%s: a selector that is not valid: %v, %v", name, ok, err)
			}
		})
	}
}
