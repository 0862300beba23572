package membership

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/spoke"
	"github.com/rulefleet/rulefleet/pkg/spoke/kubeconfig"
	"github.com/rulefleet/rulefleet/pkg/spoke/renewal"
)

// clockCheck bounds the time until a credential is looked at again. A timer does not notice that the clock is set.
const clockCheck = time.Hour

// validity is what the credential of a spoke says about itself at some time.
type validity struct {
	kubeconfig.Credential

	*renewing

	name string // of the spoke
	now  time.Time
	was  v1alpha1.SpokeClusterStatus
}

// Renewals reports how the manager renews tokens.
type Renewals interface {
	// Renewal returns what is known about the renewals of a spoke.
	Renewal(name string) renewal.State
}

// renewing is how the manager renews the token of a spoke.
type renewing struct {
	renewal.State

	// owner is a field manager that has written the kubeconfig, so that the manager does not change it, or "".
	owner string
}

// renewing returns how the manager renews the token of a registration, or nil if it does not.
func (r *Reconciler) renewing(secret *corev1.Secret) *renewing {
	if r.Renewals == nil || !renewal.Asked(secret) {
		return nil
	}
	return &renewing{State: r.Renewals.Renewal(secret.Name), owner: renewal.OtherOwner(secret)}
}

// time returns the present time.
func (r *Reconciler) time() time.Time {
	if r.now != nil {
		return r.now()
	}
	return time.Now()
}

// validity returns the validity of the credential that is used for a spoke, or nil if there is none.
func (n news) validity(sc *v1alpha1.SpokeCluster, now time.Time) *validity {
	if n.seen == nil || n.seen.Credential.Kind == "" {
		return nil
	}
	return &validity{Credential: n.seen.Credential, renewing: n.renewing, name: sc.Name, now: now, was: sc.Status}
}

// wait returns how long the validity stays the same, at most clockCheck. Zero means forever.
func (v *validity) wait() time.Duration {
	if v == nil {
		return 0
	}
	for _, next := range []time.Time{v.Renewal(), v.Expires} {
		if v.now.Before(next) {
			return min(next.Sub(v.now), clockCheck)
		}
	}
	return 0
}

func (v *validity) expired() bool { return !v.Expires.IsZero() && !v.now.Before(v.Expires) }

// explain adds to a refusal of the credential that it has expired.
func (v *validity) explain(connected spoke.Finding) spoke.Finding {
	if v == nil || connected.Reason != v1alpha1.ReasonAuthFailed || !v.expired() {
		return connected
	}
	connected.Message = fmt.Sprintf("the spoke rejects the credential (401): the %s expired at %s; %s", v.Kind, v.Expires.Format(time.RFC3339), v.renew())
	return connected
}

// renew says how to renew the credential.
func (v *validity) renew() string {
	return fmt.Sprintf("run 'kubectl rulefleet join %s --spoke-context CONTEXT' again with the same options, or put a kubeconfig with a new credential into the Secret of the spoke", v.name)
}

// finding returns the condition CredentialValid.
func (v *validity) finding(connected spoke.Finding) spoke.Finding {
	expires := v.Expires.Format(time.RFC3339)
	third := v.Renewal()
	switch {
	case v.expired():
		return spoke.Finding{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonExpired, Message: fmt.Sprintf("the %s expired at %s; %s%s", v.Kind, expires, v.renew(), v.failed())}
	case connected.Reason == v1alpha1.ReasonAuthFailed:
		return spoke.Finding{
			Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonAuthFailed,
			Message: fmt.Sprintf("the spoke rejects the %s, although it has not expired: it was revoked, its account was deleted, or it belongs to another cluster; %s", v.Kind, v.renew()),
		}
	case v.Endless:
		return spoke.Finding{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonCredentialValid, Message: fmt.Sprintf("the %s does not expire", v.Kind)}
	case v.Expires.IsZero():
		return spoke.Finding{Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonExpirationUnknown, Message: fmt.Sprintf("the %s does not say when it expires", v.Kind)}
	case v.renewing != nil:
		return v.automatic(third, expires)
	case !third.IsZero() && !v.now.Before(third):
		return spoke.Finding{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonExpiring, Message: fmt.Sprintf("the %s expires at %s; before that, %s", v.Kind, expires, v.renew())}
	}
	return spoke.Finding{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonCredentialValid, Message: fmt.Sprintf("the %s expires at %s", v.Kind, expires)}
}

// failed says why the manager could not renew the credential, if it has tried.
func (v *validity) failed() string {
	if v.renewing == nil || v.Failure == "" {
		return ""
	}
	return "; the manager could not renew it: " + v.Failure
}

// automatic is finding for a valid token that the manager is to renew.
func (v *validity) automatic(third time.Time, expires string) spoke.Finding {
	out := spoke.Finding{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonExpiring}
	switch again := third.Format(time.RFC3339); {
	case v.owner != "":
		out.Reason, out.Message = v1alpha1.ReasonUnmanaged, v.unmanaged(expires)
	case v.Failure != "":
		out.Message = fmt.Sprintf("the %s expires at %s%s", v.Kind, expires, v.failed())
	case third.IsZero():
		out.Message = fmt.Sprintf("the %s expires at %s; the manager does not renew it, because it does not say when it was issued; before it expires, %s", v.Kind, expires, v.renew())
	case !v.now.Before(third):
		out.Message = fmt.Sprintf("the %s expires at %s; the manager renews it when the spoke is connected", v.Kind, expires)
	case v.renewed():
		out.Reason, out.Message = v1alpha1.ReasonRenewed, fmt.Sprintf("the manager has renewed the %s, which expires at %s; it renews it again before %s", v.Kind, expires, again)
	default:
		out.Reason, out.Message = v1alpha1.ReasonCredentialValid, fmt.Sprintf("the %s expires at %s; the manager renews it before %s", v.Kind, expires, again)
	}
	out.Message = spoke.Clip(out.Message, spoke.MaxMessage)
	return out
}

// renewed reports whether the manager has renewed the credential: this process has, or the present status says so of it.
func (v *validity) renewed() bool {
	if v.Renewed.Equal(v.Expires) {
		return true
	}
	was, shown := meta.FindStatusCondition(v.was.Conditions, v1alpha1.ConditionCredentialValid), v.was.Credential
	return was != nil && was.Reason == v1alpha1.ReasonRenewed && shown != nil && shown.ExpirationTime.Time.Equal(v.Expires)
}

// unmanaged says why the manager does not renew the credential, and what to do.
func (v *validity) unmanaged(expires string) string {
	return fmt.Sprintf("the %s expires at %s, and the manager does not renew it, because field manager %q has written the kubeconfig in the Secret of the spoke; renew it with that client"+
		" or, if Rulefleet is to renew it, stop that client from writing the Secret and run 'kubectl rulefleet join %s --spoke-context CONTEXT --force-conflicts' with the same options",
		v.Kind, expires, spoke.Clip(v.owner, maxOwner), v.name)
}

// maxOwner bounds the name of a field manager in a message.
const maxOwner = 128

// into writes the validity into a status.
func (v *validity) into(s *v1alpha1.SpokeClusterStatus, generation int64, connected spoke.Finding) {
	s.Credential = nil
	if v == nil {
		meta.RemoveStatusCondition(&s.Conditions, v1alpha1.ConditionCredentialValid)
		return
	}
	if !v.Expires.IsZero() {
		s.Credential = &v1alpha1.SpokeCredential{ExpirationTime: metav1.NewTime(v.Expires)}
		if third := v.Renewal(); !third.IsZero() {
			s.Credential.RenewalTime = metav1.NewTime(third)
		}
	}
	setCondition(s, generation, v1alpha1.ConditionCredentialValid, v.finding(connected), metav1.NewTime(v.now))
}

// announceCredential emits Events when a credential begins to expire, when it has expired, and when it is renewed.
func (r *Reconciler) announceCredential(sc *v1alpha1.SpokeCluster, secret *corev1.Secret, conditions []metav1.Condition) {
	was, is := meta.FindStatusCondition(sc.Status.Conditions, v1alpha1.ConditionCredentialValid), meta.FindStatusCondition(conditions, v1alpha1.ConditionCredentialValid)
	switch {
	case !transition(was, is), is.Reason == v1alpha1.ReasonAuthFailed: // the Event about Connected covers it
	case is.Reason == v1alpha1.ReasonExpiring, is.Reason == v1alpha1.ReasonExpired, is.Reason == v1alpha1.ReasonUnmanaged:
		r.event(sc, secret, metav1.ConditionFalse, is.Reason, is.Message)
		r.eventOnSecret(sc, secret, metav1.ConditionFalse, is.Reason, is.Message)
	case is.Reason == v1alpha1.ReasonRenewed, was != nil && (was.Reason == v1alpha1.ReasonExpiring || was.Reason == v1alpha1.ReasonExpired):
		r.event(sc, secret, metav1.ConditionTrue, "CredentialRenewed", is.Message)
	}
}
