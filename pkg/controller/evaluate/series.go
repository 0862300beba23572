package evaluate

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rulefleet/rulefleet/pkg/evaluator"
	"github.com/rulefleet/rulefleet/pkg/rule"
)

const (
	// perCheck is how many selectors are asked for at a time: 2,000 rules take ten minutes.
	perCheck = 100
	// share is how much of an evaluator's time the questions may take: after one that took a
	// second, the next waits for as many.
	share = 50
	// ahead is how much earlier it is the turn of what is missing.
	ahead = 5 * time.Minute
	// maxMessage bounds a message in a status, in bytes.
	maxMessage = 400
	// kubeStateMetrics is what the names of its metrics begin with.
	kubeStateMetrics = "kube_"
	maxMissing       = 3
	// maxNeeds bounds the selectors of one rule that are asked for.
	maxNeeds        = 256
	maxMissingBytes = 256
)

// presence is whether an evaluator has series for a selector.
type presence struct {
	metric string // its name; finding it takes parsing the selector
	// absent counts the checks in a row that found none: one may come between two scrapes.
	absent int
	at     time.Time // of the last check, zero for none
	wanted bool
}

func (p *presence) missing() bool { return p != nil && p.absent >= 2 }
func (p *presence) present() bool { return p != nil && !p.at.IsZero() && p.absent == 0 }

// series is what is known of the series that the expressions of a spoke's rules select.
type series struct {
	known map[string]*presence // by selector
	needs map[types.UID]*needs
	// next is when to ask again at the earliest.
	next time.Time
	// ksmMissing tells by an example that no metric of kube-state-metrics is there that rules
	// need; "" where all is well. checked tells that this is known.
	ksmMissing string
	checked    bool
}

// needs are those of a PrometheusRule at one generation. See rule.SelectorNeeds.
type needs struct {
	generation int64
	of         [][]string
	metrics    map[string]string // the name of each selector's metric, and of each such name
	key        types.NamespacedName
	missing    []string
	checked    bool // whether that is known
}

// checkMetrics asks an evaluator of a spoke for series. It tells whether to ask again soon.
func (p *Poller) checkMetrics(ctx context.Context, t *task, s *spokeState) (soon bool) {
	clients := p.answering(t, s)
	if len(clients) == 0 {
		return false
	}
	parsed := s.parseNeeds(t)
	s.mu.Lock()
	selectors := s.series.due(t, parsed, time.Now())
	s.mu.Unlock()
	if len(selectors) == 0 {
		return false
	}
	begun := time.Now()
	found := present(ctx, clients, selectors)
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.series.next = now.Add(share * now.Sub(begun))
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
	s.series.conclude(s)
	return soon
}

// present asks for series until one evaluator has them. What could not be found out of one is
// unknown, unless another has it: it is asked again.
func present(ctx context.Context, clients []*evaluator.Client, selectors []string) []evaluator.Presence {
	out := make([]evaluator.Presence, len(selectors))
	left := make([]int, len(selectors))
	for i := range left {
		left[i] = i
	}
	for n, c := range clients {
		ask := make([]string, 0, len(left))
		for _, i := range left {
			ask = append(ask, selectors[i])
		}
		found, _ := c.Present(ctx, ask)
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
	return out
}

// answering returns what asks each Prometheus of the spoke that answers: a ThanosRuler has no
// series.
func (p *Poller) answering(t *task, s *spokeState) []*evaluator.Client {
	var out []*evaluator.Client
	for _, e := range t.cluster.Chosen() {
		s.mu.Lock()
		es := s.evaluators[e.String()]
		answers := es != nil && es.outcome == rule.Evaluates && es.failures == 0
		s.mu.Unlock()
		if !answers || e.Kind != rule.KindPrometheus {
			continue
		}
		if c, err := p.client(t, e); err == nil {
			out = append(out, c)
		}
	}
	return out
}

// due returns the selectors to ask for: those that nothing is known of first, and then those that
// were asked for longest ago, where what is missing counts as if that was some minutes earlier.
func (s *series) due(t *task, parsed map[types.UID]*needs, now time.Time) []string {
	s.collect(t, parsed)
	if now.Before(s.next) {
		return nil
	}
	all := make([]string, 0, len(s.known))
	for selector := range s.known {
		all = append(all, selector)
	}
	turn := func(selector string) time.Time {
		is := s.known[selector]
		switch {
		case is.absent == 0:
			return is.at
		case selector == anyKube:
			return time.Time{} // one answer to many questions
		}
		return is.at.Add(-ahead)
	}
	slices.SortFunc(all, func(a, b string) int {
		return cmp.Or(turn(a).Compare(turn(b)), strings.Compare(a, b))
	})
	return all[:min(len(all), perCheck)]
}

// collect brings the selectors in line with the rules, given the needs of those that are new.
func (s *series) collect(t *task, parsed map[types.UID]*needs) {
	next := make(map[types.UID]*needs, len(t.objects))
	kubeLacks := false // any of its metrics, so that it may be all of them
	for _, is := range s.known {
		is.wanted = false
		kubeLacks = kubeLacks || is.isKube() && is.absent > 0
	}
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
				// Whether it is the metric that is missing, or what is asked of it.
				if is := want(selector, n.metrics[selector]); kubeLacks && is.isKube() {
					want(is.metric, n.metrics[is.metric])
				}
			}
		}
	}
	s.needs = next
	maps.DeleteFunc(s.known, func(_ string, is *presence) bool { return !is.wanted })
}

// parseNeeds returns the needs of the PrometheusRules that are new or have changed, as far as the
// spoke's share of parsing allows. No lock is held while they are parsed.
func (s *spokeState) parseNeeds(t *task) map[types.UID]*needs {
	s.mu.Lock()
	known := s.series.needs // never changed, but replaced
	s.mu.Unlock()
	out := map[types.UID]*needs{}
	for uid, o := range t.objects {
		if n := known[uid]; (n == nil || n.generation != o.Generation) && s.mayParse(rule.ExprOf(o)) {
			out[uid] = needsOf(o)
		}
	}
	return out
}

// needsOf returns what the expression of a PrometheusRule selects.
func needsOf(o *monitoringv1.PrometheusRule) *needs {
	n := &needs{generation: o.Generation, metrics: map[string]string{}}
	n.key, _ = rule.ParseRuleKey(o)
	n.of = rule.SelectorNeeds(rule.ExprOf(o))
	n.of = n.of[:min(len(n.of), maxNeeds)]
	for _, selector := range slices.Concat(n.of...) {
		metric := rule.MetricName(selector)
		n.metrics[selector], n.metrics[metric] = metric, rule.MetricName(metric)
	}
	return n
}

// conclude finds out which rules lack what, and marks those of which that is news.
func (s *series) conclude(of *spokeState) {
	kube := s.kubeStateMetrics()
	if kube == presenceSome && s.ksmMissing != "" {
		s.forgetKube() // each was missing because all were
	}
	example := ""
	for _, n := range s.needs {
		missing, ofKube, checked := s.lacking(n, kube)
		if ofKube != "" && (example == "" || ofKube < example) {
			example = ofKube
		}
		// What was known stands until it is again.
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

// lacking returns what a rule lacks and whether that is known, given what there is of
// kube-state-metrics' metrics. Where there is nothing of them it is told of the spoke, not of
// every rule: then it is an example of them.
func (s *series) lacking(n *needs, kube int) (missing []string, ofKube string, checked bool) {
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
			missing = append(missing, clipped(strings.Join(need, " or ")))
		}
	}
	return missing, ofKube, checked
}

// What there is of kube-state-metrics' metrics.
const (
	presenceSome = iota
	presenceUnknown
	presenceNone
)

// kubeStateMetrics tells whether any metric of kube-state-metrics is there, of those that rules
// need. What was there says nothing once others were looked for later, and not found.
func (s *series) kubeStateMetrics() int {
	var last time.Time
	for _, is := range s.known {
		if is.isKube() && is.absent > 0 && is.at.After(last) {
			last = is.at
		}
	}
	// The few metrics that rules need may all be such as are there at times alone.
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

// anyKube selects whatever there is of kube-state-metrics.
const anyKube = `{__name__=~"` + kubeStateMetrics + `.+"}`

func (p *presence) isKube() bool { return p != nil && strings.HasPrefix(p.metric, kubeStateMetrics) }

// gone tells whether a selector is missing, or the whole metric that it is about is.
func (s *series) gone(selector string) bool {
	is := s.known[selector]
	if is == nil {
		return false
	}
	metric := s.known[is.metric]
	return is.missing() || metric.missing() && !metric.at.Before(is.at)
}

func clipped(s string) string {
	if len(s) <= maxMissingBytes {
		return s
	}
	return strings.ToValidUTF8(s[:maxMissingBytes-len("…")], "") + "…"
}

// missing returns the selectors of a PrometheusRule that match nothing, and whether that is known.
func (s *series) missing(o *monitoringv1.PrometheusRule) (selectors []string, checked bool) {
	if n := s.needs[o.UID]; n != nil && n.generation == o.Generation {
		return n.missing, n.checked
	}
	return nil, false
}

// forgetKube has what was missing of kube-state-metrics' metrics asked for anew.
func (s *series) forgetKube() {
	for _, is := range s.known {
		if is.isKube() && is.absent > 0 {
			*is = presence{metric: is.metric, wanted: is.wanted}
		}
	}
}
