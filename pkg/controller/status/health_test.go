package status

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	kstatus "github.com/fluxcd/cli-utils/pkg/kstatus/status"
	lua "github.com/yuin/gopher-lua"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/yaml"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/controller/hub"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
)

// health is how tools read an object that is as the API server returns it.
type health struct {
	kstatus kstatus.Status // Flux, Config Sync, kubectl's apply sets
	argo    string
	ready   bool // kubectl wait --for=condition=Ready
}

var (
	inProgress = health{kstatus.InProgressStatus, "Progressing", false}
	current    = health{kstatus.CurrentStatus, "Healthy", true}
	broken     = health{kstatus.FailedStatus, "Degraded", false}
)

// testHealth has tools read the statuses of each kind.
func testHealth(t *testing.T, h *fleet.Member) {
	t.Helper()
	checks := argoChecks(t)
	r := newReconciler(h.Client)
	for name, c := range map[string]struct {
		edit     func(*v1alpha1.AlertRule)
		verdicts []v1alpha1.ClusterStatus
		unseen   bool // by the operator
		after    func(*v1alpha1.AlertRule)
		want     health
	}{
		"new":         {unseen: true, want: inProgress},
		"nowhere":     {edit: func(ar *v1alpha1.AlertRule) { ar.Spec.Placement.Names = []v1alpha1.ClusterName{"none"} }, want: inProgress},
		"progressing": {verdicts: []v1alpha1.ClusterStatus{applied("a")}, want: inProgress},
		"ready":       {verdicts: []v1alpha1.ClusterStatus{applied("a"), applied("b")}, want: current},
		"edited": {
			verdicts: []v1alpha1.ClusterStatus{applied("a"), applied("b")},
			after:    func(ar *v1alpha1.AlertRule) { ar.Spec.For = "1m" }, want: inProgress,
		},
		"invalid":  {edit: func(ar *v1alpha1.AlertRule) { ar.Spec.Expr = "up ==" }, want: broken},
		"stalled":  {verdicts: []v1alpha1.ClusterStatus{applied("a"), failed("b", v1alpha1.ReasonConflict, "rename it", 1)}, want: broken},
		"mutated":  {verdicts: []v1alpha1.ClusterStatus{applied("a"), failed("b", v1alpha1.ReasonMutated, "changed", 1)}, want: inProgress},
		"disabled": {edit: func(ar *v1alpha1.AlertRule) { ar.Spec.State = v1alpha1.Disabled }, want: current},
		"suspended": {
			edit:     func(ar *v1alpha1.AlertRule) { ar.Spec.Suspend = new(true) },
			verdicts: []v1alpha1.ClusterStatus{applied("a"), {Name: "b", Phase: v1alpha1.PhaseApplied, Reason: v1alpha1.ReasonSuspended, ObservedGeneration: 1}},
			want:     health{kstatus.InProgressStatus, "Suspended", false},
		},
		"suspended as it should be": {
			edit:     func(ar *v1alpha1.AlertRule) { ar.Spec.Suspend = new(true) },
			verdicts: []v1alpha1.ClusterStatus{applied("a"), applied("b")}, want: current,
		},
	} {
		t.Run(name, func(t *testing.T) {
			ar := alertRule("health-"+strings.ReplaceAll(name, " ", "-"), "a", "b")
			if c.edit != nil {
				c.edit(ar)
			}
			must(t, h.Client.Create(t.Context(), ar))
			for _, v := range c.verdicts {
				r.Board.Report(hub.Key(ar), v)
			}
			if !c.unseen {
				ar = reconcileRule(t, r, ar)
			}
			if c.after != nil {
				c.after(ar)
				must(t, h.Client.Update(t.Context(), ar))
			}
			checkHealth(t, h, checks, ar, c.want)
		})
	}
	testTemplateHealth(t, h, checks)
	testSpokeHealth(t, h, checks)
}

func testTemplateHealth(t *testing.T, h *fleet.Member, checks map[string]string) {
	t.Helper()
	r := &TemplateReconciler{Client: h.Client, Validator: rule.NewValidator(validate)}
	for name, want := range map[string]health{"new": inProgress, "valid": current, "invalid": broken} {
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
			checkHealth(t, h, checks, art, want)
		})
	}
}

func testSpokeHealth(t *testing.T, h *fleet.Member, checks map[string]string) {
	t.Helper()
	unknown := metav1.Condition{Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonConnecting, Message: "waiting"}
	for name, c := range map[string]struct {
		connected *metav1.Condition
		want      health
	}{
		"new":        {nil, inProgress},
		"connecting": {&unknown, inProgress},
		"connected":  {new(up(metav1.Now())), current},
		"down":       {new(down(metav1.Now())), health{kstatus.InProgressStatus, "Degraded", false}},
	} {
		t.Run("spoke "+name, func(t *testing.T) {
			sc := &v1alpha1.SpokeCluster{ObjectMeta: metav1.ObjectMeta{Name: "health-" + name}}
			must(t, h.Client.Create(t.Context(), sc))
			if c.connected != nil {
				setConnected(t, h.Client, sc, *c.connected)
			}
			checkHealth(t, h, checks, sc, c.want)
		})
	}
}

// checkHealth reads an object from the API server as tools do.
func checkHealth(t *testing.T, h *fleet.Member, checks map[string]string, o client.Object, want health) {
	t.Helper()
	gvk, err := h.Client.GroupVersionKindFor(o)
	must(t, err)
	got := &unstructured.Unstructured{}
	got.SetGroupVersionKind(gvk)
	must(t, h.Client.Get(t.Context(), client.ObjectKeyFromObject(o), got))
	result, err := kstatus.Compute(got)
	must(t, err)
	status, message := runLua(t, checks[gvk.Kind], got.Object)
	if result.Status != want.kstatus || status != want.argo || message == "" {
		t.Errorf("kstatus says %s (%s), Argo CD %s (%s); want %s, %s", result.Status, result.Message, status, message, want.kstatus, want.argo)
	}
	args := []string{"wait", "--for=condition=Ready", "--timeout=0s", gvk.GroupKind().String() + "/" + o.GetName()}
	if o.GetNamespace() != "" {
		args = append(args, "-n", o.GetNamespace())
	}
	out, err := h.Kubectl(t.Context(), args...).CombinedOutput()
	if (err == nil) != want.ready {
		t.Errorf("kubectl wait: %v, %s; want ready %v", err, out, want.ready)
	}
}

// argoChecks returns the health checks that the documentation gives, by kind.
func argoChecks(t *testing.T) map[string]string {
	t.Helper()
	doc, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "argocd.md"))
	must(t, err)
	_, rest, _ := strings.Cut(string(doc), "```yaml\n")
	block, _, closed := strings.Cut(rest, "```\n")
	if !closed {
		t.Fatal("the documentation has no block of YAML")
	}
	var cm corev1.ConfigMap
	must(t, yaml.UnmarshalStrict([]byte(block), &cm))
	checks := map[string]string{}
	for key, check := range cm.Data {
		checks[strings.TrimPrefix(key, "resource.customizations.health."+v1alpha1.Group+"_")] = check
	}
	return checks
}

// runLua runs a health check as Argo CD does, in the interpreter that it uses and with
// none of the libraries that it closes.
func runLua(t *testing.T, script string, o map[string]any) (status, message string) {
	t.Helper()
	l := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer l.Close()
	for name, open := range map[string]lua.LGFunction{lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable, lua.StringLibName: lua.OpenString} {
		must(t, l.CallByParam(lua.P{Fn: l.NewFunction(open), Protect: true}, lua.LString(name)))
	}
	l.SetGlobal("obj", toLua(l, o))
	must(t, l.DoString(script))
	hs, ok := l.Get(-1).(*lua.LTable)
	if !ok {
		t.Fatalf("the check returned %v", l.Get(-1))
	}
	return lua.LVAsString(hs.RawGetString("status")), lua.LVAsString(hs.RawGetString("message"))
}

func toLua(l *lua.LState, v any) lua.LValue {
	switch v := v.(type) {
	case map[string]any:
		table := l.NewTable()
		for key, value := range v {
			table.RawSetString(key, toLua(l, value))
		}
		return table
	case []any:
		table := l.NewTable()
		for _, value := range v {
			table.Append(toLua(l, value))
		}
		return table
	case bool:
		return lua.LBool(v)
	case int64:
		return lua.LNumber(v)
	case float64:
		return lua.LNumber(v)
	case nil:
		return lua.LNil
	}
	return lua.LString(fmt.Sprint(v))
}
