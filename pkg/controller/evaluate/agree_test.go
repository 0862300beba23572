package evaluate

import (
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rulefleet/rulefleet/pkg/rule/evaluation"
)

// replicas answer as one Prometheus: one has all current rules, the other has outdated ones.
type replicas struct {
	*world
	f            *fakeProm
	fresh, stuck []loaded
}

func newReplicas(t *testing.T) *replicas {
	t.Helper()
	o := object(1, "up == 0")
	w, f := newWorld(t, o)
	return &replicas{world: w, f: f, fresh: []loaded{loads("k", o, firing(3))}, stuck: []loaded{loads("k", o, with("query", "up == 1"), firing(1))}}
}

// answer polls once per letter, and returns the number of polls that changed something: e is a poll of the
// replica with the rule, a of the other one, and n of one without any rule.
func (r *replicas) answer(word string) (news int) {
	r.Helper()
	for _, who := range word {
		r.f.set(func() { r.f.rules = map[rune][]loaded{'e': r.fresh, 'a': r.stuck, 'n': nil}[who] })
		r.once()
		if told, _ := r.world.news(); len(told) > 0 {
			news++
		}
	}
	return news
}

func (r *replicas) want(what string, outcome evaluation.Outcome, firing int32, unsure bool) {
	r.Helper()
	if is := r.says(r.objects[0]); is.Outcome != outcome || is.Firing != firing || is.Unsure != unsure {
		r.Errorf("%s: it is %+v", what, is)
	}
}

const calm = "eeeeeeeeee"

// An evaluated rule is missing when enough consecutive polls agree, and back with the first poll that finds
// it.
func TestPollsAgree(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		polls   string
		news    int // beside the first
		outcome evaluation.Outcome
		firing  int32
	}{
		"in turn":                             {"eaeaeaeaeaeaeaeaeaea", 0, evaluation.Evaluates, 3},
		"two of one and two of the other":     {"eaaeeaaeeaaeeaaee", 0, evaluation.Evaluates, 3},
		"once":                                {calm + "ea", 0, evaluation.Evaluates, 3},
		"gone":                                {calm + "enn", 1, evaluation.Absent, 0},
		"an older one is there":               {calm + "eaa", 1, evaluation.Absent, 1},
		"and back":                            {calm + "eaae", 2, evaluation.Evaluates, 3},
		"nothing is known of it yet":          {"eaaa", 0, evaluation.Evaluates, 3},
		"gone soon after the start":           {"eaaaa", 1, evaluation.Absent, 1},
		"gone after they contradicted":        {"eaeaeae" + "aaaaaaaaaaaaaaaa", 1, evaluation.Absent, 1},
		"not yet":                             {"eaeaeae" + "aaaaaaaaaaaaaaa", 0, evaluation.Evaluates, 3},
		"calm again":                          {"eae" + calm + calm + "eaa", 1, evaluation.Absent, 1},
		"not calm enough":                     {"eae" + calm + calm[1:] + "aa", 0, evaluation.Evaluates, 3},
		"it is gone, and then they differ":    {calm + "eaa" + "eaeaeaea", 2, evaluation.Evaluates, 3},
		"one fails, and the other has it not": {"efafafafaf", 1, evaluation.Failed, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newReplicas(t)
			if c.outcome == evaluation.Failed {
				r.fresh = []loaded{loads("k", r.objects[0], firing(3))}
			}
			news := 0
			for _, who := range c.polls {
				if who == 'f' {
					r.fresh, who = []loaded{loads("k", r.objects[0], with("health", "err"), with("lastError", "x"))}, 'e'
				}
				news += r.answer(string(who))
			}
			if news != 1+c.news {
				t.Errorf("there was news %d times, and not %d", news, 1+c.news)
			}
			r.want("in the end", c.outcome, c.firing, false)
		})
	}
}

// A changed rule is missing at once, whatever the polls said about the former version.
func TestChangedInTurn(t *testing.T) {
	t.Parallel()
	r := newReplicas(t)
	r.Metrics = false // when it is looked for them is news of its own
	r.answer("eaeaeaea")
	o := edited(r.objects[0])
	r.hold(o)
	r.want("before it is polled", evaluation.Absent, 3, false)
	r.stuck, r.fresh = r.fresh, []loaded{loads("k", o)}
	if news := r.answer("a"); news != 1 {
		t.Errorf("there was news %d times", news)
	}
	r.want("changed", evaluation.Absent, 3, false)
	if news := r.answer("eaeaeaea"); news != 1 {
		t.Errorf("there was news %d times", news)
	}
	r.want("loaded by one of them", evaluation.Evaluates, 0, false)
}

// After a restart, a rule missing in the first polls is in doubt, and evaluated when a later poll finds it.
func TestRestartInTurn(t *testing.T) {
	t.Parallel()
	r := newReplicas(t)
	r.answer("eaea")
	for range 3 {
		r.restart()
		r.answer("a")
		r.want("at first", evaluation.Absent, 1, true)
		r.answer("aa")
		r.want("then", evaluation.Absent, 1, true)
		if news := r.answer("e"); news != 1 {
			t.Errorf("there was news %d times", news)
		}
		r.want("found", evaluation.Evaluates, 3, false)
		if news := r.answer("aeaeae"); news > 0 {
			t.Errorf("there was news %d times", news)
		}
	}
	r.restart()
	r.answer("aaa")
	if news := r.answer("a"); news != 1 {
		t.Errorf("there was news %d times", news)
	}
	r.want("all agree", evaluation.Absent, 1, false)
	if news := r.answer("aaaa"); news > 0 {
		t.Errorf("there was news %d times", news)
	}
	// A rule that was added later was not evaluated before the restart.
	r.hold(object(2, "up == 0"))
	r.answer("a")
	r.want("a new one", evaluation.Absent, 0, false)
}

// A rule that takes a while to load is not a contradiction.
func TestLoadingIsNoContradiction(t *testing.T) {
	t.Parallel()
	r := newReplicas(t)
	r.answer(calm)
	r.hold(edited(r.objects[0]))
	r.answer("aaa")
	r.fresh = []loaded{loads("k", r.objects[0])}
	r.answer("eaa")
	r.want("gone", evaluation.Absent, 1, false)
}

// Each poll is answered by a random replica. Over a day, almost nothing flaps.
func TestRepliesByChance(t *testing.T) {
	t.Parallel()
	for _, stuck := range []float64{0.25, 0.5, 0.67} {
		random, changes := rand.New(rand.NewPCG(1, uint64(stuck*100))), 0 //nolint:gosec // a test that is the same every time
		var a agreement
		var was *ruleState
		const runs, day = 20, 24 * 60 * 2
		for range runs {
			a, was = agreement{}, nil
			for range day {
				is := &ruleState{State: evaluation.State{Outcome: evaluation.Evaluates}}
				if was != nil && random.Float64() < stuck {
					is.Outcome = evaluation.Absent
				}
				a.note(is.weigh(was, was == nil, a.needed(), time.Time{}))
				if was != nil && was.Outcome != is.Outcome {
					changes++
				}
				was = is
			}
		}
		if changes > 4*runs {
			t.Errorf("where %v of the replicas are stuck, it changes %d times in %d days", stuck, changes, runs)
		}
		t.Logf("where %v of the replicas are stuck, it changes %d times in %d days", stuck, changes, runs)
	}
}

// While there is a doubt, polls come sooner, but not forever.
func TestDoubtIsAskedSoon(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newReplicas(t)
		r.answer(calm)
		soon := func(word string) bool {
			r.answer(word[:len(word)-1])
			r.f.set(func() { r.f.rules = map[byte][]loaded{'e': r.fresh, 'a': r.stuck}[word[len(word)-1]] })
			return r.once() <= 11*time.Second
		}
		if soon("e") || !soon("a") || soon("e") || !soon("aa") {
			t.Error("it is asked again too soon, or too late")
		}
		pass(t, loadingSoon)
		if soon("a") {
			t.Error("it is asked again soon for ever")
		}
		if told, _ := r.world.news(); len(told) > 0 {
			t.Errorf("news of %v", slices.Compact(told))
		}
	})
}
