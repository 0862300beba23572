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
		"nothing":             {v1alpha1.ClusterSelection{}, nil},
		"names":               {v1alpha1.ClusterSelection{Names: []v1alpha1.ClusterName{"eu-2", "gone"}}, []string{"eu-2"}},
		"selector":            {v1alpha1.ClusterSelection{Selector: ruletest.ProdSelector}, []string{"eu-1", "us-1"}},
		"names and selector":  {v1alpha1.ClusterSelection{Names: []v1alpha1.ClusterName{"bare", "us-1"}, Selector: ruletest.ProdSelector}, []string{"bare", "eu-1", "us-1"}},
		"a name is excluded":  {v1alpha1.ClusterSelection{Names: []v1alpha1.ClusterName{"eu-2", "us-1"}, Exclude: without("us-1")}, []string{"eu-2"}},
		"of everything":       {v1alpha1.ClusterSelection{Selector: &metav1.LabelSelector{}, Exclude: without("us-1", "gone")}, []string{"bare", "eu-1", "eu-2"}},
		"labels are excluded": {v1alpha1.ClusterSelection{Names: []v1alpha1.ClusterName{"bare", "eu-1"}, Exclude: &v1alpha1.ClusterExclusion{Selector: ruletest.ProdSelector}}, []string{"bare"}},
		"both are excluded": {v1alpha1.ClusterSelection{Selector: &metav1.LabelSelector{}, Exclude: &v1alpha1.ClusterExclusion{
			Names: []v1alpha1.ClusterName{"bare"}, Selector: ruletest.ProdSelector,
		}}, []string{"eu-2"}},
		"all are excluded": {v1alpha1.ClusterSelection{Selector: &metav1.LabelSelector{}, Exclude: &v1alpha1.ClusterExclusion{Selector: &metav1.LabelSelector{}}}, nil},
		"everything":       {v1alpha1.ClusterSelection{Selector: &metav1.LabelSelector{}}, []string{"bare", "eu-1", "eu-2", "us-1"}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, cluster := range clusters {
				ok, err := rule.Places(c.in, cluster)
				if want := slices.Contains(c.want, cluster.Name); ok != want || err != nil {
					t.Errorf("%s: Places(%s) = %v, %v", name, cluster.Name, ok, err)
				}
				labels, unlabeled := rule.Cluster{Name: cluster.Name, Labels: cluster.Labels}, rule.Cluster{Name: cluster.Name}
				bare, _ := rule.Places(c.in, unlabeled)
				if placed, _ := rule.Places(c.in, labels); placed && !rule.Selectable(c.in, cluster.Name) {
					t.Errorf("%s: %s is placed, and not Selectable", name, cluster.Name)
				} else if placed != bare && (!rule.ByLabels(c.in, cluster.Name) || !rule.SeesLabels(c.in)) {
					t.Errorf("%s: the labels of %s decide, and ByLabels or SeesLabels denies it", name, cluster.Name)
				}
			}
		})
	}
	for _, s := range []v1alpha1.ClusterSelection{
		{Selector: ruletest.BadSelector},
		{Selector: &metav1.LabelSelector{}, Exclude: &v1alpha1.ClusterExclusion{Selector: ruletest.BadSelector}},
	} {
		if placed, err := rule.Places(s, clusters[0]); err == nil || placed {
			t.Error("Places takes a selector that is not valid")
		}
	}
}

func without(names ...v1alpha1.ClusterName) *v1alpha1.ClusterExclusion {
	return &v1alpha1.ClusterExclusion{Names: names}
}
