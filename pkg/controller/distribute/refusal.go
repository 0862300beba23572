package distribute

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/contest"
	"github.com/rulefleet/rulefleet/pkg/rule/delivery"
	"github.com/rulefleet/rulefleet/pkg/spoke"
	"github.com/rulefleet/rulefleet/pkg/spoke/queue"
)

// hiddenTries is how many consecutive times a spoke may refuse to create an object that it does not list
// before that is reported.
const hiddenTries = 5

// hidden counts how often a spoke refused to create an object because it exists, while the spoke's list lacks
// it. A cache that is behind recovers soon; otherwise the list is wrong. The zero value is ready to use.
type hidden struct {
	mu    sync.Mutex
	tries map[mcreconcile.Request]int
}

// again counts one more time, and reports whether the limit is reached.
func (h *hidden) again(req mcreconcile.Request) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.tries == nil {
		h.tries = map[mcreconcile.Request]int{}
	}
	h.tries[req]++
	return h.tries[req] >= hiddenTries
}

// forget resets the count.
func (h *hidden) forget(req mcreconcile.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.tries, req)
}

// outOfQuota reports whether a ResourceQuota refused the request. It has no reason of its own.
func outOfQuota(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota: ")
}

// failedWebhook matches the name of an admission webhook that could not be called.
var failedWebhook = regexp.MustCompile(`failed calling webhook "([^"]{1,253})"`)

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
func (r *Reconciler) reportBehind(ctx context.Context, hung *task) {
	for _, req := range queue.WaitingBehind(ctx) {
		t := &task{req: req, spoke: hung.spoke}
		known, err := r.want(ctx, t, r.Hub)
		if err != nil || !known || t.desired == nil || r.find(ctx, t) != nil || r.unseen(t) > 0 {
			continue
		}
		if action := r.plan(t).Action; action == delivery.Create || action == delivery.Update {
			r.report(ctx, t, v1alpha1.PhasePending, v1alpha1.ReasonError, fmt.Sprintf(
				"waiting for another rule: writes to namespace %q of the spoke time out; most likely an admission webhook in the spoke hangs. %s", t.desired.Namespace, fixWebhook))
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
