package charts

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v3/pkg/chartutil"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/rulefleet/rulefleet/pkg/testing/chart"
)

// TestPoliciesWhereServed leaves the policies out where the API server does not serve them, and where they are off.
func TestPoliciesWhereServed(t *testing.T) {
	c := load(t)
	for _, tc := range []struct {
		mode   string
		served chartutil.VersionSet
		want   int
	}{
		{"Auto", nil, 5},
		{"Auto", chartutil.DefaultVersionSet, 0},
		{"Enabled", chartutil.DefaultVersionSet, 5},
		{"Disabled", nil, 0},
	} {
		r, err := chart.Render(c, chart.Release{Name: releaseName, Namespace: namespace, Values: at("admissionPolicies", tc.mode), APIVersions: tc.served})
		if err != nil {
			t.Fatal(err)
		}
		if policies, bindings := len(r.Kind("ValidatingAdmissionPolicy")), len(r.Kind("ValidatingAdmissionPolicyBinding")); policies != tc.want || bindings != tc.want {
			t.Errorf("%+v: there are %d policies and %d bindings", tc, policies, bindings)
		}
	}
}

// TestHardened has no permission for Secrets and webhook configurations that cert-manager makes unnecessary.
func TestHardened(t *testing.T) {
	r := render(t, load(t), readValues(t, filepath.Join("testdata", "cert-manager.yaml")))
	for _, o := range slices.Concat(r.Kind("Role"), r.Kind("ClusterRole")) {
		rules, _, _ := unstructured.NestedSlice(o.Object, "rules")
		for _, item := range rules {
			resources, _, _ := unstructured.NestedStringSlice(item.(map[string]any), "resources")
			verbs, _, _ := unstructured.NestedStringSlice(item.(map[string]any), "verbs")
			if slices.Contains(resources, "validatingwebhookconfigurations") ||
				slices.Contains(resources, "secrets") && (slices.Contains(verbs, "create") || slices.Contains(verbs, "update")) {
				t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), item)
			}
		}
	}
	// What is left of the permission to patch is the removal of a label.
	policy, err := yaml.Marshal(r.Kind("ValidatingAdmissionPolicy"))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(policy), "rulefleet-webhook-certs") {
		t.Errorf("a policy allows writes of the manager's own certificate:\n%s", policy)
	}
}

// TestServiceMonitorVerifies has Prometheus verify the manager, and read no file of its own for the ServiceMonitor.
func TestServiceMonitorVerifies(t *testing.T) {
	for name, v := range map[string]values{
		"the manager's certificate": nil,
		"cert-manager":              at("webhook.certManager.enabled", true),
	} {
		t.Run(name, func(t *testing.T) {
			r := render(t, load(t), merged(v, at("metrics.serviceMonitor.enabled", true)))
			var monitor monitoringv1.ServiceMonitor
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(r.Kind("ServiceMonitor")[0].Object, &monitor); err != nil {
				t.Fatal(err)
			}
			e := monitor.Spec.Endpoints[0]
			//nolint:staticcheck // nobody is to use it
			if e.BearerTokenFile != "" || e.Authorization == nil || e.Authorization.Credentials == nil || e.Authorization.Credentials.Name != "rulefleet-metrics-reader" {
				t.Errorf("the credential is %+v", e)
			}
			tls := e.TLSConfig
			if tls == nil || tls.InsecureSkipVerify != nil || tls.CAFile != "" || tls.CA.Secret == nil || tls.ServerName == nil || *tls.ServerName != "rulefleet-metrics.rulefleet-system.svc" {
				t.Fatalf("the certificate is checked by %+v", tls)
			}
			for _, o := range r.Kind("Certificate") {
				names, _, _ := unstructured.NestedStringSlice(o.Object, "spec", "dnsNames")
				secret, _, _ := unstructured.NestedString(o.Object, "spec", "secretName")
				if !slices.Contains(names, *tls.ServerName) || tls.CA.Secret.Name != secret {
					t.Errorf("the certificate in Secret %s is for %v", secret, names)
				}
			}
			bound := false
			for _, o := range r.Kind("ClusterRoleBinding") {
				role, _, _ := unstructured.NestedString(o.Object, "roleRef", "name")
				bound = bound || role == "rulefleet-metrics-reader"
			}
			if !bound {
				t.Error("the account of the token may not read the metrics")
			}
		})
	}
}
