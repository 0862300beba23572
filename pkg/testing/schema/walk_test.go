package schema

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// violation is a value that breaks one bound, and no other where that can be.
type violation struct {
	bound string // the schema's keyword, such as maxLength
	at    path   // where the API server is to find fault
	put   path   // where the value goes
	value any
	says  string // is part of the message
}

// former are the fields that have another name now, and that only messages of rules in CEL mention. An object that has one
// is refused, so their bounds do not matter.
var former = []string{"spec.clusters", "spec.workloads.matchLabels", "spec.workloads.matchExpressions"}

// walker goes through a schema together with a value that has all of its fields.
type walker struct {
	t          *testing.T
	violations []violation
	unbounded  []string
}

// known are the keywords of a schema that the walker makes violations of, or that
// bound nothing. Rules in CEL have a test of their own.
var known = strings.Fields(`description type properties items additionalProperties default format
	required enum minLength maxLength pattern minItems maxItems minProperties maxProperties minimum maximum
	x-kubernetes-list-type x-kubernetes-list-map-keys x-kubernetes-map-type x-kubernetes-validations`)

func (w *walker) walk(s *apiextensionsv1.JSONSchemaProps, at path, value any) {
	w.t.Helper()
	if at.String() == "spec.groups[0]" {
		return // of a RulePack: the type is prometheus-operator's, and the validator checks its fields
	}
	w.keywords(s, at)
	w.wrongType(s, at)
	switch s.Type {
	case "object":
		w.object(s, at, value)
	case "array":
		w.array(s, at, value)
	case "string":
		w.text(s, at, value)
	case "integer":
		if s.Minimum == nil {
			w.unbounded = append(w.unbounded, at.String()+" has no minimum")
			return
		}
		w.add("minimum", at, int64(*s.Minimum)-1, "should be greater than or equal to")
		if s.Maximum != nil {
			w.add("maximum", at, int64(*s.Maximum)+1, "should be less than or equal to")
		}
	case "boolean":
	default:
		w.t.Fatalf("%s: teach this test what bounds a %q", at, s.Type)
	}
}

// keywords fails for a keyword that the walker does not know: its bound would go untested.
func (w *walker) keywords(s *apiextensionsv1.JSONSchemaProps, at path) {
	w.t.Helper()
	data, err := json.Marshal(s)
	if err != nil {
		w.t.Fatal(err)
	}
	var keywords map[string]any
	if err := json.Unmarshal(data, &keywords); err != nil {
		w.t.Fatal(err)
	}
	for keyword := range keywords {
		if !slices.Contains(known, keyword) {
			w.t.Errorf("%s: teach this test the keyword %s", at, keyword)
		}
	}
}

func (w *walker) add(bound string, at path, value any, says string) {
	w.violations = append(w.violations, violation{bound: bound, at: at, put: at, value: value, says: says})
}

func (w *walker) wrongType(s *apiextensionsv1.JSONSchemaProps, at path) {
	wrong := map[string]any{"string": int64(42), "array": map[string]any{}}[s.Type]
	if wrong == nil {
		wrong = "text"
	}
	name := s.Type
	if s.Format == "date-time" {
		name = s.Format
	}
	w.add("type", at, wrong, "must be of type "+name)
}

func (w *walker) object(s *apiextensionsv1.JSONSchemaProps, at path, value any) {
	w.t.Helper()
	fields, _ := value.(map[string]any)
	for _, name := range s.Required {
		w.add("required", at.to(name), absent{}, "Required value")
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		field, ok := fields[name]
		if slices.Contains(former, at.to(name).String()) {
			continue
		}
		if !ok {
			w.t.Errorf("the full object in testdata lacks %s: add it", at.to(name))
			continue
		}
		property := s.Properties[name]
		w.walk(&property, at.to(name), field)
	}
	if s.AdditionalProperties == nil {
		return
	}
	if len(fields) == 0 {
		w.t.Errorf("the full object in testdata has no entry in %s: add one", at)
		return
	}
	key := slices.Sorted(maps.Keys(fields))[0]
	w.walk(s.AdditionalProperties.Schema, at.to(key), fields[key])
	if s.MaxProperties == nil {
		w.unbounded = append(w.unbounded, at.String()+" has no maxProperties")
		return
	}
	many := map[string]any{}
	for i := range *s.MaxProperties + 1 {
		many["k"+strconv.FormatInt(i, 10)] = fields[key]
	}
	w.add("maxProperties", at, many, "Too many")
	if s.MinProperties != nil && *s.MinProperties > 0 {
		w.add("minProperties", at, map[string]any{}, "should have at least")
	}
}

func (w *walker) array(s *apiextensionsv1.JSONSchemaProps, at path, value any) {
	w.t.Helper()
	list, _ := value.([]any)
	if len(list) == 0 {
		w.t.Errorf("the full object in testdata has no item in %s: add one", at)
		return
	}
	w.walk(s.Items.Schema, at.to(0), list[0])
	if s.MinItems != nil && *s.MinItems > 0 {
		w.add("minItems", at, repeated(list[0], *s.MinItems-1, s.XListMapKeys), "should have at least")
	}
	if s.MaxItems == nil {
		w.unbounded = append(w.unbounded, at.String()+" has no maxItems")
	} else {
		w.add("maxItems", at, repeated(list[0], *s.MaxItems+1, s.XListMapKeys), "Too many")
	}
	if s.XListType != nil && *s.XListType != "atomic" {
		twice := []any{list[0], list[0]}
		w.violations = append(w.violations, violation{"x-kubernetes-list-type", at.to(1), at, twice, "Duplicate value"})
	}
}

// repeated returns n items like one, which are told apart where they are strings, or
// by their keys.
func repeated(item any, n int64, keys []string) []any {
	out := make([]any, 0, n)
	for i := range n {
		if text, ok := item.(string); ok && i > 0 {
			out = append(out, text+strconv.FormatInt(i, 10))
			continue
		}
		next := item
		for _, key := range keys {
			next = with(next, path{key}, "k"+strconv.FormatInt(i, 10))
		}
		out = append(out, next)
	}
	return out
}

func (w *walker) text(s *apiextensionsv1.JSONSchemaProps, at path, value any) {
	w.t.Helper()
	sample, _ := value.(string)
	if s.MaxLength == nil && len(s.Enum) == 0 && s.Format == "" {
		w.unbounded = append(w.unbounded, at.String()+" has no maxLength")
	}
	if len(s.Enum) > 0 {
		w.add("enum", at, "no-such-value", "Unsupported value")
	}
	if s.Format != "" {
		w.add("format", at, "no-such-value", "must be of type "+s.Format)
	}
	if s.MinLength != nil && *s.MinLength > 0 {
		w.add("minLength", at, sample[:*s.MinLength-1], "should be at least")
	}
	if s.MaxLength != nil {
		if long, ok := longer(sample, int(*s.MaxLength)+1, s.Pattern); ok {
			w.add("maxLength", at, long, "Too long")
		} else {
			w.t.Errorf("%s: no text that is too long matches the pattern", at)
		}
	}
	if s.Pattern != "" {
		if odd, ok := mismatch(s.Pattern, sample); ok {
			w.add("pattern", at, odd, "should match")
		} else {
			w.t.Errorf("%s: the pattern takes everything", at)
		}
	}
}

// longer stretches a text that matches a pattern to one of n characters that does, too.
func longer(sample string, n int, pattern string) (string, bool) {
	fill := n - len(sample)
	for _, long := range []string{
		sample + strings.Repeat("0", fill), strings.Repeat("0", fill) + sample, sample + strings.Repeat("a", fill),
	} {
		if regexp.MustCompile(pattern).MatchString(long) {
			return long, true
		}
	}
	return "", false
}

// mismatch returns a text about as long as the sample that a pattern does not match.
func mismatch(pattern, sample string) (string, bool) {
	for _, odd := range []string{sample + "!", "!" + sample[1:]} {
		if !regexp.MustCompile(pattern).MatchString(odd) {
			return odd, true
		}
	}
	return "", false
}

// name names a violation as a test.
func (v violation) name() string { return fmt.Sprintf("%s/%s", v.at, v.bound) }
