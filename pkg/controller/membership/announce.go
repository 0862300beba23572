package membership

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/spoke"
)

// announce emits Events for the transitions of a spoke: on its SpokeCluster and, where the kubeconfig is
// concerned, on its Secret.
func (r *Reconciler) announce(sc *v1alpha1.SpokeCluster, secret *corev1.Secret, conditions []metav1.Condition) {
	find := func(kind string) (was, is *metav1.Condition) {
		return meta.FindStatusCondition(sc.Status.Conditions, kind), meta.FindStatusCondition(conditions, kind)
	}
	was, connected := find(v1alpha1.ConditionConnected)
	if transition(was, connected) && !corrected(was, connected) {
		r.event(sc, secret, severity(connected), connected.Reason, connected.Message)
		r.eventOnSecret(sc, secret, severity(connected), connected.Reason, connected.Message)
	}
	for _, kind := range []string{
		v1alpha1.ConditionPrometheusRuleServed, v1alpha1.ConditionReady,
		v1alpha1.ConditionEvaluatorsFound, v1alpha1.ConditionEvaluating, v1alpha1.ConditionMetricsPresent,
	} {
		was, is := find(kind)
		if !transition(was, is) || (connected != nil && is.Reason == connected.Reason) {
			continue
		}
		if kind == v1alpha1.ConditionPrometheusRuleServed && was != nil && was.Status == metav1.ConditionUnknown && is.Status == metav1.ConditionTrue {
			continue // the Event about Connected covers it
		}
		if served := meta.FindStatusCondition(conditions, v1alpha1.ConditionPrometheusRuleServed); kind == v1alpha1.ConditionReady && served != nil && served.Reason == is.Reason {
			continue
		}
		r.event(sc, secret, severity(is), is.Reason, is.Message)
	}
	r.announceCredential(sc, secret, conditions)
}

// corrected reports whether a kubeconfig was corrected while the last good one was in use, which is no news.
func corrected(was, is *metav1.Condition) bool {
	return was != nil && was.Reason == v1alpha1.ReasonKubeconfigNotUsed && was.Status == is.Status
}

// severity is the condition status that decides whether an Event is a warning. Ready with any reason other
// than Ready needs attention, so it is a warning. A spoke without a Prometheus object may be intended, so it
// is not.
func severity(c *metav1.Condition) metav1.ConditionStatus {
	switch {
	case c.Type == v1alpha1.ConditionReady && c.Status == metav1.ConditionTrue && c.Reason != v1alpha1.ReasonReady,
		c.Reason == v1alpha1.ReasonKubeconfigNotUsed:
		return metav1.ConditionFalse
	case c.Reason == v1alpha1.ReasonNoEvaluator:
		return metav1.ConditionTrue
	}
	return c.Status
}

// transition reports whether a condition has changed. Unknown is not announced.
func transition(was, is *metav1.Condition) bool {
	switch {
	case is == nil || is.Status == metav1.ConditionUnknown:
		return false
	case was == nil:
		return true
	}
	return was.Status != is.Status || was.Reason != is.Reason
}

func (r *Reconciler) event(sc *v1alpha1.SpokeCluster, secret *corev1.Secret, status metav1.ConditionStatus, reason, note string) {
	var related runtime.Object
	if secret != nil {
		related = secret
	}
	r.Recorder.Eventf(sc, related, eventType(status), reason, "Register", "%s", spoke.Clip(note, spoke.MaxNote))
}

func (r *Reconciler) eventOnSecret(sc *v1alpha1.SpokeCluster, secret *corev1.Secret, status metav1.ConditionStatus, reason, note string) {
	if secret != nil {
		r.Recorder.Eventf(secret, sc, eventType(status), reason, "Register", "%s", spoke.Clip(note, spoke.MaxNote))
	}
}

func eventType(status metav1.ConditionStatus) string {
	if status == metav1.ConditionTrue {
		return corev1.EventTypeNormal
	}
	return corev1.EventTypeWarning
}
