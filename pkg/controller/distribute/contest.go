package distribute

import (
	"context"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/contest"
	"github.com/rulefleet/rulefleet/pkg/controller/hub"
	"github.com/rulefleet/rulefleet/pkg/interval"
	"github.com/rulefleet/rulefleet/pkg/rule/delivery"
)

func object(t *task, o metav1.Object) contest.Object {
	return contest.Object{Spoke: t.spoke.Name, Kind: monitoringv1.PrometheusRuleKind, NamespacedName: hub.Key(o)}
}

// writing and removing are the writes of a plan as the contest package sees them. The intention is the rule as
// the hub decides it, without labels kept from the spoke's object.
func (r *Reconciler) writing(t *task, plan delivery.Plan) contest.Write {
	return contest.Write{Object: object(t, plan.Object), Rule: t.req.NamespacedName, Meant: t.meant, Gone: plan.Action == delivery.Create}
}

func (r *Reconciler) removing(t *task, o *monitoringv1.PrometheusRule) contest.Write {
	return contest.Write{Object: object(t, o), Rule: t.req.NamespacedName, Meant: contest.Absent}
}

// yield returns how long to delay a write that another client keeps reverting, and reports that.
func (r *Reconciler) yield(ctx context.Context, t *task, write contest.Write) time.Duration {
	turn := r.Contests.Ask(write)
	if turn.News {
		r.blame(ctx, t, write)
		r.Spokes.ChangedSoon(t.spoke.Name)
	}
	if turn.Wait > 0 {
		r.report(ctx, t, v1alpha1.PhasePending, v1alpha1.ReasonContested, r.Contests.Message(write.Object))
	}
	return turn.Wait
}

// lost returns how long to wait after a write that is based on a version was refused because the other client was
// faster, or 0. If the object is contested, it reports that.
func (r *Reconciler) lost(ctx context.Context, t *task, write contest.Write, base string, err error) time.Duration {
	if !apierrors.IsConflict(err) {
		return 0
	}
	turn := r.Contests.Lost(write, base)
	if turn.News {
		r.blame(ctx, t, write)
		r.Spokes.ChangedSoon(t.spoke.Name)
		r.report(ctx, t, v1alpha1.PhasePending, v1alpha1.ReasonContested, r.Contests.Message(write.Object))
	}
	return turn.Wait
}

// blame finds the client that reverted the last write of an object. The cache has no managedFields, so the
// object is read from the spoke, once per revert that causes a delay. A deleted object can't show who deleted
// it.
func (r *Reconciler) blame(ctx context.Context, t *task, write contest.Write) {
	if write.Gone {
		return
	}
	ctx, cancel := t.spoke.Patient(ctx)
	defer cancel()
	o, err := t.spoke.Rules.MonitoringV1().PrometheusRules(write.Namespace).Get(ctx, write.Name, metav1.GetOptions{})
	if err == nil { // otherwise it is gone or the spoke is away, and the next revert may tell
		r.Contests.Blame(write.Object, o)
	}
}

// contested returns the message about contested objects of an AlertRule in the spoke, and when to check again.
func (r *Reconciler) contested(req mcreconcile.Request) (message string, again time.Duration) {
	return r.Contests.OfRule(monitoringv1.PrometheusRuleKind, req.NamespacedName, req.ClusterName.String())
}

// whileContested returns when to reconcile a rule again: after this time, or when it should no longer be shown
// as contested.
func (r *Reconciler) whileContested(req mcreconcile.Request, after time.Duration) time.Duration {
	_, again := r.contested(req)
	return interval.Soonest(after, again)
}
