package evaluator

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/rulefleet/rulefleet/pkg/testing/controlplane"
)

// TestThroughAPIServer tests the errors of a real API server that can't or may not pass on a query.
func TestThroughAPIServer(t *testing.T) {
	t.Parallel()
	cluster, err := controlplane.Start(t.Context(), controlplane.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	const (
		user    = "hub"
		service = "prometheus-operated"
	)
	granted, err := kubernetes.NewForConfig(cluster.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := cluster.UserKubeconfig(user)
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	c := through(t, config, service)

	_, _, err = all(t.Context(), c, "")
	checkError(t, "no grant", err, Forbidden, http.StatusForbidden, `Rulefleet's account in the spoke needs "get" on services/proxy for the queried Service (HTTP 403): services "prometheus-operated:web" is forbidden`)
	got, err := c.Present(t.Context(), []string{"up", "down"})
	checkError(t, "no grant", err, Forbidden, http.StatusForbidden, "forbidden")
	if !slices.Equal(got, []Presence{Unknown, Unknown}) {
		t.Errorf("no grant: %v", got)
	}

	grant(t, granted, user)
	eventually(t, func(ctx context.Context) error {
		if _, _, err = all(ctx, c, ""); kindOf(err) == Forbidden {
			return fmt.Errorf("the grant is not seen yet: %w", err)
		}
		return nil
	})
	checkError(t, "no Service", err, NotFound, http.StatusNotFound, `no such Service, or no endpoints of it (HTTP 404): services "prometheus-operated" not found`)

	// The API server looks at nothing but these; kube-controller-manager would make them.
	made := &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Name: service}} //nolint:staticcheck // EndpointSlices are not asked
	if _, err := granted.CoreV1().Endpoints(metav1.NamespaceDefault).Create(t.Context(), made, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	_, _, err = all(t.Context(), c, "")
	checkError(t, "no Pods", err, Unavailable, http.StatusServiceUnavailable, `the API server can't reach the pods behind the Service (HTTP 503): no endpoints available for service "prometheus-operated"`)

	config.CertData, config.KeyData = nil, nil
	config.BearerToken = "wrong"
	_, _, err = all(t.Context(), through(t, config, service), "")
	checkError(t, "a credential that is wrong", err, Unauthorized, http.StatusUnauthorized, "the API server rejects the credential")
}

// through is a client that asks a Service through an API server.
func through(t *testing.T, config *rest.Config, service string) *Client {
	t.Helper()
	sender, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	base, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	return &Client{HTTP: sender, Base: base.JoinPath("api/v1/namespaces/default/services", service+":web", "proxy")}
}

// grant lets a user ask any Service.
func grant(t *testing.T, c kubernetes.Interface, user string) {
	t.Helper()
	name := metav1.ObjectMeta{Name: user}
	role := &rbacv1.ClusterRole{ObjectMeta: name, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"services/proxy"}, Verbs: []string{"get"}}}}
	if _, err := c.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: name,
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: user}},
		RoleRef:    rbacv1.RoleRef{Kind: "ClusterRole", Name: user},
	}
	if _, err := c.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}
