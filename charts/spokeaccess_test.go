package charts

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
)

// TestGrantToAskPrometheus has a real API server say what the account of spoke-access.yaml may
// ask through it: Prometheus' own Services alone, by GET alone, and none without the grant.
func TestGrantToAskPrometheus(t *testing.T) {
	f, err := fleet.Start(t.Context(), fleet.Options{OpenAPI: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Stop(); err != nil {
			t.Error(err)
		}
	})
	spoke := f.Hub // any API server does
	apply := func(args ...string) {
		t.Helper()
		args = append([]string{"apply", "--server-side", "-f", filepath.Join("rulefleet", "files", "spoke-access.yaml")}, args...)
		if out, err := spoke.Kubectl(t.Context(), args...).CombinedOutput(); err != nil {
			t.Fatalf("kubectl %v: %v\n%s", args, err, out)
		}
	}
	apply("-l", "app.kubernetes.io/component!=evaluate")
	asks := asker(t, spoke)
	if code := asks(http.MethodGet, "services/http:prometheus-operated:web/proxy/api/v1/rules"); code != http.StatusForbidden {
		t.Errorf("without the grant, the answer is %d", code)
	}
	apply()
	var code int
	err = wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 20*time.Second, true, func(context.Context) (bool, error) {
		code = asks(http.MethodGet, "services/http:prometheus-operated:web/proxy/api/v1/rules")
		return code == http.StatusNotFound, nil // there is no such Service: it was looked for
	})
	if err != nil {
		t.Fatalf("with the grant, the answer is %d: %v", code, err)
	}
	for _, tc := range []struct {
		method, path string
		want         int
	}{
		{http.MethodGet, "services/https:prometheus-operated:web/proxy/api/v1/rules", http.StatusNotFound},
		{http.MethodGet, "services/http:prometheus-operated:http-web/proxy/api/v1/rules", http.StatusNotFound},
		{http.MethodGet, "services/http:thanos-ruler-operated:web/proxy/api/v1/rules", http.StatusNotFound},
		{http.MethodPost, "services/http:prometheus-operated:web/proxy/-/reload", http.StatusForbidden},
		{http.MethodDelete, "services/http:prometheus-operated:web/proxy/api/v1/rules", http.StatusForbidden},
		{http.MethodGet, "services/prometheus-operated/proxy/", http.StatusForbidden},
		{http.MethodGet, "services/http:prometheus-operated:9090/proxy/", http.StatusForbidden},
		{http.MethodGet, "services/http:grafana:web/proxy/", http.StatusForbidden},
		{http.MethodGet, "services/prometheus-operated", http.StatusForbidden},
		{http.MethodGet, "pods/http:prometheus-operated:web/proxy/", http.StatusForbidden},
		{http.MethodGet, "secrets", http.StatusForbidden},
	} {
		t.Run(tc.method+" "+tc.path, func(t *testing.T) {
			if code := asks(tc.method, tc.path); code != tc.want {
				t.Errorf("%s %s: %d, want %d", tc.method, tc.path, code, tc.want)
			}
		})
	}
}

// asker returns what sends a request as the account of a spoke, about something in namespace
// default, and returns the status of the answer.
func asker(t *testing.T, spoke *fleet.Member) func(method, path string) int {
	t.Helper()
	kubeconfig, err := spoke.ServiceAccountKubeconfig(t.Context(), client.ObjectKey{Namespace: "rulefleet-system", Name: "rulefleet-spoke"})
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	c, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return func(method, path string) int {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, fmt.Sprintf("%s/api/v1/namespaces/default/%s", cfg.Host, path), http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if err := resp.Body.Close(); err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode
	}
}
