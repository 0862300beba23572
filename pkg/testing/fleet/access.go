package fleet

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/pkg/manifest"
	"github.com/rulefleet/rulefleet/pkg/testing/chart"
	"github.com/rulefleet/rulefleet/pkg/testing/controlplane"
)

const (
	// Release is the name of the chart's release.
	Release = "rulefleet"
	// HubUser is the manager's user on the hub: the chart's ServiceAccount.
	HubUser = "system:serviceaccount:" + Namespace + ":" + Release
	// SpokeUser is the manager's user in the spokes.
	SpokeUser = "rulefleet-spoke"
	// EvaluateGrant is the name of the ClusterRole and the binding that let the manager query the spokes'
	// Prometheus. It is optional: a test may delete the binding.
	EvaluateGrant = "rulefleet-spoke-evaluate"
)

// tokenLifetime exceeds the duration of any test.
const tokenLifetime = 24 * time.Hour

// hubObjects returns the objects of the chart that the manager needs on the hub: the
// CustomResourceDefinitions, its account, its permissions and the policies that limit them, without those that run
// or call the manager.
func hubObjects(root string) (crds, access []client.Object, err error) {
	c, err := chart.Load(root)
	if err != nil {
		return nil, nil, err
	}
	rendered, err := chart.Render(c, chart.Release{Name: Release, Namespace: Namespace})
	if err != nil {
		return nil, nil, err
	}
	access = append(access, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: Namespace}})
	for _, o := range rendered.Objects {
		if o.GetAnnotations()[chart.HookAnnotation] != "" {
			continue
		}
		switch o.GetKind() {
		case "CustomResourceDefinition":
			crds = append(crds, o)
		case "ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding",
			"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding":
			access = append(access, o)
		}
	}
	return crds, access, nil
}

// ServiceAccountKubeconfig returns a kubeconfig with a token of a ServiceAccount.
func (m *Member) ServiceAccountKubeconfig(ctx context.Context, key client.ObjectKey) ([]byte, error) {
	seconds := int64(tokenLifetime.Seconds())
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	if err := m.Client.SubResource("token").Create(ctx, account, request); err != nil {
		return nil, fmt.Errorf("asking %s for a token of ServiceAccount %s: %w", m.Name(), key, err)
	}
	cfg := m.RESTConfig()
	server := &api.Cluster{Server: cfg.Host, CertificateAuthorityData: cfg.CAData}
	return controlplane.EncodeKubeconfig(m.Name(), server, key.Name, &api.AuthInfo{Token: request.Status.Token})
}

// HubKubeconfig returns a kubeconfig of the manager's user on the hub.
func (f *Fleet) HubKubeconfig(ctx context.Context) ([]byte, error) {
	return f.Hub.ServiceAccountKubeconfig(ctx, client.ObjectKey{Namespace: Namespace, Name: Release})
}

// spokeAccess returns the manager's permissions in a spoke.
func spokeAccess() []client.Object {
	read := []string{"get", "list", "watch"}
	access := clusterAccess(SpokeUser, SpokeUser,
		rbacv1.PolicyRule{APIGroups: []string{"apps"}, Resources: []string{"deployments", "statefulsets", "daemonsets"}, Verbs: read},
		rbacv1.PolicyRule{APIGroups: []string{"batch"}, Resources: []string{"cronjobs"}, Verbs: read},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: read},
		rbacv1.PolicyRule{APIGroups: []string{"monitoring.coreos.com"}, Resources: []string{"prometheuses", "thanosrulers"}, Verbs: []string{"get", "list"}},
		rbacv1.PolicyRule{
			APIGroups: []string{"monitoring.coreos.com"}, Resources: []string{"prometheusrules"},
			Verbs: []string{"get", "list", "watch", "create", "update", "delete"},
		},
	)
	return append(access, clusterAccess(SpokeUser, EvaluateGrant, rbacv1.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"services/proxy"},
		ResourceNames: []string{
			"http:prometheus-operated:web", "https:prometheus-operated:web",
			"http:prometheus-operated:http-web", "https:prometheus-operated:http-web",
			"http:thanos-ruler-operated:web", "https:thanos-ruler-operated:web",
			"http:thanos-ruler-operated:http-web", "https:thanos-ruler-operated:http-web",
		},
		Verbs: []string{"get"},
	})...)
}

// InstallSpokePolicy limits the manager's account in a spoke by the policy that kubectl rulefleet join applies.
func (f *Fleet) InstallSpokePolicy(ctx context.Context, spoke *Member) error {
	path := filepath.Join(f.root, "charts", "rulefleet", "files", "spoke-policy.yaml")
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading the policy of spokes: %w", err)
	}
	// In the tests, the account is a user.
	account := []byte("system:serviceaccount:" + Namespace + ":" + SpokeUser)
	objects, err := manifest.Objects(bytes.ReplaceAll(data, account, []byte(SpokeUser)))
	if err != nil {
		return fmt.Errorf("reading the policy %s: %w", path, err)
	}
	for _, o := range objects {
		if err := spoke.create(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

// clusterAccess returns a ClusterRole and a binding to a user.
func clusterAccess(user, role string, rules ...rbacv1.PolicyRule) []client.Object {
	return []client.Object{
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: role}, Rules: rules},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: role},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: user}},
			RoleRef:    rbacv1.RoleRef{Kind: "ClusterRole", Name: role},
		},
	}
}
