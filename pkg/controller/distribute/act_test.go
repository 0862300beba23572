package distribute

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

var (
	resource = schema.GroupResource{Group: "monitoring.coreos.com", Resource: "prometheusrules"}
	kind     = schema.GroupKind{Group: "monitoring.coreos.com", Kind: "PrometheusRule"}
)

// answer returns an error exactly as an API server sends it.
func answer(code int32, reason metav1.StatusReason, message string, details *metav1.StatusDetails) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message, Details: details}}
}

// generic returns the error that client-go makes of an answer that does not come from an API's own handler.
func generic(code int, body string) error {
	return apierrors.NewGenericServerResponse(code, "POST", resource, "", body, 0, true)
}

func TestVerdict(t *testing.T) {
	const (
		rbac    = `prometheusrules.monitoring.coreos.com is forbidden: User "system:serviceaccount:rulefleet:spoke" cannot create resource "prometheusrules" in API group "monitoring.coreos.com" in the namespace "shop"`
		webhook = `admission webhook "prometheusrulevalidate.monitoring.coreos.com" denied the request: Rules are not valid`
		policy  = `prometheusrules.monitoring.coreos.com "web" is forbidden: ValidatingAdmissionPolicy 'team' with binding 'team' denied request: no label team`
		calling = `Internal error occurred: failed calling webhook "prometheusrulevalidate.monitoring.coreos.com": failed to call webhook: Post "https://x.monitoring.svc:443/validate?timeout=10s": no endpoints available for service "x"`
	)
	details := func(kind string) *metav1.StatusDetails {
		return &metav1.StatusDetails{Name: "web", Group: "monitoring.coreos.com", Kind: kind}
	}
	terminating := apierrors.NewForbidden(resource, "web", errors.New("unable to create new content in namespace shop because it is being terminated"))
	terminating.ErrStatus.Details.Causes = append(terminating.ErrStatus.Details.Causes, metav1.StatusCause{Type: corev1.NamespaceTerminatingCause})
	for name, tc := range map[string]struct {
		err    error
		reason string
		retry  time.Duration
	}{
		"the cache was behind (update)": {err: apierrors.NewConflict(resource, "web", errors.New("the object has been modified")), retry: staleRetry},
		"the cache was behind (create)": {err: apierrors.NewAlreadyExists(resource, "web"), retry: staleRetry},
		"the cache was behind (gone)":   {err: apierrors.NewNotFound(resource, "web"), retry: staleRetry},

		"no namespace": {
			err:    answer(404, metav1.StatusReasonNotFound, `namespaces "shop" not found`, &metav1.StatusDetails{Name: "shop", Kind: "namespaces"}),
			reason: v1alpha1.ReasonNamespaceMissing, retry: worldRetry,
		},
		"the namespace is being deleted": {err: terminating, reason: v1alpha1.ReasonNamespaceMissing, retry: worldRetry},
		"no CRD":                         {err: generic(404, "404 page not found"), reason: v1alpha1.ReasonCRDMissing, retry: worldRetry},
		"no CRD (another server)":        {err: answer(404, metav1.StatusReasonNotFound, "the server could not find the requested resource", nil), reason: v1alpha1.ReasonCRDMissing, retry: worldRetry},

		"a proxy (404)": {err: generic(404, "<html>404</html>"), reason: v1alpha1.ReasonError},

		"not valid": {
			err:    apierrors.NewInvalid(kind, "web", field.ErrorList{field.Required(field.NewPath("spec"), "")}),
			reason: v1alpha1.ReasonRejected, retry: refusalRetry,
		},
		"a bad request":              {err: apierrors.NewBadRequest("strict decoding error: unknown field"), reason: v1alpha1.ReasonRejected, retry: refusalRetry},
		"too large":                  {err: apierrors.NewRequestEntityTooLargeError("limit is 3145728"), reason: v1alpha1.ReasonRejected, retry: refusalRetry},
		"too large (a proxy's word)": {err: generic(413, "<html>413</html>"), reason: v1alpha1.ReasonRejected, retry: refusalRetry},

		"RBAC": {err: answer(403, metav1.StatusReasonForbidden, rbac, details("prometheusrules")), reason: v1alpha1.ReasonForbidden, retry: worldRetry},
		"a quota": {
			err:    apierrors.NewForbidden(resource, "web", errors.New("exceeded quota: q, requested: count/prometheusrules=1, used: 5, limited: 5")),
			reason: v1alpha1.ReasonQuotaExceeded, retry: worldRetry,
		},
		"a webhook (403)":                 {err: answer(403, metav1.StatusReasonForbidden, webhook, nil), reason: v1alpha1.ReasonRejected, retry: worldRetry},
		"a webhook (400), without reason": {err: answer(400, "", webhook, nil), reason: v1alpha1.ReasonRejected, retry: worldRetry},
		"a webhook (422)":                 {err: answer(422, metav1.StatusReasonInvalid, webhook, nil), reason: v1alpha1.ReasonRejected, retry: worldRetry},
		"a webhook (500)":                 {err: answer(500, "", webhook, nil), reason: v1alpha1.ReasonRejected, retry: worldRetry},
		"a webhook (409)":                 {err: answer(409, metav1.StatusReasonConflict, webhook, nil), reason: v1alpha1.ReasonRejected, retry: worldRetry},
		"a webhook without explanation":   {err: answer(400, "", `admission webhook "x" denied the request without explanation`, nil), reason: v1alpha1.ReasonRejected, retry: worldRetry},
		"a policy":                        {err: answer(422, metav1.StatusReasonInvalid, policy, details("prometheusrules")), reason: v1alpha1.ReasonRejected, retry: worldRetry},
		"a webhook that can't be called":  {err: apierrors.NewInternalError(errors.New(strings.TrimPrefix(calling, "Internal error occurred: "))), reason: v1alpha1.ReasonError},

		"the credential":       {err: apierrors.NewUnauthorized("Unauthorized"), reason: v1alpha1.ReasonError},
		"too many requests":    {err: apierrors.NewTooManyRequests("slow down", 1), reason: v1alpha1.ReasonError},
		"an internal error":    {err: apierrors.NewInternalError(errors.New("etcdserver: no leader")), reason: v1alpha1.ReasonError},
		"not allowed":          {err: apierrors.NewMethodNotSupported(resource, "create"), reason: v1alpha1.ReasonError},
		"an unknown reason":    {err: answer(418, "", "teapot", nil), reason: v1alpha1.ReasonError},
		"a time-out (504)":     {err: apierrors.NewTimeoutError("request did not complete", 1), reason: v1alpha1.ReasonUnreachable},
		"a time-out (500)":     {err: apierrors.NewServerTimeout(resource, "create", 1), reason: v1alpha1.ReasonUnreachable},
		"a proxy (502)":        {err: generic(502, "<html>502</html>"), reason: v1alpha1.ReasonUnreachable},
		"a proxy (503)":        {err: generic(503, "<html>503</html>"), reason: v1alpha1.ReasonUnreachable},
		"a proxy (504)":        {err: generic(504, "<html>504</html>"), reason: v1alpha1.ReasonUnreachable},
		"starting up (503)":    {err: apierrors.NewServiceUnavailable("apiserver not ready"), reason: v1alpha1.ReasonUnreachable},
		"silence":              {err: &url.Error{Op: http.MethodPost, URL: "https://spoke", Err: context.DeadlineExceeded}, reason: v1alpha1.ReasonUnreachable},
		"a connection refused": {err: &url.Error{Op: http.MethodPost, URL: "https://spoke", Err: syscall.ECONNREFUSED}, reason: v1alpha1.ReasonUnreachable},
		"a name in the error":  {err: errors.New("admission webhook namespaces"), reason: v1alpha1.ReasonUnreachable},
	} {
		t.Run(name, func(t *testing.T) {
			for _, err := range []error{tc.err, fmt.Errorf("create PrometheusRule namespaces/namespaces: %w", tc.err)} {
				if reason, retry := refusal(err); reason != tc.reason || retry != tc.retry {
					t.Errorf("%v is %q, %s, want %q, %s", err, reason, retry, tc.reason, tc.retry)
				}
			}
		})
	}
}

// A spoke's text is shown without control characters, and fits into a row.
func TestWords(t *testing.T) {
	for name, tc := range map[string]struct{ in, want string }{
		"plain":     {in: "no", want: "no"},
		"a control": {in: "a\x1b[2Jb\nc", want: "a [2Jb c"},
		"long":      {in: strings.Repeat("é", 1000), want: strings.Repeat("é", (maxMessage-3)/2) + "…"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := words(errors.New(tc.in)); got != tc.want || clip(got) != got {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestClip(t *testing.T) {
	for name, tc := range map[string]struct{ in, want string }{
		"empty":              {},
		"short":              {in: "a\nb", want: "a\nb"},
		"at the limit":       {in: strings.Repeat("a", maxMessage), want: strings.Repeat("a", maxMessage)},
		"over the limit":     {in: strings.Repeat("a", maxMessage+1), want: strings.Repeat("a", maxMessage) + "…"},
		"within a character": {in: "a" + strings.Repeat("é", maxMessage), want: "a" + strings.Repeat("é", (maxMessage-1)/2) + "…"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := clip(tc.in); got != tc.want || !utf8.ValidString(got) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestWaiting(t *testing.T) {
	ns := func(name string) namespaceKey { return namespaceKey{"s", name} }
	for name, tc := range map[string]struct {
		do   func(n *notes)
		take namespaceKey
		want []string
		left int
	}{
		"nobody":         {do: func(*notes) {}, take: ns("a")},
		"one":            {do: func(n *notes) { n.wait(ns("a"), request("s", "r")) }, take: ns("a"), want: []string{"r"}},
		"the same twice": {do: func(n *notes) { n.wait(ns("a"), request("s", "r")); n.wait(ns("a"), request("s", "r")) }, take: ns("a"), want: []string{"r"}},
		"two":            {do: func(n *notes) { n.wait(ns("a"), request("s", "r")); n.wait(ns("a"), request("s", "q")) }, take: ns("a"), want: []string{"q", "r"}},
		"for another":    {do: func(n *notes) { n.wait(ns("b"), request("s", "r")) }, take: ns("a"), left: 1},
		"in another spoke": {
			do: func(n *notes) {
				n.wait(namespaceKey{"t", "a"}, request("t", "r"))
			},
			take: ns("a"), left: 1,
		},
		"dropped":           {do: func(n *notes) { n.wait(ns("a"), request("s", "r")); n.unwait(ns("a"), request("s", "r")) }, take: ns("a")},
		"another dropped":   {do: func(n *notes) { n.wait(ns("a"), request("s", "r")); n.unwait(ns("a"), request("s", "q")) }, take: ns("a"), want: []string{"r"}},
		"dropped by nobody": {do: func(n *notes) { n.unwait(ns("a"), request("s", "r")) }, take: ns("a")},
		"taken, they don't wait any more": {
			do:   func(n *notes) { n.wait(ns("a"), request("s", "r")); n.take(ns("a")) },
			take: ns("a"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNotes()
			tc.do(&n)
			var got []string
			for _, req := range n.take(tc.take) {
				got = append(got, req.Name)
			}
			slices.Sort(got)
			if !slices.Equal(got, tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
			if len(n.waiting) != tc.left {
				t.Errorf("%d are left, want %d", len(n.waiting), tc.left)
			}
		})
	}
}
