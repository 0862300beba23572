package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chartutil"
	kubefake "helm.sh/helm/v3/pkg/kube/fake"
	"helm.sh/helm/v3/pkg/release"
	"helm.sh/helm/v3/pkg/storage"
	"helm.sh/helm/v3/pkg/storage/driver"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta/testrestmapper"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/rulefleet/rulefleet/pkg/plugin/cluster"
	"github.com/rulefleet/rulefleet/pkg/plugin/env"
	"github.com/rulefleet/rulefleet/pkg/plugin/exit"
)

// manifest is that of a release: an object that goes, and those that stay.
const manifest = `---
# Source: rulefleet/templates/serviceaccount.yaml
apiVersion: v1
kind: ServiceAccount
metadata:
  name: rulefleet
---
# Source: rulefleet/templates/crds.yaml
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: alertrules.rulefleet.io
  annotations: {helm.sh/resource-policy: keep}
---
# Source: rulefleet/templates/crds.yaml
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: alertruletemplates.rulefleet.io
  annotations: {helm.sh/resource-policy: keep}
---
# Source: rulefleet/templates/crds.yaml
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: rulepacks.rulefleet.io
  annotations: {helm.sh/resource-policy: keep}
---
# Source: rulefleet/templates/crds.yaml
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: spokeclusters.rulefleet.io
  annotations: {helm.sh/resource-policy: keep}
`

const hook = `apiVersion: batch/v1
kind: Job
metadata: {name: rulefleet-release, namespace: rulefleet-system}
`

// revision returns a release of the chart, as Helm stores it.
func revision(number int, status release.Status, version string, change ...func(*release.Release)) *release.Release {
	r := &release.Release{
		Name: "rulefleet", Namespace: "rulefleet-system", Version: number, Manifest: manifest,
		Info:   &release.Info{Status: status, Description: "context deadline exceeded"},
		Chart:  &chart.Chart{Metadata: &chart.Metadata{Name: "rulefleet", Version: version}},
		Config: map[string]any{"replicas": float64(1), "log": map[string]any{"level": "debug"}},
		Hooks:  []*release.Hook{{Name: "rulefleet-release", Kind: "Job", Manifest: hook, Events: []release.HookEvent{release.HookPostDelete}}},
	}
	for _, f := range change {
		f(r)
	}
	return r
}

// crd returns a CustomResourceDefinition on the hub, of the release in the namespace rulefleet-system.
func crd(chartLabel string, change ...func(*apiextensionsv1.CustomResourceDefinition)) *apiextensionsv1.CustomResourceDefinition {
	d := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{
		Name:        "alertrules.rulefleet.io",
		Labels:      map[string]string{"app.kubernetes.io/managed-by": "Helm", "helm.sh/chart": chartLabel},
		Annotations: map[string]string{"meta.helm.sh/release-name": "rulefleet", "meta.helm.sh/release-namespace": "rulefleet-system"},
	}}
	for _, f := range change {
		f(d)
	}
	return d
}

// helmHub is a hub in memory, with the releases that Helm stored there.
type helmHub struct {
	version  string // of the API server
	allowed  func(authorizationv1.SelfSubjectAccessReviewSpec) bool
	objects  []client.Object
	releases []*release.Release

	store *storage.Storage
}

func (h *helmHub) client(t *testing.T) client.Client {
	t.Helper()
	funcs := interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
		if review, ok := o.(*authorizationv1.SelfSubjectAccessReview); ok {
			review.Status.Allowed = h.allowed == nil || h.allowed(review.Spec)
			return nil
		}
		return c.Create(ctx, o, opts...)
	}}
	return fake.NewClientBuilder().WithScheme(cluster.Scheme).WithRESTMapper(testrestmapper.TestOnlyStaticRESTMapper(cluster.Scheme)).
		WithObjects(h.objects...).WithInterceptorFuncs(funcs).Build()
}

func (h *helmHub) helm(t *testing.T) func(string) (*action.Configuration, error) {
	t.Helper()
	memory := driver.NewMemory()
	memory.SetNamespace("rulefleet-system")
	h.store = storage.Init(memory)
	for _, r := range h.releases {
		if err := h.store.Create(r); err != nil {
			t.Fatal(err)
		}
	}
	return func(namespace string) (*action.Configuration, error) {
		memory.SetNamespace(namespace)
		version := h.version
		if version == "" {
			version = "v1.36.1"
		}
		return &action.Configuration{
			Releases: h.store, KubeClient: &kubefake.PrintingKubeClient{Out: io.Discard}, Log: func(string, ...any) {},
			Capabilities: &chartutil.Capabilities{
				KubeVersion: chartutil.KubeVersion{Version: version, Major: "1", Minor: "36"}, HelmVersion: chartutil.DefaultCapabilities.HelmVersion,
				APIVersions: chartutil.VersionSet{"admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy"},
			},
		}, nil
	}
}

// stored describes the revisions that Helm has stored.
func (h *helmHub) stored() string {
	h.store.Driver.(*driver.Memory).SetNamespace("") // all
	list, err := h.store.ListReleases()
	if err != nil {
		return err.Error()
	}
	var out []string
	for _, r := range list {
		out = append(out, fmt.Sprintf("%s/%s.v%d %s %s replicas=%v", r.Namespace, r.Name, r.Version, r.Info.Status, r.Chart.Metadata.Version, r.Config["replicas"]))
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

// TestInstall has the output of the commands that install Rulefleet, and what Helm has stored then.
func TestInstall(t *testing.T) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "rulefleet-system"}}
	nobody := func(authorizationv1.SelfSubjectAccessReviewSpec) bool { return false }
	// without is an administrator without some rights.
	without := func(rights ...string) func(authorizationv1.SelfSubjectAccessReviewSpec) bool {
		return func(s authorizationv1.SelfSubjectAccessReviewSpec) bool {
			return s.ResourceAttributes == nil || !slices.Contains(rights, s.ResourceAttributes.Verb+" "+s.ResourceAttributes.Resource)
		}
	}
	deployed := func() []*release.Release {
		return []*release.Release{revision(1, release.StatusSuperseded, "0.0.8"), revision(2, release.StatusDeployed, "0.0.9")}
	}
	for _, tc := range []struct {
		name, args string
		stdin      string
		hub        helmHub
		release    string // that the plugin was built for
		code       int
	}{
		{name: "install", args: "install"},
		{name: "install-no-wait", args: "install --wait=false --set replicas=3"},
		{name: "install-namespace-exists", args: "install", hub: helmHub{objects: []client.Object{namespace}, allowed: without("create namespaces", "* *")}},
		{name: "install-again-after-uninstall", args: "install", hub: helmHub{objects: []client.Object{crd("rulefleet-0.0.9")}}},
		{name: "install-kept-history", args: "install", hub: helmHub{releases: []*release.Release{revision(1, release.StatusUninstalled, "0.0.9")}}},
		{name: "install-release", args: "install --namespace other --release-name rf", release: "9.8.7"},
		{name: "install-dry-run", args: "install --dry-run -o name"},
		{name: "install-denied", args: "install", hub: helmHub{allowed: nobody}, code: exit.Denied},
		{name: "install-denied-some", args: "install", hub: helmHub{allowed: without("* *", "create clusterroles", "create namespaces", "escalate clusterroles", "watch alertrules", "watch secrets")}, code: exit.Denied},
		{name: "install-old-server", args: "install", hub: helmHub{version: "v1.29.4"}, code: exit.Failed},
		{name: "install-vendor-version", args: "install", hub: helmHub{version: "v1.30.0-eks-8cce635"}},
		{name: "install-exists", args: "install", hub: helmHub{releases: deployed()}, code: exit.Failed},
		{name: "install-failed", args: "install", hub: helmHub{releases: []*release.Release{revision(1, release.StatusFailed, "0.0.9")}}, code: exit.Failed},
		{name: "install-pending", args: "install", hub: helmHub{releases: []*release.Release{revision(1, release.StatusPendingInstall, "0.0.9")}}, code: exit.Failed},
		{name: "install-crd-newer", args: "install", hub: helmHub{objects: []client.Object{crd("rulefleet-99.0.0")}}, code: exit.Failed},
		{name: "install-crd-newer-allowed", args: "install --allow-downgrade", hub: helmHub{objects: []client.Object{crd("rulefleet-99.0.0")}}},
		{name: "install-crd-of-kubectl", args: "install", hub: helmHub{objects: []client.Object{crd("", func(d *apiextensionsv1.CustomResourceDefinition) {
			d.Labels, d.Annotations = nil, nil
		})}}, code: exit.Failed},
		{name: "install-crd-left-alone", args: "install --set crds.enabled=false", hub: helmHub{objects: []client.Object{crd("", func(d *apiextensionsv1.CustomResourceDefinition) {
			d.Labels, d.Annotations = nil, nil
		})}}},
		{name: "install-crd-of-another-release", args: "install --namespace other", hub: helmHub{objects: []client.Object{crd("rulefleet-0.0.9")}}, code: exit.Failed},
		{name: "install-crd-stored-version", args: "install --allow-downgrade", hub: helmHub{objects: []client.Object{crd("rulefleet-99.0.0", func(d *apiextensionsv1.CustomResourceDefinition) {
			d.Status.StoredVersions = []string{"v1alpha1", "v1"}
		})}}, code: exit.Failed},
		{name: "install-unserved", args: "install --set metrics.serviceMonitor.enabled=true", code: exit.Failed},
		{name: "install-bad-value", args: "install --set replicas=many", code: exit.Usage},
		{name: "install-unknown-value", args: "install --set replica=1", code: exit.Usage},
		{name: "install-contradiction", args: "install --set generatedNamespace=rulefleet-system", code: exit.Usage},
		{name: "install-bad-set", args: "install --set replicas[", code: exit.Usage},
		{name: "install-no-values-file", args: "install --values testdata/none.yaml", code: exit.Usage},
		{name: "install-no-namespace", args: "install --create-namespace=false", code: exit.Missing},
		{name: "install-bad-name", args: "install --release-name A_B", code: exit.Usage},
		{name: "install-bad-namespace", args: "install --namespace A_B", code: exit.Usage},
		{name: "install-argument", args: "install rulefleet", code: exit.Usage},
		{name: "install-bad-timeout", args: "install --timeout 0", code: exit.Usage},
		{name: "install-output", args: "install -o yaml", code: exit.Usage},

		{name: "upgrade", args: "upgrade", hub: helmHub{releases: deployed(), objects: []client.Object{namespace, crd("rulefleet-0.0.9")}}},
		{name: "upgrade-set", args: "upgrade --set replicas=2 --wait=false", hub: helmHub{releases: deployed(), objects: []client.Object{namespace}}},
		{name: "upgrade-reset-values", args: "upgrade --reset-values", hub: helmHub{releases: deployed(), objects: []client.Object{namespace}}},
		{name: "upgrade-dry-run", args: "upgrade --dry-run -o name", hub: helmHub{releases: deployed(), objects: []client.Object{namespace}}},
		{name: "upgrade-after-failed-install", args: "upgrade", hub: helmHub{releases: []*release.Release{revision(1, release.StatusFailed, "0.0.9")}}},
		{name: "upgrade-after-failed-upgrade", args: "upgrade", hub: helmHub{releases: []*release.Release{
			revision(1, release.StatusDeployed, "0.0.9"), revision(2, release.StatusFailed, "0.0.9", func(r *release.Release) { r.Config["replicas"] = float64(7) }),
		}}},
		{name: "upgrade-denied", args: "upgrade", hub: helmHub{releases: deployed(), allowed: without("* *", "patch deployments", "delete serviceaccounts", "delete secrets")}, code: exit.Denied},
		{name: "upgrade-missing", args: "upgrade", code: exit.Missing},
		{name: "upgrade-missing-here", args: "upgrade --namespace other", hub: helmHub{objects: []client.Object{crd("rulefleet-0.0.9")}}, code: exit.Missing},
		{name: "upgrade-uninstalled", args: "upgrade", hub: helmHub{releases: []*release.Release{revision(1, release.StatusUninstalled, "0.0.9")}}, code: exit.Missing},
		{name: "upgrade-newer", args: "upgrade", hub: helmHub{releases: []*release.Release{revision(1, release.StatusDeployed, "99.0.0")}}, code: exit.Failed},
		{name: "upgrade-newer-allowed", args: "upgrade --allow-downgrade", hub: helmHub{releases: []*release.Release{revision(1, release.StatusDeployed, "99.0.0")}}},
		{name: "upgrade-pending", args: "upgrade", hub: helmHub{releases: []*release.Release{revision(2, release.StatusDeployed, "0.0.9"), revision(3, release.StatusPendingUpgrade, "0.0.9")}}, code: exit.Failed},
		{name: "upgrade-other-chart", args: "upgrade", hub: helmHub{releases: []*release.Release{revision(1, release.StatusDeployed, "0.0.9", func(r *release.Release) {
			r.Chart.Metadata.Name = "nginx"
		})}}, code: exit.Failed},

		{name: "uninstall", args: "uninstall --yes", hub: helmHub{releases: deployed(), objects: hubObjects(t)}},
		{name: "uninstall-asked", args: "uninstall", stdin: "y\n", hub: helmHub{releases: deployed()}},
		{name: "uninstall-refused", args: "uninstall", stdin: "n\n", hub: helmHub{releases: deployed()}, code: exit.Failed},
		{name: "uninstall-not-asked", args: "uninstall", hub: helmHub{releases: deployed()}, code: exit.Usage},
		{name: "uninstall-dry-run", args: "uninstall --dry-run -o name", hub: helmHub{releases: deployed(), objects: hubObjects(t)}},
		{name: "uninstall-dry-run-yaml", args: "uninstall --dry-run", hub: helmHub{releases: deployed(), objects: hubObjects(t)}},
		{name: "uninstall-dry-run-json", args: "uninstall --dry-run -o json", hub: helmHub{releases: deployed(), objects: hubObjects(t)}},
		{name: "uninstall-interrupted", args: "uninstall --yes", hub: helmHub{releases: []*release.Release{revision(1, release.StatusUninstalling, "0.0.9")}}},
		{name: "uninstall-crds-not-kept", args: "uninstall --yes", hub: helmHub{releases: []*release.Release{revision(1, release.StatusDeployed, "0.0.9", func(r *release.Release) {
			r.Manifest = strings.Replace(manifest, "keep", "none", 1)
		})}}},
		{name: "uninstall-denied", args: "uninstall --yes", hub: helmHub{releases: deployed(), allowed: nobody}, code: exit.Denied},
		{name: "uninstall-denied-no-hooks", args: "uninstall --yes --no-hooks --wait=false", hub: helmHub{releases: deployed(), allowed: nobody}, code: exit.Denied},
		{name: "uninstall-missing", args: "uninstall --yes --namespace other", hub: helmHub{releases: deployed(), objects: []client.Object{crd("rulefleet-0.0.9")}}, code: exit.Missing},

		{name: "export", args: "export"},
		{name: "export-manifests", args: "export manifests --set crds.enabled=false --set metrics.dashboard.enabled=true -o name"},
		{name: "export-manifests-yaml", args: "export manifests --set crds.enabled=false --values testdata/values.yaml"},
		{name: "export-manifests-name", args: "export manifests --create-namespace=false -n alerts -o name"},
		{name: "export-manifests-bad-value", args: "export manifests --set replicas=many", code: exit.Usage},
		{name: "export-manifests-bad-format", args: "export manifests -o wide", code: exit.Usage},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := tc.hub
			c, helm := h.client(t), h.helm(t)
			before := h.stored()
			r := invoke(t, c, tc.stdin, func(e *env.Env) {
				e.Hub.Helm, e.Release, e.Interactive = helm, tc.release, tc.stdin != ""
			}, strings.Fields(tc.args)...)
			if r.code != tc.code {
				t.Errorf("exit code %d, want %d", r.code, tc.code)
			}
			after := h.stored()
			if (tc.code != exit.OK || strings.Contains(tc.args, "--dry-run")) && after != before {
				t.Errorf("it has changed the releases:\n%s", after)
			}
			golden(t, tc.name, fmt.Sprintf("$ kubectl rulefleet %s\n%s%s[exit code %d]\n[releases]\n%s\n", tc.args, r.out.String(), r.err.String(), r.code, after))
		})
	}
}

// TestReleasesCantBeRead has a person who may not list Secrets: the right is named along with others. It also has an
// API server that says that the person may, and then refuses.
func TestReleasesCantBeRead(t *testing.T) {
	for _, args := range []string{"install", "upgrade", "uninstall --yes"} {
		for allowed, want := range map[bool]string{
			false: "\n  secrets in namespace rulefleet-system: list, create",
			true:  "the hub does not let you read the releases in namespace rulefleet-system",
		} {
			t.Run(fmt.Sprintf("%s allowed=%v", args, allowed), func(t *testing.T) {
				if strings.HasPrefix(args, "uninstall") {
					want = strings.Replace(want, "create", "update", 1)
				}
				h := helmHub{allowed: func(authorizationv1.SelfSubjectAccessReviewSpec) bool { return allowed }}
				c, helm := h.client(t), h.helm(t)
				r := invoke(t, c, "", func(e *env.Env) {
					e.Hub.Helm = func(namespace string) (*action.Configuration, error) {
						cfg, err := helm(namespace)
						cfg.Releases = storage.Init(&unreadable{driver.NewMemory()})
						return cfg, err
					}
				}, strings.Fields(args)...)
				if r.code != exit.Denied || !strings.Contains(r.err.String(), want) {
					t.Errorf("exit code %d: %s", r.code, r.err.String())
				}
			})
		}
	}
}

// unreadable is where releases are stored that a person may not read.
type unreadable struct{ *driver.Memory }

func (*unreadable) List(func(*release.Release) bool) ([]*release.Release, error) {
	return nil, fmt.Errorf("list: %w", denied("secrets"))
}

func (*unreadable) Query(map[string]string) ([]*release.Release, error) {
	return nil, fmt.Errorf("query: %w", denied("secrets"))
}

// TestFailureOfHelm has an API server that refuses a write.
func TestFailureOfHelm(t *testing.T) {
	for _, tc := range []struct {
		args     string
		releases []*release.Release
		want     string
	}{
		{"install", nil, "run kubectl rulefleet upgrade with the same values"},
		{"upgrade", []*release.Release{revision(1, release.StatusDeployed, "0.0.9")}, "run the command again"},
	} {
		t.Run(tc.args, func(t *testing.T) {
			h := helmHub{releases: tc.releases}
			c, helm := h.client(t), h.helm(t)
			broken := errors.New("the API server is down")
			r := invoke(t, c, "", func(e *env.Env) {
				e.Hub.Helm = func(namespace string) (*action.Configuration, error) {
					cfg, err := helm(namespace)
					cfg.KubeClient = &kubefake.FailingKubeClient{PrintingKubeClient: kubefake.PrintingKubeClient{Out: io.Discard}, WaitError: broken}
					return cfg, err
				}
			}, strings.Fields(tc.args)...)
			if r.code != exit.Failed || !strings.Contains(r.err.String(), broken.Error()) || !strings.Contains(r.err.String(), tc.want) {
				t.Errorf("exit code %d: %s", r.code, r.err.String())
			}
		})
	}
}

// TestFailedUninstallation says whether the command can be run again.
func TestFailedUninstallation(t *testing.T) {
	for _, tc := range []struct {
		name  string
		build error // before anything is deleted
		watch error // of the hook, after Helm has deleted the objects
		code  int
		want  string
	}{
		{"nothing is deleted", errors.New("the API server is down"), nil, exit.Failed, "Run the command again"},
		{"the hook fails", nil, errors.New("timed out"), exit.NotReady, "docs/how-to/install.md#uninstall"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := helmHub{releases: []*release.Release{revision(1, release.StatusDeployed, "0.0.9")}}
			c, helm := h.client(t), h.helm(t)
			r := invoke(t, c, "", func(e *env.Env) {
				e.Hub.Helm = func(namespace string) (*action.Configuration, error) {
					cfg, err := helm(namespace)
					cfg.KubeClient = &kubefake.FailingKubeClient{PrintingKubeClient: kubefake.PrintingKubeClient{Out: io.Discard}, BuildError: tc.build, WatchUntilReadyError: tc.watch}
					return cfg, err
				}
			}, "uninstall", "--yes")
			if r.code != tc.code || !strings.Contains(r.err.String(), tc.want) {
				t.Errorf("exit code %d: %s", r.code, r.err.String())
			}
			if gone := h.stored() == ""; gone != (tc.watch != nil) {
				t.Errorf("the releases are %q", h.stored())
			}
		})
	}
}

// TestExportIsDeterministic has the same output each time, with every CustomResourceDefinition.
func TestExportIsDeterministic(t *testing.T) {
	export := func() string {
		r := invoke(t, nil, "", nil, "export", "manifests", "--set", "metrics.dashboard.enabled=true")
		if r.code != exit.OK {
			t.Fatal(r.err.String())
		}
		return r.out.String()
	}
	first := export()
	for range 5 {
		if again := export(); again != first {
			t.Fatal("the output is different")
		}
	}
	kinds := map[string]int{}
	for line := range strings.Lines(first) {
		if kind, ok := strings.CutPrefix(line, "kind: "); ok {
			kinds[strings.TrimSpace(kind)]++
		}
	}
	if kinds["CustomResourceDefinition"] != 4 || kinds["Namespace"] != 1 || kinds["Deployment"] != 1 || kinds["Job"] != 0 {
		t.Errorf("it has these kinds: %v", slices.Sorted(maps.Keys(kinds)))
	}
}
