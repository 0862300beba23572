package charts

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/action"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	admissionapi "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/rulefleet/rulefleet/pkg/testing/chart"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
)

// TestServerAcceptsTheManifests has a real API server check, by a dry run of server-side
// apply, what the chart renders to for each of the values files in testdata. An unknown
// field is a mistake, too.
func TestServerAcceptsTheManifests(t *testing.T) {
	hub := startHub(t)
	for _, file := range valuesFiles(t) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			objects := render(t, load(t), readValues(t, file)).Objects
			if len(objects) < 4 {
				t.Fatalf("there are %d objects alone", len(objects))
			}
			strict := client.WithFieldValidation(hub.Client, metav1.FieldValidationStrict)
			for _, o := range objects {
				//nolint:staticcheck // what is rendered is no apply configuration
				err := strict.Patch(t.Context(), o, client.Apply, client.DryRunAll, client.ForceOwnership, client.FieldOwner("chart-test"))
				if err != nil {
					t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), err)
				}
			}
		})
	}
}

// startHub starts a hub that knows all kinds that the chart makes.
func startHub(t *testing.T) *fleet.Member {
	t.Helper()
	f, err := fleet.Start(t.Context(), fleet.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Stop(); err != nil {
			t.Error(err)
		}
	})
	for _, crd := range []string{"servicemonitors", "prometheusrules"} {
		if err := f.InstallMonitoringCRD(t.Context(), f.Hub, crd); err != nil {
			t.Fatal(err)
		}
	}
	out, err := exec.CommandContext(t.Context(), "go", "-C", "../e2e/certmanager", "list", "-m", "-f", "{{.Dir}}", "github.com/cert-manager/cert-manager").Output()
	dir := strings.TrimSpace(string(out))
	if err != nil || dir == "" {
		t.Fatalf("finding cert-manager's module (go -C e2e/certmanager mod download): %v", err)
	}
	for _, crd := range []string{"certificates", "issuers"} {
		if err := f.Hub.InstallCRDs(t.Context(), filepath.Join(dir, "deploy", "crds"), "cert-manager.io_"+crd+".yaml"); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Hub.Client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "grafana"}}); err != nil {
		t.Fatal(err)
	}
	return f.Hub
}

// TestLint is helm lint --strict, with each of the values files.
func TestLint(t *testing.T) {
	for _, file := range valuesFiles(t) {
		lint := action.NewLint()
		lint.Strict, lint.Namespace = true, namespace
		result := lint.Run([]string{"rulefleet"}, readValues(t, file))
		for _, err := range result.Errors {
			t.Errorf("%s: %v", file, err)
		}
		if result.TotalChartsLinted != 1 {
			t.Errorf("%s: %d charts were linted", file, result.TotalChartsLinted)
		}
	}
}

// TestPodsAreRestricted evaluates every pod by the restricted Pod Security Standard, and
// for a read-only root besides.
func TestPodsAreRestricted(t *testing.T) {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	restricted := admissionapi.LevelVersion{Level: admissionapi.LevelRestricted, Version: admissionapi.LatestVersion()}
	for _, file := range valuesFiles(t) {
		pods := podTemplates(t, file)
		for owner, pod := range pods {
			for _, r := range evaluator.EvaluatePod(restricted, &pod.ObjectMeta, &pod.Spec) {
				if !r.Allowed {
					t.Errorf("%s: %s: %s: %s", file, owner, r.ForbiddenReason, r.ForbiddenDetail)
				}
			}
			for i := range pod.Spec.Containers {
				if s := pod.Spec.Containers[i].SecurityContext; s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem {
					t.Errorf("%s: %s: the root can be written to", file, owner)
				}
			}
		}
		if len(pods) == 0 {
			t.Errorf("%s: there are no pods", file)
		}
	}
}

// podTemplates returns the pods of the chart with the values of a file, by the kind and the name of the object that has
// them.
func podTemplates(t *testing.T, file string) map[string]*corev1.PodTemplateSpec {
	t.Helper()
	out := map[string]*corev1.PodTemplateSpec{}
	for _, o := range render(t, load(t), readValues(t, file)).Objects {
		template, found, err := unstructured.NestedMap(o.Object, "spec", "template")
		if err != nil || !found {
			continue
		}
		pod := &corev1.PodTemplateSpec{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(template, pod); err != nil {
			t.Fatal(err)
		}
		out[o.GetKind()+" "+o.GetName()] = pod
	}
	return out
}

// TestAccessIsNarrow looks for wildcards, and for what no ClusterRole of the operator's may have.
func TestAccessIsNarrow(t *testing.T) {
	for _, file := range valuesFiles(t) {
		r := render(t, load(t), readValues(t, file))
		for _, o := range slices.Concat(r.Kind("Role"), r.Kind("ClusterRole")) {
			var role rbacv1.ClusterRole
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &role); err != nil {
				t.Fatal(err)
			}
			if len(role.Rules) == 0 {
				t.Errorf("%s: %s %s has no rules", file, o.GetKind(), o.GetName())
			}
			for _, rule := range role.Rules {
				all := slices.Concat(rule.APIGroups, rule.Resources, rule.Verbs, rule.NonResourceURLs)
				if slices.ContainsFunc(all, func(s string) bool { return strings.Contains(s, "*") }) {
					t.Errorf("%s: %s %s has a wildcard: %+v", file, o.GetKind(), o.GetName(), rule)
				}
				if o.GetKind() == "ClusterRole" && slices.Contains(rule.Resources, "secrets") {
					t.Errorf("%s: ClusterRole %s may read Secrets of every namespace: %+v", file, o.GetName(), rule)
				}
				_, aggregated := o.GetLabels()["rbac.authorization.k8s.io/aggregate-to-edit"]
				if slices.Contains(rule.Resources, "rulepacks") && !aggregated && slices.ContainsFunc(rule.Verbs, func(v string) bool { return !slices.Contains([]string{"get", "list", "watch"}, v) }) {
					t.Errorf("%s: %s %s may write RulePacks: %+v", file, o.GetKind(), o.GetName(), rule)
				}
				for _, verb := range []string{"escalate", "bind", "impersonate"} {
					if slices.Contains(rule.Verbs, verb) {
						t.Errorf("%s: %s %s has verb %s", file, o.GetKind(), o.GetName(), verb)
					}
				}
			}
		}
		for _, o := range slices.Concat(r.Kind("RoleBinding"), r.Kind("ClusterRoleBinding")) {
			name, _, _ := unstructured.NestedString(o.Object, "roleRef", "name")
			if !slices.ContainsFunc(slices.Concat(r.Kind("Role"), r.Kind("ClusterRole")), func(role *unstructured.Unstructured) bool { return role.GetName() == name }) {
				t.Errorf("%s: %s %s is about %s, which is not there", file, o.GetKind(), o.GetName(), name)
			}
		}
	}
}

// TestNotesName what a person needs next.
func TestNotesName(t *testing.T) {
	notes := render(t, load(t), at("generatedNamespace", "made")).Notes
	for _, want := range []string{"kubectl rulefleet join eu-prod-1 -n rulefleet-system", "kubectl -n rulefleet-system create secret", "kubectl get spokes", "kubectl get alertrules -n made", "kind: AlertRule"} {
		if !strings.Contains(notes, want) {
			t.Errorf("the notes lack %q:\n%s", want, notes)
		}
	}
}

// TestEveryObjectIsTheReleases has the labels by which a release's objects are found, and
// names and namespaces that are the release's.
func TestEveryObjectIsTheReleases(t *testing.T) {
	const other, elsewhere = "prod", "alerts-prod"
	r, err := chart.Render(load(t), chart.Release{Name: other, Namespace: elsewhere, Values: readValues(t, filepath.Join("testdata", "cert-manager.yaml"))})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range r.Objects {
		what := fmt.Sprintf("%s %s", o.GetKind(), o.GetName())
		if o.GetLabels()["app.kubernetes.io/instance"] != other || o.GetLabels()["app.kubernetes.io/managed-by"] != "Helm" {
			t.Errorf("%s has labels %v", what, o.GetLabels())
		}
		if o.GetKind() != "CustomResourceDefinition" && !strings.HasPrefix(o.GetName(), "prod-rulefleet") {
			t.Errorf("%s is not named after the release", what)
		}
		if ns := o.GetNamespace(); ns != "" && ns != elsewhere {
			t.Errorf("%s is in namespace %s", what, ns)
		}
		if data, err := yaml.Marshal(o.Object); err != nil || strings.Contains(string(data), "rulefleet-system") {
			t.Errorf("%s names another namespace: %v\n%s", what, err, data)
		}
	}
}

func valuesFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", "*.yaml"))
	if err != nil || len(files) < 5 {
		t.Fatalf("the values files are %v: %v", files, err)
	}
	return files
}

func readValues(t *testing.T, file string) values {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out values
	if err := yaml.UnmarshalStrict(data, &out); err != nil {
		t.Fatal(err)
	}
	return out
}
