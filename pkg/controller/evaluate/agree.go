package evaluate

import (
	"cmp"
	"time"

	"github.com/rulefleet/rulefleet/pkg/rule/evaluation"
)

// The number of consecutive polls that must agree that an evaluated rule is no longer evaluated. If two
// replicas answer alternately and one has outdated rules, polls contradict each other, but two or three in a
// row may agree by chance.
const (
	// agreeLeast is the number for an evaluator that does not contradict itself.
	agreeLeast = 2
	// agreeFirst is the number for an evaluator that was not polled before.
	agreeFirst = 4
	// agreeMost is the maximum: more would take minutes.
	agreeMost = 16
	// agreeCalm is the number of polls without a doubt after which the number is halved.
	agreeCalm = 10
)

// agreement is the number of polls of an evaluator that must agree. The zero value is for an evaluator that
// was not polled before.
type agreement struct {
	polls, calm int
}

func (a *agreement) needed() int { return cmp.Or(a.polls, agreeFirst) }

// note records whether a poll contradicted earlier ones, or raised a doubt that the next ones decide.
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

// weigh compares what a poll says about a rule with earlier polls. An evaluated rule stays evaluated until
// enough consecutive polls agree that it is not; meanwhile it is in doubt. A poll that finds it evaluated
// again contradicts the others.
//
// In the first polls after a start, only the status shows the past, so a missing rule is in doubt. A changed
// rule is missing at once.
func (r *ruleState) weigh(was *ruleState, first bool, needed int, now time.Time) (contradicts, doubt bool) {
	same := was != nil && was.generation == r.generation
	if same {
		r.proven, r.first, r.misses = was.proven, was.first, was.misses
	} else {
		r.first = first
	}
	if r.Outcome != evaluation.Absent && r.Outcome != evaluation.Waiting {
		contradicts = r.proven && r.misses > 0
		r.proven, r.first, r.misses = true, false, 0
		return contradicts, false
	}
	r.misses++
	switch {
	case r.misses >= needed:
	case same && (was.Outcome == evaluation.Evaluates || was.Outcome == evaluation.Failed):
		r.State = was.State
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
