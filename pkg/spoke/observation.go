package spoke

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/spoke/kubeconfig"
)

// MaxMessage and maxVersion limit what a spoke's answers may add to a status, in bytes.
const (
	MaxMessage = 512
	maxVersion = 60
)

// uid is the form of an identity, which is shown as part of a command.
var uid = regexp.MustCompile(`^[0-9A-Za-z-]{1,60}$`)

// Observation is the last observed state of a spoke.
type Observation struct {
	// Connected and Served are the conditions Connected and PrometheusRuleServed, without their type.
	Connected, Served Finding
	// Writes says what prevents writes to the spoke. It is zero if nothing is known to.
	Writes Finding
	// Workloads is the condition WorkloadsReadable. It is zero if all workloads that templates select can be read.
	Workloads Finding
	// Version and Identity are empty until they were read.
	Version, Identity string
	// IdentityTime is when the spoke became another cluster or was confirmed. It is zero if neither has happened
	// since the operator started.
	IdentityTime time.Time
	// Counts are the numbers of objects in the spoke.
	Counts Counts
	// Evaluators are its Prometheus and ThanosRuler objects.
	Evaluators Evaluators
	// Credential is what the credential says about itself.
	Credential kubeconfig.Credential
	// Contact is when the spoke last answered.
	Contact time.Time
}

// equal reports whether two observations are the same, except for Contact.
func (o Observation) equal(other Observation) bool {
	return o.Connected == other.Connected && o.Served == other.Served && o.Writes == other.Writes && o.Workloads == other.Workloads &&
		o.Version == other.Version && o.Identity == other.Identity && o.Counts == other.Counts && o.Credential == other.Credential && o.Evaluators.equal(other.Evaluators)
}

// Into writes an observation into a status.
func (o *Observation) Into(s *v1alpha1.SpokeClusterStatus) {
	if o.Version != "" {
		s.KubernetesVersion = o.Version
	}
	if o.Identity != "" {
		s.Identity = o.Identity
	}
	if since := metav1.NewTime(o.IdentityTime).Rfc3339Copy(); s.IdentityTime.Before(&since) {
		s.IdentityTime = since
	}
	o.Counts.into(s)
}

// lastGood begins the message of Connected while a new kubeconfig is not in use.
const lastGood = "the last good kubeconfig stays in use, but only until the manager restarts or another replica becomes the leader; correct the new one: "

// Finding is the part of a condition that an observation determines.
type Finding struct {
	Status  metav1.ConditionStatus
	Reason  string
	Message string
}

// Unused returns the condition Connected of a spoke whose new kubeconfig is not in use because of a fault.
func Unused(fault string) Finding {
	return Finding{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonKubeconfigNotUsed, Message: Clip(lastGood+fault, MaxMessage)}
}

// duplicateError says that a spoke is the same cluster as another spoke: both have the same UID of namespace
// kube-system.
type duplicateError struct {
	// Other is the spoke that was registered first.
	Other string
}

// Error implements error.
func (e *duplicateError) Error() string {
	return "this is the same cluster as spoke " + e.Other + ", which stays in use. Decide which of the two names to give up, and delete the Secret of that name." +
		" Wait until the other spoke is Ready. Change placements of AlertRules and RulePacks, and spec.placement of templates:" +
		" replace the name that you gave up with the name that you keep. Rules that are placed only on the former name are removed from the cluster. Then delete the SpokeCluster of that name"
}

// IdentityError says that a spoke's kubeconfig leads to another cluster than before: the UID of namespace
// kube-system differs.
type IdentityError struct {
	// Spoke is the spoke. Was and Is are the identities of the two clusters.
	Spoke, Was, Is string
	// Other is a spoke that was cluster Is before and is now cluster OtherIs. It is empty if there is none, or
	// the change has not been confirmed yet.
	Other, OtherIs string
}

// Error implements error.
func (e *IdentityError) Error() string {
	if e.Other != "" {
		return fmt.Sprintf("the kubeconfig leads to the former cluster of spoke %s (kube-system UID was %s, is %s); nothing is written to it", e.Other, e.Was, e.Is)
	}
	return fmt.Sprintf("the kubeconfig leads to another cluster (kube-system UID was %s, is %s); nothing is written to either", e.Was, e.Is)
}

// advice says what to do. It ends with a command, which must not be cut off.
func (e *IdentityError) advice() string {
	spoke, is, how := e.Spoke, e.Is, "If the cluster was replaced, rules in the former one stay there and are no longer managed, and deletions are held for a while. To confirm the new cluster"
	if e.Other != "" {
		spoke, is = e.Other, e.OtherIs
		how = "If you swapped the kubeconfigs of both spokes on purpose, confirm spoke " + spoke + " as well"
	}
	return fmt.Sprintf("if this is a mistake, restore the former kubeconfig. %s: kubectl annotate --overwrite spoke %s %s=%s", how, spoke, v1alpha1.AcceptIdentityAnnotation, is)
}

func isIdentity(err error) bool {
	_, ok := errors.AsType[*IdentityError](err)
	return ok
}

// disconnected returns the condition Connected for an error: why the spoke can't be served, and what to do.
func disconnected(err error) Finding {
	f := Finding{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonUnreachable, Message: Clip(err.Error(), MaxMessage)}
	var refused *kubeconfig.RefusedError
	var duplicate *duplicateError
	var identity *IdentityError
	var lacking *grantError
	excess := tooLarge(err)
	switch {
	case excess != nil:
		f.Reason = v1alpha1.ReasonTooLarge
		f.Message = advise(excess.Error(), tooLargeAdvice(excess))
	case errors.As(err, &identity):
		f.Reason = v1alpha1.ReasonIdentityChanged
		f.Message = advise(err.Error(), identity.advice())
	case errors.As(err, &lacking):
		f.Reason = v1alpha1.ReasonForbidden
	case apierrors.IsTooManyRequests(err), errors.Is(err, errThrottled):
		return throttled
	case errors.As(err, &refused):
		f.Reason = v1alpha1.ReasonInvalidKubeconfig
		f.Message = Clip("the kubeconfig is refused: "+refused.Error(), MaxMessage)
	case errors.As(err, &duplicate):
		f.Reason = v1alpha1.ReasonDuplicateCluster
	case apierrors.IsUnauthorized(err):
		f.Reason = v1alpha1.ReasonAuthFailed
		f.Message = "the spoke rejects the credential (401); put a kubeconfig with a valid credential into the Secret"
	case apierrors.IsForbidden(err):
		f.Reason = v1alpha1.ReasonForbidden
		f.Message = advise("the spoke's RBAC denies a request: "+err.Error(), "grant the permission to Rulefleet's account in the spoke")
	case errors.Is(err, errNotKubernetes):
		f.Message = advise(err.Error(), "check which server the address in the kubeconfig leads to")
	case answered(err):
		f.Message = advise("the spoke's API server, or a proxy in front of it, returns an error: "+err.Error(), "look at the logs of both")
	case isSlow(err):
		f.Message = advise(err.Error(), "check the network link between the hub and the spoke")
	case errors.Is(err, context.DeadlineExceeded):
		f.Message = advise("no answer in time: "+err.Error(), reach)
	case isUntrusted(err):
		f.Message = advise(err.Error(), certificateAdvice(err))
	default:
		f.Message = advise(err.Error(), reach)
	}
	return f
}

// isSlow reports whether an answer began, and then came too slowly.
func isSlow(err error) bool {
	_, stuck := errors.AsType[*stuckError](err)
	_, stalled := errors.AsType[*stalledError](err)
	slow, ok := errors.AsType[*slowError](err)
	return stuck || stalled || (ok && slow.begun)
}

func isUntrusted(err error) bool {
	_, ok := errors.AsType[*tls.CertificateVerificationError](err)
	return ok
}

// certificateAdvice says what to do about a certificate of the API server that is not valid.
func certificateAdvice(err error) string {
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, new(x509.UnknownAuthorityError)):
		return "check that the address leads to the spoke; then put the spoke's CA (ConfigMap kube-root-ca.crt there) into certificate-authority-data in the kubeconfig"
	case errors.As(err, new(x509.HostnameError)):
		return "set the server address or tls-server-name in the kubeconfig to a name that the certificate contains"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "renew the certificate of the spoke's API server, and check the clocks of hub and spoke"
	}
	return "check the certificate of the spoke's API server, and certificate-authority-data in the kubeconfig"
}

// reach is the advice about a spoke that does not answer.
const reach = "check that the spoke's API server runs, and that the hub can reach the address in the kubeconfig"

// throttled is the condition of a spoke that throttles. It has no times, which would change with every
// request.
var throttled = Finding{
	Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonThrottled,
	Message: "the spoke answers 429 (Too Many Requests); until its Retry-After has passed (at most 5 minutes), only health checks are sent. If this continues, " +
		"find out what overloads the spoke's API server, or give Rulefleet's account its own FlowSchema there",
}

// advise clips the text of a spoke, and appends what to do.
func advise(what, todo string) string {
	return Clip(what, MaxMessage-len(todo)-len("…; ")) + "; " + todo
}

// served returns the condition PrometheusRuleServed.
func served(err error) Finding {
	switch {
	case err == nil:
		return Finding{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonServed, Message: "PrometheusRules can be read"}
	case apierrors.IsNotFound(err):
		return Finding{
			Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonCRDMissing,
			Message: "the spoke does not serve prometheusrules.monitoring.coreos.com; install the CRDs of prometheus-operator there",
		}
	default:
		return disconnected(fmt.Errorf("reading PrometheusRules: %w", err))
	}
}

// answered reports whether an error is an answer of an API server, rather than a missing answer.
func answered(err error) bool {
	var status apierrors.APIStatus
	var lacking *grantError
	return errors.As(err, &status) || errors.As(err, &lacking) || errors.Is(err, errNotKubernetes)
}

// errNotKubernetes is the error for an answer that no API server would give.
var errNotKubernetes = errors.New("the answer is not from a Kubernetes API server")

// Clip limits an untrusted text to a number of bytes and an ellipsis, and replaces characters that a terminal
// would interpret.
func Clip(s string, limit int) string {
	s = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
	if len(s) <= limit {
		return s
	}
	for end := limit; ; end-- {
		if utf8.RuneStart(s[end]) {
			return s[:end] + "…"
		}
	}
}

// MaxNote is the API's limit for the note of an Event, in bytes, minus the ellipsis.
const MaxNote = 1024 - len("…")
