package spoke

import (
	"context"
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/continuity"
)

// These bound how often a session is given up because the spoke was restored: an API server
// whose resource versions go back by themselves must not be read anew without end.
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

// restored returns an error when the spoke was restored from a backup since the session was
// opened: what it has in its cache is not to be worked with.
func (c *connection) restored(s *session) error {
	err := s.guard.Err()
	if err == nil || !c.restores.TryAccept() {
		return nil
	}
	return err
}

// anew tells whether a session ended so that another one can take its place at once, and shows
// why until then.
func (c *connection) anew(err error) bool {
	if _, ok := errors.AsType[*continuity.RestoredError](err); !ok {
		return false
	}
	c.observe(Finding{
		Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonRestored,
		Message: Clip(err.Error()+"; all that is watched there is read again", maxMessage),
	})
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
