package certs

import (
	"context"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/contest"
)

func injection(config *admissionv1.ValidatingWebhookConfiguration, bundle []byte) contest.Write {
	return contest.Write{
		Object: contest.Object{Kind: contest.WebhookConfiguration, NamespacedName: client.ObjectKeyFromObject(config)},
		Meant:  string(bundle),
	}
}

// secretWrite is the write of the Secret. Lost keys are replaced by new ones each time, so the
// intention of the write is that the Secret has keys.
func (r *rotator) secretWrite(secret *corev1.Secret) contest.Write {
	return contest.Write{
		Object: contest.Object{Kind: "Secret", NamespacedName: client.ObjectKey{Namespace: r.Namespace, Name: SecretName}},
		Meant:  "certificates", Gone: secret == nil,
	}
}

// keep is write with a pace: if another client undoes the write, it returns the time to wait. A Secret
// that has not been changed since the last write is written because time has passed.
func (r *rotator) keep(ctx context.Context, secret *corev1.Secret, d *decision) (time.Duration, error) {
	write := r.secretWrite(secret)
	if !d.differs(secret) {
		r.Contests.Stands(write.Object)
		return 0, nil
	}
	if secret == nil || secret.ResourceVersion != r.wrote {
		if wait := r.yield(ctx, write, secret); wait > 0 {
			return wait, nil
		}
	}
	next, err := r.write(ctx, secret, d)
	if err != nil {
		return r.lost(ctx, write, secret, err), err
	}
	r.wrote = next.ResourceVersion
	r.Contests.Wrote(write, next)
	return 0, nil
}

// yield returns the time to wait with a write because another client undoes it, and reports that.
func (r *rotator) yield(ctx context.Context, write contest.Write, found client.Object) time.Duration {
	return r.Contests.Yield(write, found, func(message string) { r.tell(ctx, write, found, message) }).Wait
}

// tell reports that another client undoes a write.
func (r *rotator) tell(ctx context.Context, write contest.Write, found client.Object, message string) {
	ctrl.LoggerFrom(ctx).Info("another client undoes the writes to an object", "why", message)
	if write.Gone {
		found = &corev1.Secret{}
		found.SetNamespace(write.Namespace)
		found.SetName(write.Name)
	}
	r.Recorder.Eventf(found, nil, corev1.EventTypeWarning, v1alpha1.ReasonContested, "Write", "%s", message)
}

// lost returns the time to wait after a write was refused because a client that undoes it was faster,
// or 0.
func (r *rotator) lost(ctx context.Context, write contest.Write, found client.Object, err error) time.Duration {
	if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
		return 0
	}
	if write.Gone {
		return 0 // there is no version that others have changed
	}
	return r.Contests.LostTo(write, found.GetResourceVersion(), found, func(message string) { r.tell(ctx, write, found, message) })
}
