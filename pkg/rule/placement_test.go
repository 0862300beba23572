package rule_test

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/internal/ruletest"
)

func TestPlacement(t *testing.T) {
	clusters := []rule.Cluster{
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
		"selector":           {v1alpha1.ClusterSelection{Selector: ruletest.ProdSelector}, []string{"eu-1", "us-1"}},
		"names and selector": {v1alpha1.ClusterSelection{Names: []v1alpha1.ClusterName{"bare", "us-1"}, Selector: ruletest.ProdSelector}, []string{"bare", "eu-1", "us-1"}},
		"everything":         {v1alpha1.ClusterSelection{Selector: &metav1.LabelSelector{}}, []string{"bare", "eu-1", "eu-2", "us-1"}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, cluster := range clusters {
				ok, err := rule.Places(c.in, cluster)
				if want := slices.Contains(c.want, cluster.Name); ok != want || err != nil {
					t.Errorf("%s: Places(%s) = %v, %v", name, cluster.Name, ok, err)
				}
			}
		})
	}
	if _, err := rule.Places(v1alpha1.ClusterSelection{Selector: ruletest.BadSelector}, clusters[0]); err == nil {
		t.Error("Places takes a selector that is not valid")
	}
}
