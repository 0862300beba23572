package spoke

import (
	"context"
	"fmt"
	"path"
	"sync"
	"time"

	"golang.org/x/text/language"
	"golang.org/x/text/message"
	"golang.org/x/time/rate"
)

const (
	// eventSpan is the time over which the events of a watch are counted. maxEvents, maxEventBytes and
	// maxEventValues are read within it at most. A rollout of all Deployments of a large spoke stays below them.
	eventSpan      = 5 * time.Second
	maxEvents      = 10_000
	maxEventBytes  = 32 << 20
	maxEventValues = 1 << 21
	// eventStep is how many bytes of a watch are read at a time. They are never more events than maxEvents.
	eventStep = 16 << 10
	// lateShown is how long a watch has to be slowed down before the status says so, and lateOver how long it must
	// not be slowed down before the status is silent again. Each change is a write to the hub.
	lateShown, lateOver = 10 * time.Second, 30 * time.Second
)

// paces bounds how fast the watches of a spoke are read, by path. Anyone who can write objects in a spoke can change
// them as often as they like, so a watch that is too fast is read more slowly, and does not end: the API server keeps
// the rest. The watches of a path share a pace, so that a new watch is not faster. A nil paces has no bounds.
type paces struct {
	// turn lets one large event or page be decoded at a time.
	turn together

	mu     sync.Mutex
	byPath map[string]*eventPace
}

// of returns the pace of a path.
func (ps *paces) of(path string) *eventPace {
	if ps == nil {
		return nil
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p := ps.byPath[path]
	if p == nil {
		per := func(most int) *rate.Limiter {
			return rate.NewLimiter(rate.Limit(float64(most)/eventSpan.Seconds()), most)
		}
		p = &eventPace{mu: &ps.mu, events: per(maxEvents), bytes: per(maxEventBytes), values: per(maxEventValues)}
		if ps.byPath == nil {
			ps.byPath = map[string]*eventPace{}
		}
		ps.byPath[path] = p
	}
	return p
}

// late returns a message about a watch that has been slowed down for some time, or "".
func (ps *paces) late(now time.Time) string {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	first, large := "", false
	for at, p := range ps.byPath {
		many, long := p.lateLocked(now)
		if kind := path.Base(at); (many || long) && (first == "" || kind < first) {
			first, large = kind, !many
		}
	}
	switch {
	case first == "":
		return ""
	case large:
		return fmt.Sprintf("changes of %s arrive late, because one of them is so large that the network link takes longer than %v for it; find out which object is that large in the spoke, and what slows down the link", first, eventTime)
	}
	return message.NewPrinter(language.English).Sprintf("changes of %s arrive late, because there are too many: at most %d of them, %d MiB and %d JSON values are read within %v; find out what changes these objects so often in the spoke",
		first, maxEvents, maxEventBytes>>20, maxEventValues, eventSpan)
}

// eventPace bounds how fast the watches of one path are read.
type eventPace struct {
	events, bytes, values *rate.Limiter

	// mu is the lock of the paces.
	mu *sync.Mutex
	// since is when the watches began to be slowed down, and last is when they were slowed down last.
	since, last time.Time
	// long is when an event was last found to take longer than eventTime.
	long time.Time
}

// read notes what was read, and returns when the next read may begin.
func (p *eventPace) read(now time.Time, events, bytes, values int64) time.Time {
	if p == nil {
		return now
	}
	var delay time.Duration
	for _, of := range []struct {
		limiter *rate.Limiter
		n       int64
	}{{p.events, events}, {p.bytes, bytes}, {p.values, values}} {
		delay = max(delay, of.limiter.ReserveN(now, int(of.n)).DelayFrom(now))
	}
	if delay > 0 {
		p.slowed(now)
	}
	return now.Add(delay)
}

func (p *eventPace) slowed(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Sub(p.last) > lateOver {
		p.since = now
	}
	p.last = now
}

// large notes that an event takes longer than eventTime.
func (p *eventPace) large() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.long = time.Now()
}

// lateLocked reports whether there have been too many events for some time, and whether one is too large for the link.
func (p *eventPace) lateLocked(now time.Time) (many, long bool) {
	return p.last.Sub(p.since) >= lateShown && now.Sub(p.last) < lateOver, now.Sub(p.long) < lateOver
}

// pause returns at a time, or with an error when ctx ends.
func pause(ctx context.Context, until time.Time) error {
	delay := time.Until(until)
	if delay <= 0 {
		return nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err() //nolint:wrapcheck // it is the context's
	case <-time.After(delay):
		return nil
	}
}
