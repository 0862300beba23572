package membership

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/contest"
	"github.com/rulefleet/rulefleet/pkg/spoke"
)

// creation is the creation of a SpokeCluster. A tool may delete the SpokeCluster again each time, and register its
// Secret again. Each time, the rules are removed from the spoke. What is known of it survives the SpokeCluster.
func creation(name string, secret types.UID) contest.Write {
	o := contest.Object{Kind: contest.SpokeCluster}
	o.Name = name
	return contest.Write{Object: o, Meant: string(secret), Gone: true}
}

// recreate returns how long to wait before a SpokeCluster is created that another client keeps deleting, and reports
// that with an Event on the Secret.
func (r *Reconciler) recreate(secret *corev1.Secret) time.Duration {
	return r.Contests.Yield(creation(secret.Name, secret.UID), nil, func(message string) {
		r.Recorder.Eventf(secret, nil, corev1.EventTypeWarning, v1alpha1.ReasonContested, "Register", "%s", spoke.Clip(message, spoke.MaxNote))
	}).Wait
}

// silent is the callback of a caller that shows contests in another way.
func silent(string) {}

// mirror writes the labels and the finalizer of a SpokeCluster, or creates it. If another client keeps
// reverting that, mirror returns the SpokeCluster as it is and the time until the next attempt. Otherwise it
// returns nil, and the event of the write triggers the next reconcile.
func (r *Reconciler) mirror(ctx context.Context, sc *v1alpha1.SpokeCluster, secret *corev1.Secret, labels map[string]string) (*v1alpha1.SpokeCluster, time.Duration, error) {
	u := &unstructured.Unstructured{} // it has only the fields that are applied
	u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("SpokeCluster"))
	u.SetName(sc.Name)
	if len(labels) > 0 { // otherwise it would own an empty map
		u.SetLabels(labels)
	}
	u.SetFinalizers([]string{v1alpha1.LeaveFinalizer})
	meant, err := u.MarshalJSON() // which sorts the labels
	if err != nil {
		return nil, 0, fmt.Errorf("encoding SpokeCluster %s: %w", sc.Name, err)
	}
	u.SetResourceVersion(sc.ResourceVersion) // the next version in the cache is not older than this write
	write := contest.Write{Object: contest.Membership(sc.Name, ""), Meant: string(meant), Base: sc.ResourceVersion}
	if sc.ResourceVersion == "" {
		if wait := r.recreate(secret); wait > 0 {
			return nil, wait, nil
		}
	} else {
		switch turn := r.Contests.Yield(write, sc, silent); {
		case turn.Behind:
			return nil, 0, nil
		case turn.Wait > 0:
			return sc, turn.Wait, nil
		}
	}
	// Apply without force: a label that another client has just set is theirs, even if the cache does not show
	// it yet. The conflict triggers another reconcile.
	err = r.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(contest.MirrorManager))
	switch {
	case err == nil:
		if u.GetResourceVersion() != sc.ResourceVersion { // otherwise the API server found no change
			r.Contests.Wrote(write, u)
		}
		if sc.ResourceVersion == "" {
			r.Contests.Wrote(creation(sc.Name, secret.UID), u)
		}
		return nil, 0, nil
	case apierrors.IsConflict(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeFieldManagerConflict):
		return nil, r.Contests.LostTo(write, sc.ResourceVersion, sc, silent), nil // its event triggers the next reconcile
	}
	return nil, 0, fmt.Errorf("applying SpokeCluster %s: %w", sc.Name, err)
}

// accepted removes the confirmation from a connected spoke: it was used or is not needed, and would otherwise
// confirm the same cluster again later. The status has the identity by then; without it, a restart would
// require another confirmation. If another client keeps setting the annotation, accepted returns the time
// until the next attempt. Otherwise the event of the write triggers the next reconcile.
func (r *Reconciler) accepted(ctx context.Context, sc *v1alpha1.SpokeCluster) (time.Duration, error) {
	write := contest.Removal(sc, v1alpha1.AcceptIdentityAnnotation)
	if turn := r.Contests.Yield(write, sc, silent); turn.Behind || turn.Wait > 0 {
		return turn.Wait, nil
	}
	next := sc.DeepCopy()
	delete(next.Annotations, v1alpha1.AcceptIdentityAnnotation)
	err := r.Client.Patch(ctx, next, client.MergeFromWithOptions(sc, client.MergeFromWithOptimisticLock{}))
	switch {
	case err == nil:
		r.Contests.Wrote(write, next)
	case apierrors.IsConflict(err):
		return r.Contests.LostTo(write, sc.ResourceVersion, sc, silent), nil
	case !apierrors.IsNotFound(err):
		return 0, fmt.Errorf("removing the identity confirmation from SpokeCluster %s: %w", sc.Name, err)
	}
	return 0, nil
}
