package charts

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
)

// TestRegister runs kind/register. The account that it makes is the one that the policy limits.
func TestRegister(t *testing.T) {
	f, err := fleet.Start(t.Context(), fleet.Options{Spokes: []string{"eu-1"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Stop(); err != nil {
			t.Error(err)
		}
	})
	spoke := f.Spoke("eu-1")
	for _, name := range []string{fleet.SpokeUser, fleet.EvaluateGrant} { // of the user that other tests use
		for _, o := range []client.Object{&rbacv1.ClusterRoleBinding{}, &rbacv1.ClusterRole{}} {
			o.SetName(name)
			if err := spoke.Client.Delete(t.Context(), o); err != nil {
				t.Fatal(err)
			}
		}
	}
	contexts := filepath.Join(t.TempDir(), "contexts")
	writeContexts(t, contexts, f.Hub, spoke)
	register := func(args ...string) string {
		t.Helper()
		args = append([]string{"eu-1", "--hub-context", "hub", "--spoke-context", "eu-1", "--duration", "1h"}, args...)
		cmd := exec.CommandContext(t.Context(), filepath.Join("..", "kind", "register"), args...)
		cmd.Env = append(os.Environ(), "KUBECONFIG="+contexts, "RULEFLEET_CACHE="+t.TempDir())
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("kind/register %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "rulefleet-spoke"}}
	evaluate := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: fleet.EvaluateGrant}}
	exists := func(o client.Object, want bool) {
		t.Helper()
		err := spoke.Client.Get(t.Context(), client.ObjectKeyFromObject(o), o)
		if client.IgnoreNotFound(err) != nil || apierrors.IsNotFound(err) == want {
			t.Errorf("%T %s exists: want %v, got %v", o, o.GetName(), want, err)
		}
	}

	register("--without", "policy", "--without", "evaluate", "env=prod")
	exists(policy, false)
	exists(evaluate, false)
	account := registeredAccount(t, f.Hub)
	foreign := &monitoringv1.PrometheusRule{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "foreign"}}
	if err := account.Create(t.Context(), foreign.DeepCopy()); err != nil {
		t.Errorf("without the policy: %v", err)
	}

	if out := register(); !strings.Contains(out, "spoke eu-1 is registered") {
		t.Errorf("it says %q", out)
	}
	exists(policy, true)
	exists(evaluate, true)
	account = registeredAccount(t, f.Hub)
	err = wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 20*time.Second, true, func(ctx context.Context) (bool, error) {
		err = account.Create(ctx, foreign.DeepCopy())
		return apierrors.IsForbidden(err), nil
	})
	if err != nil {
		t.Errorf("the policy does not limit the account: %v", err)
	}
	ours := foreign.DeepCopy()
	ours.Labels = map[string]string{v1alpha1.ManagedByLabel: v1alpha1.ManagedByValue, v1alpha1.HubLabel: "hub"}
	if err := account.Create(t.Context(), ours); err != nil {
		t.Errorf("an object of the hub: %v", err)
	}
	register("--without", "policy")
	exists(policy, true)
}

// writeContexts writes a kubeconfig with an administrator's context for each cluster, of its name.
func writeContexts(t *testing.T, file string, members ...*fleet.Member) {
	t.Helper()
	out := api.NewConfig()
	for _, m := range members {
		cfg, name := m.RESTConfig(), m.Name()
		out.Clusters[name] = &api.Cluster{Server: cfg.Host, CertificateAuthorityData: cfg.CAData}
		out.AuthInfos[name] = &api.AuthInfo{ClientCertificateData: cfg.CertData, ClientKeyData: cfg.KeyData, Token: cfg.BearerToken}
		out.Contexts[name] = &api.Context{Cluster: name, AuthInfo: name}
	}
	if err := clientcmd.WriteToFile(*out, file); err != nil {
		t.Fatal(fmt.Errorf("writing a kubeconfig: %w", err))
	}
}

// registeredAccount returns a client with the registered kubeconfig. It sends dry runs.
func registeredAccount(t *testing.T, hub *fleet.Member) client.Client {
	t.Helper()
	secret := &corev1.Secret{}
	if err := hub.Client.Get(t.Context(), client.ObjectKey{Namespace: fleet.Namespace, Name: "eu-1"}, secret); err != nil {
		t.Fatal(err)
	}
	if secret.Labels[v1alpha1.RegistrationLabel] != "true" || secret.Labels["env"] != "prod" {
		t.Errorf("the labels of the Secret are %v", secret.Labels)
	}
	cfg, err := clientcmd.RESTConfigFromKubeConfig(secret.Data[v1alpha1.KubeconfigKey])
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(cfg, client.Options{Scheme: fleet.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	return client.NewDryRunClient(c)
}
