// Package renewal decides when the manager renews the token of a spoke, and whether it may. It has no clock and no
// state: everything that it needs is in the Secret of the spoke, so that a manager that takes over decides alike.
package renewal

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/spoke/kubeconfig"
)

const (
	// renewAt is the part of the life of a token after which it is renewed at the latest.
	renewAt = 2.0 / 3
	// spread is the part of that time by which renewals of different spokes differ, so that those of spokes that were
	// registered together do not come at once.
	spread = 0.05
	// minLife is the shortest life of a token that an API server grants.
	minLife = 10 * time.Minute
)

// Plan says what to do about the token of a spoke.
type Plan struct {
	// Due is when to renew the token. It is zero if the token is not to be renewed.
	Due time.Time
	// Expires is the end of the token, and Life is what the spoke had granted.
	Expires time.Time
	Life    time.Duration
	// Bound is the account, and what its tokens are bound to.
	Bound kubeconfig.Binding
	// Flaw says why the token cannot be renewed, or is "".
	Flaw string
}

// Asked reports whether a registration asks the manager to renew the token.
func Asked(secret *corev1.Secret) bool {
	return secret != nil && secret.DeletionTimestamp.IsZero() && secret.Labels[v1alpha1.RegistrationLabel] == "true" &&
		secret.Annotations[v1alpha1.RenewTokenAnnotation] == "true"
}

// Decide returns when to renew the token in a Secret. scale is the factor for the age at which tokens are renewed; it is 1
// outside of tests.
func Decide(secret *corev1.Secret, scale float64) Plan {
	if !Asked(secret) || OtherOwner(secret) != "" {
		return Plan{}
	}
	credential, bound := kubeconfig.TokenOf(secret.Data[v1alpha1.KubeconfigKey])
	if credential == nil || credential.Renewal().IsZero() {
		return Plan{} // there is nothing to renew, or it is unknown when
	}
	life := credential.Expires.Sub(credential.Issued)
	out := Plan{Due: due(secret.Name, credential, scale), Expires: credential.Expires, Life: life, Bound: *bound}
	if bound.Secret == "" || bound.UID == "" {
		out.Flaw = "the token is not bound to a Secret in the spoke, so nobody could revoke a renewed one by deleting the Secret"
	}
	for _, name := range []string{bound.Namespace, bound.Account, bound.Secret} {
		if name != "" && len(validation.IsDNS1123Subdomain(name)) > 0 {
			out.Flaw = "the token contains the name of a namespace, ServiceAccount or Secret that is not valid in Kubernetes"
		}
	}
	return out
}

// due returns when the token of a spoke is renewed: when a third of its life is left, or somewhat earlier.
func due(name string, c *kubeconfig.Credential, scale float64) time.Time {
	life := float64(c.Expires.Unix() - c.Issued.Unix())
	after := life * renewAt * (1 - spread*share(name, 0)) * min(scale, 1)
	return time.Unix(c.Issued.Unix()+int64(after), 0).UTC()
}

// share returns a number in [0, 1) that depends only on a name and a count.
func share(name string, n int) float64 {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%s %d", name, n)
	return float64(mix(h.Sum64())>>11) / (1 << 53)
}

// mix spreads the difference of similar names over all bits (splitmix64).
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

const (
	firstDelay = 10 * time.Second
	maxDelay   = time.Hour
)

// Delay returns how long to wait after the failures-th consecutive failure. The shorter the life of the token, the shorter
// is the longest wait.
func Delay(name string, failures int, life time.Duration) time.Duration {
	longest := min(max(life/30, firstDelay), maxDelay)
	delay := float64(firstDelay) * math.Pow(2, float64(min(max(failures, 1), 20)-1))
	return time.Duration(min(delay, float64(longest)) * (1 - share(name, failures)/2))
}

// Seconds returns the life to request: what the spoke has granted before.
func (p Plan) Seconds() int64 { return int64(max(p.Life, minLife) / time.Second) }

// Renewed returns the kubeconfig with the new token, after it has checked what the spoke has granted. The errors do not
// quote the token.
func (p Plan) Renewed(secret *corev1.Secret, token string, now time.Time, scale float64) ([]byte, error) {
	after, err := kubeconfig.WithToken(secret.Data[v1alpha1.KubeconfigKey], token)
	if err != nil {
		return nil, errors.New("the spoke has not granted a valid token")
	}
	credential, bound := kubeconfig.TokenOf(after)
	switch {
	case credential == nil:
		return nil, errors.New("the spoke has not granted a token of a ServiceAccount")
	case *bound != p.Bound:
		return nil, errors.New("the spoke has granted a token of another ServiceAccount, or one that is not bound to the same Secret")
	case credential.Renewal().IsZero() || credential.Expires.Sub(credential.Issued) < minLife:
		return nil, fmt.Errorf("the spoke has granted a token that does not say for how long it is valid, or is valid for less than %s, the shortest time that Kubernetes grants", minLife)
	case !credential.Expires.After(p.Expires):
		return nil, fmt.Errorf("the spoke has granted a token that does not expire later than the present one (%s)", p.Expires.Format(time.RFC3339))
	case !due(secret.Name, credential, scale).After(now):
		return nil, fmt.Errorf("the token that the spoke has granted would have to be renewed at once; compare the clocks of the hub (%s) and the spoke", now.UTC().Format(time.RFC3339))
	}
	return after, nil
}

// unknownOwner is the owner of a kubeconfig that nobody claims.
const unknownOwner = "unknown"

// OtherOwner returns a field manager other than Rulefleet's that has written the kubeconfig of a Secret, or "".
func OtherOwner(secret *corev1.Secret) string {
	owner := unknownOwner
	for i := range secret.ManagedFields {
		e := &secret.ManagedFields[i]
		switch {
		case !ownsKubeconfig(e):
		case e.Manager != v1alpha1.CredentialManager || e.Operation != metav1.ManagedFieldsOperationApply:
			return e.Manager
		default:
			owner = ""
		}
	}
	return owner
}

func ownsKubeconfig(e *metav1.ManagedFieldsEntry) bool {
	if e.Subresource != "" || e.FieldsV1 == nil {
		return false
	}
	var fields struct {
		Data map[string]json.RawMessage `json:"f:data"`
	}
	if json.Unmarshal(e.FieldsV1.GetRawBytes(), &fields) != nil {
		return true // it cannot be excluded
	}
	_, owns := fields.Data["f:"+v1alpha1.KubeconfigKey]
	return owns
}

// Trim removes the managedFields of a Secret that are not needed, to save memory in a cache.
func Trim(in any) (any, error) {
	if secret, ok := in.(*corev1.Secret); ok {
		secret.ManagedFields = slices.DeleteFunc(secret.ManagedFields, func(e metav1.ManagedFieldsEntry) bool {
			return !Asked(secret) || !ownsKubeconfig(&e)
		})
	}
	return in, nil
}

// State is what a manager remembers about the renewals of a spoke.
type State struct {
	// Failure says why the last attempt failed, and what to do, or is "".
	Failure string
	// Renewed is the end of the token that this manager has last requested.
	Renewed time.Time
}
