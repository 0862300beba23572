package plugin

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"helm.sh/helm/v3/pkg/release"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/pkg/plugin/cluster"
	"github.com/rulefleet/rulefleet/pkg/plugin/env"
	"github.com/rulefleet/rulefleet/pkg/plugin/exit"
	"github.com/rulefleet/rulefleet/pkg/plugin/output"
)

// ofTheChart are the commands that print all objects of the chart. A golden file of export manifests has them in YAML, and
// TestChartFormats compares all formats of all commands with it.
var ofTheChart = []string{"export manifests", "install", "upgrade"}

// goldens are the contents of the golden files, of which those of join and unjoin are beside the end-to-end tests.
func goldens(t *testing.T) (out []string) {
	t.Helper()
	for _, dir := range []string{"testdata", filepath.Join("..", "..", "e2e", "testdata")} {
		files, err := filepath.Glob(filepath.Join(dir, "*.golden"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, string(content))
		}
	}
	return out
}

// forms are the flags with which a command prints something else.
var forms = []string{"auth", "dry-run", "from-argocd", "orphan", "watch"}

// TestEveryOutputHasAGolden finds golden files of each command that has succeeded: with each of its formats, and with each
// flag in forms that it has.
func TestEveryOutputHasAGolden(t *testing.T) {
	ran := map[string][]string{} // the options of each command that a golden file has
	for _, content := range goldens(t) {
		line, _, _ := strings.Cut(content, "\n")
		args, _ := strings.CutPrefix(line, "$ kubectl rulefleet ")
		if strings.Contains(content, "[exit code 0]\n") || strings.HasPrefix(args, "why ") { // whose code says that a rule does not work
			name, _, _ := strings.Cut(args, " ")
			ran[name] = append(ran[name], args+" ")
		}
	}
	n := 0
	var check func(*cobra.Command)
	check = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			check(sub)
		}
		if cmd.HasSubCommands() {
			return
		}
		path := strings.TrimPrefix(cmd.CommandPath(), "kubectl rulefleet ")
		first, _, _ := strings.Cut(path, " ")
		has := func(words string, is func(args string) bool) {
			t.Helper()
			n++
			if !slices.ContainsFunc(ran[first], func(args string) bool { return strings.HasPrefix(args, path+" ") && is(args) }) {
				t.Errorf("no golden file has the output of kubectl rulefleet %s %s", path, words)
			}
		}
		if first != "completion" { // its scripts are those of cobra; TestCompletion runs them
			has("", func(string) bool { return true })
		}
		for _, flag := range forms {
			if cmd.Flags().Lookup(flag) != nil {
				has("--"+flag, func(args string) bool {
					return strings.Contains(args, " --"+flag+" ") && (flag == "dry-run" || !strings.Contains(args, " --dry-run "))
				})
			}
		}
		f := cmd.Flags().Lookup("output")
		if f == nil || slices.Contains(ofTheChart, path) {
			return
		}
		_, formats, _ := strings.Cut(f.Usage, ": ")
		for format := range strings.SplitSeq(formats, ", ") {
			has("-o "+format, func(args string) bool {
				return strings.Contains(args, " -o "+format+" ") || format == f.DefValue && !strings.Contains(args, " -o ")
			})
		}
	}
	check(New(&env.Env{Hub: cluster.NewHub("", io.Discard)}))
	if n < 40 {
		t.Errorf("only %d outputs were found", n)
	}
}

// TestExitCodesAreDocumented compares the table in docs/how-to/plugin.md with the codes in the golden files.
func TestExitCodesAreDocumented(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "how-to", "plugin.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(page), "| Exit code | Meaning |\n")
	if !found {
		t.Fatal("docs/how-to/plugin.md has no table of exit codes")
	}
	table, _, _ = strings.Cut(table, "\n\n")
	documented, seen := []string{}, map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^\| (\d+) \|`).FindAllStringSubmatch(table, -1) {
		documented = append(documented, m[1])
	}
	for _, content := range goldens(t) {
		for _, m := range regexp.MustCompile(`\[exit code (\d+)\]`).FindAllStringSubmatch(content, -1) {
			seen[m[1]] = true
		}
	}
	if want := slices.Sorted(maps.Keys(seen)); !slices.Equal(documented, want) || len(want) < 6 {
		t.Errorf("the table has the codes %q, and the golden files have %q", documented, want)
	}
}

// TestChartFormats prints the objects of the chart in each format. The text in YAML is that in the golden file, but for the
// Namespace, which upgrade does not create.
func TestChartFormats(t *testing.T) {
	content, err := os.ReadFile(filepath.Join("testdata", "export-manifests-yaml.golden"))
	if err != nil {
		t.Fatal(err)
	}
	const flags = " --set crds.enabled=false --values testdata/values.yaml"
	golden, ok := strings.CutPrefix(string(content), "$ kubectl rulefleet export manifests"+flags+"\n")
	if !ok {
		t.Fatal("the golden file has other flags")
	}
	golden, _, _ = strings.Cut(golden, "[exit code 0]\n")
	for _, command := range ofTheChart {
		t.Run(strings.ReplaceAll(command, " ", "-"), func(t *testing.T) {
			of := map[string]string{}
			for _, format := range []string{output.FormatYAML, output.FormatJSON, output.FormatName} {
				var h helmHub
				args := command
				if command != "export manifests" {
					args += " --dry-run"
				}
				if command == "upgrade" {
					h.releases = []*release.Release{revision(1, release.StatusDeployed, "0.0.9")}
					h.objects = []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "rulefleet-system"}}}
					args += " --reset-values"
				}
				c, helm := h.client(t), h.helm(t)
				r := invoke(t, c, "", func(e *env.Env) { e.Hub.Helm = helm }, strings.Fields(args+flags+" -o "+format)...)
				if r.code != exit.OK {
					t.Fatalf("exit code %d: %s", r.code, r.err.String())
				}
				of[format] = r.out.String()
			}
			want := golden
			if command == "upgrade" {
				_, want, _ = strings.Cut(strings.TrimPrefix(golden, "---\n"), "---\n")
				want = "---\n" + want
			}
			if of[output.FormatYAML] != want {
				t.Errorf("got\n%s\nwant\n%s", of[output.FormatYAML], want)
			}
			inYAML, inJSON := objectsIn(t, of[output.FormatYAML]), objectsIn(t, of[output.FormatJSON])
			if !reflect.DeepEqual(inYAML, inJSON) || len(inYAML) < 15 {
				t.Errorf("JSON has %d objects, and YAML has %d others", len(inJSON), len(inYAML))
			}
			names := strings.Fields(of[output.FormatName])
			for i, o := range inYAML {
				if i >= len(names) || !strings.HasPrefix(names[i], strings.ToLower(o.GetKind())) || !strings.HasSuffix(names[i], "/"+o.GetName()) {
					t.Errorf("%s %s is not in its place in %q", o.GetKind(), o.GetName(), names)
				}
			}
			if len(names) != len(inYAML) {
				t.Errorf("there are %d names, and %d objects", len(names), len(inYAML))
			}
		})
	}
}

// objectsIn returns the objects in a text.
func objectsIn(t *testing.T, text string) (out []*unstructured.Unstructured) {
	t.Helper()
	d := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	for {
		o := &unstructured.Unstructured{}
		err := d.Decode(&o.Object)
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(fmt.Errorf("%w in %s", err, text))
		}
		if len(o.Object) > 0 {
			out = append(out, o)
		}
	}
}
