package spoke

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// replayRate is how many keys a second the changes of a spoke's namespaces enqueue in the long run, and replayBurst
	// how many at once. A change of all namespaces of a spoke does not wait if they have no more objects.
	replayRate  = 1000
	replayBurst = DefaultMaxObjects
)

// Replays limits how often a spoke has the keys of a namespace enqueued by changing the namespace: anyone who can write
// the namespace can do that many times a second, and each change concerns all objects in it. Further changes of a
// namespace whose turn has not come are one. The zero value is ready to use.
type Replays struct {
	mu     sync.Mutex
	spokes map[string]*replayed
}

// replayed is the state of one spoke.
type replayed struct {
	bucket *rate.Limiter
	// waiting are the namespaces whose turn is still to come.
	waiting map[string]bool
}

// Do calls enqueue for a namespace that changed, at once or when its turn comes. enqueue returns the number of keys. It
// reads the cache when it is called, so it is for all changes until then.
func (r *Replays) Do(spoke, namespace string, enqueue func() int) {
	s, delay := r.turn(spoke, namespace)
	switch {
	case s == nil: // its turn comes
	case delay == 0:
		s.charge(enqueue())
	default:
		time.AfterFunc(delay, func() {
			r.mu.Lock()
			delete(s.waiting, namespace)
			r.mu.Unlock()
			s.charge(enqueue())
		})
	}
}

// turn returns the state of a spoke and when it is the turn of a namespace; nil if the namespace waits already.
func (r *Replays) turn(spoke, namespace string) (*replayed, time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.spokes[spoke]
	if s == nil {
		s = &replayed{bucket: rate.NewLimiter(replayRate, replayBurst), waiting: map[string]bool{}}
		if r.spokes == nil {
			r.spokes = map[string]*replayed{}
		}
		r.spokes[spoke] = s
	}
	if s.waiting[namespace] {
		return nil, 0
	}
	now := time.Now()
	delay := s.bucket.ReserveN(now, 1).DelayFrom(now)
	if delay > 0 {
		s.waiting[namespace] = true
	}
	return s, delay
}

// charge counts keys that were enqueued.
func (s *replayed) charge(keys int) {
	for now := time.Now(); keys > 0; keys -= replayBurst { // a reservation has a limit
		s.bucket.ReserveN(now, min(keys, replayBurst))
	}
}

// Forget drops the state of a spoke.
func (r *Replays) Forget(spoke string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.spokes, spoke)
}
