package distribute

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/contest"
	"github.com/rulefleet/rulefleet/pkg/live"
	"github.com/rulefleet/rulefleet/pkg/rule/delivery"
	"github.com/rulefleet/rulefleet/pkg/spoke"
	"github.com/rulefleet/rulefleet/pkg/spoke/queue"
)

// maxMessage bounds the text of a spoke's answer in a status, in bytes.
const maxMessage = 512

// refusal classifies the error of a create or an update. The reason is "" if the cache was behind. A retry of
// 0 means the queue's backoff.
func refusal(err error) (reason string, retry time.Duration) {
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
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota: "): // it has no reason of its own
		return v1alpha1.ReasonQuotaExceeded, worldRetry
	case live.Terminating(err):
		return v1alpha1.ReasonCRDMissing, worldRetry
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
	switch body, unexpected := live.Unexpected(s); {
	case unexpected && body != live.NotServed:
		return v1alpha1.ReasonError, 0
	case unexpected, s.Details == nil:
		return v1alpha1.ReasonCRDMissing, worldRetry
	case s.Details.Kind == "namespaces":
		return v1alpha1.ReasonNamespaceMissing, worldRetry
	}
	return "", staleRetry // it was deleted, and the cache was behind
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

// failedWebhook matches the name of an admission webhook that could not be called.
var failedWebhook = regexp.MustCompile(`failed calling webhook "([^"]{1,253})"`)

// explainRemoval is explain for a deletion.
func explainRemoval(reason string, err error) string {
	switch {
	case reason == v1alpha1.ReasonForbidden:
		return words(fmt.Errorf("the spoke's RBAC denies the deletion; grant delete on prometheusrules to Rulefleet's account in the spoke: %w", err))
	case reason == v1alpha1.ReasonRejected && denied(err.Error()):
		return words(fmt.Errorf("an admission webhook or policy of the spoke denies the deletion; let the user "+contest.SpokeUser+" delete the object: %w", err))
	case reason == v1alpha1.ReasonRejected:
		return words(fmt.Errorf("the spoke's API server rejects the deletion: %w", err))
	}
	return explain(reason, err)
}

// explain returns the message for a spoke's refusal, with advice where its own text lacks it.
func explain(reason string, err error) string {
	switch webhook := failedWebhook.FindStringSubmatch(err.Error()); {
	case hangs(err):
		return words(fmt.Errorf("the write timed out; most likely an admission webhook in the spoke hangs for longer than %s. %s: %w", writeTimeout, fixWebhook, err))
	case reason == v1alpha1.ReasonQuotaExceeded:
		return words(fmt.Errorf("a ResourceQuota in the namespace has no room for the rule; raise its count/prometheusrules.monitoring.coreos.com: %w", err))
	case reason == v1alpha1.ReasonError && webhook != nil:
		return words(fmt.Errorf("the spoke's admission webhook %s can't be called; repair it, or exclude the user "+contest.SpokeUser+" from it: %w", webhook[1], err))
	case reason == v1alpha1.ReasonError && apierrors.IsNotFound(err):
		return words(fmt.Errorf("the write was answered with 404, but not by a Kubernetes API server; check the server in the kubeconfig, and the proxies and load balancers in front of the spoke: %w", err))
	case reason == v1alpha1.ReasonForbidden:
		return words(fmt.Errorf("the spoke's RBAC denies the write; grant the permission to Rulefleet's account in the spoke: %w", err))
	case reason == v1alpha1.ReasonCRDMissing:
		return words(fmt.Errorf("the spoke does not serve PrometheusRules; install the CRDs of prometheus-operator there: %w", err))
	case reason == v1alpha1.ReasonRejected && denied(err.Error()):
		return words(fmt.Errorf("an admission webhook or policy of the spoke denies the rule; change the rule, or the webhook or policy: %w", err))
	case reason == v1alpha1.ReasonRejected:
		return words(fmt.Errorf("the spoke's API server rejects the rule; compare the version of the PrometheusRule CRD there with the fields that the rule uses: %w", err))
	}
	return words(err)
}

// fixWebhook is the advice about an admission webhook that hangs.
const fixWebhook = "Fix the webhook for PrometheusRules in this namespace. If you do not know which one hangs, set timeoutSeconds to 10 in webhooks that match PrometheusRules and have 15 or more. The next error of the API server then names the webhook"

// hangs reports whether the spoke did not answer a write but answers other requests.
func hangs(err error) bool {
	_, ok := errors.AsType[*spoke.HangError](err)
	return ok
}

// reportBehind reports, for the rules that wait behind a write that hangs, what they wait for. Rules without a
// write to make are not concerned.
func (r *Reconciler) reportBehind(ctx context.Context, hung *observation) {
	for _, req := range queue.WaitingBehind(ctx) {
		o := &observation{req: req, spoke: hung.spoke}
		known, err := r.intend(ctx, o, r.Hub)
		r.report(ctx, o, o.unrendered)
		if err != nil || !known || o.desired == nil || r.find(ctx, o) != nil || r.unseen(o) > 0 {
			continue
		}
		if action := decide(o, r.Render.HubID).Action; action == delivery.Create || action == delivery.Update {
			r.report(ctx, o, pending(v1alpha1.ReasonError, fmt.Sprintf(
				"waiting for another rule: writes to namespace %q of the spoke time out; most likely an admission webhook in the spoke hangs. %s", o.desired.Namespace, fixWebhook)))
		}
	}
}

// writeTime bounds a write of an object: the transfer of the object and of the answer at leastRate comes on
// top of writeTimeout.
func writeTime(o *monitoringv1.PrometheusRule) time.Duration {
	text, err := json.Marshal(o)
	if err != nil {
		return writeTimeout // it will not be sent
	}
	return writeTimeout + spoke.Transfer(2*len(text))
}

// absent reports whether an answer says that an object does not exist. Another 404 comes from something other than
// the API of PrometheusRules, such as a proxy.
func absent(err error) bool {
	if !apierrors.IsNotFound(err) {
		return false
	}
	reason, _ := refusal(err)
	return reason == ""
}
