package spoke

import (
	"context"
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/continuity"
)

// These bound how often a session is opened anew because the spoke was restored: an API server
// whose resource versions go back by themselves must not be read anew without end. What was read
// before is not served meanwhile.
const (
	restoresPerSecond = 1.0 / 60
	restoresAtOnce    = 10
)

func newRestores() flowcontrol.RateLimiter {
	return flowcontrol.NewTokenBucketRateLimiter(restoresPerSecond, restoresAtOnce)
}

// look makes the connection look at the spoke now.
func (c *connection) look() {
	select {
	case c.kick <- struct{}{}:
	default:
	}
}

// OnRestored adds a function that is told, before a spoke is engaged again, that it was restored
// from a backup. It has to return at once, and may ask the Provider nothing.
func (p *Provider) OnRestored(fn func(name string)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.restored = append(p.restored, fn)
}

func (p *Provider) tellRestored(name string) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	for _, fn := range p.restored {
		fn(name)
	}
}

// anew tells whether a session ended because the spoke was restored, and shows that until another
// one takes its place. It returns when that may be opened: at once, unless that was often of late.
func (c *connection) anew(ctx context.Context, err error) bool {
	if _, ok := errors.AsType[*continuity.RestoredError](err); !ok {
		return false
	}
	c.p.tellRestored(c.name)
	c.observe(Finding{
		Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonRestored,
		Message: Clip(err.Error()+"; everything watched in the spoke is read again", maxMessage),
	})
	_ = c.restores.Wait(ctx) // it fails when ctx ends, and the connection with it
	return true
}

// tryRules reads one PrometheusRule, past the cache. The resource version of the answer tells
// whether the spoke was restored.
func (c *connection) tryRules(ctx context.Context, s *session) error {
	read := s.guard.Reading(ruleKind.Kind)
	version, err := c.listOne(ctx, s.cluster, ruleKind)
	if err == nil {
		read(version)
	}
	return err
}
