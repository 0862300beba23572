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
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/spoke"
)

// hiddenTries is the number of times in a row that a spoke may say of an object that it
// exists, and not list it, before that is told.
const hiddenTries = 5

// hidden counts how often a spoke refused to make an object because it exists, while its
// list lacks it. A cache is behind for a moment; more than that is a list that lies. The
// zero value is ready to use.
type hidden struct {
	mu    sync.Mutex
	tries map[mcreconcile.Request]int
}

// again tells whether it happened too often by now.
func (h *hidden) again(req mcreconcile.Request) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.tries == nil {
		h.tries = map[mcreconcile.Request]int{}
	}
	h.tries[req]++
	return h.tries[req] >= hiddenTries
}

// forget begins anew: the object is there to be seen, or is not wanted any more.
func (h *hidden) forget(req mcreconcile.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.tries, req)
}

// outOfQuota tells whether a refusal is that of a ResourceQuota, which has no reason of
// its own.
func outOfQuota(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota: ")
}

// failedWebhook finds the name of an admission webhook that could not be asked.
var failedWebhook = regexp.MustCompile(`failed calling webhook "([^"]{1,253})"`)

// explain says what a spoke's refusal means, with what to do where its own words don't say.
func explain(reason string, err error) string {
	switch webhook := failedWebhook.FindStringSubmatch(err.Error()); {
	case hangs(err):
		return words(fmt.Errorf("the write timed out; most likely an admission webhook in the spoke hangs for longer than %s. Fix the webhook for PrometheusRules in this namespace, or set its timeoutSeconds to 10 so that the spoke names it: %w", writeTimeout, err))
	case reason == v1alpha1.ReasonQuotaExceeded:
		return words(fmt.Errorf("a ResourceQuota in the spoke is exceeded; raise it, or delete objects: %w", err))
	case reason == v1alpha1.ReasonError && webhook != nil:
		return words(fmt.Errorf("the spoke's admission webhook %s can't be called; fix it, or set its failurePolicy to Ignore: %w", webhook[1], err))
	}
	return words(err)
}

// hangs tells whether the spoke did not answer a write, though it answers other requests.
func hangs(err error) bool {
	_, ok := errors.AsType[*spoke.HangError](err)
	return ok
}

// reportBehind says of the rules that wait behind a write that hangs what they wait for. A rule of which
// there is nothing to write is not concerned.
func (r *Reconciler) reportBehind(ctx context.Context, hung *task) {
	for _, req := range spoke.WaitingBehind(ctx) {
		t := &task{req: req, spoke: hung.spoke}
		known, err := r.want(ctx, t, r.Hub)
		if err != nil || !known || t.desired == nil || r.find(ctx, t) != nil || r.unseen(t) > 0 {
			continue
		}
		if action := r.plan(t).Action; action == rule.Create || action == rule.Update {
			r.report(ctx, t, v1alpha1.PhasePending, v1alpha1.ReasonError, fmt.Sprintf(
				"waiting: writes to namespace %q of the spoke time out; most likely an admission webhook in the spoke hangs. Fix it", t.desired.Namespace))
		}
	}
}

// writeTime bounds a write of an object to a spoke: it is sent, and comes back in the answer, at no less
// than the rate at which a link is alive.
func writeTime(o *monitoringv1.PrometheusRule) time.Duration {
	text, err := json.Marshal(o)
	if err != nil {
		return writeTimeout // it will not be sent
	}
	return writeTimeout + spoke.Transfer(2*len(text))
}
