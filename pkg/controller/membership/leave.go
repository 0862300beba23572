package membership

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/contest"
	"github.com/rulefleet/rulefleet/pkg/live"
	"github.com/rulefleet/rulefleet/pkg/spoke"
)

const (
	// leaveRetry is the time until the next step of a spoke that leaves.
	leaveRetry = time.Second
	// keptRetry is that time, at least, if the registration label of the Secret stays or comes back.
	keptRetry = 30 * time.Second
	// leaveBatch bounds the AlertRules that one reconcile deletes.
	leaveBatch = 200
)

// leave handles a SpokeCluster that is being deleted. In this order, it removes the rules from the spoke (as
// the deletionPolicy says), the AlertRules generated from the spoke, the registration label of the Secret, and
// the finalizer. The brake does not hold these deletions, because a person decided them. Each step repeats
// until it is complete.
func (r *Reconciler) leave(ctx context.Context, sc *v1alpha1.SpokeCluster, secret *corev1.Secret) (reconcile.Result, error) {
	if !controllerutil.ContainsFinalizer(sc, v1alpha1.LeaveFinalizer) {
		r.Provider.Remove(sc.Name) // the finalizers of others remain
		return reconcile.Result{}, nil
	}
	if leaves, err := r.leaves(ctx, sc); err != nil || !leaves {
		return reconcile.Result{RequeueAfter: live.BehindRetry}, err
	}
	served, err := r.Rules.Served(ctx)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("checking the CustomResourceDefinitions before SpokeCluster %s leaves: %w", sc.Name, err)
	}
	if !served {
		// The CustomResourceDefinitions are being deleted, which is not a decision about the spoke.
		r.Provider.Remove(sc.Name)
		return reconcile.Result{}, Free(ctx, r.Client, sc)
	}
	d, err := r.depart(ctx, sc, secret)
	if err != nil {
		return reconcile.Result{}, err
	}
	if !d.Done {
		wait, err := r.show(ctx, sc, secret, leavingStatus(sc, d, metav1.Now()))
		return reconcile.Result{RequeueAfter: wait}, err
	}
	if left, err := r.deleteGenerated(ctx, sc.Name); err != nil || left {
		return reconcile.Result{RequeueAfter: leaveRetry}, err
	}
	return r.end(ctx, sc, secret, d)
}

// end deregisters a spoke that has left, and releases its SpokeCluster. If the Secret stays registered, the
// SpokeCluster would be created again at once, so it stays and says so.
func (r *Reconciler) end(ctx context.Context, sc *v1alpha1.SpokeCluster, secret *corev1.Secret, d spoke.Departure) (reconcile.Result, error) {
	if secret == nil {
		r.farewell(sc, d)
		return reconcile.Result{}, Free(ctx, r.Client, sc)
	}
	again, err := r.deregister(ctx, secret)
	if err != nil || again == 0 {
		return reconcile.Result{RequeueAfter: leaveRetry}, err
	}
	status := leavingStatus(sc, d, metav1.Now())
	setCondition(&status, sc.Generation, v1alpha1.ConditionReady, spoke.Finding{
		Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonLeaving,
		Message: spoke.Clip(fmt.Sprintf("the SpokeCluster is being deleted, but Secret %s still has the label %s after Rulefleet removed it. Most likely, an admission webhook or policy of the hub sets it, or a GitOps tool such as Argo CD or Flux. Exclude the Secret from the webhook or policy, remove the label from the repository of the tool, or delete the Secret",
			client.ObjectKeyFromObject(secret), v1alpha1.RegistrationLabel), spoke.MaxMessage),
	}, metav1.Now())
	wait, err := r.show(ctx, sc, secret, status)
	return reconcile.Result{RequeueAfter: max(wait, again)}, err
}

// leaves reports whether a SpokeCluster is being deleted according to the API server. An old cache may show a former
// one.
func (r *Reconciler) leaves(ctx context.Context, sc *v1alpha1.SpokeCluster) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, live.Timeout)
	defer cancel()
	now := &v1alpha1.SpokeCluster{}
	err := r.Live.Get(ctx, client.ObjectKeyFromObject(sc), now)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("confirming that SpokeCluster %s is being deleted: %w", sc.Name, err)
	}
	return err == nil && now.UID == sc.UID && !now.DeletionTimestamp.IsZero(), nil
}

// depart removes the rules from the spoke, unless they are to stay.
func (r *Reconciler) depart(ctx context.Context, sc *v1alpha1.SpokeCluster, secret *corev1.Secret) (spoke.Departure, error) {
	stays := ""
	switch {
	case sc.Spec.DeletionPolicy == v1alpha1.DeletionPolicyOrphan:
		stays = "spec.deletionPolicy of the SpokeCluster is Orphan"
	case ptr.Deref(sc.Spec.Suspend, false):
		stays = "the SpokeCluster was suspended"
	}
	placed, err := r.Rules.Placed(ctx, sc.Name)
	if err != nil {
		return spoke.Departure{}, err //nolint:wrapcheck // it says all
	}
	return r.Provider.Depart(ctx, sc.Name, spoke.DepartOptions{
		Stays: stays, Kubeconfig: kubeconfigIn(secret), Placed: placed,
		Deleted: sc.DeletionTimestamp.Time, Timeout: r.LeaveTimeout,
	})
}

// leavingStatus shows what is still to be removed.
func leavingStatus(sc *v1alpha1.SpokeCluster, d spoke.Departure, now metav1.Time) v1alpha1.SpokeClusterStatus {
	out := *sc.Status.DeepCopy()
	out.ObservedGeneration = sc.Generation
	out.PendingDeletions = nil
	what := "its rules"
	if d.Known && !d.Stays {
		what = fmt.Sprintf("%d rules", len(d.Left))
		if len(d.Left) == 1 {
			what = "1 rule"
		}
		if len(d.Left) > 0 {
			out.PendingDeletions = pendingOf(d.Left, 0)
		}
	}
	message := fmt.Sprintf("the SpokeCluster is being deleted: removing %s from the spoke until %s at the latest", what, d.Deadline.UTC().Format(time.RFC3339))
	switch {
	case d.Stays:
		message = "the SpokeCluster is being deleted; its rules stay in the spoke: " + d.Why
	case d.Why != "":
		message += ". The removal is stuck: " + d.Why
	}
	setCondition(&out, sc.Generation, v1alpha1.ConditionReady,
		spoke.Finding{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonLeaving, Message: spoke.Clip(message, spoke.MaxMessage)}, now)
	return out
}

// deleteGenerated deletes a batch of the AlertRules that were generated from a spoke, and reports whether
// there may be more.
func (r *Reconciler) deleteGenerated(ctx context.Context, name string) (left bool, err error) {
	rules, err := r.Rules.Generated(ctx, name)
	if err != nil {
		return false, err
	}
	for i := range rules[:min(len(rules), leaveBatch)] {
		ar := &rules[i]
		err := r.Client.Delete(ctx, ar, client.Preconditions{UID: &ar.UID})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return true, fmt.Errorf("deleting AlertRule %s, generated from spoke %s: %w", client.ObjectKeyFromObject(ar), name, err)
		}
	}
	return len(rules) > 0, nil
}

// deregister removes the registration label from a Secret, so that it does not create the SpokeCluster again. It
// returns when to try again if the Secret still has the label, because the hub changed the write, or has it again,
// because another client wrote it.
func (r *Reconciler) deregister(ctx context.Context, secret *corev1.Secret) (again time.Duration, err error) {
	write := contest.Write{Object: contest.Membership(secret.Name, v1alpha1.RegistrationLabel), Meant: contest.Absent}
	if turn := r.Contests.Ask(write); turn.Wait > 0 {
		return max(turn.Wait, keptRetry), nil
	}
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:null}}}`, v1alpha1.RegistrationLabel)
	answer := secret.DeepCopy()
	err = r.Client.Patch(ctx, answer, client.RawPatch(types.MergePatchType, patch))
	if client.IgnoreNotFound(err) != nil {
		return 0, fmt.Errorf("removing the registration label from Secret %s: %w", client.ObjectKeyFromObject(secret), err)
	}
	r.Contests.Wrote(write, answer)
	if err == nil && answer.Labels[v1alpha1.RegistrationLabel] == "true" {
		return keptRetry, nil
	}
	r.Recorder.Eventf(secret, nil, corev1.EventTypeNormal, "Deregistered", "Leave", "label %s was removed from this Secret, because SpokeCluster %s was deleted; to register the spoke again, set the label to true",
		v1alpha1.RegistrationLabel, secret.Name)
	return 0, nil
}

// farewell emits an Event about what was removed from the spoke and what was left.
func (r *Reconciler) farewell(sc *v1alpha1.SpokeCluster, d spoke.Departure) {
	r.Log.Info("spoke has left the hub", "cluster", sc.Name, "removed", d.Removed, "left", len(d.Left), "why", d.Why)
	never := !d.Known && sc.Status.Identity == "" // connected
	switch {
	case d.Kept:
		r.Recorder.Eventf(sc, nil, corev1.EventTypeNormal, "Left", "Leave", "its PrometheusRules stay in the spoke: %s", spoke.Clip(d.Why, spoke.MaxNote/2))
		return
	case never:
		r.Recorder.Eventf(sc, nil, corev1.EventTypeNormal, "Left", "Leave", "nothing was removed from the spoke, because this SpokeCluster was never connected to it")
		return
	case d.Why == "", d.Known && len(d.Left) == 0:
		r.Recorder.Eventf(sc, nil, corev1.EventTypeNormal, "Left", "Leave", "%s removed from the spoke; none is left", prometheusRules(d.Removed))
		return
	}
	what := prometheusRules(len(d.Left)) + " left in the spoke"
	if !d.Known {
		what = "PrometheusRules of this hub may be left in the spoke"
	}
	// The command comes last so that it can be copied, and must not be cut off. In another spoke, it would delete
	// rules that are in use, so the message identifies the cluster. Rules that were meant to stay need no command.
	kind, command := corev1.EventTypeWarning, ""
	if d.Meant {
		kind = corev1.EventTypeNormal
	} else {
		of := "of this spoke, not on the hub"
		if sc.Status.Identity != "" {
			of = "whose namespace kube-system has UID " + sc.Status.Identity
		}
		command = fmt.Sprintf(". To remove all PrometheusRules of this hub, run in the cluster %s: kubectl delete prometheusrules -A -l %s=%s", of, v1alpha1.HubLabel, r.HubID)
	}
	note := what + ": " + spoke.Clip(d.Why, spoke.MaxNote/3)
	if len(d.Left) > 0 {
		note += ". Rules: " + strings.Join(d.Left, ", ")
	}
	r.Recorder.Eventf(sc, nil, kind, "LeftBehind", "Leave", "%s", spoke.Clip(note, spoke.MaxNote-len(command))+command)
}

// prometheusRules returns a number of PrometheusRules and its verb.
func prometheusRules(n int) string {
	if n == 1 {
		return "1 PrometheusRule was"
	}
	return fmt.Sprintf("%d PrometheusRules were", n)
}

// Free removes the finalizer from a SpokeCluster. It is no error if the SpokeCluster is gone; it is one if it
// changed since it was read.
func Free(ctx context.Context, c client.Client, sc *v1alpha1.SpokeCluster) error {
	next := sc.DeepCopy()
	controllerutil.RemoveFinalizer(next, v1alpha1.LeaveFinalizer)
	// The patch replaces the whole list, so without the lock it would drop a finalizer that was added since.
	err := c.Patch(ctx, next, client.MergeFromWithOptions(sc, client.MergeFromWithOptimisticLock{}))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("removing the finalizer from SpokeCluster %s: %w", sc.Name, err)
	}
	return nil
}
