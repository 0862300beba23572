package spoke

import (
	"net/http"
	"sync/atomic"
	"time"
)

// leastAhead is the smallest difference of clocks that counts. The header Date has whole seconds.
const leastAhead = 2 * time.Second

// clockLead is how far the clock of a spoke's API server is ahead of this one, according to its last answer to a probe. It
// is 0 if the clock is behind.
type clockLead struct{ nanoseconds atomic.Int64 }

// saw records the header Date of an answer.
func (a *clockLead) saw(h http.Header, now time.Time) {
	date, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		return
	}
	d := date.Sub(now.Round(0))
	if d < leastAhead {
		d = 0
	}
	a.nanoseconds.Store(int64(d))
}

// Made returns when an object of the spoke was created, by this process's clock, if the spoke's clock is ahead. If it is
// behind, the time is unchanged: then the object seems to be older than it is, which is safe where old objects are
// removed with more care.
func (s *Spoke) Made(created time.Time) time.Time {
	if s.ahead == nil {
		return created
	}
	return created.Add(-time.Duration(s.ahead.nanoseconds.Load()))
}
