package status

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// firingInterval is the least time between two writes of a rule that tell of nothing but how
	// many alerts fire.
	firingInterval = 30 * time.Second
	// firingRate and firingBurst bound them over the whole fleet, in writes per second: a storm
	// of alerts is no time to load the hub.
	firingRate  = 20
	firingBurst = 100
)

// firing bounds the writes that tell of nothing but how many alerts fire. The zero value is ready
// to use.
type firing struct {
	mu      sync.Mutex
	last    map[types.NamespacedName]time.Time
	turns   map[types.NamespacedName]time.Time // of those that wait for one
	limiter *rate.Limiter
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
}
