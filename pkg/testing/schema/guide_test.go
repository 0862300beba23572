package schema

import (
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
)

// pages are those whose YAML is objects of ours, or parts of their spec.
var pages = []string{
	"README.md", "docs/how-to/canary.md", "docs/how-to/choose-prometheus.md", "docs/how-to/manage-spokes.md",
	"docs/how-to/rule-packs.md",
	"docs/how-to/templates.md", "docs/how-to/write-alerts.md",
}

// TestGuide tries the YAML in the documentation.
func TestGuide(t *testing.T) {
	for _, page := range pages {
		t.Run(page, func(t *testing.T) { testPage(t, page) })
	}
}

func testPage(t *testing.T, page string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(data), "```yaml\n")[1:]
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
	if whole, ok := part["spec"].(map[string]any); ok && len(part) == 1 {
		part = whole
	}
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": v1alpha1.GroupVersion.String()}}
	o.SetName("part")
	spec := map[string]any{"alert": "Part", "expr": "up == 0"}
	for _, c := range crds(t) {
		fields := c.schema.Properties["spec"].Properties
		if c.kind == "SpokeCluster" || !containsAll(fields, part) {
			continue
		}
		o.SetKind(c.kind)
		if c.kind == "RulePack" {
			group := map[string]any{"name": "part", "rules": []any{spec}}
			spec = map[string]any{"groups": []any{group}}
		}
		if c.kind != "AlertRuleTemplate" {
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
