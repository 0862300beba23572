package status

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"

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

// firing limits writes that only change the number of firing alerts, or report that an unchanged rule is
// loading or evaluated again. The zero value is ready to use.
type firing struct {
	mu      sync.Mutex
	lost    map[types.NamespacedName]bool // rules that were reported as loading
	last    map[types.NamespacedName]time.Time
	turns   map[types.NamespacedName]time.Time // of the rules that wait
	limiter *rate.Limiter
}

// hold returns how long a write of a rule has to wait because of this kind of change. Zero means that it may
// be made now, and counts it. The first report that a rule is evaluated does not wait.
func (f *firing) hold(key types.NamespacedName, change rollup.Change, now time.Time, interval time.Duration) time.Duration {
	if change == rollup.ChangeOther || change == rollup.ChangeFound && !f.wasLost(key) {
		f.setLost(key, false)
		return 0
	}
	left := f.wait(key, now, interval)
	if left == 0 && change != rollup.ChangeFiring {
		f.setLost(key, change == rollup.ChangeLost)
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

// wait returns how long the next such write of a rule has to wait for the interval. Zero means that it may be
// made now, and counts it. When many rules wait, each gets a turn, and loses it if unused.
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

// written records when a write was complete, which hold counted at a time: a slow hub does not get two in a row.
func (f *firing) written(key types.NamespacedName, counted, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if last, known := f.last[key]; known && last.Equal(counted) {
		f.last[key] = now
	}
}

// forget drops a rule that is gone or was not written.
func (f *firing) forget(key types.NamespacedName) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.last, key)
	delete(f.turns, key)
	delete(f.lost, key)
}
