package v1alpha1_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "add new fields to testdata/fields.txt")

// record has a line for each field of the API, and for each value of an enumeration.
var record = filepath.Join("testdata", "fields.txt")

// TestPolicy compares the schemas of the CustomResourceDefinitions with the record. See docs/api-policy.md.
func TestPolicy(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "..", "charts", "rulefleet", "files", "crds", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("there are no CustomResourceDefinitions: %v", err)
	}
	var present []string
	for _, file := range files {
		present = append(present, fieldsOf(t, file)...)
	}
	data, err := os.ReadFile(record)
	if err != nil && !*update {
		t.Fatal(err)
	}
	recorded := strings.FieldsFunc(string(data), func(r rune) bool { return r == '\n' })
	gone, added := compare(recorded, present)
	if *update {
		all := slices.Concat(recorded, added)
		slices.Sort(all)
		if err := os.WriteFile(record, []byte(strings.Join(all, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		added = nil
	}
	for _, line := range gone {
		t.Errorf("removed or changed: %s; docs/api-policy.md says when that is allowed", line)
	}
	for _, line := range added {
		t.Errorf("not recorded: %s; go test ./api/v1alpha1 -update adds it", line)
	}
}

// compare returns the recorded lines that are not present, and the present ones that are not recorded.
func compare(recorded, present []string) (gone, added []string) {
	lacks := func(in []string) func(string) bool {
		return func(line string) bool { return slices.Contains(in, line) }
	}
	return slices.DeleteFunc(slices.Clone(recorded), lacks(present)), slices.DeleteFunc(slices.Clone(present), lacks(recorded))
}

// TestPolicyFindsBreaks changes a schema in each way that the policy does not allow.
func TestPolicyFindsBreaks(t *testing.T) {
	schema := func() *apiextensionsv1.JSONSchemaProps {
		return &apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
			"for":   {Type: "string"},
			"state": {Type: "string", Enum: []apiextensionsv1.JSON{{Raw: []byte(`"Enabled"`)}, {Raw: []byte(`"Disabled"`)}}, Default: &apiextensionsv1.JSON{Raw: []byte(`"Enabled"`)}},
			"names": {Type: "array", XListType: new("set"), Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &apiextensionsv1.JSONSchemaProps{Type: "string"}}},
			"texts": {Type: "object", AdditionalProperties: &apiextensionsv1.JSONSchemaPropsOrBool{Schema: &apiextensionsv1.JSONSchemaProps{Type: "string"}}},
		}}
	}
	for name, c := range map[string]struct {
		change     func(map[string]apiextensionsv1.JSONSchemaProps, *apiextensionsv1.JSONSchemaProps)
		gone, adds bool
	}{
		"nothing": {func(map[string]apiextensionsv1.JSONSchemaProps, *apiextensionsv1.JSONSchemaProps) {}, false, false},
		"added": {func(p map[string]apiextensionsv1.JSONSchemaProps, _ *apiextensionsv1.JSONSchemaProps) {
			p["new"] = p["for"]
		}, false, true},
		"removed": {func(p map[string]apiextensionsv1.JSONSchemaProps, _ *apiextensionsv1.JSONSchemaProps) {
			delete(p, "for")
		}, true, false},
		"renamed": {func(p map[string]apiextensionsv1.JSONSchemaProps, _ *apiextensionsv1.JSONSchemaProps) {
			p["after"] = p["for"]
			delete(p, "for")
		}, true, true},
		"required": {func(_ map[string]apiextensionsv1.JSONSchemaProps, s *apiextensionsv1.JSONSchemaProps) {
			s.Required = []string{"for"}
		}, true, true},
		"retyped": {func(p map[string]apiextensionsv1.JSONSchemaProps, _ *apiextensionsv1.JSONSchemaProps) {
			p["for"] = apiextensionsv1.JSONSchemaProps{Type: "integer"}
		}, true, true},
		"items retyped": {func(p map[string]apiextensionsv1.JSONSchemaProps, _ *apiextensionsv1.JSONSchemaProps) {
			p["names"].Items.Schema.Type = "integer"
		}, true, true},
		"values retyped": {func(p map[string]apiextensionsv1.JSONSchemaProps, _ *apiextensionsv1.JSONSchemaProps) {
			p["texts"].AdditionalProperties.Schema.Type = "integer"
		}, true, true},
		"another kind of list": {func(p map[string]apiextensionsv1.JSONSchemaProps, _ *apiextensionsv1.JSONSchemaProps) {
			*p["names"].XListType = "atomic"
		}, true, true},
		"a value less": {func(p map[string]apiextensionsv1.JSONSchemaProps, _ *apiextensionsv1.JSONSchemaProps) {
			s := p["state"]
			s.Enum = s.Enum[:1]
			p["state"] = s
		}, true, false},
		"another default": {func(p map[string]apiextensionsv1.JSONSchemaProps, _ *apiextensionsv1.JSONSchemaProps) {
			p["state"].Default.Raw = []byte(`"Disabled"`)
		}, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			changed := schema()
			c.change(changed.Properties, changed)
			gone, added := compare(describe("spec", schema()), describe("spec", changed))
			if (len(gone) > 0) != c.gone || (len(added) > 0) != c.adds {
				t.Errorf("gone: %q, added: %q", gone, added)
			}
		})
	}
}

// fieldsOf returns the lines of a file's CustomResourceDefinition.
func fieldsOf(t *testing.T, file string) []string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(data, crd); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	var out []string
	for _, v := range crd.Spec.Versions {
		for _, part := range []string{"spec", "status"} {
			s := v.Schema.OpenAPIV3Schema.Properties[part]
			out = append(out, describe(crd.Spec.Names.Kind+"/"+v.Name+" "+part, &s)...)
		}
	}
	return out
}

// describe returns a line for each field of a schema, and for each value of an enumeration.
func describe(at string, s *apiextensionsv1.JSONSchemaProps) []string {
	line := &strings.Builder{}
	fmt.Fprintf(line, "%s: %s", at, s.Type)
	for _, merge := range []*string{s.XListType, s.XMapType} {
		if merge != nil {
			fmt.Fprintf(line, " %s", *merge)
		}
	}
	for _, key := range s.XListMapKeys {
		fmt.Fprintf(line, " by %s", key)
	}
	if s.Default != nil {
		fmt.Fprintf(line, ", default %s", s.Default.Raw)
	}
	out := []string{line.String()}
	for _, value := range s.Enum {
		out = append(out, fmt.Sprintf("%s = %s", at, value.Raw))
	}
	for name, property := range s.Properties {
		field := at + "." + name
		if slices.Contains(s.Required, name) {
			field += " (required)"
		}
		out = append(out, describe(field, &property)...)
	}
	if s.Items != nil {
		out = append(out, describe(at+"[]", s.Items.Schema)...)
	}
	if s.AdditionalProperties != nil {
		out = append(out, describe(at+"{}", s.AdditionalProperties.Schema)...)
	}
	return out
}
