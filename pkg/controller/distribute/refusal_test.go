package distribute

import (
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/live"
)

// A spoke reports that the rule exists, but its list lacks it.
func TestHidden(t *testing.T) {
	w := newWorld(t)
	w.put(w.hub, alertRule())
	exists := apierrors.NewAlreadyExists(resource, "x")
	// A cache that is behind for a while: nothing is reported.
	w.refuse["create"] = exists
	for range hiddenTries - 1 {
		if got := w.want("create shop"); got.RequeueAfter != staleRetry {
			t.Errorf("got %+v", got)
		}
		w.wantRow("")
	}
	clear(w.refuse)
	w.want("create shop")
	w.wantRow("Applied")
	w.sync()
	w.want() // it is to be seen
	w.drop(w.server, w.object())
	w.sync()

	w.refuse["create"] = exists
	for n := range 2 * hiddenTries {
		got := w.want("create shop")
		if told := n >= hiddenTries-1; !told {
			w.wantRow("")
			if got.RequeueAfter != staleRetry {
				t.Errorf("got %+v", got)
			}
			continue
		}
		if row := w.wantRow("Pending/Error"); !strings.Contains(row.Message, "does not list it") || got.RequeueAfter != worldRetry {
			t.Errorf("got %+v, and %q", got, row.Message)
		}
	}
	w.drop(w.hub, alertRule())
	w.want()
	if len(w.notes.of) > 0 {
		t.Errorf("remembered of a rule that is gone: %v", w.notes.of)
	}
}

// Explanations of a spoke's refusals.
func TestExplain(t *testing.T) {
	for name, tc := range map[string]struct {
		err    error
		reason string
		words  []string
	}{
		"a quota": {
			err:    apierrors.NewForbidden(resource, "web", errors.New("exceeded quota: rules, requested: count/prometheusrules.monitoring.coreos.com=1, used: 5, limited: 5")),
			reason: v1alpha1.ReasonQuotaExceeded, words: []string{"ResourceQuota", "raise its count/prometheusrules.monitoring.coreos.com:", "exceeded quota: rules"},
		},
		"a webhook that can't be asked": {
			err:    apierrors.NewInternalError(errors.New(`failed calling webhook "check.example.com": failed to call webhook: context deadline exceeded`)),
			reason: v1alpha1.ReasonError, words: []string{"admission webhook check.example.com", "exclude the user system:serviceaccount:rulefleet-system:rulefleet-spoke from it", "deadline exceeded"},
		},
		"another error": {err: apierrors.NewInternalError(errors.New("etcd")), reason: v1alpha1.ReasonError, words: []string{"etcd"}},
		"the kind": {
			err:    apierrors.NewForbidden(resource, "web", errors.New(live.KindTerminating)),
			reason: v1alpha1.ReasonCRDMissing, words: []string{"the spoke does not serve PrometheusRules; install the CRDs", "is terminating"},
		},
		"the account": {err: apierrors.NewForbidden(resource, "web", errors.New("RBAC")), reason: v1alpha1.ReasonForbidden, words: []string{"grant the permission", "RBAC"}},
		"no kind":     {err: generic(404, "404 page not found"), reason: v1alpha1.ReasonCRDMissing, words: []string{"install the CRDs", "requested resource"}},
		"a proxy":     {err: generic(404, "<html>404</html>"), reason: v1alpha1.ReasonError, words: []string{"check the server in the kubeconfig", "proxies"}},
		"not valid":   {err: apierrors.NewBadRequest("unknown field"), reason: v1alpha1.ReasonRejected, words: []string{"rejects the rule", "unknown field"}},
		"a webhook's denial": {
			err:    answer(403, "Forbidden", `admission webhook "x" denied the request: exceeded quota: of patience`, nil),
			reason: v1alpha1.ReasonRejected, words: []string{"change the rule", "denied the request"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			reason, _ := refusal(tc.err)
			got := explain(reason, tc.err)
			if reason != tc.reason {
				t.Errorf("the reason is %s", reason)
			}
			for _, want := range tc.words {
				if !strings.Contains(got, want) {
					t.Errorf("%q is not in %q", want, got)
				}
			}
		})
	}
}
