package evaluate

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/evaluation"
	"github.com/rulefleet/rulefleet/pkg/testing/explore"
	"github.com/rulefleet/rulefleet/pkg/testing/oracle"
)

// exploration is a Poller, and a spoke with two Prometheus: k, which has two replicas, and o, which has one. They load
// rules, answer and fail at random.
type exploration struct {
	*explore.Script
	*world

	stop   context.CancelFunc
	budget *oracle.Budget
	made   int // PrometheusRules

	// replicas are those of each Prometheus, and turn is which of them answers: a number, or -1 for one after the other.
	replicas map[string][]*replica
	turn     int
	fault    string // of both

	// polls are the answers of each Prometheus to this process, and failed its consecutive failures.
	polls, failed map[string]int
	// heard is what each Prometheus said to this process about the present version of each PrometheusRule.
	heard map[string]map[types.UID]*hearing
}

// replica is what a replica has loaded, by UID. ahead is how far its clock is ahead.
type replica struct {
	rules map[types.UID]*loadedRule
	ahead time.Duration
}

func (r *replica) load(rules []*monitoringv1.PrometheusRule, health string, firing int) {
	clear(r.rules)
	for _, o := range rules {
		r.rules[o.UID] = &loadedRule{object: o, health: health, firing: firing}
	}
}

type loadedRule struct {
	object *monitoringv1.PrometheusRule
	health string
	firing int
}

// hearing is what was said about a version of a PrometheusRule.
type hearing struct {
	generation int64
	// last is the latest answer, and misses how many consecutive ones did not have the rule. proven means that one had it.
	last   evaluation.Outcome
	misses int
	proven bool
	// first means that it was there at the first poll of this process.
	first bool
}

var exploredEvaluators = []string{"k", "o"}

func evaluatorNamed(name string, chosen bool) v1alpha1.Evaluator {
	e := *prometheus.DeepCopy()
	e.Name, e.Service, e.Chosen = name, "http:"+name+":web", chosen
	return e
}

func exploreEvaluators(t *testing.T, s *explore.Script) *exploration {
	t.Helper()
	rules := []*monitoringv1.PrometheusRule{object(1, "up == 0"), object(2, "up == 0")}
	w, _ := newWorld(t, rules...)
	e := &exploration{Script: s, world: w, made: len(rules), budget: oracle.NewBudget(0), replicas: map[string][]*replica{}}
	for name, n := range map[string]int{"k": 2, "o": 1} {
		for range n {
			r := &replica{rules: map[types.UID]*loadedRule{}}
			r.load(rules, "ok", 0)
			e.replicas[name] = append(e.replicas[name], r)
		}
	}
	w.prometheus = e
	w.read.List = []v1alpha1.Evaluator{evaluatorNamed("k", true), evaluatorNamed("o", false)}
	e.begin()
	return e
}

// begin starts a Poller without state.
func (e *exploration) begin() {
	if e.stop != nil {
		e.stop()
		synctest.Wait()
	}
	e.set(func() {
		e.polls, e.failed, e.heard = map[string]int{}, map[string]int{}, map[string]map[types.UID]*hearing{"k": {}, "o": {}}
	})
	e.restart()
	e.Metrics = false
	ctx, cancel := context.WithCancel(context.Background())
	e.stop = cancel
	if err := e.Engage(ctx, "s", nil); err != nil {
		e.Script.Fatal(err)
	}
}

// ServeHTTP answers in place of the spoke's API server. Only one request is under way at a time.
func (e *exploration) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	_, after, _ := strings.Cut(req.URL.Path, "/services/http:")
	name, _, _ := strings.Cut(after, ":")
	e.mu.Lock()
	fault := e.fault
	e.mu.Unlock()
	if fault == "hangs" {
		select {
		case <-time.After(beginsWithin):
		case <-req.Context().Done():
		}
	}
	if req.Context().Err() != nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if fault != "" {
		e.failed[name]++
		status := map[string]int{"unavailable": http.StatusServiceUnavailable, "forbidden": http.StatusForbidden}
		if code := status[fault]; code != 0 {
			answers(code, "text/plain", "no")(w, req)
		}
		return // an answer without content, which is none of Prometheus
	}
	n := e.turn
	if n < 0 {
		n = e.polls[name]
	}
	r := e.replicas[name][n%len(e.replicas[name])]
	e.listen(name, r)
	f := &fakeProm{}
	for _, l := range r.rules {
		f.rules = append(f.rules, loads(name, l.object, with("health", l.health), with("lastEvaluation", time.Now().Add(r.ahead).Format(time.RFC3339Nano)), firing(l.firing)))
	}
	f.ServeHTTP(w, req)
}

// beginsWithin is how long a Prometheus that hangs delays a poll: see spoke.Asker.
const beginsWithin = 10 * time.Second

// listen notes what a Prometheus answers. A poll is about the rules that there were at its begin, and the Prometheus
// before this one may have delayed it.
func (e *exploration) listen(name string, r *replica) {
	for _, o := range e.polled {
		h := e.heard[name][o.UID]
		if h == nil || h.generation != o.Generation {
			h = &hearing{generation: o.Generation, first: e.polls[name] == 0}
			e.heard[name][o.UID] = h
		}
		h.last = r.says(o)
		if h.last == evaluation.Absent || h.last == evaluation.Waiting {
			h.misses++
		} else {
			h.misses, h.proven = 0, true
		}
	}
	e.polls[name]++
	e.failed[name] = 0
}

func (r *replica) says(o *monitoringv1.PrometheusRule) evaluation.Outcome {
	l := r.rules[o.UID]
	switch {
	case l == nil || l.object.Generation != o.Generation:
		return evaluation.Absent
	case l.health == "err":
		return evaluation.Failed
	case l.health == "unknown":
		return evaluation.Waiting
	}
	return evaluation.Evaluates
}

// chosen returns the names of the chosen Prometheus.
func (e *exploration) chosen() map[string]bool {
	refs := e.registered().Spec.EvaluatorRefs
	out := map[string]bool{}
	for i := range e.read.List {
		is := &e.read.List[i]
		named := slices.ContainsFunc(refs, func(r v1alpha1.EvaluatorReference) bool { return r.Name == is.Name })
		if named || len(refs) == 0 && is.Chosen {
			out[is.Name] = true
		}
	}
	return out
}

func (e *exploration) registered() *v1alpha1.SpokeCluster {
	sc := &v1alpha1.SpokeCluster{}
	if err := e.hub.Get(context.Background(), client.ObjectKey{Name: "s"}, sc); err != nil {
		e.Script.Fatal(err)
	}
	return sc
}

// state is what the Poller says about a rule.
func (e *exploration) state(name string, o *monitoringv1.PrometheusRule) evaluation.State {
	read := evaluatorNamed(name, true)
	by := rule.EvaluatorOf(&read)
	return e.Of("s", &by, o)
}

// pass lets time pass, and checks what must hold at any time.
func (e *exploration) pass(d time.Duration) {
	for end := time.Now().Add(d); ; time.Sleep(min(time.Second, time.Until(end))) { //nolint:forbidigo // of the bubble's clock
		synctest.Wait()
		e.holds()
		if !time.Now().Before(end) {
			return
		}
	}
}

// holds checks what must hold at any time.
func (e *exploration) holds() {
	told, _ := e.world.news()
	for _, name := range told {
		if err := e.budget.Write("the news of "+name, time.Now()); err != nil {
			e.Violation("%v", err)
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, name := range exploredEvaluators {
		for _, o := range e.objects {
			is, h := e.state(name, o), e.heard[name][o.UID]
			if h == nil || h.generation != o.Generation {
				h = &hearing{}
			}
			if why := h.denies(is, e.failed[name]); why != "" {
				e.Violation("%s shows %+v of %s, version %d: %s; it is known that %+v", name, is, o.Annotations[v1alpha1.AlertRuleAnnotation], o.Generation, why, *h)
			}
		}
	}
}

// denies says why a state can't follow from what was heard, or "".
func (h *hearing) denies(is evaluation.State, failed int) string {
	asked := h.generation > 0
	switch is.Outcome {
	case evaluation.Evaluates, evaluation.Failed:
		switch {
		case !h.proven:
			return "it was never evaluated"
		case h.misses == 0 && is.Outcome != h.last:
			return "the last answer was another"
		case h.misses >= agreeMost:
			return "the last polls all agree that it is missing"
		}
	case evaluation.Absent, evaluation.Waiting:
		switch {
		case asked && h.misses == 0:
			return "the last poll found it"
		case h.proven && h.misses < agreeLeast && !is.Unsure: // it is not sure if the evaluator was not chosen meanwhile
			return "only one poll missed it"
		case h.first && !h.proven && h.misses < agreeFirst && !is.Unsure:
			return "nothing is known yet of the time before this process"
		}
	case evaluation.Unreachable:
		if failed < patience {
			return "too few polls failed"
		}
	}
	return ""
}

// check repairs everything, and checks that the states are what the answers say, that two polls change them, and that
// another process sees the same.
func (e *exploration) check() {
	e.Say("nothing is broken any more, and the first replica answers")
	e.set(func() { e.fault, e.turn, e.away = "", 0, false })
	e.pass(40 * time.Minute) // or 60 polls
	e.agrees("after quiet")
	if told, _ := e.counted(10 * time.Minute); told > 0 {
		e.Violation("all is well, and there is news")
	}
	e.Say("another process starts")
	e.begin()
	if _, most := e.counted(10 * time.Minute); most > 3 { // at first, when it is known, and when it is late
		e.Violation("after a start, there is news of a rule %d times", most)
	}
	e.agrees("after a start")
	e.pass(20 * time.Minute)
	e.missesTwo()
}

// counted lets time pass, and returns how often there was news, and how often of one rule.
func (e *exploration) counted(d time.Duration) (all, most int) {
	of := map[string]int{}
	for range int(d / time.Second) {
		time.Sleep(time.Second) //nolint:forbidigo // of the bubble's clock
		synctest.Wait()
		told, _ := e.world.news()
		for _, name := range told {
			of[name]++
			all, most = all+1, max(most, of[name])
		}
	}
	e.holds()
	return all, most
}

// agrees checks that the states are what the first replicas answer.
func (e *exploration) agrees(when string) {
	chosen := e.chosen()
	for _, name := range exploredEvaluators {
		for _, o := range e.objects {
			is, want := e.state(name, o), evaluation.Unasked
			if chosen[name] {
				want = e.replicas[name][0].says(o)
			}
			if is.Outcome != want || is.Unsure {
				e.Violation("%s, %s shows %+v of version %d of %s, and answers %v", when, name, is, o.Generation, o.Annotations[v1alpha1.AlertRuleAnnotation], want)
			}
			if l := e.replicas[name][0].rules[o.UID]; want == evaluation.Evaluates && int(is.Firing) != l.firing {
				e.Violation("%s, %s shows %d firing alerts, and has %d", when, name, is.Firing, l.firing)
			}
		}
	}
}

// missesTwo checks that one poll without a rule changes nothing, and that two do.
func (e *exploration) missesTwo() {
	if len(e.objects) == 0 || !e.chosen()["k"] || e.replicas["k"][0].says(e.objects[0]) != evaluation.Evaluates {
		return
	}
	o := e.objects[0]
	e.Say("the first Prometheus loses a rule")
	e.set(func() { delete(e.replicas["k"][0].rules, o.UID) })
	polls := func() (n int) {
		e.set(func() { n = e.polls["k"] })
		return n
	}
	for before := polls(); polls() < before+agreeLeast; {
		e.pass(time.Second)
	}
	if is := e.state("k", o); is.Outcome != evaluation.Absent {
		e.Violation("two polls agree that a rule is missing, and it shows %+v", is)
	}
}

func (e *exploration) set(change func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	change()
}

// broken returns what is wrong at present.
func (e *exploration) broken() []string {
	var out []string
	if e.fault != "" {
		out = append(out, e.fault)
	}
	if e.away {
		out = append(out, "the spoke is away")
	}
	if e.turn < 0 {
		out = append(out, "replicas in turn")
	}
	if !e.chosen()["k"] {
		out = append(out, "another is chosen")
	}
	return out
}

// The operations.

func (e *exploration) ruleIsPushed(*rapid.T) {
	if len(e.objects) > 1 {
		e.Script.Skip("there are two")
	}
	e.made++
	e.budget.Edits++
	e.Say("rule r%d is pushed", e.made)
	e.hold(append(slices.Clone(e.objects), object(e.made, "up == 0"))...)
}

// some returns the index of a PrometheusRule.
func (e *exploration) some() int {
	if len(e.objects) == 0 {
		e.Script.Skip("there is none")
	}
	return rapid.IntRange(0, len(e.objects)-1).Draw(e.Script.T, "rule")
}

func (e *exploration) ruleIsEdited(*rapid.T) {
	i := e.some()
	next := slices.Clone(e.objects)
	next[i] = edited(next[i])
	next[i].Spec.Groups[0].Rules[0].Labels = map[string]string{"version": strconv.FormatInt(next[i].Generation, 10)}
	e.budget.Edits++
	e.Say("rule %d is edited", i)
	e.hold(next...)
}

func (e *exploration) ruleIsDeleted(*rapid.T) {
	i := e.some()
	e.Say("rule %d is deleted", i)
	e.hold(slices.Delete(slices.Clone(e.objects), i, i+1)...)
}

// one returns a replica.
func (e *exploration) one() (r *replica, name string) {
	name = rapid.SampledFrom([]string{"k", "k", "o"}).Draw(e.Script.T, "of")
	n := rapid.IntRange(0, len(e.replicas[name])-1).Draw(e.Script.T, "replica")
	return e.replicas[name][n], fmt.Sprint(name, "-", n)
}

func (e *exploration) replicaReloads(*rapid.T) {
	r, name := e.one()
	health := rapid.SampledFrom([]string{"ok", "ok", "ok", "err", "unknown"}).Draw(e.Script.T, "health")
	firing := rapid.IntRange(0, 2).Draw(e.Script.T, "firing")
	e.Say("replica %s loads all rules; health: %s, firing: %d", name, health, firing)
	e.budget.Edits++
	e.set(func() { r.load(e.objects, health, firing) })
}

// clockIsSet sets the clock of a replica, and with it the times of its evaluations.
func (e *exploration) clockIsSet(*rapid.T) {
	r, name := e.one()
	ahead := rapid.SampledFrom([]time.Duration{0, -3 * time.Hour, 3 * time.Hour}).Draw(e.Script.T, "ahead")
	e.Say("the clock of replica %s is set: it is %v ahead", name, ahead)
	e.set(func() { r.ahead = ahead })
}

func (e *exploration) replicaLoses(*rapid.T) {
	o := e.objects[e.some()]
	r, name := e.one()
	e.Say("replica %s loses %s", name, o.Annotations[v1alpha1.AlertRuleAnnotation])
	e.budget.Edits++
	e.set(func() { delete(r.rules, o.UID) })
}

func (e *exploration) otherAnswers(*rapid.T) {
	turn := rapid.SampledFrom([]int{0, 1, -1}).Draw(e.Script.T, "replica")
	e.Say("from now on answers replica %d (-1: in turn)", turn)
	e.set(func() { e.turn = turn })
}

func (e *exploration) pollsFail(*rapid.T) {
	fault := rapid.SampledFrom([]string{"", "", "hangs", "unavailable", "forbidden", "nonsense"}).Draw(e.Script.T, "fault")
	e.Say("from now on, polls: %q", fault)
	e.budget.Edits++
	e.set(func() { e.fault = fault })
}

func (e *exploration) spokeGoesAway(*rapid.T) {
	e.Say("the spoke answers: %v", e.away)
	e.set(func() { e.away = !e.away })
}

// evaluatorsChange changes which Prometheus there are, and which the spoke's status says are chosen.
func (e *exploration) evaluatorsChange(*rapid.T) {
	chosen := rapid.SampledFrom([][]string{{"k"}, {"o"}, {"k", "o"}, {}}).Draw(e.Script.T, "chosen")
	gone := rapid.Bool().Draw(e.Script.T, "the others are gone")
	e.Say("chosen are %q; the others are gone: %v", chosen, gone)
	e.budget.Edits++
	var list []v1alpha1.Evaluator
	for _, name := range exploredEvaluators {
		if is := slices.Contains(chosen, name); is || !gone {
			list = append(list, evaluatorNamed(name, is))
		}
	}
	e.set(func() { e.read.List = list })
	e.Kick("s")
}

func (e *exploration) personNamesEvaluators(*rapid.T) {
	names := rapid.SampledFrom([][]string{nil, {"k"}, {"o"}, {"k", "o"}}).Draw(e.Script.T, "refs")
	e.Say("a person names %q", names)
	e.budget.Edits++
	sc := e.registered()
	sc.Spec.EvaluatorRefs = nil
	for _, name := range names {
		sc.Spec.EvaluatorRefs = append(sc.Spec.EvaluatorRefs, v1alpha1.EvaluatorReference{Kind: rule.KindPrometheus, Namespace: "monitoring", Name: name})
	}
	if err := e.hub.Update(context.Background(), sc); err != nil {
		e.Script.Fatal(err)
	}
}

func (e *exploration) processStarts(*rapid.T) {
	e.Say("another process starts")
	e.budget.Edits++
	e.begin()
}

func (e *exploration) isAskedSoon(*rapid.T) {
	e.Say("it is polled soon")
	e.Kick("s")
}

func (e *exploration) timePasses(*rapid.T) {
	d := rapid.SampledFrom([]time.Duration{time.Second, 12 * time.Second, time.Minute, 6 * time.Minute}).Draw(e.Script.T, "time")
	e.Say("%v pass", d)
	e.pass(d)
}

// TestExplore runs random schedules of rules, answers and faults, and checks what must hold at any time and after all is
// well again: see explore.Run.
func TestExplore(t *testing.T) {
	explore.Run(t, 20, func(s *explore.Script) {
		e := exploreEvaluators(t, s)
		defer func() { e.stop() }()
		e.Steps(map[string]func(*rapid.T){
			"push": e.ruleIsPushed, "edit": e.ruleIsEdited, "delete": e.ruleIsDeleted, "reload": e.replicaReloads, "reloadMore": e.replicaReloads, "lose": e.replicaLoses, "clock": e.clockIsSet,
			"turn": e.otherAnswers, "fail": e.pollsFail, "away": e.spokeGoesAway, "evaluators": e.evaluatorsChange, "refs": e.personNamesEvaluators,
			"restart": e.processStarts, "kick": e.isAskedSoon, "time": e.timePasses, "timeMore": e.timePasses, "timeToo": e.timePasses,
		}, e.broken, func() { e.pass(0) })
		e.check()
	})
}
