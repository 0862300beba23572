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

// Places limits the AlertRules of each tenant, which is a namespace of the hub outside of the operator's own. An
// AlertRule without a place waits: it is not accepted, and what spokes have of it stays. An AlertRule keeps its
// place until it is deleted. It is recorded in the condition Accepted, so a restart makes no difference. A free
// place is for the oldest AlertRule that waits. nil has no limit. Use NewPlaces to create one.
type Places struct {
	reader client.Reader
	limit  int
	exempt []string

	mu     sync.Mutex
	spaces map[string]*space
}

// space is a namespace.
type space struct {
	held    map[rule.Key]bool
	waiting map[rule.Key]metav1.Time // when it was created
}

// NewPlaces returns Places with a limit for each namespace except the exempt ones; 0 means no limit. reader is the
// hub's cache.
func NewPlaces(reader client.Reader, limit int, exempt ...string) *Places {
	return &Places{reader: reader, limit: limit, exempt: exempt, spaces: map[string]*space{}}
}

// Waits returns why an AlertRule is not accepted, or nil if it has a place.
func (p *Places) Waits(ctx context.Context, source rule.Source) (*rule.Invalid, error) {
	if !p.limits(source.GetNamespace()) {
		return nil, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s, err := p.of(ctx, source.GetNamespace())
	if err != nil || s.held[rule.KeyOf(source)] {
		return nil, err
	}
	// One without an event may be gone by now, so it gets no place here.
	if _, waits := s.waiting[rule.KeyOf(source)]; !waits && (had(source) || len(s.held) < p.limit) {
		return nil, nil
	}
	return &rule.Invalid{
		Reason: v1alpha1.ReasonLimitExceeded, Field: "metadata.namespace",
		Message: fmt.Sprintf("namespace %s has the maximum of %d AlertRules (chart value tenants.maxRules); this AlertRule waits until others are deleted, and the oldest waiting AlertRule is accepted first", source.GetNamespace(), p.limit),
	}, nil
}

// Saw gives a new AlertRule a place if there is one. It must be called for each in the order of their creation.
func (p *Places) Saw(ctx context.Context, source rule.Source) error {
	if !p.limits(source.GetNamespace()) {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s, err := p.of(ctx, source.GetNamespace())
	if err == nil {
		p.assign(s, source)
	}
	return err
}

// Gone frees the place of an AlertRule that was deleted, and returns the one that gets it.
func (p *Places) Gone(key rule.Key) (next rule.Key, found bool) {
	if !p.limits(key.Namespace) {
		return next, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.spaces[key.Namespace]
	if s == nil {
		return next, false
	}
	delete(s.held, key)
	delete(s.waiting, key)
	if len(s.held)+len(s.waiting) == 0 {
		delete(p.spaces, key.Namespace)
		return next, false
	}
	if len(s.held) >= p.limit || len(s.waiting) == 0 {
		return next, false
	}
	for other, created := range s.waiting {
		if next.Name == "" || older(created, other.Name, s.waiting[next], next.Name) < 0 {
			next = other
		}
	}
	delete(s.waiting, next)
	s.held[next] = true
	return next, true
}

func (p *Places) limits(namespace string) bool {
	return p != nil && p.limit > 0 && !slices.Contains(p.exempt, namespace)
}

// of returns a namespace. The caller holds the lock. The first time, those of its AlertRules that had a place
// keep it, and the oldest of the others get the rest.
func (p *Places) of(ctx context.Context, namespace string) (*space, error) {
	if s := p.spaces[namespace]; s != nil {
		return s, nil
	}
	var list v1alpha1.AlertRuleList
	if err := p.reader.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("counting the AlertRules of namespace %s: %w", namespace, err)
	}
	s := &space{held: map[rule.Key]bool{}, waiting: map[rule.Key]metav1.Time{}}
	p.spaces[namespace] = s
	slices.SortFunc(list.Items, func(a, b v1alpha1.AlertRule) int {
		return older(a.CreationTimestamp, a.Name, b.CreationTimestamp, b.Name)
	})
	for _, first := range []bool{true, false} {
		for i := range list.Items {
			if had(&list.Items[i]) == first {
				p.assign(s, &list.Items[i])
			}
		}
	}
	return s, nil
}

func (p *Places) assign(s *space, source rule.Source) {
	key := rule.KeyOf(source)
	if _, waits := s.waiting[key]; waits || s.held[key] {
		return
	}
	if had(source) || len(s.held) < p.limit {
		s.held[key] = true
		return
	}
	s.waiting[key] = source.GetCreationTimestamp()
}

// had reports whether a source had a place when its status was written last.
func had(source rule.Source) bool {
	conditions, _ := source.GetStatus()
	c := apimeta.FindStatusCondition(conditions, v1alpha1.ConditionAccepted)
	return c != nil && c.Reason != v1alpha1.ReasonLimitExceeded
}

func older(a metav1.Time, aName string, b metav1.Time, bName string) int {
	return cmp.Or(a.Compare(b.Time), strings.Compare(aName, bName))
}
