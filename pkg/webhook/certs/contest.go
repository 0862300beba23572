package certs

import (
	"context"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
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

// yield returns for how long to wait with an injection, because somebody undoes it, and tells
// of that. Until the next one, the hub's API server can't reach the webhook.
func (r *Rotator) yield(ctx context.Context, config *admissionv1.ValidatingWebhookConfiguration, write contest.Write) time.Duration {
	turn := r.Contests.Ask(write)
	if turn.News {
		r.Contests.Blame(write.Object, config)
		message := r.Contests.Message(write.Object)
		ctrl.LoggerFrom(ctx).Info("the caBundle is contested", "configuration", r.Config, "why", message, "again", turn.Wait)
		r.Recorder.Eventf(config, nil, corev1.EventTypeWarning, v1alpha1.ReasonContested, "Inject", "%s", message)
	}
	return turn.Wait
}
