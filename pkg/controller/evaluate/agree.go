package evaluate

import (
	"cmp"
	"time"

	"github.com/rulefleet/rulefleet/pkg/rule"
)

// How many polls in a row have to agree that a rule which was evaluated is not any more. Where two
// replicas answer by turns, and one of them is stuck with old rules, polls contradict each other;
// by chance, two or three in a row do not.
const (
	// agreeLeast is that many for an evaluator that does not contradict itself.
	agreeLeast = 2
	// agreeFirst is that many for one of which nothing is known yet.
	agreeFirst = 4
	// agreeMost bounds it: more would take minutes.
	agreeMost = 16
	// agreeCalm is after how many polls without a doubt it takes half as many.
	agreeCalm = 10
)

// agreement is how many polls of an evaluator have to agree. The zero value is that of one of
// which nothing is known yet.
type agreement struct {
	polls, calm int
}

func (a *agreement) needed() int { return cmp.Or(a.polls, agreeFirst) }

// note takes note of a poll that contradicted those before it, or that raised a doubt, which the
// next ones decide, or neither.
func (a *agreement) note(contradicts, doubt bool) {
	switch {
	case contradicts:
		a.polls, a.calm = min(2*a.needed(), agreeMost), 0
	case !doubt:
		a.calm++
		if a.calm == agreeCalm {
			a.polls, a.calm = max(a.needed()/2, agreeLeast), 0
		}
	}
}

// weigh holds what a poll says of a rule against what those before it said. A rule that was
// evaluated stays so until enough polls in a row agree that it is not, and counts as in doubt
// meanwhile. A poll that finds it evaluated after some that did not contradicts them.
//
// In the first polls since the operator started, nothing is known of before but by the status: what
// they miss is unsure. A rule that was changed is missing at once.
func (r *ruleState) weigh(was *ruleState, first bool, needed int, now time.Time) (contradicts, doubt bool) {
	same := was != nil && was.generation == r.generation
	if same {
		r.proven, r.first, r.misses = was.proven, was.first, was.misses
	} else {
		r.first = first
	}
	if r.Outcome != rule.Absent && r.Outcome != rule.Waiting {
		contradicts = r.proven && r.misses > 0
		r.proven, r.first, r.misses = true, false, 0
		return contradicts, false
	}
	r.misses++
	switch {
	case r.misses >= needed:
	case same && (was.Outcome == rule.Evaluates || was.Outcome == rule.Failed):
		r.Evaluation = was.Evaluation
		if r.misses > 1 {
			r.since = was.since
		} else {
			r.since = now
		}
		return false, true
	case r.first && (!same || was.Unsure):
		r.Unsure = true
	}
	return false, r.Unsure
}
