// Package join registers spokes on the hub, and lets them leave.
package join

import (
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/charts"
	"github.com/rulefleet/rulefleet/pkg/manifest"
	"github.com/rulefleet/rulefleet/pkg/plugin/cluster"
)

const (
	// fieldManager is also that of kind/register, so that either can renew what the other has registered.
	fieldManager = "rulefleet-register"
	// account is the name of the ServiceAccount in the spoke.
	account = "rulefleet-spoke"
	// Kinds that are not only applied.
	kindNamespace, kindClusterRole, kindPolicy = "Namespace", "ClusterRole", "ValidatingAdmissionPolicy"
	// evaluateComponent marks the objects that --no-evaluate leaves out.
	componentLabel, evaluateComponent = "app.kubernetes.io/component", "evaluate"
)

// accessObjects returns the objects of the account in a spoke: those to apply, and those to remove.
func accessObjects(evaluate bool) (apply, remove []*unstructured.Unstructured, err error) {
	objects, err := manifest.Objects(charts.SpokeAccess)
	if err != nil {
		return nil, nil, fmt.Errorf("reading spoke-access.yaml: %w", err)
	}
	for _, o := range objects {
		if !evaluate && o.GetLabels()[componentLabel] == evaluateComponent {
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

// grants returns the rights that the ClusterRoles among some objects grant.
func grants(objects []*unstructured.Unstructured) ([]cluster.Right, error) {
	var out []cluster.Right
	for _, o := range objects {
		if o.GetKind() != kindClusterRole {
			continue
		}
		var role rbacv1.ClusterRole
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &role); err != nil {
			return nil, fmt.Errorf("reading ClusterRole %s: %w", o.GetName(), err)
		}
		out = append(out, cluster.RightsOf(role.Rules)...)
	}
	return out, nil
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

// secret returns the Secret that registers a spoke.
func secret(namespace, name string, labels map[string]string, kubeconfig []byte) *corev1.Secret {
	s := &corev1.Secret{}
	s.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	s.Namespace, s.Name, s.Type = namespace, name, corev1.SecretTypeOpaque
	s.Labels = map[string]string{}
	maps.Copy(s.Labels, labels)
	s.Labels[v1alpha1.RegistrationLabel] = "true"
	s.Data = map[string][]byte{v1alpha1.KubeconfigKey: kubeconfig}
	return s
}

// staticToken returns the Secret for a token that does not expire.
func staticToken() *corev1.Secret {
	s := &corev1.Secret{}
	s.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	s.Namespace, s.Name, s.Type = cluster.DefaultNamespace, account, corev1.SecretTypeServiceAccountToken
	s.Annotations = map[string]string{corev1.ServiceAccountNameKey: account}
	return s
}
