package distribute

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/contest"
	"github.com/rulefleet/rulefleet/pkg/controller/hub"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/delivery"
	"github.com/rulefleet/rulefleet/pkg/rule/evaluation"
	"github.com/rulefleet/rulefleet/pkg/spoke"
)

// finding is the kind of a verdict.
type finding int

const (
	// noNews means that the last verdict stays.
	noNews finding = iota
	// nowhere means that nothing of the source should be in the spoke.
	nowhere
	// asDesired means that the spoke has what it should have. The evaluators decide the rest.
	asDesired
	// stuck means that the spoke does not have it, or does not take it, for a reason.
	stuck
)

// verdict is what a reconcile found out about a source in a spoke. Phase, reason and message belong to stuck.
type verdict struct {
	finding         finding
	phase           v1alpha1.Phase
	reason, message string
}

// pending is the verdict that the spoke does not have what it should have.
func pending(reason, message string) verdict {
	return verdict{finding: stuck, phase: v1alpha1.PhasePending, reason: reason, message: message}
}

// suspended is the verdict that nothing may be written.
func suspended(o *observation) verdict {
	v := pending(v1alpha1.ReasonSuspended, fmt.Sprintf("the %[1]s is suspended: its PrometheusRule is not changed in the spoke; to resume, set spec.suspend of the %[1]s to false", o.key().Kind))
	if o.cluster.Suspended {
		v.message = "SpokeCluster " + o.spoke.Name + " is suspended: nothing is written to the spoke; to resume, set spec.suspend of the SpokeCluster to false"
	}
	if o.existing != nil {
		v.phase = v1alpha1.PhaseApplied
	}
	return v
}

// conflicts is the verdict that an object that is not this hub's has the name.
func conflicts(o *observation) verdict {
	return pending(v1alpha1.ReasonConflict, fmt.Sprintf(
		"PrometheusRule %s in the spoke has the name of this rule, but not the labels %s=%s and %s=%s, so Rulefleet does not change it. Most likely, somebody removed them. Put them back, or delete the object in the spoke: Rulefleet then writes it again",
		hub.Key(o.desired), v1alpha1.ManagedByLabel, v1alpha1.ManagedByValue, v1alpha1.HubLabel, o.desired.Labels[v1alpha1.HubLabel]))
}

// mutated is the verdict that the spoke changed what was written.
func mutated(o *observation) verdict {
	return pending(v1alpha1.ReasonMutated, fmt.Sprintf(
		"the spoke changed PrometheusRule %s when it was written: most likely, a mutating webhook did so, or its CustomResourceDefinition is old and lacks a field."+
			" Exclude PrometheusRules with label %s=%s from the webhook. If it enforces security, exclude the user %s instead, because anyone can set the label."+
			" Or update the CustomResourceDefinition. Then delete the PrometheusRule, so that Rulefleet writes it again",
		hub.Key(o.desired), v1alpha1.ManagedByLabel, v1alpha1.ManagedByValue, contest.SpokeUser))
}

// report reports a verdict.
func (r *Reconciler) report(ctx context.Context, o *observation, v verdict) {
	if v.finding == noNews {
		return
	}
	if v.finding == stuck && v.phase == v1alpha1.PhasePending && v.reason != v1alpha1.ReasonError {
		r.done(o) // for now, because a person has to act
	}
	leftover := r.notes.get(o.req).leftover
	switch {
	case !o.placed && leftover != nil:
		r.Reporter.Leftover(o.key(), *leftover)
	case !o.placed:
		r.Reporter.Forget(o.key(), o.spoke.Name)
	default:
		r.Reporter.Report(o.key(), o.source.GetUID(), r.rowOf(ctx, o, v, leftover))
	}
}

// rowOf returns the row for a verdict on a source that is placed on the spoke.
func (r *Reconciler) rowOf(ctx context.Context, o *observation, v verdict, leftover *v1alpha1.ClusterStatus) v1alpha1.ClusterStatus {
	row := v1alpha1.ClusterStatus{Phase: v.phase, Reason: v.reason, Message: v.message}
	if v.finding == asDesired {
		row = r.prove(ctx, o)
		if contested, _ := r.contested(o.req); contested != "" {
			row = v1alpha1.ClusterStatus{Phase: v1alpha1.PhasePending, Reason: v1alpha1.ReasonContested, Message: contested}
		} else if leftover != nil {
			row.Reason, row.Message = leftover.Reason, leftover.Message // what is known of the rule itself stays
		}
	}
	row.Name, row.Message, row.ObservedGeneration = v1alpha1.ClusterName(o.spoke.Name), clip(row.Message), o.source.GetGeneration()
	if o.desired != nil {
		row.Rule = client.ObjectKeyFromObject(o.desired).String()
	}
	if row.Reason == v1alpha1.ReasonMutated {
		row.AnswerDigest = o.answer
	}
	return row
}

// done notes that no more writes follow from the source's change. Deletions are not measured.
func (r *Reconciler) done(o *observation) { r.Propagation.RuleDone(o.spoke.Name, o.key()) }

// prove determines the state of a source whose object is in the spoke as desired.
func (r *Reconciler) prove(ctx context.Context, o *observation) v1alpha1.ClusterStatus {
	p := o.existing
	ns := evaluation.Namespace{Name: p.Namespace}
	namespace := spoke.NamespaceMetadata()
	if err := o.spoke.Reader.Get(ctx, client.ObjectKey{Name: p.Namespace}, namespace); err == nil {
		ns.Labels = namespace.Labels // without them, a selector selects nothing
	}
	s := evaluation.Select(p, ns, o.cluster)
	s.CheckEnforced(o.source, p, delivery.Anywhere(o.source, r.Render))
	return evaluation.Prove(p, s, func(e *rule.Evaluator) evaluation.State {
		return o.asTold(r.Evaluations.Of(o.spoke.Name, e, p))
	}, len(o.cluster.EvaluatorRefs) > 0)
}

// asTold keeps the status of the same generation where a restart has lost information that takes a while to
// find again.
func (o *observation) asTold(is evaluation.State) evaluation.State {
	if o.renewed {
		return is
	}
	row := o.row() // a row in the final phase may not be listed
	current := row != nil && row.ObservedGeneration == o.source.GetGeneration()
	if is.Unsure && (row == nil || current && wasEvaluated(row)) {
		is.Outcome = evaluation.Unasked
	}
	if !current {
		return is
	}
	is.Late = is.Late || row.Reason == v1alpha1.ReasonNotLoaded
	if is.Outcome == evaluation.Unreachable && !is.Seen {
		is.Firing = row.Firing
	}
	if !is.Checked && is.Outcome != evaluation.NotGranted {
		is.Missing = row.MissingMetrics
	}
	return is
}

// wasEvaluated reports whether an evaluator had loaded and evaluated a rule.
func wasEvaluated(row *v1alpha1.ClusterStatus) bool {
	return row.Phase == v1alpha1.PhaseEvaluating || row.Reason == v1alpha1.ReasonEvaluationFailed
}
