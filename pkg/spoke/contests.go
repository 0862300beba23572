package spoke

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	applyv1alpha1 "github.com/rulefleet/rulefleet/api/v1alpha1/applyconfiguration/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/contest"
)

// membership is a SpokeCluster as an object of contests: what the operator writes of it, or one
// of the annotations that it takes off.
func membership(name, annotation string) contest.Object {
	o := contest.Object{Spoke: name, Kind: contest.SpokeCluster, Annotation: annotation}
	o.Name = name
	return o
}

// Removing is the removal of an annotation that the operator has acted on.
func Removing(sc *v1alpha1.SpokeCluster, annotation string) contest.Write {
	return contest.Write{Object: membership(sc.Name, annotation), Meant: sc.Annotations[annotation], Base: sc.ResourceVersion}
}

// silent is for who shows a contest without being told of it.
func silent(string) {}

// mirror writes the labels and the finalizer of a SpokeCluster, or makes it. Where that has to wait
// because somebody undoes it, mirror returns the SpokeCluster as it is, and when to look again.
// Otherwise it returns nil: the event of this write, or of the last one, brings it back.
func (r *Registrar) mirror(ctx context.Context, sc *v1alpha1.SpokeCluster, labels map[string]string) (*v1alpha1.SpokeCluster, time.Duration, error) {
	apply := applyv1alpha1.SpokeCluster(sc.Name).WithLabels(labels).WithFinalizers(v1alpha1.LeaveFinalizer)
	meant, err := json.Marshal(apply) // which sorts the labels
	u := &unstructured.Unstructured{}
	if err = errors.Join(err, u.UnmarshalJSON(meant)); err != nil {
		return nil, 0, fmt.Errorf("encoding SpokeCluster %s: %w", sc.Name, err)
	}
	u.SetResourceVersion(sc.ResourceVersion) // what the cache shows next is not older than this write, then
	write := contest.Write{Object: membership(sc.Name, ""), Meant: string(meant), Base: sc.ResourceVersion}
	if sc.ResourceVersion != "" {
		switch turn := r.Contests.Yield(write, sc, silent); {
		case turn.Behind:
			return nil, 0, nil
		case turn.Wait > 0:
			return sc, turn.Wait, nil
		}
	}
	// Without force: a label that somebody has just set is theirs, though the cache does
	// not show it yet. The conflict has it looked at again.
	err = r.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(contest.MirrorManager))
	switch {
	case err == nil:
		if u.GetResourceVersion() != sc.ResourceVersion { // else the API server found nothing to change
			r.Contests.Wrote(write, u)
		}
		return nil, 0, nil
	case apierrors.IsConflict(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeFieldManagerConflict):
		return nil, r.Contests.Lost(write.Object), nil // its event brings it back here
	}
	return nil, 0, fmt.Errorf("applying SpokeCluster %s: %w", sc.Name, err)
}

// accepted takes a confirmation off a spoke that is connected: it was used, or is not needed.
// Left there, it would confirm that cluster once more, some day. The status has the identity by
// then: without either, a restart would ask for the confirmation again. Where somebody sets it
// again each time, it returns for how long to wait; otherwise the write's own event brings the
// SpokeCluster back.
func (r *Registrar) accepted(ctx context.Context, sc *v1alpha1.SpokeCluster) (time.Duration, error) {
	write := Removing(sc, v1alpha1.AcceptIdentityAnnotation)
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
		return r.Contests.Lost(write.Object), nil
	case !apierrors.IsNotFound(err):
		return 0, fmt.Errorf("removing the identity confirmation from SpokeCluster %s: %w", sc.Name, err)
	}
	return 0, nil
}
