package status

import (
	"time"

	"golang.org/x/time/rate"

	"github.com/rulefleet/rulefleet/pkg/rule/rollup"
)

const (
	// firingInterval is the minimum time between two writes of a rule that only change the number of firing
	// alerts, or report that the rule is temporarily not evaluated.
	firingInterval = 30 * time.Second
	// firingRate and firingBurst limit these writes over the whole fleet, per second, because a storm of alerts
	// must not load the hub.
	firingRate  = 20
	firingBurst = 100
)

// paced limits the writes of a rule that only change the number of firing alerts, or report that it is loading or
// evaluated again although it was not changed.
type paced struct {
	lost bool      // it was reported as loading
	last time.Time // of the last of these writes
	turn time.Time // if it waits
}

// hold returns how long a write of a rule has to wait because of this kind of change. Zero means that it may
// be made now, and counts it. The first report that a rule is evaluated does not wait.
func (r *paced) hold(fleet *rate.Limiter, change rollup.Change, now time.Time, interval time.Duration) (left time.Duration) {
	if change == rollup.ChangeOther || change == rollup.ChangeFound && !r.lost {
		r.lost = false
	} else if left = r.wait(fleet, now, interval); left == 0 && change != rollup.ChangeFiring {
		r.lost = change == rollup.ChangeLost
	}
	return left
}

// wait returns how long the next such write of a rule has to wait for the interval. Zero means that it may be
// made now, and counts it. When many rules wait, each gets a turn, and loses it if unused.
func (r *paced) wait(fleet *rate.Limiter, now time.Time, interval time.Duration) time.Duration {
	if left := interval - now.Sub(r.last); left > 0 && !r.last.IsZero() {
		return left
	}
	if r.turn.IsZero() || now.Sub(r.turn) > interval {
		r.turn = now.Add(fleet.ReserveN(now, 1).DelayFrom(now))
	}
	if left := r.turn.Sub(now); left > 0 {
		return left
	}
	r.last, r.turn = now, time.Time{}
	return 0
}

// written records when a write was complete, which hold counted at a time: a slow hub does not get two in a row.
func (r *paced) written(counted, now time.Time) {
	if r.last.Equal(counted) {
		r.last = now
	}
}
