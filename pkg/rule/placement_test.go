package rule

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

var (
	badSelector  = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Like", Values: []string{"b"}}}}
	prodSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"env": "prod"}}
)

func TestPlacement(t *testing.T) {
	clusters := []Cluster{
		{Name: "us-1", Labels: map[string]string{"env": "prod"}},
		{Name: "eu-2", Labels: map[string]string{"env": "test"}},
		{Name: "eu-1", Labels: map[string]string{"env": "prod"}},
		{Name: "bare"},
	}
	for name, c := range map[string]struct {
		in   v1alpha1.ClusterSelection
		want []string
	}{
		"nothing":            {v1alpha1.ClusterSelection{}, nil},
		"names":              {v1alpha1.ClusterSelection{Names: []v1alpha1.ClusterName{"eu-2", "gone"}}, []string{"eu-2"}},
		"selector":           {v1alpha1.ClusterSelection{Selector: prodSelector}, []string{"eu-1", "us-1"}},
		"names and selector": {v1alpha1.ClusterSelection{Names: []v1alpha1.ClusterName{"bare", "us-1"}, Selector: prodSelector}, []string{"bare", "eu-1", "us-1"}},
		"everything":         {v1alpha1.ClusterSelection{Selector: &metav1.LabelSelector{}}, []string{"bare", "eu-1", "eu-2", "us-1"}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, cluster := range clusters {
				ok, err := Places(c.in, cluster)
				if want := slices.Contains(c.want, cluster.Name); ok != want || err != nil {
					t.Errorf("%s: Places(%s) = %v, %v", name, cluster.Name, ok, err)
				}
			}
		})
	}
	if _, err := Places(v1alpha1.ClusterSelection{Selector: badSelector}, clusters[0]); err == nil {
		t.Error("Places takes a selector that is not valid")
	}
}

func TestMatches(t *testing.T) {
	web := newWorkload(func(w *Workload) {
		w.Cluster.Labels = map[string]string{"env": "prod"}
		w.NamespaceLabels = map[string]string{"env": "prod"}
		w.Labels = map[string]string{"env": "prod"}
	})
	system := newWorkload(func(w *Workload) { w.Namespace = "kube-system"; w.NamespaceLabels = map[string]string{"env": "prod"} })
	names := func(n ...v1alpha1.NamespaceName) []v1alpha1.NamespaceName { return n }
	for name, c := range map[string]struct {
		spec        v1alpha1.AlertRuleTemplateSpec
		web, system bool
	}{
		"everything":          {v1alpha1.AlertRuleTemplateSpec{}, true, false},
		"enabled":             {v1alpha1.AlertRuleTemplateSpec{State: v1alpha1.Enabled}, true, false},
		"disabled":            {v1alpha1.AlertRuleTemplateSpec{State: v1alpha1.Disabled}, false, false},
		"clusters by name":    {v1alpha1.AlertRuleTemplateSpec{Clusters: &v1alpha1.ClusterSelection{Names: []v1alpha1.ClusterName{"eu-1"}}}, true, false},
		"other clusters":      {v1alpha1.AlertRuleTemplateSpec{Clusters: &v1alpha1.ClusterSelection{Names: []v1alpha1.ClusterName{"eu-2"}}}, false, false},
		"clusters by label":   {v1alpha1.AlertRuleTemplateSpec{Clusters: &v1alpha1.ClusterSelection{Selector: prodSelector}}, true, false},
		"no namespaces":       {v1alpha1.AlertRuleTemplateSpec{Namespaces: &v1alpha1.NamespaceSelection{}}, true, false},
		"system, by name":     {v1alpha1.AlertRuleTemplateSpec{Namespaces: &v1alpha1.NamespaceSelection{Names: names("kube-system")}}, false, true},
		"namespaces by label": {v1alpha1.AlertRuleTemplateSpec{Namespaces: &v1alpha1.NamespaceSelection{Selector: prodSelector}}, true, false},
		"name or label":       {v1alpha1.AlertRuleTemplateSpec{Namespaces: &v1alpha1.NamespaceSelection{Names: names("other", "kube-system"), Selector: prodSelector}}, true, true},
		"excluded":            {v1alpha1.AlertRuleTemplateSpec{Namespaces: &v1alpha1.NamespaceSelection{Exclude: names("shop")}}, false, false},
		"excluded, though named": {v1alpha1.AlertRuleTemplateSpec{Namespaces: &v1alpha1.NamespaceSelection{
			Names: names("shop", "kube-system"), Exclude: names("shop", "kube-system")}}, false, false},
		"workloads by label":       {v1alpha1.AlertRuleTemplateSpec{Workloads: prodSelector}, true, false},
		"all workloads":            {v1alpha1.AlertRuleTemplateSpec{Workloads: &metav1.LabelSelector{}}, true, false},
		"workloads of other label": {v1alpha1.AlertRuleTemplateSpec{Workloads: &metav1.LabelSelector{MatchLabels: map[string]string{"env": "test"}}}, false, false},
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
		"clusters":   {Clusters: &v1alpha1.ClusterSelection{Selector: badSelector}},
		"namespaces": {Namespaces: &v1alpha1.NamespaceSelection{Selector: badSelector}},
		"workloads":  {Workloads: badSelector},
	} {
		t.Run(name, func(t *testing.T) {
			if ok, err := Matches(&v1alpha1.AlertRuleTemplate{Spec: spec}, web); ok || err == nil {
				t.Errorf("%s: a selector that is not valid: %v, %v", name, ok, err)
			}
		})
	}
}
