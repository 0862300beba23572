package e2e

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
)

// former is a hub with templates that have the keys of the version before: clusters, and workloads with the fields of a
// label selector.
type former struct {
	*fleet.Fleet
	spoke *fleet.Member
}

// formerTemplates is how many templates there are, and as many Deployments, each of which one template selects.
const formerTemplates = 50

// TestFormerTemplates upgrades a hub whose templates have former keys. No rule is made, lost or rewritten: not by the
// upgrade, and not when the keys are renamed.
//
// With BEFORE, the path of a former manager, and BEFORE_CRDS, the folder of its CustomResourceDefinitions, it begins with
// those. Otherwise it stores the keys by a CustomResourceDefinition that accepts them.
func TestFormerTemplates(t *testing.T) {
	long(t)
	parallel(t)
	f := &former{Fleet: start(t, fleet.Options{Spokes: []string{spokeA}})}
	f.spoke = f.Spoke(spokeA)
	before := os.Getenv("BEFORE")
	if before != "" {
		f.define(t, os.Getenv("BEFORE_CRDS"), func(*apiextensionsv1.JSONSchemaProps) {})
	}
	m, err := f.StartManager(t.Context(), fleet.ManagerOptions{Path: before, Dir: t.TempDir()})
	must(t, err)
	must(t, f.Register(t.Context(), spokeA, map[string]string{"env": "prod"}))
	expectCondition(t, f.Fleet, membership(spokeA), v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
	namespace(t, "shop", f.spoke)
	createMany(t, f.spoke, formerTemplates, 8, func(i int) client.Object {
		d := deployment("shop", fmt.Sprintf("web-%d", i))
		d.Labels["scope"] = fmt.Sprint(i)
		return d
	})
	createMany(t, f.Hub, formerTemplates, 8, func(i int) client.Object {
		tpl := template(fmt.Sprintf("scoped-%d", i), "shop")
		if before != "" {
			formerly(tpl, i)
		} else {
			presently(tpl, i)
		}
		return tpl
	})
	rules := f.settled(t)

	must(t, m.Stop())
	crds := filepath.Join("..", "charts", "rulefleet", "files", "crds")
	if before == "" {
		f.define(t, crds, func(schema *apiextensionsv1.JSONSchemaProps) {
			spec := schema.Properties["spec"]
			workloads := spec.Properties["workloads"]
			spec.XValidations, workloads.XValidations = nil, nil
			spec.Properties["workloads"], schema.Properties["spec"] = workloads, spec
		})
		f.rewrite(t, formerly)
	}
	f.define(t, crds, func(*apiextensionsv1.JSONSchemaProps) {})
	startManager(t, f.Fleet, t.TempDir())
	f.accepted(t, metav1.ConditionFalse, "spec.clusters: clusters was renamed; move its content to spec.placement")
	f.same(t, rules)

	tpl := &v1alpha1.AlertRuleTemplate{}
	must(t, read(t.Context(), f.Hub, client.ObjectKey{Name: "scoped-1"}, tpl))
	tpl.Spec.For = "7m"
	if err := f.Hub.Client.Update(t.Context(), tpl); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "move its content to spec.placement") {
		t.Errorf("a write that keeps the former keys: %v", err)
	}

	tpl.Spec.Clusters = nil
	if err := f.Hub.Client.Update(t.Context(), tpl); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "move them to spec.workloads.selector") {
		t.Errorf("a write that keeps one of the former keys: %v", err)
	}

	f.rewrite(t, presently)
	f.accepted(t, metav1.ConditionTrue, "")
	f.same(t, rules)
}

// formerly and presently set the scope of template i.
func formerly(tpl *v1alpha1.AlertRuleTemplate, i int) {
	tpl.Spec.Placement, tpl.Spec.Clusters = nil, new(onLabeled("env", "prod"))
	tpl.Spec.Workloads = &v1alpha1.WorkloadSelection{MatchLabels: map[string]v1alpha1.RuleLabelValue{"scope": v1alpha1.RuleLabelValue(fmt.Sprint(i))}}
}

func presently(tpl *v1alpha1.AlertRuleTemplate, i int) {
	tpl.Spec.Placement, tpl.Spec.Clusters = new(onLabeled("env", "prod")), nil
	tpl.Spec.Workloads = &v1alpha1.WorkloadSelection{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"scope": fmt.Sprint(i)}}}
}

func (f *former) rewrite(t *testing.T, change func(*v1alpha1.AlertRuleTemplate, int)) {
	t.Helper()
	for i := range formerTemplates {
		eventually(t, "the template is written", func(ctx context.Context) error { // the API server may not know the new schema yet
			tpl := &v1alpha1.AlertRuleTemplate{}
			if err := read(ctx, f.Hub, client.ObjectKey{Name: fmt.Sprintf("scoped-%d", i)}, tpl); err != nil {
				return err
			}
			change(tpl, i)
			return f.Hub.Client.Update(ctx, tpl)
		})
	}
}

// define replaces the CustomResourceDefinitions of the hub by those in a folder, with the schema of templates changed.
func (f *former) define(t *testing.T, dir string, change func(*apiextensionsv1.JSONSchemaProps)) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	must(t, err)
	if len(files) == 0 {
		t.Fatalf("there are no CustomResourceDefinitions in %s", dir)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		must(t, err)
		crd := &apiextensionsv1.CustomResourceDefinition{}
		must(t, yaml.Unmarshal(data, crd))
		if crd.Spec.Names.Kind == "AlertRuleTemplate" {
			change(crd.Spec.Versions[0].Schema.OpenAPIV3Schema)
		}
		update(t, f.Hub, &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: crd.Name}}, func(is *apiextensionsv1.CustomResourceDefinition) {
			is.Spec = crd.Spec
		})
	}
}

// settled waits until each template has its rule in the spoke, and the hub and the spoke have those of the built-in template
// as well. It returns the versions of all rules.
func (f *former) settled(t *testing.T) map[string]string {
	t.Helper()
	var versions map[string]string
	eventually(t, "each template has its rule in the spoke", func(ctx context.Context) (err error) {
		var n int
		// The lists of the hub and of the spoke are not of the same moment.
		if versions, n, err = f.versions(ctx); err == nil && (n != formerTemplates || len(versions) != 4*formerTemplates) {
			err = fmt.Errorf("%d of %d rules are there, and %d objects", n, formerTemplates, len(versions))
		}
		return err
	})
	return versions
}

// versions returns what identifies the spec of each AlertRule on the hub and each PrometheusRule in the spoke, and how many
// PrometheusRules the templates have.
func (f *former) versions(ctx context.Context) (out map[string]string, n int, err error) {
	var rules v1alpha1.AlertRuleList
	var objects monitoringv1.PrometheusRuleList
	if err := f.Hub.Client.List(ctx, &rules); err != nil {
		return nil, 0, err
	}
	if err := f.spoke.Client.List(ctx, &objects); err != nil {
		return nil, 0, err
	}
	out = map[string]string{}
	for i := range rules.Items {
		out[rules.Items[i].Name] = fmt.Sprint(rules.Items[i].UID, rules.Items[i].Generation)
	}
	for i := range objects.Items {
		o := &objects.Items[i]
		out[o.Namespace+"/"+o.Name] = fmt.Sprint(o.UID, o.ResourceVersion)
		if strings.HasPrefix(o.Spec.Groups[0].Rules[0].Alert, "scoped-") {
			n++
		}
	}
	return out, n, nil
}

func (f *former) same(t *testing.T, want map[string]string) {
	t.Helper()
	got, _, err := f.versions(t.Context())
	must(t, err)
	if !maps.Equal(got, want) {
		t.Errorf("rules were made, lost or rewritten: there were %d, and there are %d", len(want), len(got))
	}
}

// accepted waits until all templates have this condition, and the workloads that they select are counted again.
func (f *former) accepted(t *testing.T, status metav1.ConditionStatus, message string) {
	t.Helper()
	eventually(t, fmt.Sprintf("Accepted is %s", status), func(ctx context.Context) error {
		var templates v1alpha1.AlertRuleTemplateList
		if err := f.Hub.Client.List(ctx, &templates); err != nil {
			return err
		}
		for i := range templates.Items {
			tpl := &templates.Items[i]
			if !strings.HasPrefix(tpl.Name, "scoped-") {
				continue
			}
			c := meta.FindStatusCondition(tpl.Status.Conditions, v1alpha1.ConditionAccepted)
			if c == nil || c.Status != status || !strings.Contains(c.Message, message) || c.ObservedGeneration != tpl.Generation {
				return fmt.Errorf("template %s has %+v", tpl.Name, c)
			}
			if s := tpl.Status.Summary; s == nil || s.Matched != 1 || s.Generated != 1 {
				return fmt.Errorf("template %s has %+v", tpl.Name, s)
			}
		}
		return nil
	})
}
