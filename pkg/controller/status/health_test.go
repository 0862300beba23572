package status

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/yaml"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/validation"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
)

var update = flag.Bool("update", false, "write the golden files under testdata")

// testHealth compares objects of each kind, as the API server returns them, with golden files.
// The module e2e/integrations has other tools read those.
func testHealth(t *testing.T, h *fleet.Member) {
	t.Helper()
	r := newReconciler(h.Client)
	for name, c := range map[string]struct {
		edit     func(*v1alpha1.AlertRule)
		verdicts []v1alpha1.ClusterStatus
		unseen   bool // by the operator
		after    func(*v1alpha1.AlertRule)
		ready    bool
	}{
		"new":         {unseen: true},
		"nowhere":     {edit: func(ar *v1alpha1.AlertRule) { ar.Spec.Placement.Names = []v1alpha1.ClusterName{"none"} }},
		"progressing": {verdicts: []v1alpha1.ClusterStatus{applied("a")}},
		"ready":       {verdicts: []v1alpha1.ClusterStatus{applied("a"), applied("b")}, ready: true},
		"edited": {
			verdicts: []v1alpha1.ClusterStatus{applied("a"), applied("b")},
			after:    func(ar *v1alpha1.AlertRule) { ar.Spec.For = "1m" },
		},
		"invalid":  {edit: func(ar *v1alpha1.AlertRule) { ar.Spec.Expr = "up ==" }},
		"stalled":  {verdicts: []v1alpha1.ClusterStatus{applied("a"), failed("b", v1alpha1.ReasonConflict, "rename it")}},
		"mutated":  {verdicts: []v1alpha1.ClusterStatus{applied("a"), failed("b", v1alpha1.ReasonMutated, "changed")}},
		"disabled": {edit: func(ar *v1alpha1.AlertRule) { ar.Spec.State = v1alpha1.Disabled }, ready: true},
		"suspended": {
			edit:     func(ar *v1alpha1.AlertRule) { ar.Spec.Suspend = new(true) },
			verdicts: []v1alpha1.ClusterStatus{applied("a"), {Name: "b", Phase: v1alpha1.PhaseApplied, Reason: v1alpha1.ReasonSuspended, ObservedGeneration: 1}},
		},
		"suspended as it should be": {
			edit:     func(ar *v1alpha1.AlertRule) { ar.Spec.Suspend = new(true) },
			verdicts: []v1alpha1.ClusterStatus{applied("a"), applied("b")}, ready: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			ar := alertRule("health-"+strings.ReplaceAll(name, " ", "-"), "a", "b")
			if c.edit != nil {
				c.edit(ar)
			}
			must(t, h.Client.Create(t.Context(), ar))
			for _, v := range c.verdicts {
				r.Board.Report(rule.KeyOf(ar), ar.UID, v)
			}
			if !c.unseen {
				ar = reconcileRule(t, r, ar)
			}
			if c.after != nil {
				c.after(ar)
				must(t, h.Client.Update(t.Context(), ar))
			}
			checkHealth(t, h, "alertrule", ar, c.ready)
		})
	}
	testTemplateHealth(t, h)
	testSpokeHealth(t, h)
}

func testTemplateHealth(t *testing.T, h *fleet.Member) {
	t.Helper()
	r := &TemplateReconciler{Client: h.Client, Validator: validation.New(validate)}
	for _, name := range []string{"new", "valid", "invalid"} {
		t.Run("template "+name, func(t *testing.T) {
			art := &v1alpha1.AlertRuleTemplate{ObjectMeta: metav1.ObjectMeta{Name: "health-" + name}}
			art.Spec.Alert, art.Spec.Expr = "Down", "up == 0"
			if name == "invalid" {
				art.Spec.Expr = "up =="
			}
			must(t, h.Client.Create(t.Context(), art))
			if name != "new" {
				_, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(art)})
				must(t, err)
			}
			checkHealth(t, h, "template", art, name == "valid")
		})
	}
}

func testSpokeHealth(t *testing.T, h *fleet.Member) {
	t.Helper()
	since := metav1.Unix(1e9, 0)
	unknown := metav1.Condition{Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonConnecting, Message: "waiting"}
	for name, connected := range map[string]*metav1.Condition{
		"new": nil, "connecting": &unknown, "connected": new(up(since)), "down": new(down(since)),
	} {
		t.Run("spoke "+name, func(t *testing.T) {
			sc := &v1alpha1.SpokeCluster{ObjectMeta: metav1.ObjectMeta{Name: "health-" + name}}
			must(t, h.Client.Create(t.Context(), sc))
			if connected != nil {
				setConnected(t, h.Client, sc, *connected)
			}
			checkHealth(t, h, "spoke", sc, name == "connected")
		})
	}
}

// checkHealth reads an object from the API server, runs kubectl wait for it, and compares it with its golden
// file.
func checkHealth(t *testing.T, h *fleet.Member, kind string, o client.Object, ready bool) {
	t.Helper()
	gvk, err := h.Client.GroupVersionKindFor(o)
	must(t, err)
	got := &unstructured.Unstructured{}
	got.SetGroupVersionKind(gvk)
	must(t, h.Client.Get(t.Context(), client.ObjectKeyFromObject(o), got))
	args := []string{"wait", "--for=condition=Ready", "--timeout=0s", gvk.GroupKind().String() + "/" + o.GetName()}
	if o.GetNamespace() != "" {
		args = append(args, "-n", o.GetNamespace())
	}
	out, err := h.Kubectl(t.Context(), args...).CombinedOutput()
	if (err == nil) != ready {
		t.Errorf("kubectl wait: %v, %s; want ready %v", err, out, ready)
	}
	for _, field := range []string{"managedFields", "uid", "resourceVersion", "creationTimestamp"} {
		unstructured.RemoveNestedField(got.Object, "metadata", field)
	}
	fixTimes(got.Object)
	golden(t, strings.Replace(o.GetName(), "health", kind, 1), got.Object)
}

// fixTimes replaces all times of an object by one.
func fixTimes(object map[string]any) {
	for key, value := range object {
		switch value := value.(type) {
		case map[string]any:
			fixTimes(value)
		case []any:
			for _, item := range value {
				if item, ok := item.(map[string]any); ok {
					fixTimes(item)
				}
			}
		case string:
			if strings.HasSuffix(key, "Time") {
				object[key] = "2026-01-01T00:00:00Z"
			}
		}
	}
}

// golden compares an object with testdata/health/<name>.yaml.
func golden(t *testing.T, name string, object any) {
	t.Helper()
	got, err := yaml.Marshal(object)
	must(t, err)
	path := filepath.Join("testdata", "health", name+".yaml")
	if *update {
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, got, 0o644))
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (go test -update writes it)", err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs (go test -update writes it); got:\n%s", path, got)
	}
}
