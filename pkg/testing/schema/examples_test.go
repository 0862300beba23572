package schema

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/delivery"
	"github.com/rulefleet/rulefleet/pkg/rule/templating"
	"github.com/rulefleet/rulefleet/pkg/rule/validation"
	"github.com/rulefleet/rulefleet/pkg/spoke/kubeconfig"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
)

// TestExamples applies every example of the documentation, and has Rulefleet's
// own validator and renderer look at it.
func TestExamples(t *testing.T) {
	applied := map[string]bool{}
	for _, file := range examples(t) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range documents(t, data) {
				id := fmt.Sprintf("%s %s/%s", o.GetKind(), o.GetNamespace(), o.GetName())
				if applied[id] {
					t.Errorf("%s is in the examples twice", id)
				}
				applied[id] = true
				apply(t, o)
				check(t, o)
				checkWarnings(t, o)
			}
		})
	}
	kinds := map[string]int{}
	for id := range applied {
		kind, _, _ := strings.Cut(id, " ")
		kinds[kind]++
	}
	for _, kind := range []string{"AlertRule", "AlertRuleTemplate", "Deployment", "RulePack", "Secret", "SpokeCluster"} {
		if kinds[kind] == 0 {
			t.Errorf("there is no example of a %s", kind)
		}
	}
	t.Logf("applied: %v", kinds)
}

// examples returns the files under docs/examples. Each has to be one.
func examples(t *testing.T) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(filepath.Join(root, "docs", "examples"), func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
		case filepath.Ext(path) != ".yaml":
			t.Errorf("%s is no .yaml, and so not tested", path)
		default:
			files = append(files, path)
		}
		return nil
	})
	if err != nil || len(files) == 0 {
		t.Fatalf("there are no examples: %v", err)
	}
	return files
}

// documents decodes the objects in a file. There is at least one.
func documents(t *testing.T, data []byte) []*unstructured.Unstructured {
	t.Helper()
	var out []*unstructured.Unstructured
	decoder := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for {
		document, err := decoder.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		o := &unstructured.Unstructured{}
		if err := errors.Join(err, yaml.UnmarshalStrict(document, &o.Object)); err != nil {
			t.Fatal(err)
		}
		out = append(out, o)
	}
	if len(out) == 0 {
		t.Fatal("there is no object in it")
	}
	return out
}

// apply applies an object again and again, as kubectl does on the server's side. Only
// the first time may change it. The second may store it once more, as it is: the API
// server leaves a new object's status out, and its defaults with it.
func apply(t *testing.T, o *unstructured.Unstructured) {
	t.Helper()
	if name := o.GetNamespace(); name != "" {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if err := hub.Client.Create(t.Context(), namespace); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	var answers []*unstructured.Unstructured
	for range 3 {
		u := o.DeepCopy()
		if err := hub.Client.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(u), client.FieldOwner("test")); err != nil {
			t.Fatalf("%s: %v", o.GetName(), err)
		}
		answers = append(answers, u)
	}
	if answers[1].GetResourceVersion() != answers[2].GetResourceVersion() {
		t.Errorf("%s: it is written every time that it is applied: %v", o.GetName(), answers[2].Object)
	}
	for _, u := range answers {
		u.SetResourceVersion("")
	}
	if !equality.Semantic.DeepEqual(answers[0], answers[1]) {
		t.Errorf("%s: applied once more, it changes from %v to %v", o.GetName(), answers[0].Object, answers[1].Object)
	}
}

// check has Rulefleet look at an object, as it does before it uses one.
func check(t *testing.T, o *unstructured.Unstructured) {
	t.Helper()
	switch o.GetKind() {
	case "AlertRule":
		ar := &v1alpha1.AlertRule{}
		convert(t, o, ar)
		checkRule(t, ar)
	case "RulePack":
		if bad := validate(t, o); bad != nil {
			t.Errorf("RulePack %s is not valid: %v", o.GetName(), bad)
		}
	case "AlertRuleTemplate":
		if bad := validate(t, o); bad != nil {
			t.Errorf("AlertRuleTemplate %s is not valid: %v", o.GetName(), bad)
		}
		template := &v1alpha1.AlertRuleTemplate{}
		convert(t, o, template)
		checkTemplate(t, template)
	case "Deployment":
		checkAdjustments(t, o)
	case "Secret":
		data, _, _ := unstructured.NestedString(o.Object, "stringData", v1alpha1.KubeconfigKey)
		if o.GetLabels()[v1alpha1.RegistrationLabel] != "true" || o.GetNamespace() != fleet.Namespace {
			t.Errorf("Secret %s registers nothing", o.GetName())
		}
		if _, err := kubeconfig.RESTConfig([]byte(data), kubeconfig.Allowance{}); err != nil {
			t.Errorf("the kubeconfig in Secret %s is refused: %v", o.GetName(), err)
		}
	case "SpokeCluster":
	default:
		t.Errorf("teach this test what to check of a %s", o.GetKind())
	}
}

var (
	cluster = rule.Cluster{Name: "eu-prod-1", Labels: map[string]string{"env": "prod", "region": "eu"}}
	options = delivery.Options{HubID: "hub", AdminNamespace: fleet.Namespace, RuleNamespace: "monitoring", ClusterLabel: "cluster"}
)

func checkRule(t *testing.T, ar *v1alpha1.AlertRule) {
	t.Helper()
	if bad := validation.Rule(ar, hubOptions); bad != nil {
		t.Errorf("AlertRule %s is not valid: %v", ar.Name, bad)
	}
	if _, err := delivery.Render(ar, cluster, options); err != nil {
		t.Errorf("AlertRule %s can't be in %s: %v", ar.Name, cluster.Name, err)
	}
}

// checkTemplate checks what a template makes for a workload of each of its kinds.
func checkTemplate(t *testing.T, template *v1alpha1.AlertRuleTemplate) {
	t.Helper()
	for _, kind := range rule.KindsOf(template) {
		w := templating.Workload{
			Kind: kind, Cluster: cluster, Namespace: "payments", NamespaceLabels: map[string]string{"tier": "production"},
			Name: "web.v2", Labels: map[string]string{"team": "shop", "slo": "latency", "tier": "critical"},
		}
		if ok, err := templating.Matches(template, w); !ok || err != nil {
			t.Errorf("AlertRuleTemplate %s does not match %+v: %v", template.Name, w, err)
		}
		ar, err := templating.Rule(template, w, fleet.GeneratedNamespace)
		if err != nil {
			t.Fatalf("AlertRuleTemplate %s makes no AlertRule: %v", template.Name, err)
		}
		checkRule(t, ar)
	}
}

// checkWarnings checks that a template has no warnings.
func checkWarnings(t *testing.T, o *unstructured.Unstructured) {
	t.Helper()
	if o.GetKind() != "AlertRuleTemplate" {
		return
	}
	template := &v1alpha1.AlertRuleTemplate{}
	convert(t, o, template)
	if warnings := validation.TemplateWarnings(template, hubOptions); len(warnings) > 0 {
		t.Errorf("AlertRuleTemplate %s has warnings: %q", template.Name, warnings)
	}
}

// checkAdjustments checks that a Deployment's annotations are ones that adjust alerts.
func checkAdjustments(t *testing.T, o *unstructured.Unstructured) {
	t.Helper()
	adjustments := []v1alpha1.Adjustment{
		v1alpha1.AdjustAlerts, v1alpha1.AdjustDisable, v1alpha1.AdjustSeverity, v1alpha1.AdjustFor, v1alpha1.AdjustLabels, v1alpha1.AdjustParams,
	}
	found := 0
	for key := range o.GetAnnotations() {
		name, ours := strings.CutPrefix(key, v1alpha1.AdjustmentPrefix)
		if !ours {
			continue
		}
		found++
		if !slices.Contains(adjustments, v1alpha1.Adjustment(name)) {
			t.Errorf("Deployment %s: nothing reads the annotation %s", o.GetName(), key)
		}
	}
	if found == 0 {
		t.Errorf("Deployment %s shows nothing", o.GetName())
	}
}

func convert(t *testing.T, o *unstructured.Unstructured, into any) {
	t.Helper()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, into, true); err != nil {
		t.Fatal(err)
	}
}
