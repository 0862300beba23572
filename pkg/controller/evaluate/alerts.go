package evaluate

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/rulefleet/rulefleet/pkg/controller/hub"
	"github.com/rulefleet/rulefleet/pkg/evaluator"
	"github.com/rulefleet/rulefleet/pkg/metrics"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/evaluation"
	"github.com/rulefleet/rulefleet/pkg/spoke/kubeconfig"
)

// alertsTimeout bounds the reading of the hub's cache during a scrape. The cache has synced by then.
const alertsTimeout = time.Second

// Alerts returns the firing and pending alerts in all spokes, by source, as last reported by the chosen
// evaluators. If several evaluators have a rule, the one with the most alerts counts, as in the row of a
// status. It does not wait for spokes.
func (p *Poller) Alerts() []metrics.Alert {
	ctx, cancel := context.WithTimeout(context.Background(), alertsTimeout)
	defer cancel()
	p.mu.Lock()
	states := maps.Clone(p.spokes)
	p.mu.Unlock()
	var out []metrics.Alert
	for _, name := range slices.Sorted(maps.Keys(states)) {
		c, err := hub.Cluster(ctx, p.Hub, name)
		if err != nil || c == nil {
			continue // it is gone, or about to be
		}
		if e := p.Spokes.Evaluators(name); e.Known {
			hub.WithEvaluators(c, e.List, e.WhyNot)
		}
		out = append(out, states[name].alerts(c)...)
	}
	return out
}

// alerts returns the active alerts of one spoke.
func (s *spokeState) alerts(c *rule.Cluster) []metrics.Alert {
	s.mu.Lock()
	defer s.mu.Unlock()
	active := map[rule.Key]metrics.Alert{}
	for i := range c.Evaluators {
		es := s.evaluators[c.Evaluators[i].String()]
		if es == nil || !c.Evaluators[i].Chosen || es.outcome == evaluation.NotGranted {
			continue // earlier alerts are outdated once the evaluator can't be queried
		}
		for _, r := range es.rules {
			if r.Firing == 0 && r.Pending == 0 {
				continue
			}
			a := active[r.key]
			a.Cluster, a.Kind, a.Namespace, a.Name = c.Name, r.key.Kind, r.key.Namespace, r.key.Name
			a.Firing, a.Pending = max(a.Firing, r.Firing), max(a.Pending, r.Pending)
			active[r.key] = a
		}
	}
	return slices.SortedFunc(maps.Values(active), func(a, b metrics.Alert) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Kind, b.Kind))
	})
}

// Outcomes of polls, as metrics count them.
const (
	pollAnswered = "answered"
	pollFailed   = "failed"
	pollRefused  = "refused"
)

// refused reports whether the operator lacks the permission to query, which is not a failure of the evaluator.
func refused(err error) bool {
	said, ok := errors.AsType[*evaluator.Error](err)
	return ok && said.Kind == evaluator.Forbidden || errors.As(err, new(*kubeconfig.RefusedError))
}

// counted counts a poll of one evaluator, unless the operator canceled it.
func counted(ask func() answer) answer {
	begun := time.Now()
	a := ask()
	switch {
	case a.err == nil:
		metrics.EvaluatorPolls.WithLabelValues(pollAnswered).Inc()
		metrics.EvaluatorPollDuration.WithLabelValues().Observe(time.Since(begun).Seconds())
	case errors.Is(a.err, context.Canceled):
	case refused(a.err):
		metrics.EvaluatorPolls.WithLabelValues(pollRefused).Inc()
	default:
		metrics.EvaluatorPolls.WithLabelValues(pollFailed).Inc()
	}
	return a
}
