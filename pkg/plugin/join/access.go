// Package join registers spokes on the hub, and lets them leave.
package join

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/charts"
	"github.com/rulefleet/rulefleet/pkg/manifest"
	"github.com/rulefleet/rulefleet/pkg/plugin/cluster"
)

const (
	// fieldManager is that of everything that a join applies, except for the kubeconfig.
	fieldManager = "rulefleet-register"
	// account is the name of the ServiceAccount in the spoke.
	account = "rulefleet-spoke"
	// Kinds that are not only applied.
	kindNamespace, kindClusterRole, kindRole, kindPolicy = "Namespace", "ClusterRole", "Role", "ValidatingAdmissionPolicy"
	// evaluateComponent marks the objects that --no-evaluate leaves out, and renewComponent those of --no-renew.
	componentLabel, evaluateComponent, renewComponent = "app.kubernetes.io/component", "evaluate", "renew"
	// boundSecret is the Secret in the spoke that tokens are bound to. The policy of the spoke names it, too.
	boundSecret = "rulefleet-spoke-tokens"
)

// accessObjects returns the objects of the account in a spoke: those to apply, and those to remove, which are those of
// some components.
func accessObjects(without ...string) (apply, remove []*unstructured.Unstructured, err error) {
	objects, err := manifest.Objects(charts.SpokeAccess)
	if err != nil {
		return nil, nil, fmt.Errorf("reading spoke-access.yaml: %w", err)
	}
	for _, o := range objects {
		if slices.Contains(without, o.GetLabels()[componentLabel]) {
			remove = append(remove, o)
		} else {
			apply = append(apply, o)
		}
	}
	return apply, remove, nil
}

// policyObjects returns the policy that limits the account.
func policyObjects() ([]*unstructured.Unstructured, error) {
	objects, err := manifest.Objects(charts.SpokePolicy)
	if err != nil {
		return nil, fmt.Errorf("reading spoke-policy.yaml: %w", err)
	}
	return objects, nil
}

// endpoint is the address of a spoke's API server.
type endpoint struct {
	server, serverName string
	authority          []byte
}

// kubeconfig returns what the hub connects with: only what the manager accepts.
func (e endpoint) kubeconfig(token string) ([]byte, error) {
	config := api.NewConfig()
	config.Clusters["spoke"] = &api.Cluster{Server: e.server, TLSServerName: e.serverName, CertificateAuthorityData: e.authority}
	config.AuthInfos[account] = &api.AuthInfo{Token: token}
	config.Contexts["spoke"] = &api.Context{Cluster: "spoke", AuthInfo: account}
	config.CurrentContext = "spoke"
	out, err := clientcmd.Write(*config)
	if err != nil {
		return nil, fmt.Errorf("writing the kubeconfig for the hub: %w", err)
	}
	return out, nil
}

// secret returns the Secret that registers a spoke, without the kubeconfig.
func secret(namespace, name string, labels map[string]string, renew bool) *corev1.Secret {
	s := opaque(namespace, name)
	s.Labels = map[string]string{}
	maps.Copy(s.Labels, labels)
	s.Labels[v1alpha1.RegistrationLabel] = "true"
	if renew {
		s.Annotations = map[string]string{v1alpha1.RenewTokenAnnotation: "true"}
	}
	return s
}

// kubeconfigOf returns the Secret that registers a spoke with nothing but the kubeconfig.
func kubeconfigOf(namespace, name string, kubeconfig []byte) *corev1.Secret {
	s := opaque(namespace, name)
	s.Type = ""
	s.Data = map[string][]byte{v1alpha1.KubeconfigKey: kubeconfig}
	return s
}

func opaque(namespace, name string) *corev1.Secret {
	s := &corev1.Secret{}
	s.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	s.Namespace, s.Name, s.Type = namespace, name, corev1.SecretTypeOpaque
	return s
}

// boundTo returns the Secret that tokens are bound to. It has no content: when it is deleted, the tokens are revoked.
func boundTo() *corev1.Secret { return opaque(cluster.DefaultNamespace, boundSecret) }

// staticToken returns the Secret for a token that does not expire.
func staticToken() *corev1.Secret {
	s := &corev1.Secret{}
	s.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	s.Namespace, s.Name, s.Type = cluster.DefaultNamespace, account, corev1.SecretTypeServiceAccountToken
	s.Annotations = map[string]string{corev1.ServiceAccountNameKey: account}
	return s
}
