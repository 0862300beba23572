package certs

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

const (
	// clockLook is the time between two checks whether the clock was set.
	clockLook = 15 * time.Second
	// clockSlack is the size of a correction that does not count as setting the clock.
	clockSlack = time.Minute
)

// clockSet is a source that enqueues a key when the clock was set. Timers use the monotonic clock, so
// the next check of certificates that are no longer valid, or not valid yet, may be hours away.
func clockSet(key reconcile.Request) source.Source {
	return source.Func(func(ctx context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		w := newClockWatch(clock.RealClock{}, clock.RealClock{})
		go wait.UntilWithContext(ctx, func(context.Context) {
			if w.set() {
				q.Add(key)
			}
		}, clockLook)
		return nil
	})
}

// clockWatch detects that the clock was set.
type clockWatch struct {
	// monotonic is never set, but wall is.
	monotonic, wall      clock.PassiveClock
	sinceTick, sinceWall time.Time
}

func newClockWatch(monotonic, wall clock.PassiveClock) *clockWatch {
	w := &clockWatch{monotonic: monotonic, wall: wall}
	w.begin()
	return w
}

func (w *clockWatch) begin() {
	w.sinceTick, w.sinceWall = w.monotonic.Now(), w.wall.Now().Round(0) // which leaves the wall clock's time
}

// set reports whether the clock was set since the last time that it was, or since the start.
func (w *clockWatch) set() bool {
	by := w.wall.Now().Round(0).Sub(w.sinceWall) - w.monotonic.Now().Sub(w.sinceTick)
	if by.Abs() <= clockSlack {
		return false
	}
	w.begin()
	return true
}
