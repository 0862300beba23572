// Package explore runs random schedules of operations and faults with a clock of their own, and says what it covered.
package explore

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// Script is a random schedule, which is printed when it fails.
type Script struct {
	*rapid.T

	covered *Coverage
}

// Say adds a line to the script.
func (s *Script) Say(format string, args ...any) {
	s.Helper()
	s.Logf(format, args...)
}

// Violation ends the script.
func (s *Script) Violation(format string, args ...any) {
	s.Fatalf("VIOLATION: "+format, args...)
}

// Steps runs operations in a random order. broken returns the faults that last, and after is called after each operation.
func (s *Script) Steps(operations map[string]func(*rapid.T), broken func() []string, after func()) {
	all := make(map[string]func(*rapid.T), len(operations))
	for name, operation := range operations {
		all[name] = func(t *rapid.T) {
			s.T = t
			faults := broken()
			operation(t)
			s.covered.Ran(name, faults)
			after()
		}
	}
	s.Repeat(all)
}

// Try runs an operation, and reports whether it did anything. One that calls Skip did not. rapid itself would end a
// schedule in which more operations are skipped than are not, and so most schedules after a few operations.
func Try(t *rapid.T, operation func(*rapid.T)) (did bool) {
	defer func() {
		if failure := recover(); failure != nil && !skipped(failure) {
			panic(failure)
		}
	}()
	operation(t)
	return true
}

func skipped(failure any) bool { return fmt.Sprintf("%T", failure) == "rapid.invalidData" }

// Run checks a property of random schedules: the same ones each time, and new ones. With the environment variable
// SEED, it checks only those of this seed; 0 stands for a new seed. When a schedule fails, the shortest one that fails
// in the same way is printed, with the seed that repeats it. Otherwise the log says what was covered.
// usual is how many there are for each seed, unless the flag rapid.checks says otherwise.
func Run(t *testing.T, usual int, property func(*Script)) {
	t.Helper()
	if checks := flag.Lookup("rapid.checks"); checks.Value.String() == checks.DefValue {
		if err := flag.Set(checks.Name, strconv.Itoa(usual)); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = flag.Set(checks.Name, checks.DefValue) }()
	}
	check := func(t *testing.T, seed string) {
		t.Helper()
		if seed == "0" {
			seed = strconv.FormatUint(rand.Uint64N(1<<63)+1, 10)
		}
		if err := flag.Set("rapid.seed", seed); err != nil {
			t.Fatal(err)
		}
		t.Logf("SEED=%s, with the same number of checks, repeats these schedules", seed)
		covered, schedules, began := Coverage{}, 0, time.Now()
		rapid.Check(t, inBubble(t, func(rt *rapid.T) {
			schedules++
			property(&Script{T: rt, covered: &covered})
		}))
		t.Logf("%d schedules, %.0f per second", schedules, float64(schedules)/time.Since(began).Seconds())
		if testing.Verbose() { // otherwise the log of a test that passes is not shown
			t.Log(&covered)
		}
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
		case skipped(failure):
			panic(failure) // from another place: when rapid shrinks, it takes what ends in the same place for the same failure
		default:
			panic(failure)
		}
	}
}
