package validation

import (
	"fmt"
	"sync"

	"golang.org/x/sync/singleflight"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
)

// Validator validates AlertRules, RulePacks and AlertRuleTemplates, and remembers the results by UID and generation, which
// identify the spec: an AlertRule is validated for each of its spokes, and that takes up to half a second. Use New
// to create one.
type Validator struct {
	options Options
	results results
	// asking prevents that a hundred workers compute the same result at once.
	asking singleflight.Group
}

// New returns a Validator for the AlertRules and templates that a hub with these settings has stored.
func New(o Options) *Validator {
	o.stored = true
	return &Validator{options: o}
}

// Validate returns the first error in a source, or nil.
func (v *Validator) Validate(s rule.Source) *rule.Invalid {
	return v.about(s.GetUID(), s.GetGeneration(), validity, func(r *result) {
		switch s := s.(type) {
		case *v1alpha1.AlertRule:
			r.invalid = Rule(s, v.options)
		case *v1alpha1.RulePack:
			r.invalid = Pack(s, v.options)
		default:
			r.invalid = rule.NewInvalid("kind", "unknown kind of sources: %s", s.SourceKind())
		}
	}).invalid
}

// Warnings returns warnings about a valid source.
func (v *Validator) Warnings(s rule.Source) []string {
	return v.about(s.GetUID(), s.GetGeneration(), suspicion, func(r *result) {
		switch s := s.(type) {
		case *v1alpha1.AlertRule:
			r.warnings = Warnings(s, v.options)
		case *v1alpha1.RulePack:
			r.warnings = PackWarnings(s, v.options)
		}
	}).warnings
}

// ValidateTemplate returns the first error in an AlertRuleTemplate, or nil.
func (v *Validator) ValidateTemplate(t *v1alpha1.AlertRuleTemplate) *rule.Invalid {
	return v.about(t.UID, t.Generation, validity, func(r *result) { r.invalid = Template(t, v.options) }).invalid
}

// TemplateWarnings is Warnings for an AlertRuleTemplate.
func (v *Validator) TemplateWarnings(t *v1alpha1.AlertRuleTemplate) []string {
	return v.about(t.UID, t.Generation, suspicion, func(r *result) { r.warnings = TemplateWarnings(t, v.options) }).warnings
}

// about returns a remembered result about an object. Results about objects without a UID, which no API server has stored,
// are not remembered.
func (v *Validator) about(uid types.UID, generation int64, q question, ask func(*result)) result {
	if uid == "" || generation == 0 {
		var r result
		ask(&r)
		return r
	}
	if r, ok := v.results.get(uid, generation, q); ok {
		return r
	}
	found, _, _ := v.asking.Do(fmt.Sprintf("%d/%s/%d", q, uid, generation), func() (any, error) {
		r, ok := v.results.get(uid, generation, q) // it may have been found since
		if !ok {
			r = result{generation: generation, answered: q}
			ask(&r)
			v.results.add(uid, r)
		}
		return r, nil
	})
	return found.(result)
}

// question is what a result answers.
type question uint8

const (
	validity question = 1 << iota
	suspicion
)

// result is what is known of one generation of an object.
type result struct {
	generation int64
	invalid    *rule.Invalid
	warnings   []string
	answered   question
}

// maxRemembered limits the objects of each half of the results. A hub of the largest supported size has fewer rules: if
// there were more, and all were asked for in turn, none would be remembered for long enough.
const maxRemembered = 1 << 17

// results remembers at least the maxRemembered objects that were asked for last, and at most twice as many. Two maps
// take less memory than a list of the least recently used. The zero value is ready to use.
type results struct {
	mu          sync.Mutex
	now, before map[types.UID]result
}

func (r *results) get(uid types.UID, generation int64, q question) (result, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	is, ok := r.now[uid]
	if !ok {
		if is, ok = r.before[uid]; ok {
			r.putLocked(uid, is)
		}
	}
	return is, ok && is.generation == generation && is.answered&q != 0
}

// add adds what a result answers to what is known of the same generation of an object.
func (r *results) add(uid types.UID, is result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if was, ok := r.now[uid]; ok && was.generation == is.generation {
		if is.answered == validity {
			is.warnings = was.warnings
		} else {
			is.invalid = was.invalid
		}
		is.answered |= was.answered
	}
	r.putLocked(uid, is)
}

func (r *results) putLocked(uid types.UID, is result) {
	if r.now == nil || len(r.now) >= maxRemembered {
		r.now, r.before = map[types.UID]result{}, r.now
	}
	r.now[uid] = is
}
