package spoke

import (
	"net/http"
	"sync"
	"time"
)

const (
	// leastAhead is the smallest difference of clocks that counts.
	leastAhead = 2 * time.Second
	// resolution is that of the header Date, which has whole seconds.
	resolution = time.Second
	// mostAhead is the largest one. A clock that is further ahead is broken, and tells nothing about objects.
	mostAhead = 365 * 24 * time.Hour
)

// Clock knows how far the clock of a spoke's API server is ahead of this one, or has been, according to its answers to
// probes. After it was set right, the objects from before still have its times.
type Clock struct {
	mu sync.Mutex
	// ahead is the largest possible difference so far, and until the latest time that the clock showed while it was
	// ahead.
	ahead time.Duration
	until time.Time
}

// Saw records the header Date of an answer that arrived now, to a request that was sent at the time asked.
func (c *Clock) Saw(h http.Header, asked, now time.Time) {
	date, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		return
	}
	d := date.Sub(now.Round(0))
	if d < leastAhead || d > mostAhead {
		return
	}
	// The header may be as old as the request, and up to a second too early.
	d = date.Add(resolution).Sub(asked.Round(0))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead = max(c.ahead, d)
	if c.until.Before(date) {
		c.until = date
	}
}

// Made returns the earliest time at which an object of the spoke may have been created, by this process's clock, if the
// spoke's clock is ahead or was ahead at the time of its creation. If it is behind, the time is unchanged: then the object
// seems to be older than it is, which is safe where old objects are removed with more care.
func (s *Spoke) Made(created time.Time) time.Time {
	if s.Clock == nil {
		return created
	}
	s.Clock.mu.Lock()
	defer s.Clock.mu.Unlock()
	if created.After(s.Clock.until.Add(unseenAhead)) {
		return created // the clock has been right since then
	}
	return created.Add(-s.Clock.ahead).Truncate(time.Second) // the times that it is compared with have whole seconds
}

// unseenAhead is how long after an answer the clock may still be ahead, until the next one tells.
const unseenAhead = 3 * probeInterval
