package certs

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/contest"
	"github.com/rulefleet/rulefleet/pkg/interval"
)

// contended is the delay before a retry after another client changed the object in the meantime.
const contended = 200 * time.Millisecond

// rotator writes the Secret and the configuration's caBundle. It works only in the leader, except for
// the first ones (Prepare). If there are two leaders for a moment, the API server refuses the slower
// one.
type rotator struct {
	// Client reads directly from the API server, and writes.
	Client client.Client
	// Namespace is the namespace of the Secret.
	Namespace string
	// Config is the name of the ValidatingWebhookConfiguration.
	Config string
	// Webhooks are the names of our webhooks in the configuration.
	Webhooks []string
	// Hosts are the DNS names and addresses of the webhook.
	Hosts []string
	// Lifetimes are those of the certificates.
	Lifetimes Lifetimes
	// Clock tells the time.
	Clock clock.PassiveClock
	// Contests paces writes that another client undoes.
	Contests *contest.Writes
	// Recorder records Events about them.
	Recorder events.EventRecorder

	trust   trust
	looked  bool
	missing bool
	// wrote is the resourceVersion of the Secret after the last write.
	wrote string
}

// Prepare creates the Secret if it does not exist, in any replica, before one is the leader. If the
// leader serves no webhook, it does not create it: when an upgrade enables the webhook, a new replica
// is ready only with a certificate, and the leader stops only when the new replica is ready.
//
// It also makes API servers trust the Secret's bundle if they trust none, as after an installation,
// because the Lease of a former manager may have to expire before a replica becomes the leader. A
// failure of this is logged, and left to the leader.
func Prepare(ctx context.Context, c client.Client, o Options) error {
	r := &rotator{
		Client: c, Namespace: o.Namespace, Config: o.Config, Webhooks: o.Webhooks, Hosts: o.Hosts, Lifetimes: o.Lifetimes,
		Clock: clock.RealClock{}, looked: true,
	}
	secret, err := r.secret(ctx)
	if err != nil {
		return err
	}
	if secret == nil {
		if secret, err = r.first(ctx); err != nil || secret == nil {
			return err
		}
	}
	if err := r.introduce(ctx, secret.Data[bundleKey]); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "could not set the caBundle of the webhook; the leader will set it", "configuration", o.Config)
	}
	return nil
}

// first creates the Secret. It returns nil if another replica was faster.
func (r *rotator) first(ctx context.Context) (*corev1.Secret, error) {
	d, err := decide(input{Now: r.Clock.Now(), Lifetimes: r.Lifetimes, Hosts: r.Hosts})
	if err != nil {
		return nil, err
	}
	secret, err := r.write(ctx, nil, d)
	if apierrors.IsAlreadyExists(err) {
		return nil, nil
	}
	return secret, err
}

// introduce sets the bundle of those of our webhooks that have none yet.
func (r *rotator) introduce(ctx context.Context, bundle []byte) error {
	config, err := r.config(ctx)
	if err != nil || config == nil || len(bundle) == 0 {
		return err
	}
	next, changed := r.trusting(config, bundle, func(now []byte) bool { return len(now) == 0 })
	if !changed {
		return nil
	}
	return r.patch(ctx, config, next)
}

// Reconcile updates the Secret, and then the configuration.
func (r *rotator) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	secret, err := r.secret(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	config, err := r.config(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	now := r.Clock.Now()
	r.trust.observe(config, r.Webhooks, now)
	in := input{Now: now, Lifetimes: r.Lifetimes, Hosts: r.Hosts, Trusted: r.trust.since, Absent: r.trust.absent}
	if secret != nil {
		in.Data = secret.Data
	}
	d, err := decide(in)
	if err != nil {
		return reconcile.Result{}, err
	}
	// The Secret is written first: a bundle is useless without the key.
	wait, err := r.keep(ctx, secret, d)
	stored := wait == 0 || secret != nil && bytes.Equal(d.Bundle, secret.Data[bundleKey])
	if err == nil && stored && config != nil {
		var left time.Duration
		left, err = r.inject(ctx, config, d.Bundle)
		wait = interval.Soonest(wait, left)
	}
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return reconcile.Result{RequeueAfter: max(wait, contended)}, nil
	}
	again := max(d.Again.Sub(now), time.Millisecond)
	return reconcile.Result{RequeueAfter: interval.Soonest(again, wait)}, err
}

func (r *rotator) secret(ctx context.Context) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: SecretName}, secret)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading Secret %s/%s: %w", r.Namespace, SecretName, err)
	}
	return secret, nil
}

// config returns nil if the configuration does not exist, because the webhook is optional.
func (r *rotator) config(ctx context.Context) (*admissionv1.ValidatingWebhookConfiguration, error) {
	config := &admissionv1.ValidatingWebhookConfiguration{}
	err := r.Client.Get(ctx, client.ObjectKey{Name: r.Config}, config)
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return nil, fmt.Errorf("reading ValidatingWebhookConfiguration %s: %w", r.Config, err)
	}
	if missing != r.missing || !r.looked {
		log := ctrl.LoggerFrom(ctx)
		if missing {
			log.Info("ValidatingWebhookConfiguration not found; the API server does not call the webhook", "configuration", r.Config)
		} else {
			log.Info("ValidatingWebhookConfiguration found; the API server calls the webhook", "configuration", r.Config)
		}
	}
	r.looked, r.missing = true, missing
	if missing {
		return nil, nil
	}
	return config, nil
}

// differs reports whether the Secret has to be changed.
func (d *decision) differs(secret *corev1.Secret) bool {
	return len(d.Why) > 0 || secret == nil || secret.Labels[v1alpha1.ManagedByLabel] != v1alpha1.ManagedByValue
}

// write writes the Secret, and returns the result.
func (r *rotator) write(ctx context.Context, secret *corev1.Secret, d *decision) (*corev1.Secret, error) {
	var err error
	next := r.next(secret, d)
	if secret == nil {
		err = r.Client.Create(ctx, next)
	} else {
		err = r.Client.Update(ctx, next) // by its resourceVersion
	}
	if err != nil {
		return nil, fmt.Errorf("writing Secret %s/%s: %w", r.Namespace, SecretName, err)
	}
	ctrl.LoggerFrom(ctx).Info("wrote the webhook's certificates", "why", strings.Join(d.Why, "; "), "nextCheck", d.Again)
	return next, nil
}

// next returns the next version of the Secret. Data of others in it is kept.
func (r *rotator) next(secret *corev1.Secret, d *decision) *corev1.Secret {
	next := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: SecretName},
		Type:       corev1.SecretTypeTLS,
	}
	if secret != nil {
		next = secret.DeepCopy()
	}
	if next.Labels == nil {
		next.Labels = map[string]string{}
	}
	next.Labels[v1alpha1.ManagedByLabel] = v1alpha1.ManagedByValue
	if next.Data == nil {
		next.Data = map[string][]byte{}
	}
	for _, key := range secretKeys {
		delete(next.Data, key)
	}
	maps.Copy(next.Data, d.Data)
	return next
}

// inject sets a bundle for our webhooks in the configuration, and writes nothing else. If another
// client reverts it, inject returns the time to wait.
func (r *rotator) inject(ctx context.Context, config *admissionv1.ValidatingWebhookConfiguration, bundle []byte) (time.Duration, error) {
	next, changed := r.trusting(config, bundle, func(now []byte) bool { return !bytes.Equal(now, bundle) })
	write := injection(config, bundle)
	if !changed {
		r.Contests.Stands(write.Object)
		return 0, nil
	}
	if wait := r.yield(ctx, write, config); wait > 0 {
		return wait, nil
	}
	if err := r.patch(ctx, config, next); err != nil {
		return r.lost(ctx, write, config, err), err
	}
	r.Contests.Wrote(write, next)
	r.trust.observe(next, r.Webhooks, r.Clock.Now())
	return 0, nil
}

// trusting returns the configuration with a bundle for those of our webhooks that are due, given their
// present bundles.
func (r *rotator) trusting(
	config *admissionv1.ValidatingWebhookConfiguration, bundle []byte, due func(now []byte) bool,
) (next *admissionv1.ValidatingWebhookConfiguration, changed bool) {
	next = config.DeepCopy()
	for i := range next.Webhooks {
		w := &next.Webhooks[i]
		if slices.Contains(r.Webhooks, w.Name) && due(w.ClientConfig.CABundle) {
			w.ClientConfig.CABundle, changed = bundle, true
		}
	}
	return next, changed
}

// patch writes bundles, unless the configuration was changed in the meantime.
func (r *rotator) patch(ctx context.Context, config, next *admissionv1.ValidatingWebhookConfiguration) error {
	if err := r.Client.Patch(ctx, next, client.StrategicMergeFrom(config, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("injecting the caBundle into ValidatingWebhookConfiguration %s: %w", r.Config, err)
	}
	ctrl.LoggerFrom(ctx).Info("injected the caBundle", "configuration", r.Config)
	return nil
}
