package rollup

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// Change is the difference between a status and the previous one.
type Change int

const (
	// ChangeOther is any other difference.
	ChangeOther Change = iota
	// ChangeFiring means that only the numbers of firing alerts differ.
	ChangeFiring
	// ChangeLost means that, apart from these numbers, only a rule that was evaluated is now loading,
	// in the same generation, so that it was not changed.
	ChangeLost
	// ChangeFound means that, apart from these numbers, only a rule that was loading is now evaluated.
	ChangeFound
)

// Compare returns the difference between a status and the previous one.
func Compare(was, is *v1alpha1.RuleStatus) Change {
	if onlyFiring(was, is) {
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
func loadingIn(s *v1alpha1.RuleStatus) map[v1alpha1.ClusterName]bool {
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

// withoutProof returns a status without the effects of firing alerts, and with loading rules changed
// to evaluated ones.
func withoutProof(s *v1alpha1.RuleStatus) *v1alpha1.RuleStatus {
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

// onlyFiring reports whether two statuses differ only in the numbers of firing alerts.
func onlyFiring(a, b *v1alpha1.RuleStatus) bool {
	return equality.Semantic.DeepEqual(withoutFiring(a), withoutFiring(b))
}

func withoutFiring(s *v1alpha1.RuleStatus) *v1alpha1.RuleStatus {
	out := s.DeepCopy()
	if out.Summary != nil {
		out.Summary.Firing = nil
	}
	for i := range out.Clusters {
		out.Clusters[i].Firing = 0
	}
	if out.Summary != nil && out.Summary.Desired > listMax {
		// Some are listed for that alone.
		quiet := expand(out.Groups)
		out.Clusters = slices.DeleteFunc(out.Clusters, func(r v1alpha1.ClusterStatus) bool {
			if notable(&r, s.ObservedGeneration) {
				return false
			}
			quiet = append(quiet, r)
			return true
		})
		out.Groups = group(quiet)
	}
	return out
}
