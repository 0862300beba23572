package builtin

import (
	"encoding/json"
	"fmt"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
)

// Follow returns the new version of a template on the hub, given the built-in template of that
// name in this version and with these options. It returns nil if the template stays unchanged. It
// changes neither argument.
//
// A template that has the annotation of built-in ones and was not edited is updated. The annotation is
// the digest of its original spec, so that an edit is detected. The digest does not cover the state,
// which has its own annotation: built-in templates can be enabled and disabled, on the hub or by a
// flag, and the latest change wins.
func Follow(present, builtIn *v1alpha1.AlertRuleTemplate) *v1alpha1.AlertRuleTemplate {
	if present.Annotations[v1alpha1.BuiltInAnnotation] == "" {
		return nil // a person's
	}
	next := present.DeepCopy()
	spec, state := followSpec(next, builtIn), followState(next, builtIn)
	if !spec && !state {
		return nil
	}
	return next
}

// followSpec changes a template's spec except its state, and reports whether it changed it.
func followSpec(t, builtIn *v1alpha1.AlertRuleTemplate) bool {
	madeAs := t.Annotations[v1alpha1.BuiltInAnnotation]
	is, due := templateDigest(t.Spec), templateDigest(builtIn.Spec)
	switch {
	case madeAs == due:
		return false // up to date, or edited
	case is != madeAs && is != due:
		return false // edited
	}
	state := t.Spec.State
	t.Spec = *builtIn.Spec.DeepCopy()
	t.Spec.State = state
	t.Annotations[v1alpha1.BuiltInAnnotation] = due
	return true
}

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

// templateDigest returns a digest of a template's spec without its state.
func templateDigest(spec v1alpha1.AlertRuleTemplateSpec) string {
	spec.State = ""
	data, err := json.Marshal(spec)
	if err != nil { // impossible for strings, and maps and lists of them
		panic(fmt.Sprintf("rule: digest of an AlertRuleTemplate: %v", err))
	}
	return rule.Hash(string(data))
}
