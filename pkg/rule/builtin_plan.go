package rule

import (
	"encoding/json"
	"fmt"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// FollowBuiltIn returns what a template on the hub has to become, given the built-in
// one of its name as this version and these options make it; nil when it stays as it
// is. Neither is changed.
//
// One that nobody edited follows. Its annotation is the digest of what it was made as,
// so that an edit shows. The state is no part of that, and has an annotation of its own:
// built-in templates are there to be enabled and disabled, on the hub or by a flag, and
// whoever did it last is right.
func FollowBuiltIn(present, builtIn *v1alpha1.AlertRuleTemplate) *v1alpha1.AlertRuleTemplate {
	next := present.DeepCopy()
	if next.Annotations == nil {
		next.Annotations = map[string]string{}
	}
	spec, state := followSpec(next, builtIn), followState(next, builtIn)
	if !spec && !state {
		return nil
	}
	return next
}

// followSpec changes all of a template's spec but its state, and tells whether it did.
func followSpec(t, builtIn *v1alpha1.AlertRuleTemplate) bool {
	madeAs := t.Annotations[v1alpha1.BuiltInAnnotation]
	is, due := templateDigest(t.Spec), templateDigest(builtIn.Spec)
	switch {
	case madeAs == due:
		return false // up to date, or edited
	case is != madeAs && is != due:
		return false // edited, or made by a version that left no annotation
	}
	state := t.Spec.State
	t.Spec = *builtIn.Spec.DeepCopy()
	t.Spec.State = state
	t.Annotations[v1alpha1.BuiltInAnnotation] = due
	return true
}

// followState changes a template's state when the flags say another than they did, and
// tells whether it noted that.
func followState(t, builtIn *v1alpha1.AlertRuleTemplate) bool {
	was, due := t.Annotations[v1alpha1.BuiltInStateAnnotation], string(builtIn.Spec.State)
	if was == "" || was == due {
		return false
	}
	t.Spec.State = builtIn.Spec.State
	t.Annotations[v1alpha1.BuiltInStateAnnotation] = due
	return true
}

// templateDigest is a digest of a template's spec without its state.
func templateDigest(spec v1alpha1.AlertRuleTemplateSpec) string {
	spec.State = ""
	data, err := json.Marshal(spec)
	if err != nil { // strings, and maps and lists of them: there is nothing to fail
		panic(fmt.Sprintf("rule: digest of an AlertRuleTemplate: %v", err))
	}
	return digestOf(string(data))[:hashLength]
}
