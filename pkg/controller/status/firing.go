package status

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rulefleet/rulefleet/pkg/rule"
)

const (
	// firingInterval is the least time between two writes of a rule that tell of nothing but how
	// many alerts fire, or that it is not evaluated for the time being.
	firingInterval = 30 * time.Second
	// firingRate and firingBurst bound them over the whole fleet, in writes per second: a storm
	// of alerts is no time to load the hub.
	firingRate  = 20
	firingBurst = 100
)

// firing bounds the writes that tell of nothing but how many alerts fire, and of rules that come to
// be loading without having been changed, and that are evaluated again. The zero value is ready to
// use.
type firing struct {
	mu      sync.Mutex
	lost    map[types.NamespacedName]bool // those that were told to be loading
	last    map[types.NamespacedName]time.Time
	turns   map[types.NamespacedName]time.Time // of those that wait for one
	limiter *rate.Limiter
}

// hold returns how long a write of a rule must wait that tells of a change. Zero means that it may
// be made now, and counts as made. That a rule is evaluated is told at once, unless it was before.
func (f *firing) hold(key types.NamespacedName, change rule.Change, now time.Time, interval time.Duration) time.Duration {
	if change == rule.ChangeOther || change == rule.ChangeFound && !f.wasLost(key) {
		f.setLost(key, false)
		return 0
	}
	left := f.wait(key, now, interval)
	if left == 0 && change != rule.ChangeFiring {
		f.setLost(key, change == rule.ChangeLost)
	}
	return left
}

func (f *firing) wasLost(key types.NamespacedName) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lost[key]
}

func (f *firing) setLost(key types.NamespacedName, lost bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !lost {
		delete(f.lost, key)
		return
	}
	if f.lost == nil {
		f.lost = map[types.NamespacedName]bool{}
	}
	f.lost[key] = true
}

// wait returns how long the next such write of a rule must wait, so that there is at most one per
// interval. Zero means that the write may be made now, and counts as made. Where many rules wait,
// each has a turn, and loses it if it does not come.
func (f *firing) wait(key types.NamespacedName, now time.Time, interval time.Duration) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.limiter == nil {
		f.limiter = rate.NewLimiter(firingRate, firingBurst)
		f.last, f.turns = map[types.NamespacedName]time.Time{}, map[types.NamespacedName]time.Time{}
	}
	if last, known := f.last[key]; known {
		if left := interval - now.Sub(last); left > 0 {
			return left
		}
	}
	turn, waits := f.turns[key]
	if !waits || now.Sub(turn) > interval {
		turn = now.Add(f.limiter.ReserveN(now, 1).DelayFrom(now))
	}
	if left := turn.Sub(now); left > 0 {
		f.turns[key] = turn
		return left
	}
	delete(f.turns, key)
	f.last[key] = now
	return 0
}

// forget drops a rule that is gone, or was not written.
func (f *firing) forget(key types.NamespacedName) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.last, key)
	delete(f.turns, key)
	delete(f.lost, key)
}
