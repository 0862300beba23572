package queue

import (
	"testing"
	"time"
)

func TestWindow(t *testing.T) {
	const fast, slow = 5 * time.Millisecond, time.Second
	begin := time.Unix(1e9, 0)
	// After each step, as much time has passed as what ended took.
	type step struct {
		end  ending
		took time.Duration
		n    int
	}
	for name, tc := range map[string]struct {
		start, floor, inFlight int
		steps                  []step
		want                   int
	}{
		"at first":                        {start: 8, floor: 8, inFlight: 8, want: 8},
		"each answer is one more":         {start: 8, floor: 8, inFlight: 8, steps: []step{{endAnswered, fast, 5}}, want: 13},
		"a slow first answer is usual":    {start: 8, floor: 8, inFlight: 8, steps: []step{{endAnswered, slow, 5}}, want: 13},
		"not when there is enough":        {start: 8, floor: 8, inFlight: 3, steps: []step{{endAnswered, fast, 100}}, want: 8},
		"slow ones are none more":         {start: 8, floor: 8, inFlight: 8, steps: []step{{endAnswered, fast, 1}, {endAnswered, slow, 4}}, want: 9},
		"one slow one among fast":         {start: 8, floor: 8, inFlight: 16, steps: []step{{endAnswered, fast, 4}, {endAnswered, slow, 1}, {endAnswered, fast, 3}}, want: 15},
		"a round of slow ones is less":    {start: 8, floor: 1, inFlight: 16, steps: []step{{endAnswered, fast, 8}, {endAnswered, slow, 16}}, want: 12},
		"but not less than at first":      {start: 8, floor: 1, inFlight: 16, steps: []step{{endAnswered, fast, 8}, {endAnswered, slow, 100}}, want: 8},
		"it grows again":                  {start: 8, floor: 1, inFlight: 16, steps: []step{{endAnswered, fast, 8}, {endAnswered, slow, 16}, {endAnswered, fast, 12}}, want: 16},
		"a timeout is half":               {start: 8, floor: 1, inFlight: 8, steps: []step{{endFailed, slow, 1}}, want: 4},
		"but for the spoke":               {start: 8, floor: 8, inFlight: 8, steps: []step{{endFailed, slow, 3}}, want: 8},
		"again and again":                 {start: 8, floor: 1, inFlight: 8, steps: []step{{endFailed, slow, 10}}, want: 1},
		"a 429 is half for the spoke":     {start: 8, floor: 8, inFlight: 8, steps: []step{{endThrottled, fast, 1}}, want: 4},
		"and not below one":               {start: 8, floor: 8, inFlight: 8, steps: []step{{endThrottled, fast, 9}}, want: 1},
		"then it grows slowly, per round": {start: 8, floor: 8, inFlight: 8, steps: []step{{endThrottled, fast, 1}, {endAnswered, 2 * fast, 3}}, want: 4},
		"half of few":                     {start: 8, floor: 8, inFlight: 8, steps: []step{{endThrottled, fast, 1}, {endAnswered, 2 * fast, 4}}, want: 8},
	} {
		t.Run(name, func(t *testing.T) {
			w, now := newWindow(tc.start, tc.floor), begin
			for _, s := range tc.steps {
				for range s.n {
					now = now.Add(s.took)
					w.add(s.end, s.took-1, now, tc.inFlight)
				}
			}
			if w.size != tc.want {
				t.Errorf("it is %d, want %d", w.size, tc.want)
			}
		})
	}
	t.Run("those that were on their way with it count once", func(t *testing.T) {
		w, now := newWindow(64, 1), begin.Add(time.Minute)
		for range 64 {
			w.add(endFailed, slow, now, 64)
		}
		if w.size != 32 {
			t.Errorf("it is %d", w.size)
		}
	})
	t.Run("a timeout while others were answered is its own fault", func(t *testing.T) {
		w, now := newWindow(8, 1), begin.Add(time.Minute)
		w.add(endAnswered, fast, now, 4)
		w.add(endFailed, slow, now, 4)
		if w.size != 9 {
			t.Errorf("it is %d", w.size)
		}
	})
	t.Run("unless half of all time out", func(t *testing.T) {
		w, now := newWindow(8, 1), begin.Add(time.Minute)
		for range 4 {
			w.add(endAnswered, fast, now, 1)
			w.add(endFailed, slow, now, 1)
		}
		if w.size != 4 {
			t.Errorf("it is %d", w.size)
		}
	})
}
