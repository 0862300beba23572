package spoke

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/spoke/kubeconfig"
)

func TestDisconnected(t *testing.T) {
	for name, tc := range map[string]struct {
		err              error
		reason, contains string
		answered         bool
	}{
		"a refused kubeconfig":   {err: fmt.Errorf("x: %w", &kubeconfig.RefusedError{Field: "user.exec", Message: "no"}), reason: v1alpha1.ReasonInvalidKubeconfig, contains: "user.exec"},
		"another's cluster":      {err: fmt.Errorf("x: %w", &duplicateError{Other: "first"}), reason: v1alpha1.ReasonDuplicateCluster, contains: "spoke first"},
		"too many objects":       {err: &TooLargeError{What: "the cache", Value: 2, Bound: 1, Unit: "bytes", Flag: memoryFlag}, reason: v1alpha1.ReasonTooLarge, contains: "the cache: 2 bytes; the limit is 1 (chart value spokeLimits.memory, --spoke-max-memory); the rules in the spoke stay unchanged; find out which objects"},
		"a long answer":          {err: &TooLargeError{What: "the answer", Value: 2000, Bound: 1000, Unit: "bytes"}, reason: v1alpha1.ReasonTooLarge, contains: "the answer: 2,000 bytes; the limit is 1,000; the rules in the spoke stay unchanged; check which server"},
		"a late event":           {err: &TooLargeError{What: "an event", late: true}, reason: v1alpha1.ReasonTooLarge, contains: "an event did not arrive completely: fewer than 1000 bytes of it arrived per second, for 20s; the rules in the spoke stay unchanged; check the network link"},
		"a list that is stuck":   {err: &stuckError{kind: "Deployment"}, reason: v1alpha1.ReasonUnreachable, contains: "the list of Deployments could not be renewed: a page was not complete within 15s; check the network link"},
		"the credential (401)":   {err: errUnauthorized, reason: v1alpha1.ReasonAuthFailed, contains: "401", answered: true},
		"the permissions (403)":  {err: errForbidden, reason: v1alpha1.ReasonForbidden, contains: "RBAC", answered: true},
		"another cluster":        {err: fmt.Errorf("x: %w", &IdentityError{Spoke: "eu-1", Was: "uid-1", Is: "uid-2"}), reason: v1alpha1.ReasonIdentityChanged, contains: "kubectl annotate --overwrite spoke eu-1 rulefleet.io/accept-identity=uid-2"},
		"another, long name":     {err: &IdentityError{Other: strings.Repeat("e", 63), Was: strings.Repeat("u", 36), Is: strings.Repeat("v", 36), OtherIs: "uid-2"}, reason: v1alpha1.ReasonIdentityChanged, contains: "spoke " + strings.Repeat("e", 63) + " rulefleet.io/accept-identity=uid-2"},
		"a list that stalls":     {err: fmt.Errorf("listing: %w", &stalledError{last: errors.New("EOF")}), reason: v1alpha1.ReasonUnreachable, contains: "no progress for 1m0s: EOF; check the network link"},
		"a list that is refused": {err: fmt.Errorf("listing: %w", &stalledError{last: apierrors.NewInternalError(errors.New("etcd"))}), reason: v1alpha1.ReasonUnreachable, contains: "etcd; look at the logs of both", answered: true},
		"what is not granted":    {err: fmt.Errorf("x: %w", (grants{missing: readsRules}).lack(readsRules)), reason: v1alpha1.ReasonForbidden, contains: "watch prometheusrules.monitoring.coreos.com", answered: true},
		"throttled":              {err: apierrors.NewTooManyRequests("slow down", 7), reason: v1alpha1.ReasonThrottled, contains: "FlowSchema", answered: true},
		"left alone":             {err: fmt.Errorf("x: %w", errThrottled), reason: v1alpha1.ReasonThrottled, contains: "FlowSchema"},
		"no Kubernetes":          {err: errNotKubernetes, reason: v1alpha1.ReasonUnreachable, contains: "leads to", answered: true},
		"silence":                {err: fmt.Errorf("listing: %w", context.DeadlineExceeded), reason: v1alpha1.ReasonUnreachable, contains: "no answer in time"},
		"an error of the server": {err: apierrors.NewInternalError(errors.New("etcd")), reason: v1alpha1.ReasonUnreachable, contains: "etcd; look at the logs of both", answered: true},
		"an unknown CA":          {err: untrusted(x509.UnknownAuthorityError{}), reason: v1alpha1.ReasonUnreachable, contains: "kube-root-ca.crt"},
		"another name":           {err: untrusted(x509.HostnameError{Certificate: &x509.Certificate{}}), reason: v1alpha1.ReasonUnreachable, contains: "tls-server-name"},
		"an old certificate":     {err: untrusted(x509.CertificateInvalidError{Cert: &x509.Certificate{}, Reason: x509.Expired}), reason: v1alpha1.ReasonUnreachable, contains: "renew the certificate"},
		"another certificate":    {err: untrusted(x509.CertificateInvalidError{Cert: &x509.Certificate{}, Reason: x509.IncompatibleUsage}), reason: v1alpha1.ReasonUnreachable, contains: "check the certificate"},
		"an error of the net":    {err: errors.New("dial tcp: refused"), reason: v1alpha1.ReasonUnreachable, contains: "refused; check that"},
		"a lie":                  {err: errors.New("\x1b[2J" + strings.Repeat("x", 1<<14)), reason: v1alpha1.ReasonUnreachable, contains: "xxx"},
		"a long lie (403)":       {err: apierrors.NewForbidden(resource, "", errors.New(strings.Repeat("\x1bx", 1<<14))), reason: v1alpha1.ReasonForbidden, contains: "x x", answered: true},
	} {
		t.Run(name, func(t *testing.T) {
			got := disconnected(tc.err)
			if got.Status != metav1.ConditionFalse || got.Reason != tc.reason || !strings.Contains(got.Message, tc.contains) {
				t.Errorf("got %+v", got)
			}
			if len(got.Message) > MaxMessage+len("…") || strings.Contains(got.Message, "\x1b") {
				t.Errorf("the message, of %d bytes, is not clean: %q", len(got.Message), got.Message)
			}
			if answered(tc.err) != tc.answered {
				t.Errorf("answered: %v, want %v", answered(tc.err), tc.answered)
			}
		})
	}
}

func TestServed(t *testing.T) {
	for name, tc := range map[string]struct {
		err    error
		status metav1.ConditionStatus
		reason string
	}{
		"served":                 {status: metav1.ConditionTrue, reason: v1alpha1.ReasonServed},
		"no CRD":                 {err: errNotFound, status: metav1.ConditionFalse, reason: v1alpha1.ReasonCRDMissing},
		"the permissions (403)":  {err: errForbidden, status: metav1.ConditionFalse, reason: v1alpha1.ReasonForbidden},
		"the credential (401)":   {err: errUnauthorized, status: metav1.ConditionFalse, reason: v1alpha1.ReasonAuthFailed},
		"an error of the server": {err: apierrors.NewInternalError(errors.New("etcd")), status: metav1.ConditionFalse, reason: v1alpha1.ReasonUnreachable},
		"silence":                {err: context.DeadlineExceeded, status: metav1.ConditionFalse, reason: v1alpha1.ReasonUnreachable},
	} {
		t.Run(name, func(t *testing.T) {
			if got := served(tc.err); got.Status != tc.status || got.Reason != tc.reason || got.Message == "" {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestObservationEqual(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Observation)
		equal  bool
	}{
		"the same":           {change: func(*Observation) {}, equal: true},
		"a later contact":    {change: func(o *Observation) { o.Contact = now.Time }, equal: true},
		"another count":      {change: func(o *Observation) { o.Counts.Deployments = 8 }},
		"no count":           {change: func(o *Observation) { o.Counts = Counts{} }},
		"another version":    {change: func(o *Observation) { o.Version = "v1.37.0" }},
		"another identity":   {change: func(o *Observation) { o.Identity = "other" }},
		"not connected":      {change: func(o *Observation) { o.Connected = unreachable }},
		"another message":    {change: func(o *Observation) { o.Connected.Message += "!" }},
		"no writing":         {change: func(o *Observation) { o.Writes = (grants{missing: writesRules}).writes() }},
		"no PrometheusRules": {change: func(o *Observation) { o.Served = served(errNotFound) }},
	} {
		t.Run(name, func(t *testing.T) {
			if got := good().equal(*with(good(), tc.change)); got != tc.equal {
				t.Errorf("equal: %v, want %v", got, tc.equal)
			}
		})
	}
}

func TestClip(t *testing.T) {
	for name, tc := range map[string]struct {
		in, want string
		limit    int
	}{
		"short":                        {in: "a b", limit: 10, want: "a b"},
		"empty":                        {limit: 10},
		"at the limit":                 {in: "abc", limit: 3, want: "abc"},
		"over the limit":               {in: "abcd", limit: 3, want: "abc…"},
		"within a character":           {in: "aéé", limit: 2, want: "a…"},
		"within a long character":      {in: "ab😀", limit: 5, want: "ab…"},
		"before a character":           {in: "aéé", limit: 3, want: "aé…"},
		"other languages":              {in: "не найдено 见つからない", limit: 100, want: "не найдено 见つからない"},
		"control characters":           {in: "a\x00b\nc\td\x1b[31me\x7ff\r", limit: 100, want: "a b c d [31me f "},
		"control characters of C1":     {in: "a\u009b31mb\u0085", limit: 100, want: "a 31mb "},
		"the direction of writing":     {in: "a\u202eb\u2066c", limit: 100, want: "a b c"},
		"not to be seen":               {in: "a\u200bb\ufeffc", limit: 100, want: "a b c"},
		"no UTF-8":                     {in: "a\xffb\xc3", limit: 100, want: "a b "},
		"no UTF-8, and over the limit": {in: "a\xff\xff\xff\xffb", limit: 3, want: "a  …"},
	} {
		t.Run(name, func(t *testing.T) {
			got := Clip(tc.in, tc.limit)
			if got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			if !utf8.ValidString(got) {
				t.Errorf("%q is not valid UTF-8", got)
			}
		})
	}
}

// Values that the API bounds in a SpokeCluster's status are bounded before they are sent, or a malicious spoke
// could keep its status from being written. The identity is also shown as part of a command.
func TestAnswersFitTheAPI(t *testing.T) {
	if n := len(Clip(strings.Repeat("é", 1000), maxVersion)); n > 64 {
		t.Errorf("the version has %d bytes", n)
	}
	if !uid.MatchString("7b3c3f5e-0d1c-4f4e-9d1e-5b8f0c1d2e3f") {
		t.Error("a UID is none")
	}
	for _, bad := range []string{"", strings.Repeat("a", 61), "a b", "a;b", "$(a)", "a\n", "é"} {
		if uid.MatchString(bad) {
			t.Errorf("%q is a UID", bad)
		}
	}
}

func untrusted(why error) error {
	return fmt.Errorf("x: %w", &tls.CertificateVerificationError{Err: why})
}
