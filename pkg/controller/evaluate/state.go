package evaluate

import (
	"context"
	"errors"
	"hash/maphash"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rulefleet/rulefleet/pkg/evaluator"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/spoke"
)

// spokeState is what is known of one spoke.
type spokeState struct {
	kick    chan struct{}
	polling chan struct{} // full while held by the goroutine that polls it

	// parsing bounds the time that parsing what is written in this spoke takes. See mayParse.
	parsing *rate.Limiter

	mu         sync.Mutex
	evaluators map[string]*evaluatorState // by what they are called
	series     series
	// changed are the AlertRules there is news of, and shown tells of news of the evaluators.
	changed map[types.NamespacedName]bool
	shown   bool
}

// evaluatorState is what is known of one evaluator.
type evaluatorState struct {
	// outcome is NotGranted or Unreachable, with a message, Evaluates where it has answered, or
	// Unasked.
	outcome  rule.Outcome
	message  string
	gist     string // of why it may not be asked, as far as that is the hub's own word
	failures int
	// loaded is how many alerting rules it has: of this hub, where it can leave out others.
	loaded int
	rules  map[types.UID]*ruleState
	// answered tells that it was polled since the operator started, and agree how many polls have
	// to agree.
	answered bool
	agree    agreement
}

// ruleState is what an evaluator said of a PrometheusRule.
type ruleState struct {
	rule.Evaluation

	key        types.NamespacedName // its AlertRule
	generation int64                // of the PrometheusRule that this is about
	since      time.Time            // when it was first found not to be evaluated yet
	// proven tells that a poll found it evaluated, and misses how many since then did not, in a row.
	// first tells that no poll did, and that the first since the operator started did not either.
	proven, first bool
	misses        int
	// raw is a hash of what was loaded, as it was sent, and current whether that is
	// what the PrometheusRule says. Comparing the two takes parsing both.
	raw     uint64
	current bool
}

func (p *Poller) state(name string) *spokeState {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.spokes[name]
	if s == nil {
		s = &spokeState{
			kick: make(chan struct{}, 1), polling: make(chan struct{}, 1), parsing: rate.NewLimiter(parsingRate, parsingBurst),
			evaluators: map[string]*evaluatorState{}, changed: map[types.NamespacedName]bool{},
		}
		s.series.known = map[string]*presence{}
		p.spokes[name] = s
	}
	return s
}

// Of returns what an evaluator says of this hub's PrometheusRule in a spoke, as it is there.
func (p *Poller) Of(name string, e *rule.Evaluator, o *monitoringv1.PrometheusRule) rule.Evaluation {
	s := p.state(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	es := s.evaluators[e.String()]
	switch {
	case es == nil || es.outcome == rule.Unasked:
		return rule.Evaluation{}
	case es.outcome == rule.NotGranted:
		return rule.Evaluation{Outcome: rule.NotGranted} // what fired before is nobody's to know any more
	}
	var is rule.Evaluation
	known := es.rules[o.UID]
	if known != nil {
		is = known.Evaluation
	}
	switch {
	case es.outcome != rule.Evaluates:
		is.Outcome = es.outcome // what fired when it was last asked stands
	case known == nil || known.generation != o.Generation:
		is.Outcome, is.Late, is.Unsure = rule.Absent, false, false
	}
	is.Missing, is.Checked = s.series.missing(o)
	is.Checked = is.Checked || !p.Metrics
	return is
}

// errGone is an evaluator that was there a moment ago.
var errGone = errors.New("it is gone")

// answer is what came of asking an evaluator.
type answer struct {
	err      error
	rules    map[types.UID]*evaluator.Rule
	compared map[types.UID]comparison
	loaded   int
}

// comparison is what came of comparing a PrometheusRule with what an evaluator has loaded of it.
type comparison struct {
	raw     uint64 // see ruleState
	current bool
	// postponed tells that the spoke has had its share of parsing for now.
	postponed bool
}

// ofPod matches the file that prometheus-operator puts a PrometheusRule into: whose it is, and
// the UID of the PrometheusRule.
var ofPod = regexp.MustCompile(`/(?:prometheus|thanos-ruler)-([^/]+)-rulefiles-[0-9]+/[^/]*-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\.yaml$`)

// errOther is an answer of another evaluator than the one that was asked.
var errOther = errors.New("its Service also selects another Prometheus in the same namespace; give each its own Service (spec.serviceName), or set its address in spec.evaluatorRefs of the SpokeCluster")

// ask asks one evaluator for what it has loaded of this hub.
func (s *spokeState) ask(ctx context.Context, t *task, e *rule.Evaluator, c *evaluator.Client, match string, problem error) answer {
	if problem != nil {
		return answer{err: problem}
	}
	out := answer{rules: map[types.UID]*evaluator.Rule{}}
	own, others := 0, 0
	_, err := c.Rules(ctx, match, func(r *evaluator.Rule) {
		out.loaded++
		o := t.groups[r.Group]
		if parts := ofPod.FindStringSubmatch(r.File); parts != nil {
			o = t.objects[types.UID(parts[2])]
			if parts[1] != e.Name {
				others++
				return
			}
			own++
		}
		if o != nil {
			out.rules[o.UID] = r
		}
	})
	if err == nil && others > 0 && own == 0 {
		err = errOther
	}
	out.err = err
	return out
}

// keep takes an answer. It returns when to ask again, at the latest.
func (p *Poller) keep(t *task, s *spokeState, e *rule.Evaluator, a answer) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	es := s.evaluators[e.String()]
	if es == nil {
		es = &evaluatorState{rules: map[types.UID]*ruleState{}}
		s.evaluators[e.String()] = es
	}
	if a.err != nil {
		if s.failed(t, es, a.err) {
			return retry
		}
		return p.Interval
	}
	if es.outcome != rule.Evaluates {
		s.news(t)
	}
	if es.outcome != rule.Evaluates || crowded(es.loaded) != crowded(a.loaded) {
		s.shown = true
	}
	es.outcome, es.message, es.gist, es.failures, es.loaded = rule.Evaluates, "", "", 0, a.loaded
	return s.keepRules(t, es, a, p.Interval)
}

// keepRules takes what an evaluator says of the rules. It returns when to ask again, at the latest.
func (s *spokeState) keepRules(t *task, es *evaluatorState, a answer, interval time.Duration) time.Duration {
	now, next := time.Now(), interval
	contradicts, doubts := false, false
	for uid, o := range t.objects {
		was := es.rules[uid]
		if a.compared[uid].postponed {
			if was == nil || was.generation != o.Generation {
				es.rules[uid] = unasked(o)
			}
			continue
		}
		is := judge(was, o, a.rules[uid], a.compared[uid], now)
		contradiction, doubt := is.weigh(was, !es.answered, es.agree.needed(), now)
		contradicts, doubts = contradicts || contradiction, doubts || doubt
		es.rules[uid] = is
		if (doubt || is.Outcome == rule.Absent || is.Outcome == rule.Waiting) && now.Sub(is.since) < loadingSoon {
			next = min(next, loading)
		}
		if was == nil || is.differs(was) {
			s.changedKey(is.key)
		}
	}
	maps.DeleteFunc(es.rules, func(uid types.UID, _ *ruleState) bool { return t.objects[uid] == nil })
	es.answered = true
	es.agree.note(contradicts, doubts)
	return next
}

// retain forgets all evaluators but those that are to evaluate rules: a spoke may come up with
// others again and again.
func (s *spokeState) retain(chosen []*rule.Evaluator) {
	names := make(map[string]bool, len(chosen))
	for _, e := range chosen {
		names[e.String()] = true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.evaluators, func(name string, _ *evaluatorState) bool { return !names[name] })
}

// failed takes the error of a poll.
func (s *spokeState) failed(t *task, es *evaluatorState, err error) (soon bool) {
	outcome, message := rule.Unreachable, spoke.Clip(err.Error(), maxMessage)
	refused, isRefused := errors.AsType[*spoke.RefusedError](err)
	answered, isAnswer := errors.AsType[*evaluator.Error](err)
	switch {
	case isRefused:
		outcome, message = rule.NotGranted, refused.Error()
	case isAnswer && answered.Kind == evaluator.Forbidden:
		outcome = rule.NotGranted
	}
	es.failures++
	if errors.Is(err, context.DeadlineExceeded) {
		es.failures++
	}
	if isAnswer && answered.Kind == evaluator.TooMuch {
		es.failures = max(es.failures, patience) // nobody sends too much by chance
	}
	if outcome == rule.Unreachable && es.failures < patience {
		return true // one may fail by chance
	}
	if es.outcome != outcome {
		s.news(t)
	}
	gist := ""
	if isRefused {
		gist = message // what a person wrote, and may have changed
	}
	if es.outcome != outcome || es.gist != gist {
		// The words of the same answer, or outage, differ from try to try.
		es.message, s.shown = message, true
	}
	es.outcome, es.gist = outcome, gist
	if outcome == rule.NotGranted {
		es.failures = 0
	}
	return false
}

// news marks all rules of a spoke as changed.
func (s *spokeState) news(t *task) {
	for _, o := range t.objects {
		key, _ := rule.ParseRuleKey(o)
		s.changedKey(key)
	}
}

// changedKey marks a rule as changed. An object that does not say which it is has none.
func (s *spokeState) changedKey(key types.NamespacedName) {
	if key.Name != "" {
		s.changed[key] = true
	}
}

func (r *ruleState) differs(was *ruleState) bool {
	return r.Outcome != was.Outcome || r.Unsure != was.Unsure || r.Late != was.Late || r.Message != was.Message || r.Firing != was.Firing || r.generation != was.generation
}

// unasked is a PrometheusRule of which nothing is known yet.
func unasked(o *monitoringv1.PrometheusRule) *ruleState {
	is := &ruleState{generation: o.Generation}
	is.key, _ = rule.ParseRuleKey(o)
	return is
}

// compare compares what an evaluator has loaded with the PrometheusRules that it comes from. Both are written
// in the spoke, and parsing them takes time: no lock is held meanwhile.
func (s *spokeState) compare(t *task, e *rule.Evaluator, rules map[types.UID]*evaluator.Rule) map[types.UID]comparison {
	var known map[types.UID]*ruleState
	s.mu.Lock()
	if es := s.evaluators[e.String()]; es != nil {
		known = maps.Clone(es.rules)
	}
	s.mu.Unlock()
	out := make(map[types.UID]comparison, len(rules))
	for uid, loaded := range rules {
		o := t.objects[uid]
		is := comparison{raw: rawHash(loaded, e.Confined(o))}
		switch was := known[uid]; {
		case was != nil && was.raw == is.raw && was.generation == o.Generation:
			is.current = was.current
		case s.mayParse(loaded.Query, rule.ExprOf(o)):
			is.current = matches(o, e, loaded)
		default:
			is.postponed = true
		}
		out[uid] = is
	}
	return out
}

// judge says what came of a PrometheusRule, given what an evaluator has loaded of it, if anything.
func judge(was *ruleState, o *monitoringv1.PrometheusRule, loaded *evaluator.Rule, compared comparison, now time.Time) *ruleState {
	is := unasked(o)
	is.Seen, is.raw, is.current = true, compared.raw, compared.current
	if loaded != nil {
		is.Firing, is.Pending = int32(min(loaded.Firing, 1<<30)), int32(min(loaded.Pending, 1<<30)) //nolint:gosec // bounded
	}
	switch {
	case !is.current:
		is.Outcome, is.since = rule.Absent, now
		if was != nil && was.Outcome == rule.Absent && was.generation == is.generation {
			is.since = was.since
		}
		is.Late = now.Sub(is.since) > rule.LoadingTime
	case loaded.Health == evaluator.HealthErr:
		is.Outcome, is.Message = rule.Failed, loaded.LastError
	case loaded.Health != evaluator.HealthOK:
		is.Outcome, is.since = rule.Waiting, now
		if was != nil && was.Outcome == rule.Waiting && was.generation == is.generation {
			is.since = was.since
		}
	default:
		is.Outcome = rule.Evaluates
	}
	return is
}

func matches(o *monitoringv1.PrometheusRule, e *rule.Evaluator, loaded *evaluator.Rule) bool {
	r := &rule.LoadedRule{
		Name: loaded.Name, Query: loaded.Query, For: loaded.For, KeepFiringFor: loaded.KeepFiringFor,
		Labels: e.Given(o, loaded.Labels), Annotations: loaded.Annotations,
	}
	return rule.LoadedDigest(r, e.Confined(o)) == rule.ContentDigest(o, e)
}

var seed = maphash.MakeSeed()

// rawHash hashes what an evaluator says that it has loaded, and by what label it is said to
// confine that.
func rawHash(r *evaluator.Rule, confined string) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	write := func(text string) { _, _ = h.WriteString(strconv.Itoa(len(text)) + ":" + text) }
	write(confined)
	write(r.Name)
	write(r.Query)
	write(r.For.String() + r.KeepFiringFor.String())
	for _, texts := range []map[string]string{r.Labels, r.Annotations} {
		for _, key := range slices.Sorted(maps.Keys(texts)) {
			write(key)
			write(texts[key])
		}
		write("")
	}
	return h.Sum64()
}

// tell tells of the news of a poll, with no lock held.
func (p *Poller) tell(t *task, s *spokeState) {
	s.mu.Lock()
	rules := slices.Collect(maps.Keys(s.changed)) // in no order: each has its turn at being first
	shown := s.shown
	clear(s.changed)
	s.shown = false
	s.mu.Unlock()
	p.mu.Lock()
	news := p.news
	p.mu.Unlock()
	if len(rules) > 0 {
		news(t.name, rules)
	}
	if shown {
		p.Spokes.Changed(t.name)
	}
}
