package integrations

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	kstatus "github.com/fluxcd/cli-utils/pkg/kstatus/status"
	lua "github.com/yuin/gopher-lua"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// health is how tools read the status of an object.
type health struct {
	kstatus kstatus.Status // Flux, Config Sync, the apply sets of kubectl
	argo    string
}

var (
	inProgress = health{kstatus.InProgressStatus, "Progressing"}
	current    = health{kstatus.CurrentStatus, "Healthy"}
	broken     = health{kstatus.FailedStatus, "Degraded"}
)

// TestHealth has tools read objects as the API server returns them. The tests of
// pkg/controller/status write those files.
func TestHealth(t *testing.T) {
	want := map[string]health{
		"alertrule-new":                       inProgress,
		"alertrule-nowhere":                   inProgress,
		"alertrule-progressing":               inProgress,
		"alertrule-ready":                     current,
		"alertrule-edited":                    inProgress,
		"alertrule-invalid":                   broken,
		"alertrule-stalled":                   broken,
		"alertrule-mutated":                   inProgress,
		"alertrule-disabled":                  current,
		"alertrule-suspended":                 {kstatus.InProgressStatus, "Suspended"},
		"alertrule-suspended-as-it-should-be": current,
		"template-new":                        inProgress,
		"template-valid":                      current,
		"template-invalid":                    broken,
		"spoke-new":                           inProgress,
		"spoke-connecting":                    inProgress,
		"spoke-connected":                     current,
		"spoke-down":                          {kstatus.InProgressStatus, "Degraded"},
	}
	files, err := filepath.Glob("../../pkg/controller/status/testdata/health/*.yaml")
	must(t, err)
	if len(files) != len(want) {
		t.Errorf("there are %d objects, and %d are expected", len(files), len(want))
	}
	checks := argoChecks(t)
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(file)
			must(t, err)
			// As a JSON decoder of Kubernetes does, this makes integers of integers.
			var o unstructured.Unstructured
			converted, err := yaml.YAMLToJSON(data)
			must(t, err)
			must(t, o.UnmarshalJSON(converted))
			result, err := kstatus.Compute(&o)
			must(t, err)
			status, message := runLua(t, checks[o.GetKind()], o.Object)
			expected, known := want[name]
			if !known || result.Status != expected.kstatus || status != expected.argo || message == "" {
				t.Errorf("kstatus says %s (%s), Argo CD %s (%s); want %s, %s", result.Status, result.Message, status, message, expected.kstatus, expected.argo)
			}
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// argoChecks returns the health checks in docs/how-to/argocd.md, by kind.
func argoChecks(t *testing.T) map[string]string {
	t.Helper()
	doc, err := os.ReadFile("../../docs/how-to/argocd.md")
	must(t, err)
	_, rest, _ := strings.Cut(string(doc), "```yaml\n")
	block, _, closed := strings.Cut(rest, "```\n")
	if !closed {
		t.Fatal("docs/how-to/argocd.md has no block of YAML")
	}
	var cm struct {
		APIVersion string            `json:"apiVersion"`
		Kind       string            `json:"kind"`
		Metadata   map[string]any    `json:"metadata"`
		Data       map[string]string `json:"data"`
	}
	must(t, yaml.UnmarshalStrict([]byte(block), &cm))
	checks := map[string]string{}
	for key, check := range cm.Data {
		checks[strings.TrimPrefix(key, "resource.customizations.health.rulefleet.io_")] = check
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
