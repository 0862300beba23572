package status

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

func TestConcernedBy(t *testing.T) {
	spoke := func() *v1alpha1.SpokeCluster {
		return &v1alpha1.SpokeCluster{
			ObjectMeta: metav1.ObjectMeta{Name: "s", ResourceVersion: "1", Labels: map[string]string{"env": "prod"}},
			Status: v1alpha1.SpokeClusterStatus{
				Conditions: []metav1.Condition{
					{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonReady},
					{Type: v1alpha1.ConditionConnected, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonConnected, Message: "the spoke answers"},
				},
			},
		}
	}
	named := &v1alpha1.AlertRule{Spec: v1alpha1.AlertRuleSpec{Placement: v1alpha1.ClusterSelection{Names: []v1alpha1.ClusterName{"s"}}}}
	selecting := &v1alpha1.AlertRule{Spec: v1alpha1.AlertRuleSpec{Placement: v1alpha1.ClusterSelection{Selector: &metav1.LabelSelector{}}}}
	connected := func(sc *v1alpha1.SpokeCluster) *metav1.Condition { return &sc.Status.Conditions[1] }
	for name, tc := range map[string]struct {
		change          func(sc *v1alpha1.SpokeCluster)
		named, selected bool // whether a rule that names, or selects, is concerned
	}{
		"nothing":                 {change: func(*v1alpha1.SpokeCluster) {}},
		"a label":                 {change: func(sc *v1alpha1.SpokeCluster) { sc.Labels["env"] = "test" }, selected: true},
		"a label gone":            {change: func(sc *v1alpha1.SpokeCluster) { sc.Labels = nil }, selected: true},
		"connected":               {change: func(sc *v1alpha1.SpokeCluster) { connected(sc).Status = metav1.ConditionFalse }, named: true, selected: true},
		"connected for a reason":  {change: func(sc *v1alpha1.SpokeCluster) { connected(sc).Reason = v1alpha1.ReasonUnreachable }, named: true, selected: true},
		"connected with a text":   {change: func(sc *v1alpha1.SpokeCluster) { connected(sc).Message = "other" }, named: true, selected: true},
		"connected is not known":  {change: func(sc *v1alpha1.SpokeCluster) { sc.Status.Conditions = sc.Status.Conditions[:1] }, named: true, selected: true},
		"connected at a time":     {change: func(sc *v1alpha1.SpokeCluster) { connected(sc).LastTransitionTime = metav1.NewTime(time.Unix(1, 0)) }},
		"ready":                   {change: func(sc *v1alpha1.SpokeCluster) { sc.Status.Conditions[0].Status = metav1.ConditionFalse }},
		"a count":                 {change: func(sc *v1alpha1.SpokeCluster) { sc.Status.Deployments = new(int32(1)) }},
		"the version":             {change: func(sc *v1alpha1.SpokeCluster) { sc.Status.KubernetesVersion = "v1.37.0" }},
		"the last contact":        {change: func(sc *v1alpha1.SpokeCluster) { sc.Status.LastContactTime = metav1.NewTime(time.Unix(1, 0)) }},
		"an annotation":           {change: func(sc *v1alpha1.SpokeCluster) { sc.Annotations = map[string]string{"a": "b"} }},
		"the version of a resync": {change: func(sc *v1alpha1.SpokeCluster) { sc.ResourceVersion = "2" }},
	} {
		t.Run(name, func(t *testing.T) {
			before, after := spoke(), spoke()
			tc.change(after)
			for _, order := range [][2]client.Object{{before, after}, {after, before}} {
				concerned := concernedBy(order[0], order[1])
				for ar, want := range map[*v1alpha1.AlertRule]bool{named: tc.named, selecting: tc.selected} {
					if got := concerned != nil && concerned(ar); got != want {
						t.Errorf("a rule placed by %+v is concerned: %v, want %v", ar.Spec.Placement, got, want)
					}
				}
			}
		})
	}
	t.Run("something else", func(t *testing.T) {
		var o client.Object = &metav1.PartialObjectMetadata{}
		if concernedBy(o, spoke()) == nil || concernedBy(spoke(), o) == nil {
			t.Error("no rule is concerned")
		}
	})
}
