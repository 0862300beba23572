package membership

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule/evaluation"
	"github.com/rulefleet/rulefleet/pkg/spoke"
)

// choose decides which evaluators of a spoke are chosen. identity is that of its cluster. A new choice is in the
// status before it is returned, and so before any rule is written according to it. Otherwise a restart could
// lead to another choice.
func (r *Reconciler) choose(ctx context.Context, name, identity string, before spoke.Evaluators, look spoke.Look) ([]v1alpha1.Evaluator, error) {
	sc, err := r.spokeCluster(ctx, name)
	if err != nil {
		return nil, err
	}
	seen, err := look(ctx, r.expected(recordOf(sc, identity), before))
	if err != nil {
		return nil, err
	}
	var list []v1alpha1.Evaluator
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if sc, err = r.spokeCluster(ctx, name); err != nil {
			return err
		}
		list = r.Evaluation.Choose(ctx, recordOf(sc, identity), before, seen)
		seen.Limit(ctx, list)
		return r.record(ctx, sc, list)
	})
	return list, err
}

// recordTimeout bounds the write of a choice.
const recordTimeout = 5 * time.Second

func (r *Reconciler) spokeCluster(ctx context.Context, name string) (*v1alpha1.SpokeCluster, error) {
	sc := &v1alpha1.SpokeCluster{}
	if err := r.Client.Get(ctx, client.ObjectKey{Name: name}, sc); err != nil {
		return nil, fmt.Errorf("reading SpokeCluster %s: %w", name, err)
	}
	return sc, nil
}

// recordOf returns a SpokeCluster without the choice that it records for another cluster.
func recordOf(sc *v1alpha1.SpokeCluster, identity string) *v1alpha1.SpokeCluster {
	if sc.Status.Identity == "" || sc.Status.Identity == identity {
		return sc
	}
	sc = sc.DeepCopy()
	sc.Status.Evaluators = nil
	meta.RemoveStatusCondition(&sc.Status.Conditions, v1alpha1.ConditionEvaluatorsFound)
	return sc
}

// expected are the evaluators that have to be looked for, whatever else a spoke has: those that a
// person named, and those that are chosen, unless their namespace is not trusted any more.
func (r *Reconciler) expected(sc *v1alpha1.SpokeCluster, before spoke.Evaluators) []v1alpha1.EvaluatorReference {
	out := slices.Clone(sc.Spec.EvaluatorRefs)
	record := sc.Status.Evaluators
	if before.Known {
		record = before.List
	}
	trusted := r.EvaluatorNamespaces
	for i := range record {
		e := &record[i]
		if evaluation.IsRecorded(*e) && (len(trusted) == 0 || slices.Contains(trusted, e.Namespace)) {
			out = append(out, evaluation.ReferenceTo(e))
		}
	}
	return out
}

// record writes into the status which evaluators are chosen, or that none is, if the status does not show it
// yet. A choice by spec.evaluatorRefs is recorded in the spec already.
func (r *Reconciler) record(ctx context.Context, sc *v1alpha1.SpokeCluster, list []v1alpha1.Evaluator) error {
	next := sc.DeepCopy()
	r.tellEvaluation(&next.Status, sc, news{seen: &spoke.Observation{Evaluators: spoke.Evaluators{List: list, Known: true}}})
	if len(sc.Spec.EvaluatorRefs) > 0 || evaluation.SameChoice(next.Status.Evaluators, sc.Status.Evaluators) && isAmbiguous(next) == isAmbiguous(sc) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	if err := r.Client.Status().Patch(ctx, next, client.MergeFromWithOptions(sc, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("recording the chosen evaluators in SpokeCluster %s: %w", sc.Name, err)
	}
	r.setOutdated(sc)
	r.announce(sc, nil, next.Status.Conditions)
	return nil
}

func isAmbiguous(sc *v1alpha1.SpokeCluster) bool {
	found := meta.FindStatusCondition(sc.Status.Conditions, v1alpha1.ConditionEvaluatorsFound)
	return found != nil && found.Reason == v1alpha1.ReasonAmbiguous
}
