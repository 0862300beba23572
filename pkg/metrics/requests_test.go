package metrics

import (
	"context"
	"net/http"
	"testing"
)

func TestVerb(t *testing.T) {
	for _, tc := range []struct{ method, base, path, want string }{
		{"GET", "", "/version", "get"},
		{"GET", "", "/api", "get"},
		{"GET", "", "/apis/apps/v1", "get"},
		{"GET", "", "/api/v1/namespaces", "list"},
		{"GET", "", "/api/v1/namespaces?limit=1", "list"},
		{"GET", "", "/api/v1/namespaces?watch=true&allowWatchBookmarks=true", "watch"},
		{"GET", "", "/api/v1/namespaces?watch=1", "watch"},
		{"GET", "", "/api/v1/namespaces?watch=false", "list"},
		{"GET", "", "/api/v1/namespaces/kube-system", "get"},
		{"GET", "", "/api/v1/namespaces/shop/pods", "list"},
		{"GET", "", "/apis/apps/v1/deployments?watch=true", "watch"},
		{"GET", "", "/apis/apps/v1/namespaces/shop/deployments", "list"},
		{"GET", "", "/apis/apps/v1/namespaces/shop/deployments/web", "get"},
		{"GET", "", "/apis/monitoring.coreos.com/v1/namespaces/shop/prometheusrules", "list"},
		{"GET", "/k8s/clusters/c-1", "/k8s/clusters/c-1/apis/apps/v1/deployments", "list"},
		{"GET", "/k8s/clusters/c-1/", "/k8s/clusters/c-1/api/v1/namespaces/shop", "get"},
		{"POST", "", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", "create"},
		{"PUT", "", "/apis/monitoring.coreos.com/v1/namespaces/shop/prometheusrules/a", "update"},
		{"PATCH", "", "/api/v1/namespaces/shop", "patch"},
		{"DELETE", "", "/api/v1/namespaces/shop", "delete"},
		{"OPTIONS", "", "/api/v1/namespaces/shop", "other"},
		{"MADE-UP", "", "/", "other"},
	} {
		t.Run(tc.method+" "+tc.path, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), tc.method, "https://spoke"+tc.path, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			if got := Verb(req, tc.base); got != tc.want {
				t.Errorf("%s %s is %s, want %s", tc.method, tc.path, got, tc.want)
			}
		})
	}
}

// resultMetric counts by host.
type resultMetric map[string]int

func (m resultMetric) Increment(_ context.Context, _, _, host string) { m[host]++ }

// Requests to spokes leave no series of client-go's behind.
func TestHubRequests(t *testing.T) {
	counted := resultMetric{}
	host := "hub:6443"
	h := &hubRequests{next: counted, host: host}
	for _, to := range []string{host, "spoke:6443", host} {
		h.Increment(t.Context(), "200", "GET", to)
	}
	if len(counted) != 1 || counted[host] != 2 {
		t.Errorf("counted are %v", counted)
	}
}
