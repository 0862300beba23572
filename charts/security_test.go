package charts

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v3/pkg/chartutil"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
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

// TestRenewalIsOff does not let the manager change a kubeconfig.
func TestRenewalIsOff(t *testing.T) {
	for _, on := range []bool{true, false} {
		r := render(t, load(t), at("renewTokens", on))
		policy, err := yaml.Marshal(r.Kind("ValidatingAdmissionPolicy"))
		if err != nil {
			t.Fatal(err)
		}
		if allows := strings.Contains(string(policy), v1alpha1.RenewTokenAnnotation); allows != on {
			t.Errorf("renewTokens %v: %v\n%s", on, allows, policy)
		}
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

// TestPodsAreForAnyUser checks the pods by what OpenShift's security context constraint restricted-v2 demands beyond the
// restricted Pod Security Standard: the platform selects the user and the groups.
func TestPodsAreForAnyUser(t *testing.T) {
	pods := podTemplates(t, filepath.Join("testdata", "openshift.yaml"))
	for owner, pod := range pods {
		s := pod.Spec.SecurityContext
		if s == nil || s.RunAsUser != nil || s.RunAsGroup != nil || s.FSGroup != nil || s.SupplementalGroups != nil || s.SELinuxOptions != nil ||
			s.RunAsNonRoot == nil || !*s.RunAsNonRoot {
			t.Errorf("%s: the security context is %+v", owner, s)
		}
		for i := range pod.Spec.Containers {
			c := &pod.Spec.Containers[i]
			if s := c.SecurityContext; s.RunAsUser != nil || s.RunAsGroup != nil || s.SELinuxOptions != nil {
				t.Errorf("%s: the security context of container %s is %+v", owner, c.Name, s)
			}
			for _, port := range c.Ports {
				if port.HostPort != 0 {
					t.Errorf("%s: container %s takes port %d of the node", owner, c.Name, port.HostPort)
				}
			}
		}
		for _, v := range pod.Spec.Volumes {
			if v.Secret == nil && v.ConfigMap == nil {
				t.Errorf("%s: volume %s is %+v", owner, v.Name, v.VolumeSource)
			}
		}
	}
	if len(pods) != 2 {
		t.Errorf("there are %d pods", len(pods))
	}
}

// TestHostNetwork runs the pods in the network of the nodes, where two of them cannot share a node during an upgrade.
func TestHostNetwork(t *testing.T) {
	var d appsv1.Deployment
	o := render(t, load(t), at("webhook.hostNetwork", true)).Kind("Deployment")[0]
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &d); err != nil {
		t.Fatal(err)
	}
	if spec := d.Spec.Template.Spec; !spec.HostNetwork || spec.DNSPolicy != corev1.DNSClusterFirstWithHostNet {
		t.Errorf("hostNetwork is %v, and the DNS policy is %s", spec.HostNetwork, spec.DNSPolicy)
	}
	if r := d.Spec.Strategy.RollingUpdate; r.MaxSurge.IntValue() != 0 || r.MaxUnavailable.IntValue() != 1 {
		t.Errorf("the strategy is %+v", r)
	}
}

// TestCommonLabels are on every object and on the pods, and change none of the chart's own labels.
func TestCommonLabels(t *testing.T) {
	with := render(t, load(t), at("commonLabels", values{"team": "a", "app.kubernetes.io/name": "b", "app.kubernetes.io/component": "c"}))
	without := render(t, load(t), nil)
	for i, o := range with.Objects {
		want := maps.Clone(without.Objects[i].GetLabels())
		want["team"] = "a"
		if !maps.Equal(o.GetLabels(), want) {
			t.Errorf("%s %s has labels %v, want %v", o.GetKind(), o.GetName(), o.GetLabels(), want)
		}
		if pod, found, _ := unstructured.NestedStringMap(o.Object, "spec", "template", "metadata", "labels"); found && pod["team"] != "a" {
			t.Errorf("the pods of %s %s have labels %v", o.GetKind(), o.GetName(), pod)
		}
	}
	selector, _, _ := unstructured.NestedStringMap(with.Kind("Deployment")[0].Object, "spec", "selector", "matchLabels")
	if selector["team"] != "" {
		t.Errorf("the selector of the Deployment, which is immutable, has the label: %v", selector)
	}
}
