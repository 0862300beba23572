package spoke

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestBreaker(t *testing.T) {
	type step = func(*breaker)
	yes, no := func(b *breaker) { b.Observe(true) }, func(b *breaker) { b.Observe(false) }
	well, ill := func(b *breaker) { b.Probed(true) }, func(b *breaker) { b.Probed(false) }
	good, trip := (*breaker).Close, (*breaker).Trip
	for name, tc := range map[string]struct {
		do      []step
		changes []bool // what Open said at every change
	}{
		"nothing happened":                       {},
		"two failures":                           {do: []step{no, no}},
		"three failures":                         {do: []step{no, no, no}, changes: []bool{true}},
		"more failures":                          {do: []step{no, no, no, no, no, no, no}, changes: []bool{true}},
		"an answer between the failures":         {do: []step{no, no, yes, no, no, yes, no, no}},
		"answers":                                {do: []step{yes, yes}},
		"an answer to what was sent before":      {do: []step{no, no, no, yes}, changes: []bool{true}},
		"a probe that is not believed yet":       {do: []step{no, no, no, well}, changes: []bool{true}},
		"closed":                                 {do: []step{no, no, no, good}, changes: []bool{true, false}},
		"it counts anew when it is closed":       {do: []step{no, no, no, good, no, no}, changes: []bool{true, false}},
		"opened twice":                           {do: []step{no, no, no, good, no, no, no}, changes: []bool{true, false, true}},
		"two probes":                             {do: []step{ill, ill}},
		"three probes":                           {do: []step{ill, ill, ill}, changes: []bool{true}},
		"probes fail, and all else is answered":  {do: []step{ill, yes, ill, yes, ill}, changes: []bool{true}},
		"a probe between the failures":           {do: []step{no, no, well, no, no}},
		"a good probe between those that failed": {do: []step{ill, ill, well, ill, ill}},
		"a probe and requests":                   {do: []step{no, ill, no}, changes: []bool{true}},
		"tripped":                                {do: []step{trip, yes, well}, changes: []bool{true}},
		"tripped and closed":                     {do: []step{trip, good}, changes: []bool{true, false}},
	} {
		t.Run(name, func(t *testing.T) {
			var changes []bool
			var b *breaker
			// Open would never return if the lock were held.
			b = newBreaker(func() { changes = append(changes, b.Open()) })
			for _, do := range tc.do {
				do(b)
			}
			if !slices.Equal(changes, tc.changes) {
				t.Errorf("changes to %v, want %v", changes, tc.changes)
			}
			if want := len(tc.changes)%2 == 1; b.Open() != want || b.Blocked() != want {
				t.Errorf("Open: %v, Blocked: %v, want %v", b.Open(), b.Blocked(), want)
			}
		})
	}
}

func TestBreakerThrottle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told atomic.Int32
		b := newBreaker(func() { told.Add(1) })
		expect := func(left, lasted time.Duration, n int) {
			t.Helper()
			synctest.Wait()
			changes := int(told.Load())
			if l, s := b.Throttled(); l != left || s != lasted || b.Blocked() != (left > 0) || changes != n {
				t.Errorf("%v left, lasted %v, blocked: %v, %d changes; want %v, %v, %d changes", l, s, b.Blocked(), changes, left, lasted, n)
			}
		}
		wait := func(d time.Duration) { time.Sleep(d) } //nolint:forbidigo // the test's own time
		b.Throttle(10 * time.Second)
		expect(10*time.Second, 0, 1)
		wait(4 * time.Second)
		b.Throttle(time.Second) // less than is left
		expect(6*time.Second, 4*time.Second, 1)
		b.Throttle(8 * time.Second)
		b.Observe(true) // to a request from before
		expect(8*time.Second, 4*time.Second, 1)
		wait(8 * time.Second)
		expect(0, 0, 2)
		wait(time.Second)
		b.Throttle(5 * time.Second) // and again, without an answer between
		expect(5*time.Second, 13*time.Second, 3)
		wait(5 * time.Second)
		expect(0, 0, 4)
		b.Observe(true)
		b.Throttle(5 * time.Second)
		expect(5*time.Second, 0, 5)
		b.Trip()
		wait(5 * time.Second)
		synctest.Wait()
		if !b.Blocked() || told.Load() != 5 {
			t.Errorf("blocked: %v, %d changes: the circuit is open", b.Blocked(), told.Load())
		}
		b.Close()
		expect(0, 0, 6)
		b.Throttle(time.Minute)
		b.Stop()
	})
}

// Workers don't wait for a spoke, and watches wait as long as it takes.
func TestBreakerPass(t *testing.T) {
	for name, tc := range map[string]struct {
		shut func(*breaker)
		pass func(*breaker)
		want error
	}{
		"open":      {shut: (*breaker).Trip, pass: (*breaker).Close, want: errBlocked},
		"throttled": {shut: func(b *breaker) { b.Throttle(time.Minute) }, pass: func(*breaker) {}, want: errThrottled},
		"both": {
			shut: func(b *breaker) { b.Throttle(time.Minute); b.Trip() }, want: errBlocked,
			pass: func(b *breaker) { time.Sleep(2 * time.Minute); b.Close() }, //nolint:forbidigo // the test's own time
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBreaker(func() {})
				defer b.Stop()
				hasty := t.Context() // a deadline makes no difference
				patient, cancel := context.WithTimeout(context.WithValue(t.Context(), informerKey{}, true), time.Hour)
				defer cancel()
				if err := b.pass(hasty); err != nil {
					t.Errorf("held up: %v", err)
				}
				tc.shut(b)
				began := time.Now()
				if err := b.pass(hasty); !errors.Is(err, tc.want) || time.Since(began) > 0 {
					t.Errorf("a worker: %v after %v, want %v", err, time.Since(began), tc.want)
				}
				passed := make(chan error, 1)
				go func() { passed <- b.pass(patient) }()
				time.Sleep(59 * time.Second) //nolint:forbidigo // the test's own time
				synctest.Wait()
				if len(passed) > 0 {
					t.Error("a watch was let pass")
				}
				tc.pass(b)
				if err := <-passed; err != nil {
					t.Error(err)
				}
			})
		})
	}
}
