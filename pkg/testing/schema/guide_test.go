package schema

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
)

// TestGuide tries the YAML in the guide for people who write alerts. What is no whole
// object is part of a spec.
func TestGuide(t *testing.T) {
	blocks := strings.Split(read(t, "alertrules.md"), "```yaml\n")[1:]
	if len(blocks) == 0 {
		t.Fatal("there is no YAML in it")
	}
	for i, block := range blocks {
		block, _, _ = strings.Cut(block, "```")
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			for _, o := range documents(t, []byte(block)) {
				if o.GetKind() == "" {
					o = completed(t, o.Object)
				}
				err := hub.Client.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o.DeepCopy()),
					client.FieldOwner("guide"), client.ForceOwnership, client.DryRunAll)
				if err != nil {
					t.Fatalf("%v\n%s", err, block)
				}
				check(t, o)
			}
		})
	}
	t.Logf("%d blocks", len(blocks))
}

// completed makes an object of a part of a spec: an AlertRule where that has all of
// the fields, and an AlertRuleTemplate otherwise.
func completed(t *testing.T, part map[string]any) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": v1alpha1.GroupVersion.String()}}
	o.SetName("part")
	spec := map[string]any{"alert": "Part", "expr": "up == 0"}
	for _, c := range crds(t) {
		fields := c.schema.Properties["spec"].Properties
		if c.kind == "SpokeCluster" || !containsAll(fields, part) {
			continue
		}
		o.SetKind(c.kind)
		if c.kind == "AlertRule" {
			o.SetNamespace(fleet.Namespace)
			spec["placement"] = map[string]any{"selector": map[string]any{}}
		}
		maps.Copy(spec, part)
		o.Object["spec"] = spec
		return o
	}
	t.Fatalf("no kind has all of these fields: %v", part)
	return nil
}

func containsAll[V any](fields map[string]V, part map[string]any) bool {
	for name := range part {
		if _, ok := fields[name]; !ok {
			return false
		}
	}
	return true
}

var (
	code    = regexp.MustCompile("`[^`\n]*`")
	link    = regexp.MustCompile(`\]\(([^)#:]*)(#[^)]*)?\)`) // none with a scheme
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	unsaid  = regexp.MustCompile("[^a-z0-9 _-]")
)

// TestLinks follows the links from the documentation to files and headings.
func TestLinks(t *testing.T) {
	followed := 0
	for _, name := range []string{"alertrules.md", "api.md"} {
		for _, found := range link.FindAllStringSubmatch(code.ReplaceAllString(read(t, name), ""), -1) {
			target := found[1]
			if target == "" {
				target = name
			}
			followed++
			if found[2] == "" {
				if _, err := os.Stat(filepath.Join(root, "docs", target)); err != nil {
					t.Errorf("%s: %v", name, err)
				}
				continue
			}
			if !anchors(read(t, target))[found[2]] {
				t.Errorf("%s: %s has no heading %s", name, target, found[2])
			}
		}
	}
	if followed == 0 {
		t.Fatal("there are no links")
	}
	t.Logf("%d links", followed)
}

func read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, "docs", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// anchors returns what the headings of a page are linked to by.
func anchors(page string) map[string]bool {
	out := map[string]bool{}
	for _, found := range heading.FindAllStringSubmatch(page, -1) {
		text := unsaid.ReplaceAllString(strings.ToLower(found[1]), "")
		out["#"+strings.ReplaceAll(text, " ", "-")] = true
	}
	return out
}
