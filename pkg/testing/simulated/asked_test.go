package simulated_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/pkg/testing/faultproxy"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
)

// shape is a request without names, versions and numbers.
func shape(method, uri string, h http.Header) string {
	u, err := url.Parse(uri)
	if err != nil {
		return uri
	}
	path := regexp.MustCompile(`/namespaces/[^/]+`).ReplaceAllString(u.Path, "/namespaces/*")
	path = regexp.MustCompile(`/(deployments|prometheusrules)/[^/]+$`).ReplaceAllString(path, "/$1/*")
	return fmt.Sprintf("%s %s?%s accept %s, encoding %s, content %s", method, path, strings.Join(slices.Sorted(maps.Keys(u.Query())), "&"),
		h.Get("Accept"), h.Get("Accept-Encoding"), h.Get("Content-Type"))
}

// asked runs a manager against a real spoke until it has read, written, corrected and deleted, and checks that each of
// its requests is like one of the script.
func asked(t *testing.T, f *fleet.Fleet, m *fleet.Member, script []request) {
	t.Helper()
	known := map[string]bool{}
	for _, q := range script {
		h := http.Header{"Accept": {q.accept}, "Accept-Encoding": {"gzip"}}
		if q.contentType != "" {
			h.Set("Content-Type", q.contentType)
		}
		known[shape(q.method, q.path, h)] = true
	}
	kubeconfig, err := m.UserKubeconfig(fleet.SpokeUser)
	must(t, err)
	proxy, err := faultproxy.Start(kubeconfig, "asked")
	must(t, err)
	t.Cleanup(proxy.Close)
	var mu sync.Mutex
	seen := map[string]int{}
	proxy.Set(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		mu.Lock()
		seen[shape(r.Method, r.URL.RequestURI(), r.Header)]++
		mu.Unlock()
		next.ServeHTTP(w, r)
	})
	until := func(what string, wanted ...string) {
		t.Helper()
		err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
			mu.Lock()
			defer mu.Unlock()
			for _, prefix := range wanted {
				n := 0
				for request, times := range seen {
					if strings.HasPrefix(request, prefix) {
						n += times
					}
				}
				if n < 2 {
					return false, nil
				}
			}
			return true, nil
		})
		if err != nil {
			t.Fatalf("%s: %v; so far, there were %v", what, err, seen)
		}
	}
	kubeconfig, err = proxy.Kubeconfig()
	must(t, err)
	must(t, f.RegisterKubeconfig(t.Context(), m.Name(), kubeconfig, nil))
	manager, err := f.StartManager(t.Context(), fleet.ManagerOptions{Dir: t.TempDir(), Args: []string{"--deletion-hold=0"}})
	must(t, err)
	disturb(t, m)
	all := strings.Replace(benchRules, namespace, "*", 1)
	until("corrections and another look", "PUT "+all, "DELETE "+all, "POST /apis/authorization", "GET "+group+"/prometheuses", "GET "+group+"/thanosrulers")
	must(t, manager.Stop())
	mu.Lock()
	defer mu.Unlock()
	for request, times := range seen {
		if !known[request] {
			t.Errorf("the manager sent a request that is not compared, %d times: %s", times, request)
		}
	}
}

// disturb waits for the rules of all Deployments. Then it changes some behind the manager's back, and deletes Deployments.
func disturb(t *testing.T, m *fleet.Member) {
	t.Helper()
	var list monitoringv1.PrometheusRuleList
	err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		err := m.Client.List(ctx, &list, client.MatchingLabels{"app.kubernetes.io/managed-by": "rulefleet"})
		return len(list.Items) == filled, err //nolint:wrapcheck // the test fails with it
	})
	must(t, err)
	for i := range 3 {
		must(t, m.Client.Delete(t.Context(), deployment(fmt.Sprintf("d-1%02d", i))))
		r := &list.Items[i]
		r.Spec.Groups[0].Rules[0].Annotations = map[string]string{"changed": "by hand"}
		must(t, m.Client.Update(t.Context(), r))
	}
}
