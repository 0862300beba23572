package evaluate

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rulefleet/rulefleet/pkg/clip"
	"github.com/rulefleet/rulefleet/pkg/evaluator"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/evaluation"
)

const (
	// perCheck is the number of selectors per check. Those of 2,000 rules take ten minutes.
	perCheck = 100
	// share is the ratio of waiting to querying: after a query that took a second, the next one waits this many
	// seconds.
	share = 50
	// ahead is how much earlier missing selectors are queried again.
	ahead = 5 * time.Minute
	// afterFailure is the longest time until metrics are queried again after a failure.
	afterFailure = 30 * time.Second
	// maxMessage bounds a message in a status, in bytes.
	maxMessage = 400
	// kubeStateMetrics is the prefix of the metrics of kube-state-metrics.
	kubeStateMetrics = "kube_"
	maxMissing       = 3
	maxMissingBytes  = 256
	// emptyPatience is how long a recording rule may have no result although the series that it reads exist: functions
	// over time, such as rate, have none in the first minutes.
	emptyPatience = 10 * time.Minute
)

// presence records whether an evaluator has series for a selector.
type presence struct {
	metric string // its name; finding it takes parsing the selector
	// absent counts the consecutive checks that found none: one may fall between two scrapes.
	absent int
	at     time.Time // of the last check, zero for none
	wanted bool
}

func (p *presence) missing() bool { return p != nil && p.absent >= 2 }

func (p *presence) present() bool { return p != nil && !p.at.IsZero() && p.absent == 0 }

// series is the state of the series that the expressions of a spoke's rules select.
type series struct {
	known map[string]*presence // by selector
	needs map[types.UID]*needs
	// next is the earliest time of the next check.
	next time.Time
	// ksmMissing is an example of the missing metrics if no metric of kube-state-metrics exists that rules need,
	// or "". checked means that this is known.
	ksmMissing string
	checked    bool
	// failures is the number of consecutive checks that failed. problem is the error of the first of them, which is shown
	// from metricsPatience on.
	failures int
	problem  error
}

// fails records the error of a check, or nil. It reports whether what is shown changes. A check that timed out counts
// twice, because the next one may be far away.
func (s *series) fails(err error) (news bool) {
	shown := s.failures >= metricsPatience
	if err == nil {
		s.failures, s.problem = 0, nil
		return shown
	}
	if s.problem == nil {
		s.problem = err
	}
	s.failures++
	if errors.Is(err, context.DeadlineExceeded) {
		s.failures++
	}
	return shown != (s.failures >= metricsPatience)
}

// checkMetrics queries an evaluator of a spoke for series. It reports whether to query again soon.
func (p *Poller) checkMetrics(ctx context.Context, t *task, s *spokeState) (soon bool) {
	clients := p.answering(t, s)
	if len(clients) == 0 {
		s.asksNobody()
		return false
	}
	parsed := s.parseNeeds(t, p.Render)
	s.mu.Lock()
	selectors := s.series.due(t, parsed, s.evaluatedLocked(t), time.Now())
	none := len(s.series.known) == 0
	s.mu.Unlock()
	if none {
		s.asksNobody()
	}
	if len(selectors) == 0 {
		return false
	}
	begun := time.Now()
	found, err := present(ctx, clients, selectors)
	now := time.Now()
	if ctx.Err() != nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shown = s.series.fails(err) || s.shown
	soon = err != nil && s.series.failures < metricsPatience
	pause := share * now.Sub(begun)
	if err != nil {
		pause = min(pause, afterFailure)
	}
	s.series.next = now.Add(p.Intervals.Of(pause))
	for i, selector := range selectors {
		is := s.series.known[selector]
		switch {
		case is == nil || found[i] == evaluator.Unknown:
			continue
		case found[i] == evaluator.Present:
			is.absent = 0
		default:
			is.absent++
			soon = soon || is.absent < 2
		}
		is.at = now
	}
	s.series.conclude(s, p.Intervals.Of(emptyPatience))
	return soon
}

// asksNobody drops the failures of queries for metrics, because there is none to ask, or nothing to ask for.
func (s *spokeState) asksNobody() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shown = s.series.fails(nil) || s.shown
}

// present queries evaluators for series until one has them. A selector that one evaluator could not answer is
// unknown, unless another has it. The error is that of the first one that did not answer as a Prometheus does.
func present(ctx context.Context, clients []*evaluator.Client, selectors []string) (out []evaluator.Presence, problem error) {
	out = make([]evaluator.Presence, len(selectors))
	left := make([]int, len(selectors))
	for i := range left {
		left[i] = i
	}
	for n, c := range clients {
		ask := make([]string, 0, len(left))
		for _, i := range left {
			ask = append(ask, selectors[i])
		}
		found, err := c.Present(ctx, ask)
		if problem == nil && !ofQuery(err) {
			problem = err
		}
		var next []int
		for at, i := range left {
			is := evaluator.Unknown
			if at < len(found) {
				is = found[at]
			}
			if is != evaluator.Present {
				next = append(next, i)
			}
			if n == 0 || is != evaluator.Absent {
				out[i] = is
			}
		}
		left = next
	}
	return out, problem
}

// ofQuery reports whether an error concerns single queries, or is nil.
func ofQuery(err error) bool {
	known, ok := errors.AsType[*evaluator.Error](err)
	return err == nil || (ok && (known.Kind == evaluator.Rejected || known.Kind == evaluator.Partial))
}

// answering returns the clients of the Prometheus objects of the spoke that answer. ThanosRulers have no
// series. At a Service that others share, it is not known who answers.
func (p *Poller) answering(t *task, s *spokeState) []*evaluator.Client {
	var out []*evaluator.Client
	for _, e := range t.cluster.Chosen() {
		s.mu.Lock()
		answers := s.answersLocked(t, e)
		s.mu.Unlock()
		if !answers {
			continue
		}
		if c, err := p.client(t, e); err == nil {
			out = append(out, c)
		}
	}
	return out
}

// answersLocked reports whether an evaluator can be queried for series.
func (s *spokeState) answersLocked(t *task, e *rule.Evaluator) bool {
	es := s.evaluators[e.String()]
	return es != nil && es.outcome == evaluation.Evaluates && es.failures == 0 && es.strangers.IsZero() && e.Kind == rule.KindPrometheus && t.sharing(e) == ""
}

// evaluatedLocked returns the PrometheusRules that an evaluator evaluates which can be queried for their series.
func (s *spokeState) evaluatedLocked(t *task) map[types.UID]bool {
	out := map[types.UID]bool{}
	for _, e := range t.cluster.Chosen() {
		if !s.answersLocked(t, e) {
			continue
		}
		for uid, is := range s.evaluators[e.String()].rules {
			out[uid] = out[uid] || is.Outcome == evaluation.Evaluates
		}
	}
	return out
}

// due returns the selectors to query: unknown ones first, then by the time of the last query, with missing
// ones some minutes earlier.
func (s *series) due(t *task, parsed map[types.UID]*needs, evaluated map[types.UID]bool, now time.Time) []string {
	s.collect(t, parsed, evaluated)
	if now.Before(s.next) {
		return nil
	}
	turn := func(selector string) time.Time {
		is := s.known[selector]
		switch {
		case is.absent == 0:
			return is.at
		case selector == anyKube:
			return time.Time{} // one answer to many queries
		}
		return is.at.Add(-ahead)
	}
	all := slices.SortedFunc(maps.Keys(s.known), func(a, b string) int {
		return cmp.Or(turn(a).Compare(turn(b)), strings.Compare(a, b))
	})
	return all[:min(len(all), perCheck)]
}

// collect updates the selectors to those of the rules, given the needs of new rules. The results of recording rules are
// among them once the rules are evaluated.
func (s *series) collect(t *task, parsed map[types.UID]*needs, evaluated map[types.UID]bool) {
	next := make(map[types.UID]*needs, len(t.objects))
	for _, is := range s.known {
		is.wanted = false
	}
	kubeLacks := s.kubeLacks()
	want := func(selector, metric string) *presence {
		is := s.known[selector]
		if is == nil {
			is = &presence{metric: metric}
			s.known[selector] = is
		}
		is.wanted = true
		return is
	}
	if kubeLacks {
		want(anyKube, "")
	}
	for uid, o := range t.objects {
		n := s.needs[uid]
		if n == nil || n.generation != o.Generation {
			if n = parsed[uid]; n == nil {
				continue
			}
		}
		next[uid] = n
		for _, need := range n.of {
			for _, selector := range need {
				// Either the metric is missing, or the series that are selected.
				if is := want(selector, n.metrics[selector]); kubeLacks && is.isKube() {
					want(is.metric, n.metrics[is.metric])
				}
			}
		}
		for _, r := range n.recordings {
			if evaluated[uid] {
				want(r.result, n.metrics[r.result])
			}
		}
	}
	s.needs = next
	maps.DeleteFunc(s.known, func(_ string, is *presence) bool { return !is.wanted })
}

// kubeLacks reports whether a metric of kube-state-metrics is missing, so that all of them may be.
func (s *series) kubeLacks() bool {
	for _, is := range s.known {
		if is.isKube() && is.absent > 0 {
			return true
		}
	}
	return false
}

// conclude determines which rules lack series, and marks those for which that changed. patience is emptyPatience.
func (s *series) conclude(of *spokeState, patience time.Duration) {
	kube := s.kubeStateMetrics()
	if kube == presenceSome && s.ksmMissing != "" {
		s.forgetKube() // each one was missing because all were
	}
	example := ""
	for _, n := range s.needs {
		missing, ofKube, checked := s.lacking(n, kube, patience)
		if ofKube != "" && (example == "" || ofKube < example) {
			example = ofKube
		}
		// The previous result stays until there is a new one.
		if checked && (!slices.Equal(missing, n.missing) || !n.checked) {
			n.missing, n.checked = missing, true
			of.changedKey(n.key)
		}
	}
	if kube == presenceUnknown {
		return
	}
	if (example == "") != (s.ksmMissing == "") || !s.checked {
		of.shown = true
	}
	s.ksmMissing, s.checked = example, true
}

// lacking returns the series that a rule lacks and whether that is known. If no metric of kube-state-metrics
// exists, that is reported for the spoke instead of for each rule, and ofKube is an example.
func (s *series) lacking(n *needs, kube int, patience time.Duration) (missing []string, ofKube string, checked bool) {
	checked = true
	for _, need := range n.of {
		is := s.known[need[0]]
		switch {
		case slices.ContainsFunc(need, func(selector string) bool { return !s.gone(selector) }):
			checked = checked && slices.ContainsFunc(need, func(selector string) bool { return s.known[selector].present() })
		case is.isKube() && kube == presenceNone:
			if ofKube == "" || is.metric < ofKube {
				ofKube = is.metric
			}
		case is.isKube() && kube == presenceUnknown:
			checked = false
		case len(missing) < maxMissing:
			missing = append(missing, clip.Marked(strings.Join(need, " or "), maxMissingBytes))
		}
	}
	for i := range n.recordings {
		text := clip.Marked(n.recordings[i].result, maxMissingBytes)
		if s.empty(&n.recordings[i], patience) && len(missing) < maxMissing && !slices.Contains(missing, text) {
			missing = append(missing, text)
		}
	}
	return missing, ofKube, checked
}

// empty reports whether a recording rule has had no result for some time although the series that it reads exist.
func (s *series) empty(r *recording, patience time.Duration) bool {
	is := s.known[r.result]
	has := func(selector string) bool { return s.known[selector].present() }
	lacks := func(need []string) bool { return !slices.ContainsFunc(need, has) }
	if is == nil || is.absent == 0 || slices.ContainsFunc(r.needs, lacks) {
		r.since = time.Time{}
		return false
	}
	if r.since.IsZero() {
		r.since = is.at
	}
	return is.at.Sub(r.since) >= patience
}

// Whether metrics of kube-state-metrics exist.
const (
	presenceSome = iota
	presenceUnknown
	presenceNone
)

// kubeStateMetrics reports whether any metric of kube-state-metrics exists that rules need. An earlier find
// does not count once later queries for others found none.
func (s *series) kubeStateMetrics() int {
	var last time.Time
	for _, is := range s.known {
		if is.isKube() && is.absent > 0 && is.at.After(last) {
			last = is.at
		}
	}
	// All metrics that rules need may exist only at times.
	anyOf, out := s.known[anyKube], presenceNone
	switch {
	case last.IsZero():
	case anyOf.present() && !anyOf.at.Before(last):
		return presenceSome
	case !anyOf.missing():
		out = presenceUnknown
	}
	for selector, is := range s.known {
		switch {
		case !is.isKube(), s.gone(selector) && s.gone(is.metric):
		case is.present() && !is.at.Before(last):
			return presenceSome
		default:
			out = presenceUnknown
		}
	}
	return out
}

// anyKube selects any metric of kube-state-metrics.
const anyKube = `{__name__=~"` + kubeStateMetrics + `.+"}`

func (p *presence) isKube() bool { return p != nil && strings.HasPrefix(p.metric, kubeStateMetrics) }

// gone reports whether a selector, or its whole metric, is missing.
func (s *series) gone(selector string) bool {
	is := s.known[selector]
	if is == nil {
		return false
	}
	metric := s.known[is.metric]
	return is.missing() || metric.missing() && !metric.at.Before(is.at)
}

// missing returns the selectors of a PrometheusRule without series, and whether that is known.
func (s *series) missing(o *monitoringv1.PrometheusRule) (selectors []string, checked bool) {
	if n := s.needs[o.UID]; n != nil && n.generation == o.Generation {
		return n.missing, n.checked
	}
	return nil, false
}

// forgetKube makes the missing metrics of kube-state-metrics be queried again.
func (s *series) forgetKube() {
	for _, is := range s.known {
		if is.isKube() && is.absent > 0 {
			*is = presence{metric: is.metric, wanted: is.wanted}
		}
	}
}
