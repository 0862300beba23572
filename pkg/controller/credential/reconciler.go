package credential

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/interval"
	"github.com/rulefleet/rulefleet/pkg/metrics"
	"github.com/rulefleet/rulefleet/pkg/spoke"
	"github.com/rulefleet/rulefleet/pkg/spoke/kubeconfig"
	"github.com/rulefleet/rulefleet/pkg/spoke/queue"
	"github.com/rulefleet/rulefleet/pkg/spoke/renewal"
)

const (
	// clockCheck bounds the time until a token is looked at again. A timer does not notice that the clock is set.
	clockCheck = time.Hour
	// awayCheck is when a spoke that is not connected is looked at again.
	awayCheck = 15 * time.Second
	// writeTimeout bounds the write of a Secret.
	writeTimeout = 10 * time.Second
	// maxCause bounds the cause of a failure in a message, so that there is room for what to do.
	maxCause = 400
	// behindCheck is when a Secret is looked at again whose event has not arrived after a write.
	behindCheck = time.Minute
)

// Requester requests tokens in a spoke.
type Requester interface {
	RequestToken(ctx context.Context, of kubeconfig.Binding, seconds int64) (string, error)
}

// Options are the options of a Reconciler.
type Options struct {
	// Hub reads the hub's cache, and writes to the hub.
	Hub client.Client
	// Namespace is that of the Secrets.
	Namespace string
	// Spoke returns a spoke that is engaged and answers, or nil.
	Spoke func(name string) Requester
	// Changed is called when the state of a spoke has changed.
	Changed func(name string)
	// Intervals scales the delays before a retry.
	Intervals interval.Scale
	// Scale is the factor for the age at which tokens are renewed. It is 1 outside of tests.
	Scale float64
	// Now is the clock.
	Now func() time.Time
	// Log is the logger.
	Log logr.Logger
}

// Reconciler renews tokens. What it remembers only delays attempts and explains them.
type Reconciler struct {
	Options

	mu       sync.Mutex
	attempts map[string]*attempts
}

// attempts are the attempts to renew one token.
type attempts struct {
	renewal.State

	// token identifies the token.
	token token
	// written means that the Secret has another token, whose event may be under way.
	written bool
	failed  int
	next    time.Time
}

// token identifies the token in a Secret without its text.
type token struct {
	secret  types.UID
	expires time.Time
}

// NewReconciler returns a Reconciler.
func NewReconciler(o Options) *Reconciler {
	return &Reconciler{Options: o, attempts: map[string]*attempts{}}
}

// SetupWithManager adds the Reconciler to the hub's manager.
func (r *Reconciler) SetupWithManager(mgr manager.Manager) error {
	err := ctrl.NewControllerManagedBy(mgr).
		Named("credential").
		Watches(&corev1.Secret{}, &handler.EnqueueRequestForObject{}).
		WithOptions(queue.ControllerOptions[reconcile.Request](4)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up the controller for tokens of spokes: %w", err)
	}
	return nil
}

// Reconcile renews the token in a Secret if it is time to.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	secret := &corev1.Secret{}
	if err := client.IgnoreNotFound(r.Hub.Get(ctx, req.NamespacedName, secret)); err != nil {
		return reconcile.Result{}, fmt.Errorf("reading Secret %s: %w", req, err)
	}
	plan := renewal.Decide(secret, r.Scale)
	if plan.Due.IsZero() || req.Namespace != r.Namespace {
		r.forget(req.Name)
		return reconcile.Result{}, nil
	}
	now := r.Now()
	if wait := r.wait(secret, plan, now); wait > 0 {
		return reconcile.Result{RequeueAfter: min(wait, clockCheck)}, nil
	}
	if !now.Before(plan.Expires) {
		return reconcile.Result{}, nil // only a person can mend that, and the event of the Secret follows
	}
	from := r.Spoke(req.Name)
	if from == nil {
		return reconcile.Result{RequeueAfter: r.Intervals.Of(awayCheck)}, nil
	}
	renewed, err := r.renew(ctx, secret, plan, from)
	return reconcile.Result{RequeueAfter: r.report(secret, plan, renewed, err)}, nil
}

// renew requests a token, and writes it into the Secret. It returns the end of the token.
func (r *Reconciler) renew(ctx context.Context, secret *corev1.Secret, plan renewal.Plan, from Requester) (time.Time, error) {
	if plan.Flaw != "" {
		return time.Time{}, &failure{todo: joinAgain(secret.Name), err: errors.New(plan.Flaw)}
	}
	token, err := from.RequestToken(ctx, plan.Bound, plan.Seconds())
	if err != nil {
		return time.Time{}, &failure{todo: remedy(secret.Name, plan, err), err: err}
	}
	after, err := plan.Renewed(secret, token, r.Now(), r.Scale)
	if err != nil {
		return time.Time{}, &failure{todo: joinAgain(secret.Name), err: err}
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	// The resource version makes sure that a kubeconfig that was written meanwhile is not replaced. Without force, it is
	// not taken from another field manager either.
	next := applycorev1.Secret(secret.Name, secret.Namespace).WithUID(secret.UID).WithResourceVersion(secret.ResourceVersion).
		WithData(map[string][]byte{v1alpha1.KubeconfigKey: after})
	if err := r.Hub.Apply(ctx, next, client.FieldOwner(v1alpha1.CredentialManager)); err != nil {
		return time.Time{}, &failure{secrets: []string{token}, todo: ofWrite(err), err: fmt.Errorf("writing Secret %s/%s on the hub: %w", secret.Namespace, secret.Name, err)}
	}
	credential, _ := kubeconfig.TokenOf(after)
	return credential.Expires, nil
}

// failure is why a token was not renewed, and what to do.
type failure struct {
	err     error
	todo    string
	secrets []string // are not shown
}

// Error implements error.
func (f *failure) Error() string {
	text := f.err.Error()
	for _, s := range f.secrets {
		text = strings.ReplaceAll(text, s, "[redacted]")
	}
	return spoke.Clip(text, maxCause) + "; " + f.todo
}

func joinAgain(name string) string {
	return fmt.Sprintf("run 'kubectl rulefleet join %s --spoke-context CONTEXT' again with the same options", name)
}

// remedy says what to do after a token was refused.
func remedy(name string, plan renewal.Plan, err error) string {
	switch {
	case apierrors.IsForbidden(err):
		return "the account in the spoke lacks the permission to create serviceaccounts/token, or a policy there denies it: " + joinAgain(name)
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return fmt.Sprintf("ServiceAccount %s/%s or the Secret %s that its tokens are bound to was deleted in the spoke: %s", plan.Bound.Namespace, plan.Bound.Account, plan.Bound.Secret, joinAgain(name))
	}
	return "Rulefleet tries again"
}

// ofWrite says what to do after the Secret on the hub could not be written.
func ofWrite(err error) string {
	if apierrors.IsForbidden(err) {
		return "check the chart value renewTokens and other policies on the hub"
	}
	return "Rulefleet tries again"
}

// wait returns how long to wait until the next attempt.
func (r *Reconciler) wait(secret *corev1.Secret, plan renewal.Plan, now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	wait := plan.Due.Sub(now)
	a := r.attempts[secret.Name]
	switch {
	case a == nil:
	case a.token != (token{secret.UID, plan.Expires}): // the former attempts are history
		delete(r.attempts, secret.Name)
		if a.Renewed.Equal(plan.Expires) {
			r.attempts[secret.Name] = &attempts{token: token{secret.UID, plan.Expires}, State: renewal.State{Renewed: a.Renewed}}
		}
	case a.written:
		return behindCheck
	default:
		wait = max(wait, a.next.Sub(now))
	}
	return wait
}

// report remembers how an attempt ended, and returns when to look again.
func (r *Reconciler) report(secret *corev1.Secret, plan renewal.Plan, renewed time.Time, err error) time.Duration {
	name, result := secret.Name, metrics.TokenRenewed
	r.mu.Lock()
	a := r.attempts[name]
	if a == nil {
		a = &attempts{token: token{secret.UID, plan.Expires}}
		r.attempts[name] = a
	}
	wait := behindCheck
	if err == nil {
		*a = attempts{token: a.token, written: true, State: renewal.State{Renewed: renewed}}
		r.Log.Info("renewed the token of a spoke", "cluster", name, "expires", renewed)
	} else {
		result = metrics.TokenNotRenewed
		a.failed++
		a.Failure = spoke.Clip(err.Error(), spoke.MaxMessage)
		wait = r.Intervals.Of(renewal.Delay(name, a.failed, plan.Life))
		a.next = r.Now().Add(wait)
		r.Log.Info("could not renew the token of a spoke", "cluster", name, "problem", a.Failure, "next attempt", a.next)
	}
	r.mu.Unlock()
	metrics.TokenRenewals.WithLabelValues(result).Inc()
	r.Changed(name)
	return wait
}

// forget drops what is known of a spoke.
func (r *Reconciler) forget(name string) {
	r.mu.Lock()
	_, known := r.attempts[name]
	delete(r.attempts, name)
	r.mu.Unlock()
	if known {
		r.Changed(name)
	}
}

// Renewal returns what is known about the renewals of a spoke.
func (r *Reconciler) Renewal(name string) renewal.State {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a := r.attempts[name]; a != nil {
		return a.State
	}
	return renewal.State{}
}
