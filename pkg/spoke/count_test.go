package spoke

import (
	"net/http"
	"net/http/httptest"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// TestCount counts by one request for one object. What a spoke says is bounded.
func TestCount(t *testing.T) {
	for name, tc := range map[string]struct {
		code  int
		body  string
		want  int32
		fails bool
	}{
		"none":                 {code: 200, body: `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{},"items":[]}`},
		"one":                  {code: 200, body: `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{},"items":[{}]}`, want: 1},
		"many":                 {code: 200, body: `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"continue":"x","remainingItemCount":41},"items":[{}]}`, want: 42},
		"an absurd number":     {code: 200, body: `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"continue":"x","remainingItemCount":9223372036854775807},"items":[{}]}`, want: maxCount},
		"less than none":       {code: 200, body: `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"continue":"x","remainingItemCount":-9},"items":[{}]}`, want: 1},
		"the number is absent": {code: 200, body: `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"continue":"x"},"items":[{}]}`, fails: true},
		"not Kubernetes":       {code: 200, body: `<html>`, fails: true},
		"refused":              {code: 403, body: `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.String() != "/apis/batch/v1/cronjobs?limit=1" {
					t.Errorf("it requests %s", r.URL)
				}
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(tc.code)
				_, _ = w.Write([]byte(tc.body))
			}))
			defer server.Close()
			reader, err := client.New(&rest.Config{Host: server.URL}, client.Options{HTTPClient: server.Client(), Scheme: Scheme, Mapper: restMapper()})
			if err != nil {
				t.Fatal(err)
			}
			got, err := count(t.Context(), reader, v1alpha1.CronJobKind)
			if got != tc.want || (err != nil) != tc.fails || apierrors.IsForbidden(err) != (tc.code == 403) {
				t.Errorf("got %d, %v", got, err)
			}
		})
	}
}
