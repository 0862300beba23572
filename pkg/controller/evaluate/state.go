package evaluate

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rulefleet/rulefleet/pkg/controller/hub"
	"github.com/rulefleet/rulefleet/pkg/evaluator"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/evaluation"
	"github.com/rulefleet/rulefleet/pkg/spoke"
	"github.com/rulefleet/rulefleet/pkg/spoke/kubeconfig"
	"github.com/rulefleet/rulefleet/pkg/spoke/queue"
)

// spokeState is the state of one spoke.
type spokeState struct {
	kick    chan struct{}
	polling chan struct{} // full while a goroutine polls the spoke

	// parsing is the spoke's parsing budget; see mayParse.
	parsing *rate.Limiter

	mu         sync.Mutex
	evaluators map[string]*evaluatorState // by String
	series     series
	// slow has the evaluators whose latest answer took, or has taken so far, longer than slowAnswer.
	slow map[string]bool
	// changed are the sources whose evaluation changed. shown means that the state of an evaluator changed.
	changed map[rule.Key]bool
	shown   bool
}

// evaluatorState is the state of one evaluator.
type evaluatorState struct {
	// outcome is NotGranted or Unreachable, with a message, or Evaluates after an answer, or Unasked.
	outcome  evaluation.Outcome
	message  string
	fault    *evaluator.Error // the error behind the message, or nil
	gist     string           // why it can't be queried, without text of an answer
	failures int
	// strangers is since when only others answer at its Service.
	strangers time.Time
	// loaded is the number of its rules: alerts of AlertRules and all rules of RulePacks, or all alerting rules if it can't
	// filter them.
	loaded int
	rules  map[types.UID]*ruleState
	// packGroups are the groups of RulePacks that it had loaded. One that is not in them any more is still asked for, to see
	// that it is gone.
	packGroups []string
	// answered means that it has been polled since the operator started. agree is the number of polls that must
	// agree.
	answered bool
	agree    agreement
}

// ruleState is what an evaluator said about a PrometheusRule.
type ruleState struct {
	evaluation.State

	key        rule.Key  // of its source
	generation int64     // of the PrometheusRule that was compared
	since      time.Time // when it was first found not to be evaluated yet
	// proven means that a poll found it evaluated, misses is the number of consecutive polls since then that did
	// not. first means that no poll did, including the first one since the operator started.
	proven, first bool
	misses        int
	// raw is a hash of the loaded rules as received. mismatch is how they differ from the PrometheusRule, or "". To find
	// it takes parsing both.
	raw      uint64
	mismatch string
}

func (p *Poller) state(name string) *spokeState {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.spokes[name]
	if s == nil {
		s = &spokeState{
			kick: make(chan struct{}, 1), polling: make(chan struct{}, 1), parsing: rate.NewLimiter(parsingRate, parsingBurst),
			evaluators: map[string]*evaluatorState{}, slow: map[string]bool{}, changed: map[rule.Key]bool{},
		}
		s.series.known = map[string]*presence{}
		p.spokes[name] = s
	}
	return s
}

// Of returns what an evaluator says about this hub's PrometheusRule in a spoke.
func (p *Poller) Of(name string, e *rule.Evaluator, o *monitoringv1.PrometheusRule) evaluation.State {
	s := p.state(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	es := s.evaluators[e.String()]
	switch {
	case es == nil || es.outcome == evaluation.Unasked:
		return evaluation.State{}
	case es.outcome == evaluation.NotGranted:
		return evaluation.State{Outcome: evaluation.NotGranted} // earlier alerts are no longer known
	}
	var is evaluation.State
	known := es.rules[o.UID]
	if known != nil {
		is = known.State
	}
	switch {
	case es.outcome != evaluation.Evaluates:
		is.Outcome = es.outcome // the alerts of the last poll stay
	case known == nil || known.generation != o.Generation:
		is.Outcome, is.Late, is.Unsure = evaluation.Absent, false, false
	}
	is.Missing, is.Checked = s.series.missing(o)
	is.Checked = is.Checked || !p.Metrics
	return is
}

// errGone is the error of an evaluator that has just disappeared.
var errGone = errors.New("the object was deleted in the spoke")

// answer is the result of polling an evaluator.
type answer struct {
	err      error
	rules    map[types.UID][]*evaluator.Rule
	compared map[types.UID]comparison
	loaded   int
	// packGroups are the groups of RulePacks that are loaded. noPacks means that the request for them failed.
	packGroups []string
	noPacks    bool
	// mixed means that another evaluator answered a part, so that a missing rule says nothing.
	mixed bool
}

// saysNothing reports whether an answer does not tell the state of a PrometheusRule, which may be that of a RulePack.
func (a *answer) saysNothing(uid types.UID, pack bool) bool {
	return a.compared[uid].postponed || a.mixed && a.rules[uid] == nil || a.noPacks && pack
}

// maxAnswer bounds the rules of this hub in an answer, in bytes of memory. 10,000 usual ones take half of it.
const maxAnswer = 48 << 20

// ask polls one evaluator for the loaded rules of this hub. It charges their size to kept.
func (s *spokeState) ask(ctx context.Context, t *task, e *rule.Evaluator, c *evaluator.Client, match string, problem error, kept *spoke.Charge) answer {
	if problem != nil {
		return answer{err: problem}
	}
	in := &intake{t: t, e: e, kept: kept, rules: map[types.UID][]*evaluator.Rule{}, groups: map[string]bool{}}
	_, err := c.Rules(ctx, evaluator.Filter{Match: match}, func(r *evaluator.Rule) { in.take(r, false) })
	alerts, noPacks, shared := in.own, false, t.sharing(e) != ""
	if groups := s.groupsOf(t, e); err == nil && len(groups) > 0 {
		// Recording rules don't have the label by which the others are selected.
		_, failed := c.Rules(ctx, evaluator.Filter{Groups: groups}, func(r *evaluator.Rule) { in.take(r, true) })
		noPacks = failed != nil
		// The Service may lead each request to another evaluator.
		shared = shared && (alerts == 0 && len(t.groups) > 0 || in.own == alerts && len(t.packGroups) > 0 && !noPacks)
	} else {
		shared = false
	}
	if err == nil && in.held > maxAnswer {
		err = evaluator.NewTooMuch("Rulefleet's own rules in the answer", int64(in.held), maxAnswer, "bytes", "check that the Service or the address leads to a Prometheus")
	}
	if err == nil && (in.own == 0 || shared) {
		err = t.strangers(e, in.others)
	}
	return answer{err: err, rules: in.rules, loaded: in.loaded, packGroups: slices.Sorted(maps.Keys(in.groups)), mixed: in.others > 0, noPacks: noPacks}
}

// groupsOf returns the groups of RulePacks to ask an evaluator for.
func (s *spokeState) groupsOf(t *task, e *rule.Evaluator) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := slices.Collect(maps.Keys(t.packGroups))
	if es := s.evaluators[e.String()]; es != nil {
		all = append(all, es.packGroups...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// intake takes in the rules of an answer.
type intake struct {
	t    *task
	e    *rule.Evaluator
	kept *spoke.Charge
	// rules are those of this hub's PrometheusRules, and held is their size in bytes.
	rules map[types.UID][]*evaluator.Rule
	held  int
	// groups are the groups of RulePacks.
	groups map[string]bool
	// loaded counts the rules of this hub, own the rules that the evaluator itself has loaded, and others those that
	// another evaluator has.
	loaded, own, others int
}

// take takes in a rule: an alert of an AlertRule or, with packs, a rule of a RulePack.
func (in *intake) take(r *evaluator.Rule, packs bool) {
	o, counts := in.owner(r, packs)
	if !counts {
		return
	}
	in.loaded++
	if o != nil {
		in.hold(o, r, packs)
	}
}

// owner returns the PrometheusRule that a rule comes from, or nil if it is not known. counts is false for a rule that is not
// looked for.
func (in *intake) owner(r *evaluator.Rule, packs bool) (o *monitoringv1.PrometheusRule, counts bool) {
	o, ofPack := in.t.packGroups[r.Group]
	if !packs {
		o = in.t.groups[r.Group]
	}
	if uid, isOwn, known := ownerOf(in.e, r); known {
		if !isOwn {
			in.others++
			return nil, false
		}
		o = in.t.objects[types.UID(uid)]
		in.own++
	}
	if o == nil {
		return nil, !packs && !ofPack
	}
	return o, in.t.packs[o.UID] == packs
}

// hold keeps a rule of a PrometheusRule.
func (in *intake) hold(o *monitoringv1.PrometheusRule, r *evaluator.Rule, packs bool) {
	if packs && len(r.Group) <= maxGroupName && len(in.groups) < maxGroups {
		in.groups[r.Group] = true
	}
	if in.held += r.Size(); in.held > maxAnswer {
		clear(in.rules)
		in.kept.Set(0)
		return
	}
	in.kept.Set(int64(in.held))
	all := in.rules[o.UID]
	if len(all) > 0 && all[0].File != r.File {
		all = nil // prometheus-operator moves it from one file to another
	}
	in.rules[o.UID] = append(all, r)
}

// maxGroupName and maxGroups bound the groups of RulePacks that are remembered: the length of a name, in bytes, and their
// number.
const maxGroupName, maxGroups = 253, 2000

// keep records an answer. It returns the latest time for the next poll.
func (p *Poller) keep(t *task, s *spokeState, e *rule.Evaluator, a answer) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	es := s.evaluators[e.String()]
	if es == nil {
		es = &evaluatorState{rules: map[types.UID]*ruleState{}}
		s.evaluators[e.String()] = es
	}
	if a.err != nil {
		if strange, ok := errors.AsType[*strangerError](a.err); ok {
			return p.estrange(t, s, es, strange)
		}
		if !s.failed(t, e, es, a.err) {
			return p.Interval
		}
		if errors.Is(a.err, context.DeadlineExceeded) {
			return retryLate
		}
		return retry
	}
	if es.outcome != evaluation.Evaluates {
		s.news(t)
	}
	if es.outcome != evaluation.Evaluates || crowded(es.loaded) != crowded(a.loaded) {
		s.shown = true
	}
	es.outcome, es.message, es.fault, es.gist, es.failures, es.loaded = evaluation.Evaluates, "", nil, "", 0, a.loaded
	es.strangers = time.Time{}
	if !a.noPacks && !a.mixed {
		es.packGroups = a.packGroups
	}
	return s.keepRules(t, es, a, p.Interval)
}

// keepRules records what an evaluator says about the rules. It returns the latest time for the next poll.
func (s *spokeState) keepRules(t *task, es *evaluatorState, a answer, interval time.Duration) time.Duration {
	now, next := time.Now(), interval
	contradicts, doubts := false, false
	for uid, o := range t.objects {
		was := es.rules[uid]
		if a.saysNothing(uid, t.packs[uid]) {
			if was == nil || was.generation != o.Generation {
				es.rules[uid] = unasked(o)
			}
			continue
		}
		is := judge(was, o, a.rules[uid], a.compared[uid], now)
		contradiction, doubt := is.weigh(was, !es.answered, es.agree.needed(), now)
		contradicts, doubts = contradicts || contradiction, doubts || doubt
		es.rules[uid] = is
		if (doubt || is.Outcome == evaluation.Absent || is.Outcome == evaluation.Waiting) && now.Sub(is.since) < loadingSoon {
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

// retain drops all evaluators except the chosen ones, because a spoke may keep coming up with new ones.
func (s *spokeState) retain(chosen []*rule.Evaluator) {
	names := make(map[string]bool, len(chosen))
	for _, e := range chosen {
		names[e.String()] = true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.evaluators, func(name string, _ *evaluatorState) bool { return !names[name] })
	maps.DeleteFunc(s.slow, func(name string, _ bool) bool { return !names[name] })
}

// slows records whether an answer takes long, and reports whether that is new.
func (s *spokeState) slows(evaluator string, is bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.slow[evaluator]
	s.slow[evaluator] = is
	return was != is
}

// tooLarge is the gist of an answer that is too large.
const tooLarge = "too large"

// failed records the error of a poll.
func (s *spokeState) failed(t *task, e *rule.Evaluator, es *evaluatorState, err error) (soon bool) {
	outcome, message := evaluation.Unreachable, spoke.Clip(err.Error(), maxMessage)
	gist := ""
	if isTooLarge(err) {
		gist = tooLarge
	}
	refused, isRefused := errors.AsType[*kubeconfig.RefusedError](err)
	answered, isAnswer := errors.AsType[*evaluator.Error](err)
	excess, isExcess := errors.AsType[*spoke.TooLargeError](err) // of the transport
	switch {
	case isExcess:
		message, answered = spoke.Clip(excess.Error(), maxMessage)+"; check that the Service or the address leads to a Prometheus", nil
	case isRefused:
		outcome, message = evaluation.NotGranted, refused.Error()
		gist = message // a person may have changed the message
	case isAnswer && answered.Kind == evaluator.Forbidden:
		outcome = evaluation.NotGranted
		if answered.FromAPIServer {
			gist = "API server" // its refusal has another remedy than that of a proxy
			if o := t.object(e); o != nil {
				gist += " " + o.Service // to which it names the permission
			}
		}
	}
	es.failures++
	if errors.Is(err, context.DeadlineExceeded) {
		es.failures++
	}
	if gist == tooLarge {
		es.failures = max(es.failures, patience) // an answer is not too large by chance
	}
	if outcome == evaluation.Unreachable && es.failures < patience {
		return true // one failure may be chance
	}
	s.fell(t, es, outcome, message, gist, answered)
	if outcome == evaluation.NotGranted {
		es.failures = 0
	}
	return false
}

// estrange records an answer that came from another evaluator, or may have. It returns when to poll again.
func (p *Poller) estrange(t *task, s *spokeState, es *evaluatorState, strange *strangerError) time.Duration {
	now := time.Now()
	if es.strangers.IsZero() {
		es.strangers = now
	}
	if now.Sub(es.strangers) < p.Intervals.Of(strangersFor) {
		return retry
	}
	s.fell(t, es, strange.outcome, spoke.Clip(strange.message, maxMessage), strange.message, nil)
	return p.Interval
}

// fell records that an evaluator can't be queried.
func (s *spokeState) fell(t *task, es *evaluatorState, outcome evaluation.Outcome, message, gist string, fault *evaluator.Error) {
	if es.outcome != outcome {
		s.news(t)
	}
	if es.outcome != outcome || es.gist != gist {
		// The text of the same answer or outage differs between attempts.
		es.message, es.fault, s.shown = message, fault, true
	}
	es.outcome, es.gist = outcome, gist
}

// news marks all rules of a spoke as changed.
func (s *spokeState) news(t *task) {
	for _, o := range t.objects {
		key, _ := rule.ParseRuleKey(o)
		s.changedKey(key)
	}
}

// changedKey marks a rule as changed. It ignores an empty key.
func (s *spokeState) changedKey(key rule.Key) {
	if key.Name != "" {
		s.changed[key] = true
	}
}

func (r *ruleState) differs(was *ruleState) bool {
	return r.Outcome != was.Outcome || r.Unsure != was.Unsure || r.Late != was.Late || r.Message != was.Message || r.Firing != was.Firing || r.generation != was.generation
}

// unasked is the state of a PrometheusRule about which nothing is known yet.
func unasked(o *monitoringv1.PrometheusRule) *ruleState {
	is := &ruleState{generation: o.Generation}
	is.key, _ = rule.ParseRuleKey(o)
	return is
}

// tell reports the changes of a poll, without a lock.
func (p *Poller) tell(t *task, s *spokeState) {
	s.mu.Lock()
	rules := make([]queue.Request, 0, len(s.changed)) // in random order, so that each can be first
	for key := range s.changed {
		rules = append(rules, hub.Request(t.name, key))
	}
	shown := s.shown
	clear(s.changed)
	s.shown = false
	s.mu.Unlock()
	if len(rules) > 0 {
		p.news.Send(rules)
	}
	if shown {
		p.Spokes.Changed(t.name)
	}
}

// isTooLarge reports whether an error is about an answer that is too large.
func isTooLarge(err error) bool {
	known, ok := errors.AsType[*evaluator.Error](err)
	return ok && known.Kind == evaluator.TooMuch || errors.As(err, new(*spoke.TooLargeError)) // of the transport
}
