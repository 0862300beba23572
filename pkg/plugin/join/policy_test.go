package join

import (
	"bytes"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/rulefleet/rulefleet/pkg/plugin/cluster"
	"github.com/rulefleet/rulefleet/pkg/plugin/env"
)

// TestPolicyWhereServed registers a spoke whose API server serves no policies without one, and says what that means.
func TestPolicyWhereServed(t *testing.T) {
	for name, tc := range map[string]struct {
		kinds    []string
		noPolicy bool
		applied  int
		warned   bool
	}{
		"served":      {[]string{"ValidatingWebhookConfiguration", kindPolicy}, false, 2, false},
		"not served":  {[]string{"ValidatingWebhookConfiguration"}, false, 0, true},
		"not desired": {[]string{"ValidatingWebhookConfiguration"}, true, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			mapper := meta.NewDefaultRESTMapper(nil)
			for _, kind := range tc.kinds {
				mapper.Add(schema.GroupVersionKind{Group: admissionGroup, Version: "v1", Kind: kind}, meta.RESTScopeRoot)
			}
			var out bytes.Buffer
			j := &joining{
				Env:     &env.Env{IOStreams: genericiooptions.IOStreams{Out: &out, ErrOut: &out}},
				options: &options{noPolicy: tc.noPolicy},
				spoke:   &cluster.Spoke{Client: fake.NewClientBuilder().WithScheme(cluster.Scheme).WithRESTMapper(mapper).Build()},
			}
			if err := j.addPolicy(); err != nil {
				t.Fatal(err)
			}
			if len(j.apply) != tc.applied {
				t.Errorf("%d objects are applied, want %d", len(j.apply), tc.applied)
			}
			if warned := strings.Contains(out.String(), "does not serve ValidatingAdmissionPolicies"); warned != tc.warned {
				t.Errorf("it printed %q", out.String())
			}
		})
	}
}
