package validation

import (
	"fmt"

	"golang.org/x/sync/singleflight"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
)

// maxRemembered limits the number of cached results of a Validator, to the rules of a large hub.
const maxRemembered = 1 << 16

// Validator validates AlertRules, RulePacks and AlertRuleTemplates, and remembers the results by UID and generation, which
// identify the spec: an AlertRule is validated for each of its spokes, and that takes up to half a second. Use New
// to create one.
type Validator struct {
	options Options
	answers *lru.Cache
	// asking prevents that a hundred workers compute the same result at once.
	asking singleflight.Group
}

// New returns a Validator for the AlertRules and templates that a hub with these settings has stored.
func New(o Options) *Validator {
	o.stored = true
	return &Validator{options: o, answers: lru.New(maxRemembered)}
}

// Validate returns the first error in a source, or nil.
func (v *Validator) Validate(s rule.Source) *rule.Invalid {
	return remembered(v, s.SourceKind(), s.GetUID(), s.GetGeneration(), func() *rule.Invalid {
		switch s := s.(type) {
		case *v1alpha1.AlertRule:
			return Rule(s, v.options)
		case *v1alpha1.RulePack:
			return Pack(s, v.options)
		}
		return rule.NewInvalid("kind", "unknown kind of sources: %s", s.SourceKind())
	})
}

// Warnings returns warnings about a valid source.
func (v *Validator) Warnings(s rule.Source) []string {
	return remembered(v, s.SourceKind()+"'s warnings", s.GetUID(), s.GetGeneration(), func() []string {
		switch s := s.(type) {
		case *v1alpha1.AlertRule:
			return Warnings(s, v.options)
		case *v1alpha1.RulePack:
			return PackWarnings(s, v.options)
		}
		return nil
	})
}

// ValidateTemplate returns the first error in an AlertRuleTemplate, or nil.
func (v *Validator) ValidateTemplate(t *v1alpha1.AlertRuleTemplate) *rule.Invalid {
	return remembered(v, "template", t.UID, t.Generation, func() *rule.Invalid { return Template(t, v.options) })
}

// TemplateWarnings is Warnings for an AlertRuleTemplate.
func (v *Validator) TemplateWarnings(t *v1alpha1.AlertRuleTemplate) []string {
	return remembered(v, "template's warnings", t.UID, t.Generation, func() []string { return TemplateWarnings(t, v.options) })
}

// remembered returns the cached result for an object. Results for objects without a UID, which no API
// server has stored, are not cached.
func remembered[T any](v *Validator, question string, uid types.UID, generation int64, ask func() T) T {
	if uid == "" || generation == 0 {
		return ask()
	}
	key := fmt.Sprintf("%s/%s/%d", question, uid, generation)
	if known, ok := v.answers.Get(key); ok {
		return known.(T)
	}
	found, _, _ := v.asking.Do(key, func() (any, error) {
		if known, ok := v.answers.Get(key); ok { // it was found between the look and now
			return known, nil
		}
		answer := ask()
		v.answers.Add(key, answer)
		return answer, nil
	})
	return found.(T)
}
