package spoke

import (
	"context"
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/continuity"
)

// Limits on sessions opened again because the spoke was restored: an API server whose resourceVersions go back
// repeatedly must not be read again endlessly. The old cache is not served meanwhile.
const (
	restoresPerSecond = 1.0 / 60
	restoresAtOnce    = 10
)

func newRestores() flowcontrol.RateLimiter {
	return flowcontrol.NewTokenBucketRateLimiter(restoresPerSecond, restoresAtOnce)
}

// look makes the connection check the spoke at once.
func (c *connection) look() {
	select {
	case c.kick <- struct{}{}:
	default:
	}
}

func (p *Provider) tellRestored(name string) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	for _, fn := range p.life.Restored {
		fn(name)
	}
}

// anew reports whether a session ended because the spoke was restored, and shows that until the next session.
// It returns when the next session may be opened: at once, unless there were several recently.
func (c *connection) anew(ctx context.Context, err error) bool {
	if _, ok := errors.AsType[*continuity.RestoredError](err); !ok {
		return false
	}
	c.p.tellRestored(c.name)
	c.observe(Finding{
		Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonRestored,
		Message: Clip(err.Error()+"; everything watched in the spoke is read again", MaxMessage),
	})
	_ = c.restores.Wait(ctx) // an error means that the connection is ending
	return true
}

// tryRules reads one PrometheusRule, bypassing the cache. The resourceVersion of the answer shows whether the
// spoke was restored.
func (c *connection) tryRules(ctx context.Context, s *session) error {
	read := s.guard.Reading(ruleKind.Kind)
	ctx, cancel := c.patient(ctx)
	defer cancel()
	list, err := listOne(ctx, s.cluster.GetAPIReader(), ruleKind)
	if err == nil {
		read(list.ResourceVersion)
	}
	return err
}
