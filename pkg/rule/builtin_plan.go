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
// so that an edit shows. The state is no part of that: built-in templates are there to
// be enabled and disabled, and it stays what it is.
func FollowBuiltIn(present, builtIn *v1alpha1.AlertRuleTemplate) *v1alpha1.AlertRuleTemplate {
	madeAs := present.Annotations[v1alpha1.BuiltInAnnotation]
	is, due := templateDigest(present.Spec), templateDigest(builtIn.Spec)
	switch {
	case madeAs == due:
		return nil // up to date, or edited
	case is != madeAs && is != due:
		return nil // edited, or made by a version that left no annotation
	}
	next := present.DeepCopy()
	next.Spec = *builtIn.Spec.DeepCopy()
	next.Spec.State = present.Spec.State
	if next.Annotations == nil {
		next.Annotations = map[string]string{}
	}
	next.Annotations[v1alpha1.BuiltInAnnotation] = due
	return next
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
