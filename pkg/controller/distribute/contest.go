package distribute

import (
	"context"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/contest"
	"github.com/rulefleet/rulefleet/pkg/controller/hub"
	"github.com/rulefleet/rulefleet/pkg/spoke/queue"
)

func object(o *observation, p metav1.Object) contest.Object {
	return contest.Object{Spoke: o.spoke.Name, Kind: monitoringv1.PrometheusRuleKind, NamespacedName: hub.Key(p)}
}

// yield reports whether a write is delayed because another client keeps reverting it, and for how long.
func (r *Reconciler) yield(ctx context.Context, o *observation, write contest.Write) (out outcome, yields bool) {
	turn := r.Contests.Ask(write)
	r.blame(ctx, o, write, turn)
	if turn.Wait <= 0 {
		return outcome{}, false
	}
	out = after(turn.Wait)
	out.verdict = pending(v1alpha1.ReasonContested, r.Contests.Message(write.Object))
	return out, true
}

// lost returns how long to wait after a write that is based on a version was refused because the other client was
// faster, or 0. Its verdict is that the object is contested, if that is news.
func (r *Reconciler) lost(ctx context.Context, o *observation, write contest.Write, base string, err error) outcome {
	if !apierrors.IsConflict(err) {
		return outcome{}
	}
	turn := r.Contests.Lost(write, base)
	out := after(turn.Wait)
	if r.blame(ctx, o, write, turn) {
		out.verdict = pending(v1alpha1.ReasonContested, r.Contests.Message(write.Object))
	}
	return out
}

// blame finds the client that reverted the last write of an object, if that is news. The cache has no managedFields,
// so the object is read from the spoke, once per revert that causes a delay. A deleted object can't show who deleted
// it.
func (r *Reconciler) blame(ctx context.Context, o *observation, write contest.Write, turn contest.Turn) (news bool) {
	if !turn.News {
		return false
	}
	defer r.Spokes.ChangedSoon(o.spoke.Name)
	if write.Gone {
		return true
	}
	ctx, cancel := o.spoke.Patient(ctx)
	defer cancel()
	p, err := o.spoke.Rules.MonitoringV1().PrometheusRules(write.Namespace).Get(ctx, write.Name, metav1.GetOptions{})
	if err == nil { // otherwise it is gone or the spoke is away, and the next revert may tell
		r.Contests.Blame(write.Object, p)
	}
	return true
}

// contested returns the message about contested objects of a source in the spoke, and when to check again.
func (r *Reconciler) contested(req queue.Request) (message string, again time.Duration) {
	return r.Contests.OfRule(monitoringv1.PrometheusRuleKind, hub.KeyOf(req), req.ClusterName.String())
}
