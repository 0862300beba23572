package distribute

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/contest"
	"github.com/rulefleet/rulefleet/pkg/controller/hub"
	"github.com/rulefleet/rulefleet/pkg/interval"
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
	// maxMessage bounds the text of a spoke's answer in a status, in bytes.
	maxMessage = 512
)

// act carries out a plan: it writes first, and deletes only when the write is complete.
func (r *Reconciler) act(ctx context.Context, t *task, plan delivery.Plan) (reconcile.Result, error) {
	r.noteTerminating(t, plan)
	wait, err := r.brake(ctx, t, plan)
	if err != nil {
		return reconcile.Result{}, err
	}
	done, result, err := r.put(ctx, t, plan)
	if done {
		r.done(t)
	}
	if !done || wait > 0 {
		result.RequeueAfter = interval.Soonest(result.RequeueAfter, wait)
		return result, err
	}
	for _, o := range plan.Delete {
		if result, err := r.remove(ctx, t, o); err != nil || result.RequeueAfter > 0 {
			return result, err
		}
	}
	return result, nil
}

// put creates or updates the PrometheusRule. It returns false if that is not complete.
func (r *Reconciler) put(ctx context.Context, t *task, plan delivery.Plan) (done bool, result reconcile.Result, err error) {
	if plan.Action != delivery.Create {
		r.hidden.forget(t.req)
	}
	switch plan.Action {
	case delivery.Create:
		if ready, err := r.namespaceReady(ctx, t); err != nil || !ready {
			return false, reconcile.Result{}, err
		}
		return r.send(ctx, t, plan)
	case delivery.Update:
		return r.send(ctx, t, plan)
	case delivery.Conflict:
		// It is left as it is. Its next event triggers another reconcile.
		r.report(ctx, t, v1alpha1.PhasePending, v1alpha1.ReasonConflict, fmt.Sprintf(
			"PrometheusRule %s in the spoke has the name of this rule, but not the labels %s=%s and %s=%s, so Rulefleet does not change it. Most likely, somebody removed them. Put them back, or delete the object in the spoke: Rulefleet then writes it again",
			hub.Key(t.desired), v1alpha1.ManagedByLabel, v1alpha1.ManagedByValue, v1alpha1.HubLabel, t.desired.Labels[v1alpha1.HubLabel]))
		return false, reconcile.Result{}, nil
	case delivery.Suspended:
		phase := v1alpha1.PhasePending
		if t.existing != nil {
			phase = v1alpha1.PhaseApplied
		}
		message := "the AlertRule is suspended: this rule is not changed in the spoke; to resume, set spec.suspend of the AlertRule to false"
		if t.cluster.Suspended {
			message = "SpokeCluster " + t.spoke.Name + " is suspended: nothing is written to the spoke; to resume, set spec.suspend of the SpokeCluster to false"
		}
		r.report(ctx, t, phase, v1alpha1.ReasonSuspended, message)
	case delivery.Mutated:
		r.mutated(ctx, t)
	case delivery.Terminating:
		if row, left := r.leftovers.of(t.req); left {
			r.report(ctx, t, v1alpha1.PhasePending, row.Reason, row.Message)
		}
		return false, reconcile.Result{}, nil // its deletion triggers another reconcile
	case delivery.Keep:
		r.Contests.Stands(object(t, t.desired))
		r.report(ctx, t, v1alpha1.PhaseApplied, "", "")
	default:
		r.report(ctx, t, v1alpha1.PhasePending, "", "") // forgets the verdict: nothing should be there
	}
	return true, reconcile.Result{}, nil
}

// namespaceReady reports whether the rule's namespace can take it. The namespace's own event triggers another
// reconcile.
func (r *Reconciler) namespaceReady(ctx context.Context, t *task) (bool, error) {
	// Wait before reading, to not miss an event in between.
	key := namespaceKey{t.spoke.Name, t.desired.Namespace}
	r.waiting.add(key, t.req)
	ns := spoke.NamespaceMetadata()
	switch err := t.spoke.Reader.Get(ctx, client.ObjectKey{Name: t.desired.Namespace}, ns); {
	case apierrors.IsNotFound(err):
		r.report(ctx, t, v1alpha1.PhasePending, v1alpha1.ReasonNamespaceMissing, fmt.Sprintf("namespace %q not found in the spoke; create it there%s", t.desired.Namespace, r.orElsewhere(t)))
		return false, nil
	case err != nil:
		r.waiting.drop(key, t.req)
		return false, fmt.Errorf("reading namespace %s: %w", t.desired.Namespace, err)
	case !ns.DeletionTimestamp.IsZero():
		r.report(ctx, t, v1alpha1.PhasePending, v1alpha1.ReasonNamespaceMissing, fmt.Sprintf("namespace %q is being deleted in the spoke; when it is gone, create it again%s", t.desired.Namespace, r.orElsewhere(t)))
		return false, nil
	}
	r.waiting.drop(key, t.req)
	return true, nil
}

// send creates or updates the PrometheusRule, and checks the answer. It returns false if the spoke did not
// accept it.
func (r *Reconciler) send(ctx context.Context, t *task, plan delivery.Plan) (bool, reconcile.Result, error) {
	write := r.writing(t, plan)
	if wait := r.yield(ctx, t, write); wait > 0 {
		return false, reconcile.Result{RequeueAfter: wait}, nil
	}
	bounded, cancel := context.WithTimeout(ctx, writeTime(plan.Object))
	defer cancel()
	rules := t.spoke.Rules.MonitoringV1().PrometheusRules(plan.Object.Namespace)
	key := objectKey{t.spoke.Name, hub.Key(plan.Object)}
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
		if wait := r.lost(ctx, t, write, plan.Object.ResourceVersion, err); wait > 0 {
			return false, reconcile.Result{RequeueAfter: wait}, nil
		}
		result, err := r.refused(ctx, t, fmt.Errorf("%s PrometheusRule %s: %w", strings.ToLower(string(plan.Action)), hub.Key(plan.Object), err))
		return false, result, err
	}
	r.writes.Wrote(key, got.ResourceVersion)
	r.Contests.Wrote(write, got)
	var result reconcile.Result
	if plan.Action == delivery.Create {
		// If it is deleted before the watch shows it, and the watch breaks, there is never an event.
		result.RequeueAfter = r.writes.Pending(key)
	}
	t.existing = got
	if delivery.Digest(got) != delivery.Digest(t.desired) {
		r.remember(t.req, delivery.AnswerDigest(t.desired, got))
		r.mutated(ctx, t)
		return true, result, nil
	}
	r.remember(t.req, "")
	r.report(ctx, t, v1alpha1.PhaseApplied, "", "")
	r.Propagation.Applied(t.spoke.Name, t.req.NamespacedName, func(since time.Time) bool {
		return r.Spokes.AwaySince(t.spoke.Name, since)
	})
	return true, result, nil
}

func (r *Reconciler) mutated(ctx context.Context, t *task) {
	t.mutated = true
	r.report(ctx, t, v1alpha1.PhasePending, v1alpha1.ReasonMutated, fmt.Sprintf(
		"the spoke changed PrometheusRule %s when it was written: most likely, a mutating webhook did so, or its CustomResourceDefinition is old and lacks a field."+
			" Exclude PrometheusRules with label %s=%s from the webhook or, if it enforces security, the user %s, because anyone can set the label."+
			" Or update the CustomResourceDefinition. Then delete the PrometheusRule, so that Rulefleet writes it again",
		hub.Key(t.desired), v1alpha1.ManagedByLabel, v1alpha1.ManagedByValue, contest.SpokeUser))
}

// orElsewhere says how to use another namespace, if the AlertRule can set it.
func (r *Reconciler) orElsewhere(t *task) string {
	if t.rule.Namespace != r.Render.AdminNamespace {
		return ""
	}
	return ", or set spec.ruleNamespace of the AlertRule to another namespace"
}

// remove deletes an object if it is unchanged since it was read.
func (r *Reconciler) remove(ctx context.Context, t *task, o *monitoringv1.PrometheusRule) (reconcile.Result, error) {
	write := r.removing(t, o)
	if wait := r.yield(ctx, t, write); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	key := objectKey{t.spoke.Name, hub.Key(o)}
	r.writes.Begin(key)
	err := t.spoke.Rules.MonitoringV1().PrometheusRules(o.Namespace).Delete(ctx, o.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &o.UID, ResourceVersion: &o.ResourceVersion},
	})
	if err == nil {
		r.writes.Deleted(key, o.ResourceVersion)
		r.Contests.Wrote(write, nil)
		r.remember(t.req, "")
		return reconcile.Result{}, nil
	}
	r.writes.Failed(key)
	switch {
	case absent(err):
		r.Contests.Stands(write.Object)
		return reconcile.Result{}, nil
	case apierrors.IsConflict(err) && !denied(err.Error()):
		return reconcile.Result{RequeueAfter: max(r.lost(ctx, t, write, o.ResourceVersion, err), staleRetry)}, nil
	}
	return r.unremoved(ctx, t, o, err)
}

// refused handles a failed write: it reports the reason and returns when to retry.
func (r *Reconciler) refused(ctx context.Context, t *task, err error) (reconcile.Result, error) {
	reason, retry := verdict(err)
	switch reason {
	case "":
		if apierrors.IsAlreadyExists(err) && r.hidden.again(t.req) {
			r.report(ctx, t, v1alpha1.PhasePending, v1alpha1.ReasonError, words(fmt.Errorf(
				"the spoke reports that the rule exists but does not list it; check whether a proxy or cache in front of its API server answers instead: %w", err)))
			retry = r.Intervals.Of(worldRetry)
		}
		return reconcile.Result{RequeueAfter: retry}, nil
	case v1alpha1.ReasonUnreachable:
		// The spoke's own condition shows it; the row stays.
		return reconcile.Result{}, err
	case v1alpha1.ReasonError:
		r.report(ctx, t, v1alpha1.PhasePending, reason, explain(reason, err))
		if hangs(err) {
			r.reportBehind(ctx, t)
		}
		return reconcile.Result{}, err
	}
	r.report(ctx, t, v1alpha1.PhasePending, reason, explain(reason, err))
	return reconcile.Result{RequeueAfter: r.Intervals.Of(retry), Priority: new(queue.Behind)}, nil
}

// verdict classifies the error of a create or an update. The reason is "" if the cache was behind. A retry of
// 0 means the queue's backoff.
func verdict(err error) (reason string, retry time.Duration) {
	var answer apierrors.APIStatus
	switch {
	case hangs(err):
		return v1alpha1.ReasonError, 0
	case !errors.As(err, &answer):
		return v1alpha1.ReasonUnreachable, 0
	case denied(err.Error()): // first, because a webhook may return any reason or none
		return v1alpha1.ReasonRejected, worldRetry
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return "", staleRetry
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return v1alpha1.ReasonNamespaceMissing, worldRetry
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsRequestEntityTooLargeError(err):
		return v1alpha1.ReasonRejected, refusalRetry
	case outOfQuota(err):
		return v1alpha1.ReasonQuotaExceeded, worldRetry
	case apierrors.IsForbidden(err):
		return v1alpha1.ReasonForbidden, worldRetry
	case apierrors.IsNotFound(err):
		return missing(answer.Status())
	case apierrors.IsTimeout(err), apierrors.IsServerTimeout(err), apierrors.IsServiceUnavailable(err), answer.Status().Code == http.StatusBadGateway:
		return v1alpha1.ReasonUnreachable, 0
	}
	return v1alpha1.ReasonError, 0
}

// denied reports whether an admission webhook or policy denied the request.
func denied(message string) bool {
	return (strings.Contains(message, "admission webhook ") && strings.Contains(message, " denied the request")) ||
		(strings.Contains(message, "ValidatingAdmissionPolicy ") && strings.Contains(message, " denied request"))
}

// missing returns what was not found (404): the namespace, the object, the resource itself, or something that
// is not the API server's to say.
func missing(s metav1.Status) (reason string, retry time.Duration) {
	switch body, unexpected := unexpectedAnswer(s); {
	case unexpected && body != notServed:
		return v1alpha1.ReasonError, 0
	case unexpected, s.Details == nil:
		return v1alpha1.ReasonCRDMissing, worldRetry
	case s.Details.Kind == "namespaces":
		return v1alpha1.ReasonNamespaceMissing, worldRetry
	}
	return "", staleRetry // it was deleted, and the cache was behind
}

// notServed is what kube-apiserver answers about a path of a resource that it does not serve (404).
const notServed = "404 page not found"

// unexpectedAnswer returns the body of an answer that is no Status of an API, and whether it is one.
func unexpectedAnswer(s metav1.Status) (body string, unexpected bool) {
	if s.Details == nil {
		return "", false
	}
	i := slices.IndexFunc(s.Details.Causes, func(c metav1.StatusCause) bool { return c.Type == metav1.CauseTypeUnexpectedServerResponse })
	if i < 0 {
		return "", false
	}
	return strings.TrimSpace(s.Details.Causes[i].Message), true
}

// words returns the error text of a spoke, clipped.
func words(err error) string { return spoke.Clip(err.Error(), maxMessage-len("…")) }

// clip bounds a message.
func clip(s string) string {
	if len(s) <= maxMessage {
		return s
	}
	return strings.ToValidUTF8(s[:maxMessage], "") + "…"
}
