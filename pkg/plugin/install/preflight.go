package install

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/kube"
	"helm.sh/helm/v3/pkg/release"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/pkg/plugin/advice"
	"github.com/rulefleet/rulefleet/pkg/plugin/cluster"
	"github.com/rulefleet/rulefleet/pkg/plugin/exit"
)

// Labels and annotations by which Helm marks what it owns.
const (
	managedByLabel        = "app.kubernetes.io/managed-by"
	chartLabel            = "helm.sh/chart"
	releaseAnnotation     = "meta.helm.sh/release-name"
	releaseNamespaceAnnot = "meta.helm.sh/release-namespace"
)

// checkServer refuses an API server that is older than the chart supports.
func checkServer(c *chart.Chart, version string) error {
	if c.Metadata.KubeVersion == "" || chartutil.IsCompatibleRange(c.Metadata.KubeVersion, version) {
		return nil
	}
	return exit.New(exit.Failed, "Upgrade the hub, or select another one with --context.", "the hub runs Kubernetes %s, and Rulefleet %s needs %s",
		version, c.Metadata.Version, strings.TrimSuffix(c.Metadata.KubeVersion, "-0"))
}

// preflight checks permissions first, and then what exists on the hub.
func (o *operation) preflight(ctx context.Context) error {
	if err := o.checkNamespace(ctx); err != nil {
		return err
	}
	objects, err := o.objectRights()
	if err != nil {
		return err
	}
	granted, err := grants(o.documents)
	if err != nil {
		return err
	}
	if err := permit(ctx, o.hub, o.target.namespace, slices.Concat(o.helmRights(), objects), granted, o.unread); err != nil {
		return err
	}
	if err := o.checkRelease(ctx); err != nil {
		return err
	}
	return o.checkCRDs(ctx)
}

// checkNamespace finds out whether the namespace has to be created.
func (o *operation) checkNamespace(ctx context.Context) error {
	var ns corev1.Namespace
	err := o.hub.Get(ctx, client.ObjectKey{Name: o.target.namespace}, &ns)
	switch {
	case apierrors.IsForbidden(err): // the preflight names this permission, along with others
		return nil
	case apierrors.IsNotFound(err) && (o.createNamespace || o.upgrade):
		o.missing = true
		return nil
	case apierrors.IsNotFound(err):
		return exit.New(exit.Missing, "Create it, or omit --create-namespace=false.", "namespace %q not found on the hub", o.target.namespace)
	case err != nil:
		return fmt.Errorf("reading namespace %s: %w", o.target.namespace, err)
	case !ns.DeletionTimestamp.IsZero():
		return exit.New(exit.Failed, "Wait until it is gone, and run the command again.", "namespace %s is being deleted", o.target.namespace)
	}
	return nil
}

// helmRights returns the rights for the namespace and for Helm's own records.
func (o *operation) helmRights() []cluster.Right {
	out := []cluster.Right{{Verb: "get", Resource: "namespaces", Name: o.target.namespace}}
	if o.missing && !o.upgrade {
		out = append(out, cluster.Right{Verb: "create", Resource: "namespaces"})
	}
	verbs := []string{"list", "create", "update"}
	if o.upgrade {
		verbs = append(verbs, "delete") // of revisions past the history
	}
	for _, verb := range verbs {
		out = append(out, cluster.Right{Verb: verb, Resource: "secrets", Namespace: o.target.namespace})
	}
	if o.wait {
		out = append(out, cluster.Right{Verb: "list", Group: "apps", Resource: "replicasets", Namespace: o.target.namespace})
	}
	return out
}

// objectRights returns the rights to apply the objects, and to remove those that are not wanted any more.
func (o *operation) objectRights() ([]cluster.Right, error) {
	verbs := func(d document) []string {
		if o.upgrade || d.GetKind() == kindCRD { // it may be there, from an earlier installation
			return []string{"get", "create", "patch"}
		}
		return []string{"get", "create"}
	}
	out, err := rights(o.hub.RESTMapper(), o.documents, o.target.namespace, verbs)
	if err != nil || o.current == nil {
		return out, err
	}
	present, err := parse(o.current.Manifest)
	if err != nil {
		return nil, err
	}
	gone := slices.DeleteFunc(present, func(d document) bool {
		return kept(d) || slices.ContainsFunc(o.documents, func(other document) bool { return identity(d) == identity(other) })
	})
	removal, err := rights(o.hub.RESTMapper(), gone, o.target.namespace, func(document) []string { return []string{"delete"} })
	return append(out, removal...), err
}

const kindCRD = "CustomResourceDefinition"

func identity(d document) string {
	return d.GroupVersionKind().GroupKind().String() + " " + d.GetNamespace() + "/" + d.GetName()
}

// kept reports whether Helm leaves an object when its release is uninstalled.
func kept(d document) bool {
	return strings.EqualFold(strings.TrimSpace(d.GetAnnotations()[kube.ResourcePolicyAnno]), kube.KeepPolicy)
}

// rights returns the rights for requests about objects.
func rights(mapper meta.RESTMapper, documents []document, namespace string, verbs func(document) []string) ([]cluster.Right, error) {
	var out []cluster.Right
	for _, d := range documents {
		gvk := d.GroupVersionKind()
		mapping, err := mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
		if meta.IsNoMatchError(err) {
			return nil, exit.New(exit.Failed, "Install the CustomResourceDefinition of this kind, or turn the object off in the values ("+advice.Docs+"charts/rulefleet/README.md).",
				"%s %s: the hub does not serve %s", gvk.Kind, d.GetName(), gvk.GroupVersion().WithKind(gvk.Kind).GroupKind())
		}
		if err != nil {
			return nil, fmt.Errorf("looking up %s on the hub: %w", gvk, err)
		}
		right := cluster.Right{Group: mapping.Resource.Group, Resource: mapping.Resource.Resource}
		if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
			right.Namespace = d.GetNamespace()
			if right.Namespace == "" {
				right.Namespace = namespace
			}
		}
		for _, right.Verb = range verbs(d) {
			right.Name = d.GetName()
			if right.Verb == "create" {
				right.Name = "" // RBAC does not know the name then
			}
			if !slices.Contains(out, right) {
				out = append(out, right)
			}
		}
	}
	return out, nil
}

// grants returns the rights that the Roles and ClusterRoles among some objects grant.
func grants(documents []document) ([]cluster.Right, error) {
	objects := make([]*unstructured.Unstructured, len(documents))
	for i, d := range documents {
		objects[i] = d.Unstructured
	}
	return cluster.Grants(objects)
}

// lacking returns those of the rights, and of the rights to grant, that the person does not have.
func lacking(ctx context.Context, hub client.Client, needed, granted []cluster.Right) ([]cluster.Right, error) {
	everything := []cluster.Right{{Verb: "*", Group: "*", Resource: "*"}}
	for _, r := range granted {
		if r.Path != "" {
			everything = append(everything, r)
		}
	}
	missing, err := cluster.Lacking(ctx, hub, everything)
	if err != nil || len(missing) == 0 { // an administrator: hundreds of requests less
		return nil, err
	}
	out, err := cluster.Lacking(ctx, hub, needed)
	if err != nil {
		return nil, err
	}
	more, err := cluster.LackingGrants(ctx, hub, cluster.Without(granted, needed))
	return append(out, more...), err
}

// checkRelease refuses what Helm would refuse, and a downgrade.
func (o *operation) checkRelease(ctx context.Context) error {
	if o.upgrade && o.last == nil {
		return missingRelease(ctx, o.hub, o.target, "Install Rulefleet: "+o.target.command("install"))
	}
	if o.last == nil {
		return nil
	}
	where := fmt.Sprintf("release %s in namespace %s", o.last.Name, o.last.Namespace)
	present := o.last.Chart.Metadata.Version
	status := o.last.Info.Status
	switch {
	case status.IsPending() || status == release.StatusUninstalling:
		return exit.New(exit.Failed, fmt.Sprintf("Wait until it has ended. If it was interrupted: %s", mend(o.last)),
			"%s: another operation is in progress or was interrupted (revision %d, %s)", where, o.last.Version, status)
	case o.last.Chart.Metadata.Name != o.chart.Metadata.Name:
		return exit.New(exit.Failed, "Select another name with --release-name.", "%s is of another chart, %s", where, o.last.Chart.Metadata.Name)
	case !o.upgrade && status == release.StatusFailed:
		return exit.New(exit.Failed, fmt.Sprintf("Repair it: %s. Or remove it: %s", o.target.command("upgrade"), o.target.command("uninstall")), "%s exists, and its last operation failed: %s", where, o.last.Info.Description)
	case !o.upgrade && status != release.StatusUninstalled:
		return exit.New(exit.Failed, "Upgrade it, or change its values: "+o.target.command("upgrade"), "%s exists already, with Rulefleet %s (revision %d)", where, present, o.last.Version)
	case o.upgrade && status == release.StatusUninstalled:
		return exit.New(exit.Missing, "Install Rulefleet: "+o.target.command("install"), "%s is uninstalled", where)
	case newer(present, o.version()) && !o.allowDowngrade:
		return exit.New(exit.Failed, "Use the plugin of that version or a newer one. If you want to go back, add --allow-downgrade.",
			"%s has Rulefleet %s, which is newer than %s of this plugin", where, present, o.version())
	}
	return nil
}

// mend returns the command that removes the record of an interrupted operation.
func mend(r *release.Release) string {
	if r.Info.Status == release.StatusUninstalling {
		return target{r.Name, r.Namespace}.command("uninstall")
	}
	return fmt.Sprintf("kubectl -n %s delete secret sh.helm.release.v1.%s.v%d", r.Namespace, r.Name, r.Version)
}

// newer reports whether a is a newer version than b. What is not a version is not newer.
func newer(a, b string) bool {
	va, errA := semver.NewVersion(a)
	vb, errB := semver.NewVersion(b)
	return errA == nil && errB == nil && va.GreaterThan(vb)
}

// names of the CustomResourceDefinitions.
var crdNames = []string{"alertrules.rulefleet.io", "alertruletemplates.rulefleet.io", "rulepacks.rulefleet.io", "spokeclusters.rulefleet.io"}

// missingRelease says that a release does not exist, and which one has the CustomResourceDefinitions.
func missingRelease(ctx context.Context, hub client.Client, t target, next string) error {
	var crd apiextensionsv1.CustomResourceDefinition
	err := hub.Get(ctx, client.ObjectKey{Name: crdNames[0]}, &crd) // only for a hint
	if other := owner(&crd); err == nil && other.name != "" && other != t {
		next = fmt.Sprintf("The CustomResourceDefinitions belong to release %s in namespace %s; select it with --namespace and --release-name.", other.name, other.namespace)
	}
	return exit.New(exit.Missing, next, "release %s not found in namespace %s", t.name, t.namespace)
}

// owner returns the release that an object belongs to, if any.
func owner(o client.Object) target {
	if o.GetLabels()[managedByLabel] != "Helm" {
		return target{}
	}
	return target{o.GetAnnotations()[releaseAnnotation], o.GetAnnotations()[releaseNamespaceAnnot]}
}

// checkCRDs compares the CustomResourceDefinitions of the hub with those of the chart.
func (o *operation) checkCRDs(ctx context.Context) error {
	for _, name := range crdNames {
		var present apiextensionsv1.CustomResourceDefinition
		err := o.hub.Get(ctx, client.ObjectKey{Name: name}, &present)
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("reading CustomResourceDefinition %s: %w", name, err)
		}
		exists := err == nil
		i := slices.IndexFunc(o.documents, func(d document) bool { return d.GetKind() == kindCRD && d.GetName() == name })
		switch {
		case i < 0 && !exists:
			o.Say("Warning: CustomResourceDefinition %s not found, and crds.enabled is false. The manager does not start until you apply it. 'kubectl rulefleet export manifests' prints it.", name)
		case i >= 0 && exists:
			var wanted apiextensionsv1.CustomResourceDefinition
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.documents[i].Object, &wanted); err != nil {
				return fmt.Errorf("reading the embedded CustomResourceDefinition %s: %w", name, err)
			}
			if err := o.checkCRD(&present, &wanted); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkCRD refuses to replace a CustomResourceDefinition that has another owner, or is newer.
func (o *operation) checkCRD(present, wanted *apiextensionsv1.CustomResourceDefinition) error {
	what := "CustomResourceDefinition " + present.Name
	switch by := owner(present); {
	case !present.DeletionTimestamp.IsZero():
		return exit.New(exit.Failed, "Wait until it is gone, and run the command again.", "%s is being deleted", what)
	case by == (target{}):
		return exit.New(exit.Failed, fmt.Sprintf("Either keep it that way with --set crds.enabled=false, or hand it over to this release: "+
			"kubectl label crd %[1]s %[2]s=Helm --overwrite && kubectl annotate crd %[1]s %[3]s=%[5]s %[4]s=%[6]s --overwrite",
			present.Name, managedByLabel, releaseAnnotation, releaseNamespaceAnnot, o.releaseName, o.target.namespace),
			"%s exists, and was not created by Helm", what)
	case by != o.target:
		return exit.New(exit.Failed, "A hub can have only one installation of Rulefleet. Upgrade the existing release: "+by.command("upgrade"),
			"%s belongs to release %s in namespace %s", what, by.name, by.namespace)
	}
	for _, version := range present.Status.StoredVersions {
		if !slices.ContainsFunc(wanted.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == version }) {
			return exit.New(exit.Failed, "Use a newer version of the plugin.", "%s may have stored objects of version %s, which this plugin does not know", what, version)
		}
	}
	if version := chartVersion(present.Labels[chartLabel]); newer(version, o.version()) && !o.allowDowngrade {
		return exit.New(exit.Failed, "Use the plugin of that version or a newer one. If you want to go back, add --allow-downgrade: fields that the older version does not know are lost.",
			"%s is of Rulefleet %s, which is newer than %s of this plugin", what, version, o.version())
	}
	return nil
}

// chartVersion returns the version in the label helm.sh/chart, such as rulefleet-0.1.0.
func chartVersion(label string) string {
	_, version, _ := strings.Cut(label, "-")
	return strings.ReplaceAll(version, "_", "+")
}
