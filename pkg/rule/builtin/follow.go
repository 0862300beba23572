package builtin

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
)

// Follow returns the new version of a template on the hub, given the built-in template of that
// name in this version and with these options. It returns nil if the template stays unchanged. It
// changes neither argument.
//
// The spec of a template that has the annotation of built-in ones is updated field by field. The annotation is a
// list of the fields that the manager gave it, with their digests, so that an edited field is detected, and stays.
// The list does not contain the state, which has its own annotation: built-in templates can be enabled and
// disabled, on the hub or by a flag, and the latest change wins.
func Follow(present, builtIn *v1alpha1.AlertRuleTemplate) *v1alpha1.AlertRuleTemplate {
	if present.Annotations[v1alpha1.BuiltInAnnotation] == "" {
		return nil // a person's
	}
	if rule.FormerKey(&present.Spec) != nil {
		return nil // any update would be refused
	}
	next := present.DeepCopy()
	spec, state := followSpec(next, builtIn), followState(next, builtIn)
	if !spec && !state {
		return nil
	}
	return next
}

// followSpec changes the fields of a template's spec that were not edited, except its state. It reports whether
// it changed the template.
func followSpec(t, builtIn *v1alpha1.AlertRuleTemplate) bool {
	due := fieldsOf(builtIn.Spec)
	record := due.record()
	if t.Annotations[v1alpha1.BuiltInAnnotation] == record {
		return false // up to date, as far as it was not edited
	}
	is := fieldsOf(t.Spec)
	edited := editedSince(t, due)
	all := maps.Clone(is)
	maps.Copy(all, due)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if edited(name, is[name]) {
			continue
		}
		if text, ok := due[name]; ok {
			is[name] = text
		} else {
			delete(is, name)
		}
	}
	state := t.Spec.State
	t.Spec = is.spec()
	t.Spec.State = state
	t.Annotations[v1alpha1.BuiltInAnnotation] = record
	return true
}

// editedSince returns a function that reports whether a person has changed a field since the manager wrote it,
// given its present value.
func editedSince(t *v1alpha1.AlertRuleTemplate, due fields) func(name, is string) bool {
	record := t.Annotations[v1alpha1.BuiltInAnnotation]
	if !strings.Contains(record, "=") {
		if record == formerDigest(t.Spec) {
			return func(string, string) bool { return false }
		}
		// It is not known what an earlier version gave it. A field is not edited if it has the value of this version.
		return func(name, is string) bool { return is != due[name] && is != formerly.Replace(due[name]) }
	}
	given := map[string]string{}
	for field := range strings.SplitSeq(record, ",") {
		name, digest, _ := strings.Cut(field, "=")
		given[name] = digest
	}
	return func(name, is string) bool { return digestOf(is) != given[name] }
}

// formerly writes a text as it was when Deployments were the only workloads.
var formerly = strings.NewReplacer("$(workload.kind)", string(v1alpha1.DeploymentKind), "$(workload.", "$(deployment.")

// followState changes a template's state when the flags have changed, and reports whether it recorded
// a change.
func followState(t, builtIn *v1alpha1.AlertRuleTemplate) bool {
	was, due := t.Annotations[v1alpha1.BuiltInStateAnnotation], string(builtIn.Spec.State)
	if was == "" || was == due {
		return false
	}
	t.Spec.State = builtIn.Spec.State
	t.Annotations[v1alpha1.BuiltInStateAnnotation] = due
	return true
}

// fields are the fields of a spec except its state, as JSON, by name. Each label and each annotation is a field,
// such as labels.team.
type fields map[string]string

// keyed are the fields whose keys are fields of their own.
var keyed = []string{"annotations", "labels"}

// fieldsOf returns the fields of a spec.
func fieldsOf(spec v1alpha1.AlertRuleTemplateSpec) fields {
	spec.State = ""
	var texts map[string]json.RawMessage
	convert(spec, &texts)
	out := fields{}
	for name, text := range texts {
		if !slices.Contains(keyed, name) {
			out[name] = string(text)
			continue
		}
		var values map[string]json.RawMessage
		convert(text, &values)
		for key, value := range values {
			out[name+"."+key] = string(value)
		}
	}
	return out
}

// spec is the inverse of fieldsOf.
func (f fields) spec() v1alpha1.AlertRuleTemplateSpec {
	texts := map[string]any{}
	for name, text := range f {
		parent, key, _ := strings.Cut(name, ".")
		if !slices.Contains(keyed, parent) {
			texts[name] = json.RawMessage(text)
			continue
		}
		values, ok := texts[parent].(map[string]any)
		if !ok {
			values = map[string]any{}
			texts[parent] = values
		}
		values[key] = json.RawMessage(text)
	}
	var out v1alpha1.AlertRuleTemplateSpec
	convert(texts, &out)
	return out
}

// record returns the names and the digests of fields, such as alert=abcdefgh,for=hgfedcba.
func (f fields) record() string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(f)) {
		out = append(out, name+"="+digestOf(f[name]))
	}
	return strings.Join(out, ",")
}

// digestOf returns a digest of a field, or "" for a missing one. Its 40 bits distinguish an edit from a value that
// was given.
func digestOf(text string) string {
	if text == "" {
		return ""
	}
	return rule.Hash(text)[:8]
}

// formerDigest returns what an earlier version recorded: one digest of the whole spec without its state.
func formerDigest(spec v1alpha1.AlertRuleTemplateSpec) string {
	spec.State = ""
	return rule.Hash(string(jsonOf(spec)))
}

// convert reads the JSON of a value into another.
func convert(from, into any) {
	if err := json.Unmarshal(jsonOf(from), into); err != nil { // impossible for what Go wrote
		panic(fmt.Sprintf("builtin: reading an AlertRuleTemplate: %v", err))
	}
}

func jsonOf(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil { // impossible for strings, and maps and lists of them
		panic(fmt.Sprintf("builtin: writing an AlertRuleTemplate: %v", err))
	}
	return data
}
