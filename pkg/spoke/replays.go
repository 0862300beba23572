package spoke

import (
	"cmp"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// replayRate is how many keys a second the changes of a spoke's namespaces enqueue in the long run.
const replayRate = 1000

// Replays limits how often a spoke has the keys of a namespace enqueued by changing the namespace: anyone who can write
// the namespace can do that many times a second, and each change concerns all objects in it. Further changes of a
// namespace whose turn has not come are one. The zero value is ready to use.
type Replays struct {
	// Burst is how many keys are enqueued at once; 0 means DefaultMaxObjects. A change of all namespaces of a spoke does
	// not wait if they have no more objects.
	Burst int

	mu     sync.Mutex
	spokes map[string]*replayed
}

// replayed is the state of one spoke.
type replayed struct {
	bucket *rate.Limiter
	// waiting are the namespaces whose turn is still to come, with the timers that await it.
	waiting map[string]*time.Timer
}

// Do calls enqueue for a namespace that changed, at once or when its turn comes. enqueue returns the number of keys. It
// reads the cache when it is called, so it is for all changes until then.
func (r *Replays) Do(spoke, namespace string, enqueue func() int) {
	if s := r.turn(spoke, namespace, enqueue); s != nil {
		s.charge(enqueue())
	}
}

// turn returns the state of a spoke if it is the turn of a namespace. Otherwise it sees to it that enqueue is called
// when its turn comes.
func (r *Replays) turn(spoke, namespace string, enqueue func() int) *replayed {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.spokes[spoke]
	if s == nil {
		s = &replayed{bucket: rate.NewLimiter(replayRate, cmp.Or(r.Burst, DefaultMaxObjects)), waiting: map[string]*time.Timer{}}
		if r.spokes == nil {
			r.spokes = map[string]*replayed{}
		}
		r.spokes[spoke] = s
	}
	if s.waiting[namespace] != nil {
		return nil
	}
	now := time.Now()
	delay := s.bucket.ReserveN(now, 1).DelayFrom(now)
	if delay == 0 {
		return s
	}
	s.waiting[namespace] = time.AfterFunc(delay, func() {
		r.mu.Lock()
		left := r.spokes[spoke] != s
		delete(s.waiting, namespace)
		r.mu.Unlock()
		if !left {
			s.charge(enqueue())
		}
	})
	return nil
}

// charge counts keys that were enqueued.
func (s *replayed) charge(keys int) {
	burst := s.bucket.Burst()
	for now := time.Now(); keys > 0; keys -= burst { // a reservation has a limit
		s.bucket.ReserveN(now, min(keys, burst))
	}
}

// Forget drops the state of a spoke. What waits there is not enqueued any more.
func (r *Replays) Forget(spoke string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.spokes[spoke]; s != nil {
		for _, timer := range s.waiting {
			timer.Stop()
		}
	}
	delete(r.spokes, spoke)
}
