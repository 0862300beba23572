package membership

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/spoke"
)

// Evaluation reports the state of the spokes' evaluators.
type Evaluation interface {
	// Choose decides which of the seen evaluators are chosen, and returns all of them with the chosen ones
	// marked. It uses the previous choice of this process, or else the choice in the status.
	Choose(ctx context.Context, sc *v1alpha1.SpokeCluster, before spoke.Evaluators, seen *spoke.Sighting) []v1alpha1.Evaluator
	// Show returns status.evaluators, and conditions by their type. A Finding with an empty status removes
	// the condition. A type that is not in the map stays unchanged.
	Show(sc *v1alpha1.SpokeCluster, read spoke.Evaluators) ([]v1alpha1.Evaluator, map[string]spoke.Finding)
}

// tellEvaluation shows the state of a spoke's evaluators in its status. If Ready is True and something is
// wrong with them, Ready stays True with that reason, because the rules in the spoke can still be managed.
func (r *Reconciler) tellEvaluation(s *v1alpha1.SpokeClusterStatus, sc *v1alpha1.SpokeCluster, n news) {
	if r.Evaluation == nil || n.seen == nil {
		return
	}
	list, findings := r.Evaluation.Show(sc, n.seen.Evaluators)
	s.Evaluators = list
	now := metav1.Now()
	for _, kind := range []string{v1alpha1.ConditionEvaluatorsFound, v1alpha1.ConditionEvaluating, v1alpha1.ConditionMetricsPresent} {
		f, known := findings[kind]
		switch {
		case known && f.Status == "":
			meta.RemoveStatusCondition(&s.Conditions, kind)
		case known:
			f.Message = spoke.Clip(f.Message, spoke.MaxMessage)
			setCondition(s, sc.Generation, kind, f, now)
		}
	}
	ready := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionReady)
	if ready == nil || ready.Status != metav1.ConditionTrue {
		return
	}
	for _, kind := range []string{v1alpha1.ConditionMetricsPresent, v1alpha1.ConditionEvaluating, v1alpha1.ConditionEvaluatorsFound} {
		c := meta.FindStatusCondition(s.Conditions, kind)
		if c != nil && c.Status == metav1.ConditionFalse && (kind != v1alpha1.ConditionEvaluatorsFound || c.Reason == v1alpha1.ReasonAmbiguous) {
			ready.Reason, ready.Message = c.Reason, c.Message
		}
	}
}
