package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/release"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/plugin/exit"
	"github.com/rulefleet/rulefleet/pkg/testing/controlplane"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
	"github.com/rulefleet/rulefleet/pkg/testing/helm"
)

// installTest is a bare hub, on which the plugin installs Rulefleet. No pod can run on it.
type installTest struct {
	hub       *controlplane.Cluster
	client    client.Client
	admin     *kubectlRulefleet
	installer *kubectlRulefleet // only has the rights in installerRules
	release   *helm.Release
	cache     string
}

// TestInstall installs Rulefleet with the plugin, upgrades it and uninstalls it, as somebody who has only the rights
// that the plugin asks for.
func TestInstall(t *testing.T) {
	parallel(t)
	onProcesses(t)
	hub, err := controlplane.Start(t.Context(), controlplane.Options{Name: "hub", Audit: true, OpenAPI: true, ControllerManager: true})
	must(t, err)
	t.Cleanup(func() { must(t, hub.Stop()) })
	i := &installTest{hub: hub, cache: t.TempDir()}
	i.client, err = client.New(hub.RESTConfig(), client.Options{Scheme: fleet.Scheme})
	must(t, err)
	installer, err := hub.UserKubeconfig("installer")
	must(t, err)
	i.admin, i.installer = pluginWith(t, map[string][]byte{"hub": hub.Kubeconfig()}), pluginWith(t, map[string][]byte{"hub": installer})
	i.release = &helm.Release{Kubeconfig: i.admin.kubeconfig, Namespace: fleet.Namespace, Name: fleet.Release}

	t.Run("dry run", i.dryRun)
	t.Run("rights", i.rights)
	t.Run("install", i.install)
	t.Run("upgrade", i.upgrade)
	t.Run("not ready", i.notReady)
	t.Run("uninstall", i.uninstall)
	t.Run("install again", i.installAgain)
	t.Run("hooks", i.hooks)
}

// args returns a command with values with which objects can be written while no manager runs.
func (i *installTest) args(command string, args ...string) []string {
	return append([]string{"--cache-dir=" + i.cache, command}, args...)
}

// withoutWebhook are values with which AlertRules can be written while no manager runs.
var withoutWebhook = []string{"--set", "webhook.enabled=false"}

// writes returns what the plugin has written since the last call, and how often it has read.
func (i *installTest) writes(t *testing.T) (writes []string, reads int) {
	t.Helper()
	events, err := i.hub.Audit().Events(func(e controlplane.AuditEvent) bool { return strings.HasPrefix(e.UserAgent, "kubectl-rulefleet/") })
	must(t, err)
	must(t, i.hub.Audit().Reset())
	for _, e := range events {
		if e.IsWrite() {
			writes = append(writes, e.Verb+" "+e.ObjectRef.Resource+"/"+e.ObjectRef.Name)
		} else {
			reads++
		}
	}
	return writes, reads
}

func (i *installTest) expectNoWrites(t *testing.T) {
	t.Helper()
	if writes, reads := i.writes(t); len(writes) > 0 || reads == 0 {
		t.Errorf("after %d reads, it has written: %q", reads, writes)
	}
}

// expectReleases compares the releases that Helm lists.
func (i *installTest) expectReleases(t *testing.T, want ...string) {
	t.Helper()
	list, err := i.release.List()
	must(t, err)
	var got []string
	for _, r := range list {
		got = append(got, fmt.Sprintf("%s.v%d %s %s", r.Name, r.Version, r.Info.Status, r.Chart.Name()))
	}
	if !slices.Equal(got, want) {
		t.Errorf("helm list has %q, want %q", got, want)
	}
}

func (i *installTest) dryRun(t *testing.T) {
	must(t, i.hub.Audit().Reset())
	out := i.admin.expect(t, exit.OK, "Nothing was written", i.args("install", "--dry-run")...)
	for _, want := range []string{"kind: Namespace\n", "kind: CustomResourceDefinition\n", "kind: Deployment\n", "kind: ValidatingAdmissionPolicy\n", "# Source: rulefleet/templates/rbac.yaml\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("the output lacks %q", want)
		}
	}
	i.expectNoWrites(t)
	i.expectReleases(t)
}

// installerRules are the rights to install Rulefleet, with what the plugin says when one is missing.
func installerRules() map[string]rbacv1.PolicyRule {
	rule := func(group, resources, verbs string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: strings.Split(resources, ","), Verbs: strings.Split(verbs, ",")}
	}
	const rbac, admission = rbacv1.GroupName, "admissionregistration.k8s.io"
	return map[string]rbacv1.PolicyRule{
		"list secrets in namespace rulefleet-system, create secrets in namespace rulefleet-system, update secrets in namespace rulefleet-system": rule("", "secrets", "list,create,update"),

		"get namespaces rulefleet-system":                                               rule("", "namespaces", "get"),
		"create namespaces":                                                             rule("", "namespaces", "create"),
		"create serviceaccounts in namespace rulefleet-system":                          rule("", "serviceaccounts", "create"),
		"get serviceaccounts rulefleet in namespace rulefleet-system":                   rule("", "serviceaccounts", "get"),
		"create services in namespace rulefleet-system":                                 rule("", "services", "create"),
		"get services rulefleet-metrics in namespace rulefleet-system":                  rule("", "services", "get"),
		"list replicasets.apps in namespace rulefleet-system":                           rule("apps", "replicasets", "list"),
		"create deployments.apps in namespace rulefleet-system":                         rule("apps", "deployments", "create"),
		"get deployments.apps rulefleet in namespace rulefleet-system":                  rule("apps", "deployments", "get"),
		"create networkpolicies.networking.k8s.io in namespace rulefleet-system":        rule("networking.k8s.io", "networkpolicies", "create"),
		"get networkpolicies.networking.k8s.io rulefleet in namespace rulefleet-system": rule("networking.k8s.io", "networkpolicies", "get"),
		"create poddisruptionbudgets.policy in namespace rulefleet-system":              rule("policy", "poddisruptionbudgets", "create"),
		"get poddisruptionbudgets.policy rulefleet in namespace rulefleet-system":       rule("policy", "poddisruptionbudgets", "get"),
		"create customresourcedefinitions.apiextensions.k8s.io":                         rule("apiextensions.k8s.io", "customresourcedefinitions", "create"),
		"get customresourcedefinitions.apiextensions.k8s.io alertrules.rulefleet.io, get customresourcedefinitions.apiextensions.k8s.io alertruletemplates.rulefleet.io, " +
			"get customresourcedefinitions.apiextensions.k8s.io rulepacks.rulefleet.io, get customresourcedefinitions.apiextensions.k8s.io spokeclusters.rulefleet.io": rule("apiextensions.k8s.io", "customresourcedefinitions", "get"),
		"patch customresourcedefinitions.apiextensions.k8s.io alertrules.rulefleet.io, patch customresourcedefinitions.apiextensions.k8s.io alertruletemplates.rulefleet.io, " +
			"patch customresourcedefinitions.apiextensions.k8s.io rulepacks.rulefleet.io, patch customresourcedefinitions.apiextensions.k8s.io spokeclusters.rulefleet.io": rule("apiextensions.k8s.io", "customresourcedefinitions", "patch"),

		"create clusterroles.rbac.authorization.k8s.io": rule(rbac, "clusterroles", "create"),
		"get clusterroles.rbac.authorization.k8s.io rulefleet, get clusterroles.rbac.authorization.k8s.io rulefleet-metrics-reader": rule(rbac, "clusterroles", "get"),
		"create clusterrolebindings.rbac.authorization.k8s.io":                                                                      rule(rbac, "clusterrolebindings", "create"),
		"get clusterrolebindings.rbac.authorization.k8s.io rulefleet":                                                               rule(rbac, "clusterrolebindings", "get"),
		"create roles.rbac.authorization.k8s.io in namespace rulefleet-system":                                                      rule(rbac, "roles", "create"),
		"get roles.rbac.authorization.k8s.io rulefleet in namespace rulefleet-system":                                               rule(rbac, "roles", "get"),
		"create rolebindings.rbac.authorization.k8s.io in namespace rulefleet-system":                                               rule(rbac, "rolebindings", "create"),
		"get rolebindings.rbac.authorization.k8s.io rulefleet in namespace rulefleet-system":                                        rule(rbac, "rolebindings", "get"),

		// To grant what one does not have. In the namespace, it is the manager's Role; in the cluster, its ClusterRole.
		"get secrets in namespace rulefleet-system":                          rule(rbac, "roles", "escalate"),
		"watch secrets in namespace rulefleet-system":                        rule(rbac, "roles", "bind"),
		"delete alertrules.rulefleet.io":                                     rule(rbac, "clusterroles", "escalate"),
		"create tokenreviews.authentication.k8s.io":                          rule(rbac, "clusterroles", "bind"),
		"create validatingadmissionpolicies.admissionregistration.k8s.io":    rule(admission, "validatingadmissionpolicies,validatingadmissionpolicybindings,validatingwebhookconfigurations", "create"),
		"get validatingadmissionpolicies.admissionregistration.k8s.io":       rule(admission, "validatingadmissionpolicies", "get"),
		"get validatingadmissionpolicybindings.admissionregistration.k8s.io": rule(admission, "validatingadmissionpolicybindings", "get"),
	}
}

// lacked returns the rights on the hub that the plugin names: one in the same line, or several by their resource.
func lacked(stderr string) (out []string) {
	_, list, _ := strings.Cut(stderr, "error: you lack permissions on the hub:")
	one, list, _ := strings.Cut(list, "\n")
	if one != "" {
		return []string{strings.TrimSpace(one)}
	}
	for line := range strings.Lines(list) {
		line, listed := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "  ")
		if !listed {
			return out
		}
		resource, grants, _ := strings.Cut(line, ": ")
		resource, namespace, namespaced := strings.Cut(resource, " in namespace ")
		if namespaced {
			namespace = " in namespace " + namespace
		}
		for grant := range strings.SplitSeq(grants, "; ") { // VERB, VERB NAME, NAME
			words := strings.Fields(grant)
			last := slices.IndexFunc(words, func(word string) bool { return !strings.HasSuffix(word, ",") })
			names := words[last+1:]
			if len(names) == 0 {
				names = []string{""}
			}
			for _, verb := range words[:last+1] {
				for _, name := range names {
					right := strings.TrimSuffix(verb, ",") + " " + resource + " " + strings.TrimSuffix(name, ",")
					out = append(out, strings.TrimSpace(right)+namespace)
				}
			}
		}
	}
	return out
}

// grant replaces the rights of the installer.
func (i *installTest) grant(t *testing.T, rules []rbacv1.PolicyRule) {
	t.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "installer"}}
	err := i.client.Get(t.Context(), client.ObjectKeyFromObject(role), role)
	role.Rules = rules
	if err == nil {
		must(t, i.client.Update(t.Context(), role))
		return
	}
	must(t, client.IgnoreNotFound(err))
	must(t, i.client.Create(t.Context(), role))
	must(t, i.client.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "installer"}, Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "installer"}},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "installer"},
	}))
}

// rights removes each right in turn, and expects that it is named, and no other that the installer has.
func (i *installTest) rights(t *testing.T) {
	rules := installerRules()
	i.grant(t, nil)
	_, _, nothing := i.installer.run(t, i.args("install", withoutWebhook...)...)
	all := strings.Join(lacked(nothing), "\n") + "\n"
	for missing := range rules {
		for right := range strings.SplitSeq(missing, ", ") {
			if !strings.Contains(all, right) {
				t.Errorf("without any right, it does not name %q", right)
			}
		}
	}
	for n, missing := range slices.Sorted(maps.Keys(rules)) {
		if testing.Short() && n%8 != 0 { // make test-all runs the others
			continue
		}
		some := maps.Clone(rules)
		delete(some, missing)
		i.grant(t, slices.Collect(maps.Values(some)))
		verb := rules[missing].Verbs[0]
		several := verb == "escalate" || verb == "bind" || strings.Contains(missing, "validatingadmission") // more rights are missing then
		eventually(t, "without it, the plugin names: "+missing, func(context.Context) error {
			code, _, stderr := i.installer.run(t, i.args("install", withoutWebhook...)...)
			named := strings.Join(lacked(stderr), ", ")
			if code != exit.Denied || (named != missing && !several) || (several && !strings.Contains(named, missing)) {
				return fmt.Errorf("exit code %d: %s", code, stderr)
			}
			return nil
		})
	}
	i.expectNoWrites(t)
	i.expectReleases(t)
}

func (i *installTest) install(t *testing.T) {
	i.grant(t, slices.Collect(maps.Values(installerRules())))
	eventually(t, "the installer has all rights", func(context.Context) error {
		if code, _, stderr := i.installer.run(t, i.args("install", append(withoutWebhook, "--dry-run", "-o", "name")...)...); code != exit.OK {
			return errors.New(stderr)
		}
		return nil
	})
	i.expectNoWrites(t)
	i.installer.expect(t, exit.OK, "Rulefleet 0.1.0 is installed (revision 1)", i.args("install", append(withoutWebhook, "--wait=false", "--set", "replicas=1")...)...)
	i.expectReleases(t, "rulefleet.v1 deployed rulefleet")
	if writes, _ := i.writes(t); len(writes) < 20 {
		t.Errorf("the audit log only has the writes %q", writes)
	}
	i.admin.expect(t, exit.Failed, "release rulefleet in namespace rulefleet-system exists already", i.args("install")...)
	i.admin.expect(t, exit.Failed, "belongs to release rulefleet in namespace rulefleet-system", i.args("install", "--namespace", "other")...)
	i.expectNoWrites(t)
	for _, o := range i.customResources() {
		eventually(t, "the kind is served", func(ctx context.Context) error { return client.IgnoreAlreadyExists(i.client.Create(ctx, o)) })
	}
}

// customResources are objects that an uninstallation leaves.
func (i *installTest) customResources() []client.Object {
	return []client.Object{
		alertRule("kept", "shop", onEvery()),
		&v1alpha1.SpokeCluster{ObjectMeta: metav1.ObjectMeta{Name: "kept"}},
	}
}

// versions returns the resourceVersions of the custom resources, and of the CustomResourceDefinitions.
func (i *installTest) versions(t *testing.T) map[string]string {
	t.Helper()
	objects := i.customResources()
	for _, name := range []string{"alertrules", "alertruletemplates", "spokeclusters"} {
		objects = append(objects, &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: name + "." + v1alpha1.Group}})
	}
	out := map[string]string{}
	for _, o := range objects {
		must(t, i.client.Get(t.Context(), client.ObjectKeyFromObject(o), o))
		out[fmt.Sprintf("%T %s", o, o.GetName())] = string(o.GetUID()) + " " + o.GetResourceVersion()
	}
	return out
}

func (i *installTest) deployment(t *testing.T) *appsv1.Deployment {
	t.Helper()
	d := &appsv1.Deployment{}
	must(t, i.client.Get(t.Context(), client.ObjectKey{Namespace: fleet.Namespace, Name: fleet.Release}, d))
	return d
}

func (i *installTest) upgrade(t *testing.T) {
	before := i.versions(t)
	must(t, i.hub.Audit().Reset())
	i.admin.expect(t, exit.OK, "Upgrading from version 0.1.0 (revision 1)", i.args("upgrade", "--dry-run", "-o", "name", "--set-string", "image.tag=1.10")...)
	i.expectNoWrites(t)
	i.expectReleases(t, "rulefleet.v1 deployed rulefleet")
	if after := i.versions(t); !maps.Equal(after, before) {
		t.Errorf("the dry run changed\n%v to\n%v", before, after)
	}
	// The installer may create objects, and not change them.
	i.installer.expect(t, exit.Denied, "  deployments.apps in namespace rulefleet-system: patch rulefleet\n", i.args("upgrade")...)
	i.expectNoWrites(t)

	// No pod is needed, so that Rulefleet is ready at once. The earlier values stay.
	i.admin.expect(t, exit.OK, "Rulefleet is upgraded to 0.1.0 and ready (revision 2)", i.args("upgrade", "--set", "replicas=0", "--set-string", "image.tag=1.10")...)
	i.expectReleases(t, "rulefleet.v2 deployed rulefleet")
	d := i.deployment(t)
	if image := d.Spec.Template.Spec.Containers[0].Image; *d.Spec.Replicas != 0 || !strings.HasSuffix(image, ":1.10") {
		t.Errorf("the Deployment has %d replicas of %s", *d.Spec.Replicas, image)
	}
	if args := d.Spec.Template.Spec.Containers[0].Args; !slices.Contains(args, "--webhook-port=0") {
		t.Errorf("the value of the installation is lost: %q", args)
	}
}

// notReady has a release whose pods never run: it has failed, for Helm as well, and can be repaired.
func (i *installTest) notReady(t *testing.T) {
	_, _, stderr := i.admin.run(t, i.args("upgrade", "--set", "replicas=1", "--timeout", "2s")...)
	for _, want := range []string{"Waiting: ", "Deployment rulefleet-system/rulefleet: 0 of 1 new pods are ready", "error: Rulefleet is applied, but was not ready within 2s"} {
		if !strings.Contains(stderr, want) {
			t.Errorf("it does not print %q", want)
		}
	}
	i.expectReleases(t, "rulefleet.v3 failed rulefleet")
	i.admin.expect(t, exit.OK, "Rulefleet is upgraded to 0.1.0 and ready (revision 4)", i.args("upgrade")...)
	i.expectReleases(t, "rulefleet.v4 deployed rulefleet")
	if d := i.deployment(t); *d.Spec.Replicas != 0 {
		t.Errorf("the Deployment has %d replicas: the values are those of the upgrade that failed", *d.Spec.Replicas)
	}
}

func (i *installTest) uninstall(t *testing.T) {
	before := i.versions(t)
	must(t, i.hub.Audit().Reset())
	i.admin.expect(t, exit.OK, "Registered spokes: kept", i.args("uninstall", "--dry-run", "-o", "name")...)
	i.admin.expect(t, exit.Usage, "needs a confirmation", i.args("uninstall")...)
	i.installer.expect(t, exit.Denied, "  deployments.apps in namespace rulefleet-system: delete rulefleet\n", i.args("uninstall", "--yes")...)
	i.expectNoWrites(t)
	i.admin.expect(t, exit.OK, "These CustomResourceDefinitions stay", i.args("uninstall", "--yes", "--no-hooks")...)
	i.expectReleases(t)
	if after := i.versions(t); !maps.Equal(after, before) {
		t.Errorf("the uninstallation changed\n%v to\n%v", before, after)
	}
	for _, o := range []client.Object{
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.Namespace, Name: fleet.Release}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.Namespace, Name: fleet.Release}},
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: fleet.Release}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: fleet.Release}},
	} {
		if err := i.client.Get(t.Context(), client.ObjectKeyFromObject(o), o); !apierrors.IsNotFound(err) {
			t.Errorf("%T %s is still there: %v", o, o.GetName(), err)
		}
	}
	i.admin.expect(t, exit.Missing, "release rulefleet not found in namespace rulefleet-system", i.args("uninstall", "--yes")...)
	i.admin.expect(t, exit.Missing, "release rulefleet not found in namespace rulefleet-system", i.args("upgrade")...)
}

// installAgain has CustomResourceDefinitions of a newer version, of somebody else, and those of the uninstalled release.
func (i *installTest) installAgain(t *testing.T) {
	key := client.ObjectKey{Name: "spokeclusters." + v1alpha1.Group}
	change := func(f func(*apiextensionsv1.CustomResourceDefinition)) {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		must(t, i.client.Get(t.Context(), key, crd))
		before := crd.DeepCopy()
		f(crd)
		must(t, i.client.Patch(t.Context(), crd, client.MergeFrom(before)))
	}
	install := i.args("install", append(withoutWebhook, "--set", "replicas=0")...)
	must(t, i.hub.Audit().Reset())
	change(func(c *apiextensionsv1.CustomResourceDefinition) { c.Labels["helm.sh/chart"] = "rulefleet-99.0.0" })
	i.admin.expect(t, exit.Failed, "is of Rulefleet 99.0.0, which is newer than 0.1.0", install...)
	labels := map[string]string{}
	change(func(c *apiextensionsv1.CustomResourceDefinition) { labels, c.Labels = c.Labels, nil })
	i.admin.expect(t, exit.Failed, "was not created by Helm", install...)
	change(func(c *apiextensionsv1.CustomResourceDefinition) {
		labels["helm.sh/chart"] = "rulefleet-0.0.1"
		c.Labels = labels
	})
	i.expectNoWrites(t)
	i.admin.expect(t, exit.OK, "Rulefleet 0.1.0 is installed and ready (revision 1)", install...)
	i.expectReleases(t, "rulefleet.v1 deployed rulefleet")
}

// hooks has a Job that releases the SpokeClusters, and that no node runs.
func (i *installTest) hooks(t *testing.T) {
	installed, err := i.release.Status()
	must(t, err)
	if !slices.ContainsFunc(installed.Hooks, func(h *release.Hook) bool { return h.Kind == "Job" }) {
		t.Fatal("the release has no Job")
	}
	i.admin.expect(t, exit.NotReady, "SpokeClusters may still have a finalizer", i.args("uninstall", "--yes", "--timeout", "5s")...)
	i.expectReleases(t)
}
