package ask

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// TestFiringNotes: a note gives the reason why nobody is asked, and not that nothing is reported.
func TestFiringNotes(t *testing.T) {
	connected := metav1.Condition{Type: v1alpha1.ConditionConnected, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonConnected}
	for name, tc := range map[string]struct {
		conditions []metav1.Condition
		want       []string
	}{
		"no Prometheus": {
			[]metav1.Condition{connected, {Type: v1alpha1.ConditionEvaluatorsFound, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNoEvaluator}},
			[]string{"Spoke eu-1: it is not known which alerts fire (NoEvaluator)."},
		},
		"found, and not asked yet": {
			[]metav1.Condition{connected, {Type: v1alpha1.ConditionEvaluatorsFound, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonEvaluatorsFound}},
			[]string{"Spoke eu-1: it is not known which alerts fire (NotReported)."},
		},
		"asked": {
			[]metav1.Condition{connected, {Type: v1alpha1.ConditionEvaluating, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonEvaluating}},
			nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := v1alpha1.SpokeCluster{ObjectMeta: metav1.ObjectMeta{Name: "eu-1"}, Status: v1alpha1.SpokeClusterStatus{Conditions: tc.conditions}}
			if got := firingNotes(nil, []v1alpha1.SpokeCluster{s}, ""); !slices.Equal(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
