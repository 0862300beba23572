package spoke

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rulefleet/rulefleet/pkg/spoke/kubeconfig"
)

// RequestToken requests a token of an account in the spoke, bound to a Secret there, so that the token is revoked when the
// Secret is deleted.
func (s *Spoke) RequestToken(ctx context.Context, of kubeconfig.Binding, seconds int64) (string, error) {
	ctx, cancel := s.Patient(ctx)
	defer cancel()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: &seconds,
		BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: corev1.SchemeGroupVersion.String(), Kind: "Secret", Name: of.Secret, UID: types.UID(of.UID)},
	}}
	granted, err := s.accounts.ServiceAccounts(of.Namespace).CreateToken(ctx, of.Account, request, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("requesting a token of ServiceAccount %s/%s: %w", of.Namespace, of.Account, err)
	}
	return granted.Status.Token, nil
}
