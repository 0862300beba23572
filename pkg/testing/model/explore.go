package model

import (
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// Explore checks a property of random schedules: the same ones each time, and new ones. With the environment variable
// SEED, it checks only those of this seed; 0 stands for a new seed. When a schedule fails, the shortest one that fails
// in the same way is printed, with the seed that repeats it. Otherwise the log says what was covered.
func Explore(t *testing.T, property func(*Schedule)) {
	t.Helper()
	check := func(t *testing.T, seed string) {
		t.Helper()
		if err := flag.Set("rapid.seed", seed); err != nil {
			t.Fatal(err)
		}
		covered, began := coverage{}, time.Now()
		rapid.Check(t, inBubble(t, func(rt *rapid.T) {
			covered.schedules++
			property(newSchedule(rt, &covered))
		}))
		covered.print(t, time.Since(began))
	}
	if seed := os.Getenv("SEED"); seed != "" {
		check(t, seed)
		return
	}
	for name, seed := range map[string]string{"same": "1", "new": "0"} {
		t.Run(name, func(t *testing.T) { check(t, seed) })
	}
}

// inBubble runs each schedule with a clock of its own. A failure ends the goroutine that rapid runs.
func inBubble(t *testing.T, property func(*rapid.T)) func(*rapid.T) {
	t.Helper()
	return func(rt *rapid.T) {
		var failure any
		synctest.Test(t, func(*testing.T) {
			defer func() {
				failure = recover()
				if failure != nil && !strings.HasPrefix(fmt.Sprintf("%T", failure), "rapid.") {
					rt.Logf("%s", debug.Stack())
				}
			}()
			property(rt)
		})
		switch {
		case failure == nil:
		case fmt.Sprintf("%T", failure) == "rapid.invalidData":
			panic(failure) // from another place: when rapid shrinks, it takes what ends in the same place for the same failure
		default:
			panic(failure)
		}
	}
}
