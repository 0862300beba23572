package distribute

import (
	"context"
	"fmt"
	"strings"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/contest"
	"github.com/rulefleet/rulefleet/pkg/controller/hub"
	"github.com/rulefleet/rulefleet/pkg/interval"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/delivery"
	"github.com/rulefleet/rulefleet/pkg/spoke"
	"github.com/rulefleet/rulefleet/pkg/spoke/queue"
)

const (
	// writeTimeout bounds one write to a spoke, except the transfer time of the object; see writeTime. An
	// admission webhook has up to 10 s by default, after which the API server names the one that hung.
	writeTimeout = 15 * time.Second
	// staleRetry is when to retry after the spoke's cache was behind.
	staleRetry = time.Second
	// worldRetry is when to retry after a failure that a person in the spoke has to fix, and no event reports
	// the fix.
	worldRetry = 30 * time.Second
	// settle is how long the Deployments of a newly engaged spoke are still being processed. Each takes several
	// milliseconds.
	settle = 10 * time.Second
	// guardRetry is when to check again an AlertRule that vanished together with its CustomResourceDefinition.
	guardRetry = 2 * time.Minute
	// refusalRetry is worldRetry for a rule that the spoke's API server found invalid: its
	// CustomResourceDefinition or the rule has to change.
	refusalRetry = 10 * time.Minute
)

// act carries out a plan, if what the hub's API server has confirms it: it writes first, and deletes only when the
// write is complete.
func (r *Reconciler) act(ctx context.Context, o *observation, plan delivery.Plan) (outcome, error) {
	if wait, err := r.confirm(ctx, o, plan); err != nil || wait > 0 {
		return after(wait), err
	}
	r.noteTerminating(o, plan)
	wait, err := r.brake(ctx, o, plan)
	if err != nil {
		return outcome{}, err
	}
	out, done, err := r.put(ctx, o, plan)
	if done {
		r.done(o)
	}
	if !done || wait > 0 {
		out.RequeueAfter = interval.Soonest(out.RequeueAfter, wait)
		return out, err
	}
	for _, p := range plan.Delete {
		removed, err := r.remove(ctx, o, p)
		if removed.verdict.finding == noNews {
			removed.verdict = out.verdict
		}
		if err != nil || removed.RequeueAfter > 0 {
			return removed, err
		}
	}
	return out, nil
}

// put creates or updates the PrometheusRule. It returns false if that is not complete.
func (r *Reconciler) put(ctx context.Context, o *observation, plan delivery.Plan) (out outcome, done bool, err error) {
	if plan.Action != delivery.Create {
		r.notes.edit(o.req, func(n *note) { n.hidden = 0 })
	}
	switch plan.Action {
	case delivery.Create:
		if lacks, ready, err := r.namespaceReady(ctx, o); err != nil || !ready {
			return outcome{verdict: lacks}, false, err
		}
		return r.send(ctx, o, plan)
	case delivery.Update:
		return r.send(ctx, o, plan)
	case delivery.Conflict: // its next event triggers another reconcile
		return outcome{verdict: conflicts(o)}, false, nil
	case delivery.Terminating: // its deletion triggers another reconcile
		if left := r.notes.get(o.req).leftover; left != nil {
			out.verdict = pending(left.Reason, left.Message)
		}
		return out, false, nil
	case delivery.Suspended:
		out.verdict = suspended(o)
	case delivery.Mutated:
		out.verdict = mutated(o)
	case delivery.Keep:
		r.Contests.Stands(object(o, o.desired))
		out.verdict = verdict{finding: asDesired}
	default:
		out.verdict = verdict{finding: nowhere}
	}
	return out, true, nil
}

// namespaceReady reports whether the rule's namespace can take it, or what it lacks. The namespace's own event
// triggers another reconcile.
func (r *Reconciler) namespaceReady(ctx context.Context, o *observation) (lacks verdict, ready bool, err error) {
	// Wait before reading, to not miss an event in between.
	key := namespaceKey{o.spoke.Name, o.desired.Namespace}
	r.notes.wait(key, o.req)
	ns, missing := spoke.NamespaceMetadata(), "namespace %q not found in the spoke; create it there"
	switch err := o.spoke.Reader.Get(ctx, client.ObjectKey{Name: key.namespace}, ns); {
	case apierrors.IsNotFound(err):
	case err != nil:
		r.notes.unwait(key, o.req)
		return verdict{}, false, fmt.Errorf("reading namespace %s: %w", key.namespace, err)
	case !ns.DeletionTimestamp.IsZero():
		missing = "namespace %q is being deleted in the spoke; when it is gone, create it again"
	default:
		r.notes.unwait(key, o.req)
		return verdict{}, true, nil
	}
	message := fmt.Sprintf(missing, key.namespace)
	if o.req.Namespace == r.Render.AdminNamespace {
		message += ", or set spec.ruleNamespace of the " + o.key().Kind + " to another namespace"
	}
	return pending(v1alpha1.ReasonNamespaceMissing, message), false, nil
}

// send creates or updates the PrometheusRule, and checks the answer. It returns false if the spoke did not
// accept it.
func (r *Reconciler) send(ctx context.Context, o *observation, plan delivery.Plan) (outcome, bool, error) {
	write := contest.Write{Object: object(o, plan.Object), Rule: o.key(), Meant: o.meant, Gone: plan.Action == delivery.Create}
	if out, yields := r.yield(ctx, o, write); yields {
		return out, false, nil
	}
	bounded, cancel := context.WithTimeout(ctx, writeTime(plan.Object))
	defer cancel()
	rules := o.spoke.Rules.MonitoringV1().PrometheusRules(plan.Object.Namespace)
	key := objectKey{o.spoke.Name, hub.Key(plan.Object)}
	r.writes.Begin(key)
	var got *monitoringv1.PrometheusRule
	var err error
	if plan.Action == delivery.Create {
		got, err = rules.Create(bounded, plan.Object, metav1.CreateOptions{})
	} else {
		got, err = rules.Update(bounded, plan.Object, metav1.UpdateOptions{})
	}
	if err != nil {
		r.writes.Failed(key)
		r.Contests.Refused(write, err)
		if out := r.lost(ctx, o, write, plan.Object.ResourceVersion, err); out.RequeueAfter > 0 {
			return out, false, nil
		}
		out, err := r.refused(ctx, o, fmt.Errorf("%s PrometheusRule %s: %w", strings.ToLower(string(plan.Action)), hub.Key(plan.Object), err))
		return out, false, err
	}
	r.writes.Wrote(key, got.ResourceVersion)
	r.Contests.Wrote(write, got)
	var out outcome
	if plan.Action == delivery.Create {
		// If it is deleted before the watch shows it, and the watch breaks, there is never an event.
		out = after(r.writes.Pending(key))
	}
	if delivery.Digest(got) != delivery.Digest(o.desired) {
		r.remember(o, delivery.AnswerDigest(o.desired, got))
		out.verdict = mutated(o)
		return out, true, nil
	}
	r.remember(o, "")
	o.existing = lean(got, o.desired)
	out.verdict = verdict{finding: asDesired}
	r.Propagation.Applied(o.spoke.Name, o.key(), func(since time.Time) bool {
		return r.Spokes.AwaySince(o.spoke.Name, since)
	})
	return out, true, nil
}

// lean returns an answer that equals what is desired, without what nobody needs any more. A spoke can make that large, and
// chooses how long the requests take that follow.
func lean(got, desired *monitoringv1.PrometheusRule) *monitoringv1.PrometheusRule {
	got.Spec, got.Annotations = desired.Spec, desired.Annotations
	got.ManagedFields, got.OwnerReferences, got.Finalizers = nil, nil, nil
	return got
}

// remove deletes an object if it is unchanged since it was read.
func (r *Reconciler) remove(ctx context.Context, o *observation, p *monitoringv1.PrometheusRule) (outcome, error) {
	write := contest.Write{Object: object(o, p), Rule: o.key(), Meant: contest.Absent}
	if out, yields := r.yield(ctx, o, write); yields {
		return out, nil
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	key := objectKey{o.spoke.Name, hub.Key(p)}
	r.writes.Begin(key)
	err := o.spoke.Rules.MonitoringV1().PrometheusRules(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &p.UID, ResourceVersion: &p.ResourceVersion},
	})
	if err == nil {
		r.writes.Deleted(key, p.ResourceVersion)
		r.Contests.Wrote(write, nil)
		r.notes.edit(o.req, func(n *note) { n.answer = "" })
		return outcome{}, nil
	}
	r.writes.Failed(key)
	switch {
	case absent(err):
		r.Contests.Stands(write.Object)
		return outcome{}, nil
	case apierrors.IsConflict(err) && !denied(err.Error()):
		out := r.lost(ctx, o, write, p.ResourceVersion, err)
		out.RequeueAfter = max(out.RequeueAfter, staleRetry)
		return out, nil
	}
	return r.unremoved(o, p, err)
}

// refused handles a failed write: it returns the reason, and when to retry.
func (r *Reconciler) refused(ctx context.Context, o *observation, err error) (outcome, error) {
	reason, retry := refusal(err)
	switch reason {
	case "":
		if !apierrors.IsAlreadyExists(err) || r.notes.edit(o.req, func(n *note) { n.hidden++ }).hidden < hiddenTries {
			return after(retry), nil
		}
		out := after(r.Intervals.Of(worldRetry))
		out.verdict = pending(v1alpha1.ReasonError, words(fmt.Errorf(
			"the spoke reports that the rule exists but does not list it; check whether a proxy or a cache in front of its API server gives outdated answers. The error: %w", err)))
		return out, nil
	case v1alpha1.ReasonUnreachable:
		// The spoke's own condition shows it; the row stays.
		return outcome{}, err
	case v1alpha1.ReasonError:
		if hangs(err) {
			r.reportBehind(ctx, o)
		}
		return outcome{verdict: pending(reason, explain(reason, err))}, err
	}
	out := r.behind(retry)
	out.verdict = pending(reason, explain(reason, err))
	return out, nil
}

// unremoved handles a deletion that failed: it notes the reason, and returns when to retry.
func (r *Reconciler) unremoved(o *observation, p *monitoringv1.PrometheusRule, err error) (outcome, error) {
	reason, retry := refusal(err)
	err = fmt.Errorf("deleting PrometheusRule %s: %w", hub.Key(p), err)
	switch reason {
	case v1alpha1.ReasonUnreachable:
		return outcome{}, err // the spoke's own condition shows it
	case "": // no answer to a deletion
		reason, retry = v1alpha1.ReasonError, 0
	}
	r.noteLeftover(o, p, reason, "the spoke still has a rule that is to be removed: "+explainRemoval(reason, err))
	if retry == 0 {
		return outcome{}, err
	}
	return r.behind(retry), nil
}

// behind returns an outcome that waits for a person in the spoke, with the lowest priority.
func (r *Reconciler) behind(retry time.Duration) outcome {
	return outcome{Result: reconcile.Result{RequeueAfter: r.Intervals.Of(retry), Priority: new(queue.Behind)}}
}

// noteTerminating remembers an object that is being deleted, but that finalizers keep. Prometheus still loads it. If
// nothing is to be deleted, nothing else is left.
func (r *Reconciler) noteTerminating(o *observation, plan delivery.Plan) {
	for _, p := range o.claimed {
		if p.DeletionTimestamp != nil && rule.Owned(p, r.Render.HubID) {
			r.noteLeftover(o, p, v1alpha1.ReasonError, fmt.Sprintf(
				"PrometheusRule %s is being deleted in the spoke, but its finalizers keep it (%s). Find out which controller set them, and why it does not remove them",
				hub.Key(p), strings.Join(p.Finalizers, ", ")))
			return
		}
	}
	if len(plan.Delete) == 0 {
		r.notes.edit(o.req, func(n *note) { n.leftover = nil })
	}
}

// noteLeftover remembers why a spoke does not delete an object. Other words for the same reason are not news: a spoke
// could change them with each attempt.
func (r *Reconciler) noteLeftover(o *observation, p *monitoringv1.PrometheusRule, reason, message string) {
	row := &v1alpha1.ClusterStatus{
		Name: v1alpha1.ClusterName(o.spoke.Name), Phase: v1alpha1.PhasePending, Reason: reason, Rule: hub.Key(p).String(), Message: clip(message),
	}
	r.notes.edit(o.req, func(n *note) {
		if n.leftover == nil || n.leftover.Reason != row.Reason || n.leftover.Rule != row.Rule {
			n.leftover = row
		}
	})
}
