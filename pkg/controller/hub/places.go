package hub

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
)

// Places limits the rules of each tenant, which is a namespace of the hub outside of the operator's own. A source without
// a place waits: it is not accepted, and what spokes have of it stays. A source keeps its place until it is deleted. A
// RulePack takes as many places as it has rules. If rules are added to it for which there is no room, the new version
// waits. Free places are for the oldest of the sources that wait and fit. The condition Accepted records who has a place,
// so a restart makes no difference, except for a RulePack whose new version waits: it then has none. nil has no limit.
// Use NewPlaces to create one.
type Places struct {
	reader client.Reader
	limit  int
	exempt []string

	mu     sync.Mutex
	spaces map[string]*space
}

// space is a namespace.
type space struct {
	// held are the sources with a place, and the number of their rules. used is the sum of these. waiting are those that
	// wait, which can be a new version of a RulePack that has a place. None of them fits.
	held    map[rule.Key]int
	used    int
	waiting map[rule.Key]waiter
}

// waiter is a source that waits.
type waiter struct {
	created metav1.Time
	rules   int
}

// NewPlaces returns Places with a limit for each namespace except the exempt ones; 0 means no limit. reader is the
// hub's cache.
func NewPlaces(reader client.Reader, limit int, exempt ...string) *Places {
	return &Places{reader: reader, limit: limit, exempt: exempt, spaces: map[string]*space{}}
}

// Waits returns why a source is not accepted, or nil if it has a place.
func (p *Places) Waits(ctx context.Context, source rule.Source) (*rule.Invalid, error) {
	if !p.limits(source.GetNamespace()) {
		return nil, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s, err := p.of(ctx, source.GetNamespace())
	if err != nil {
		return nil, err
	}
	key, rules := rule.KeyOf(source), rule.RulesIn(source)
	has, held := s.held[key]
	_, waits := s.waiting[key]
	switch {
	case held && rules <= has:
		return nil, nil
	case !waits && (!held && had(source) || p.fits(s, key, rules)):
		return nil, nil // one without an event may be gone by now, so it gets no place here
	}
	advice := "this %s waits until others are deleted; the oldest one that fits is accepted first"
	switch {
	case rules > p.limit:
		advice = "this %s alone has more than that; remove rules from it, or ask an administrator of the hub to raise the limit"
	case held:
		advice = "the rules that were added to this %s exceed that number; remove some of them, or delete other AlertRules or RulePacks of the namespace"
	}
	return &rule.Invalid{
		Reason: v1alpha1.ReasonLimitExceeded, Field: "metadata.namespace",
		Message: fmt.Sprintf("namespace %s can have at most %d rules (chart value tenants.maxRules); "+advice, source.GetNamespace(), p.limit, source.SourceKind()),
	}, nil
}

// Saw gives a source a place if there is one, and returns the others that get one because this one now has fewer rules. It
// must be called for each source in the order of their creation, and for each change.
func (p *Places) Saw(ctx context.Context, source rule.Source) (next []rule.Key, err error) {
	if !p.limits(source.GetNamespace()) {
		return nil, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s, err := p.of(ctx, source.GetNamespace())
	if err != nil {
		return nil, err
	}
	key, before := rule.KeyOf(source), s.used
	p.assign(s, source)
	if w, waits := s.waiting[key]; s.used >= before && !(waits && p.fits(s, key, w.rules)) {
		return nil, nil // nothing that waits fits now
	}
	return slices.DeleteFunc(p.admit(s), func(k rule.Key) bool { return k == key }), nil
}

// Gone frees the place of a source that was deleted, and returns those that get it.
func (p *Places) Gone(key rule.Key) (next []rule.Key) {
	if !p.limits(key.Namespace) {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.spaces[key.Namespace]
	if s == nil {
		return nil
	}
	s.hold(key, 0)
	if len(s.held)+len(s.waiting) == 0 {
		delete(p.spaces, key.Namespace)
		return nil
	}
	return p.admit(s)
}

// admit gives free places to the sources that wait, the oldest first.
func (p *Places) admit(s *space) (next []rule.Key) {
	for s.used < p.limit {
		key, found := p.oldest(s)
		if !found {
			break
		}
		s.hold(key, s.waiting[key].rules)
		next = append(next, key)
	}
	return next
}

// oldest returns the oldest of the sources that wait and fit.
func (p *Places) oldest(s *space) (key rule.Key, found bool) {
	for other, w := range s.waiting {
		if p.fits(s, other, w.rules) && (!found || older(w.created, other, s.waiting[key].created, key) < 0) {
			key, found = other, true
		}
	}
	return key, found
}

// fits reports whether there is room for a source with a number of rules. A version of it that has a place is replaced.
func (p *Places) fits(s *space, key rule.Key, rules int) bool {
	return s.used-s.held[key]+rules <= p.limit
}

// hold gives a source places for its rules, so that it no longer waits; 0 takes them away.
func (s *space) hold(key rule.Key, rules int) {
	s.used += rules - s.held[key]
	delete(s.waiting, key)
	s.held[key] = rules
	if rules == 0 {
		delete(s.held, key)
	}
}

func (p *Places) limits(namespace string) bool {
	return p != nil && p.limit > 0 && !slices.Contains(p.exempt, namespace)
}

// of returns a namespace. The caller holds the lock. The first time, those of its sources that had a place
// keep it, and the oldest of the others get the rest.
func (p *Places) of(ctx context.Context, namespace string) (*space, error) {
	if s := p.spaces[namespace]; s != nil {
		return s, nil
	}
	all, err := Sources(ctx, p.reader, client.InNamespace(namespace))
	if err != nil {
		return nil, fmt.Errorf("counting the rules of namespace %s: %w", namespace, err)
	}
	s := &space{held: map[rule.Key]int{}, waiting: map[rule.Key]waiter{}}
	p.spaces[namespace] = s
	slices.SortFunc(all, func(a, b rule.Source) int {
		return older(a.GetCreationTimestamp(), rule.KeyOf(a), b.GetCreationTimestamp(), rule.KeyOf(b))
	})
	for _, first := range []bool{true, false} {
		for _, source := range all {
			if had(source) == first {
				p.assign(s, source)
			}
		}
	}
	return s, nil
}

// assign gives a source a place, or lets it wait.
func (p *Places) assign(s *space, source rule.Source) {
	key, rules := rule.KeyOf(source), rule.RulesIn(source)
	has, held := s.held[key]
	_, waits := s.waiting[key]
	if (held && rules <= has) || (!held && !waits && had(source)) || p.fits(s, key, rules) && !waits {
		s.hold(key, rules)
		return
	}
	s.waiting[key] = waiter{source.GetCreationTimestamp(), rules}
}

// had reports whether a source had a place when its status was written last.
func had(source rule.Source) bool {
	c := apimeta.FindStatusCondition(source.GetStatus().Conditions, v1alpha1.ConditionAccepted)
	return c != nil && c.Reason != v1alpha1.ReasonLimitExceeded
}

func older(a metav1.Time, aKey rule.Key, b metav1.Time, bKey rule.Key) int {
	return cmp.Or(a.Compare(b.Time), strings.Compare(aKey.Name, bKey.Name), strings.Compare(aKey.Kind, bKey.Kind))
}
