package spoke

import (
	"context"
	"slices"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

const (
	// probeInterval is the time between two probes of a spoke that answers. Together with probeRetry it bounds
	// how long an outage goes unnoticed: until three consecutive probes fail, 22 s at most.
	probeInterval = 5 * time.Second
	// probeRetry is the time after a failed probe, until the circuit opens.
	probeRetry = 500 * time.Millisecond
	// recheckInterval is the time between two rechecks. Together with a probeInterval it is below the 30 s
	// within which a change must show.
	recheckInterval = 18 * time.Second
	// throttleShown is how long a spoke may throttle before its status shows it.
	throttleShown = 10 * time.Second
	// throttledProbe is the longest time between two probes of a spoke that throttles.
	throttledProbe = 30 * time.Second
)

// tend maintains a session until its context ends. An error means that the session must not be served any more.
func (c *connection) tend(ctx context.Context, s *session) error {
	work, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer c.excess.during(cancel)()
	if err := c.tended(work, s); err != nil {
		return err
	}
	if ctx.Err() == nil {
		return c.excess.err()
	}
	return nil
}

// tended does the work of tend. Its context also ends when the spoke exceeds a limit.
func (c *connection) tended(ctx context.Context, s *session) error {
	backoff := c.backoff()
	delay, probed, recheck := wait.Jitter(c.every(probeInterval/2), 0.1), time.Now(), time.Now().Add(c.every(recheckInterval))
	var rechecked time.Time
	for c.await(ctx, delay) {
		if err := c.unfit(s); err != nil {
			return err
		}
		if delay = c.holdOff(probed); delay > 0 {
			continue
		}
		probed = time.Now()
		err := c.checkup(ctx, s)
		switch {
		case ctx.Err() != nil:
			continue // ends
		case isIdentity(err):
			return err
		case err != nil:
			delay = c.missed(err, backoff)
			continue
		}
		backoff, delay = c.backoff(), wait.Jitter(c.every(probeInterval), 0.1)
		if now := time.Now(); c.recheckDue(s, now.After(recheck), now.Sub(rechecked) >= c.every(probeInterval/2)) {
			recheck, rechecked = now.Add(c.every(recheckInterval)), now
			better, err := c.recheck(ctx, s)
			if better {
				err = c.renew(ctx, s)
			}
			switch {
			case ctx.Err() != nil:
				continue // ends
			case err != nil:
				return err
			}
		}
		if s.refused != nil { // until the next recheck
			c.observe(disconnected(s.refused))
			continue
		}
		if counts, news := s.tally.next(c.reads.bounds.counts(), time.Now(), c.every(firstInterval)); news {
			c.seen.Counts = counts
		}
		c.connected()
	}
	return nil
}

// recheckDue reports whether to recheck the spoke now. late means that the last recheck was recheckInterval ago. again is
// false shortly after a recheck: if its requests opened the circuit, the next probe comes at once, and closes it.
func (c *connection) recheckDue(s *session, late, again bool) bool {
	return !c.breaker.Blocked() && (late || (again && !s.served) || c.rekind.Swap(false))
}

// checkup probes the spoke. After an outage it confirms the identity before anything else is sent.
func (c *connection) checkup(ctx context.Context, s *session) error {
	ctx = asProbe(ctx)
	if err := c.probe(ctx); err != nil {
		return err
	}
	open := c.breaker.Open()
	if open || c.gate.inDoubt() {
		if err := c.identify(ctx, s.identity); err != nil {
			return err
		}
	}
	if open {
		c.breaker.Close()
	} else {
		c.breaker.Probed(true)
	}
	return nil
}

// missed counts a failed probe, and returns the time until the next one. A single failure may be chance, so it
// shows only when the circuit is open.
func (c *connection) missed(err error, backoff *wait.Backoff) time.Duration {
	if apierrors.IsTooManyRequests(err) {
		c.observe(throttled)
		return probeRetry
	}
	c.breaker.Probed(false)
	if !c.breaker.Open() {
		return probeRetry
	}
	c.observe(disconnected(err))
	return backoff.Step()
}

// holdOff returns how long the spoke's Retry-After also blocks the probe, and shows it if that lasts.
func (c *connection) holdOff(probed time.Time) time.Duration {
	left, lasted := c.breaker.Throttled()
	if left == 0 {
		return 0
	}
	shown := c.every(throttleShown)
	if lasted >= shown {
		c.observe(throttled)
	}
	return max(0, min(left, c.every(throttledProbe)-time.Since(probed), shown))
}

// await waits for the next probe or a change of the circuit. It returns false when the connection is to end.
func (c *connection) await(ctx context.Context, delay time.Duration) bool {
	select {
	case <-ctx.Done():
	case <-c.kick:
	case <-time.After(delay):
	}
	return ctx.Err() == nil
}

// recheck detects changes in a spoke that answers: whether it is still the same cluster, and whether the
// watched kinds may still be read, because a refused watch retries silently. better means that more can be read than
// before, or that other kinds of workloads are to be read. The error is an IdentityError.
func (c *connection) recheck(ctx context.Context, s *session) (better bool, err error) {
	switch err := c.identify(ctx, s.identity); {
	case isIdentity(err):
		return false, err
	case drips(err):
		s.refused = err // until the next recheck
		return false, nil
	}
	kinds := c.wantedKinds()
	granted, err := c.review(ctx, kinds)
	if drips(err) {
		s.refused = err // until the next recheck
	}
	if err != nil {
		return false, nil //nolint:nilerr // no answer; the next probe shows it
	}
	c.seen.Writes = granted.writes()
	c.discover(ctx, s)
	if !c.mayRead(ctx, s, granted) {
		return false, nil
	}
	s.readable = c.readable(ctx, s, granted, kinds)
	better = !slices.Equal(s.readable, s.kinds)
	if err = granted.lack(readsRules); err == nil {
		err = s.confirm(ctx, monitoringv1.PrometheusRuleName, c.tryRules(ctx, s))
	}
	switch {
	case err == nil:
		c.seen.Served = served(nil)
		return better || s.lacked || !s.served, nil
	case answered(err):
		c.seen.Served = served(err)
		s.lacked = true
	}
	return better, nil
}

// renew engages a session again after more, or other kinds of workloads, can be read. What its cache holds already is
// not read again.
func (c *connection) renew(ctx context.Context, s *session) error {
	before, lacked := s.kinds, s.lacked || !s.served
	err := c.syncProbed(s, func(ctx context.Context, s *session) error {
		if err := c.syncKinds(ctx, s, s.readable); err != nil || s.served {
			return err
		}
		return c.syncRules(ctx, s)
	})
	if isIdentity(err) || tooLarge(err) != nil || s.guard.Err() != nil {
		return err
	}
	if whole := err == nil && s.served; whole {
		s.lacked = false
	} else {
		lacked = false // Served shows it, or the next probe; the session is served as before
	}
	if !lacked && slices.Equal(before, s.kinds) {
		return nil
	}
	if _, err := c.p.publish(ctx, c, s); err != nil {
		return err
	}
	c.dropKinds(ctx, s, before)
	return nil
}

// mayRead reports whether Deployments and Namespaces may be read: from the granted permissions or, if the
// spoke does not report them, by reading.
func (c *connection) mayRead(ctx context.Context, s *session, granted grants) bool {
	s.refused = granted.lack(readsWorkloads)
	for _, o := range []client.Object{WorkloadMetadata(v1alpha1.DeploymentKind), NamespaceMetadata()} {
		if granted.known || s.refused != nil {
			break
		}
		if err := c.tryList(ctx, s.cluster, o.GetObjectKind().GroupVersionKind()); answered(err) {
			s.refused = err
		}
	}
	s.lacked = s.lacked || s.refused != nil
	return s.refused == nil
}
