package rule

import (
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// Change is what a status says that the one before it does not.
type Change int

const (
	// ChangeOther is all that is not one of the others.
	ChangeOther Change = iota
	// ChangeFiring is nothing but how many alerts fire.
	ChangeFiring
	// ChangeLost is nothing but that, and that a rule which was evaluated is loading: the same
	// generation, so it was not changed.
	ChangeLost
	// ChangeFound is nothing but that, and that a rule which was loading is evaluated.
	ChangeFound
)

// Compare returns what a status says that the one before it does not.
func Compare(was, is *v1alpha1.AlertRuleStatus) Change {
	if OnlyFiring(was, is) {
		return ChangeFiring
	}
	lost, found := loadingIn(is), loadingIn(was)
	for name := range lost {
		if found[name] {
			delete(lost, name)
			delete(found, name)
		}
	}
	switch {
	case len(lost)+len(found) == 0 || !equality.Semantic.DeepEqual(withoutProof(was), withoutProof(is)):
		return ChangeOther
	case len(lost) > 0:
		return ChangeLost
	}
	return ChangeFound
}

// loadingIn returns the spokes in which a rule is loading.
func loadingIn(s *v1alpha1.AlertRuleStatus) map[v1alpha1.ClusterName]bool {
	out := map[v1alpha1.ClusterName]bool{}
	for i := range s.Clusters {
		if r := &s.Clusters[i]; isLoading(r) {
			out[r.Name] = true
		}
	}
	return out
}

func isLoading(r *v1alpha1.ClusterStatus) bool {
	return r.Phase == v1alpha1.PhaseSelected && r.Reason == v1alpha1.ReasonLoading
}

// withoutProof returns a status without what firing alerts change of it, and as if rules that are
// loading were evaluated.
func withoutProof(s *v1alpha1.AlertRuleStatus) *v1alpha1.AlertRuleStatus {
	out := s.DeepCopy()
	for i := range out.Clusters {
		r := &out.Clusters[i]
		if isLoading(r) {
			r.Phase, r.Reason, r.Message = v1alpha1.PhaseEvaluating, "", ""
		}
		if r.Phase == v1alpha1.PhaseEvaluating && r.Reason == "" {
			r.LastTransitionTime = metav1.Time{}
		}
	}
	if out.Summary != nil {
		out.Summary.Evaluating, out.Summary.Ready = 0, ""
	}
	meta.RemoveStatusCondition(&out.Conditions, v1alpha1.ConditionReady)
	return withoutFiring(out)
}
