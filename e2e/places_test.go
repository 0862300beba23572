package e2e

import (
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// idle are the longest of the tests that wait almost all of their time. They begin at once, and take no place.
var idle = []string{
	"TestSlowLinks", "TestTokensAreRenewed", "TestKindsLost", "TestEachRight", "TestHubOfAStandbyRestored", "TestWarOverTheWebhook",
	"TestRestoredHubKeepsNewerRules", "TestHubRestored", "TestSpokeRestored",
}

// longest are the longest of the others. Go starts parallel tests in a random order, so that one of them could begin last,
// and run alone in the end. These begin first.
var longest = []string{
	"TestFaultHub", "TestFaultSpokes", "TestWars", "TestWarOfTwins", "TestFaultProxies", "TestFaultRotations", "TestFaultAPI",
	"TestEvaluation", "TestCoverage", "TestFiring", "TestBackup", "TestWhyMends", "TestRotationCostsNoRequest", "TestBrake",
	"TestJoin", "TestAccess", "TestCostOfADeployment", "TestLifecycle", "TestChart", "TestSecretsSwapped", "TestHealth",
}

// mostFaults is how many fleets may run at the same time that measure the latency of a healthy spoke. With more, it is slow
// because the machine is.
const mostFaults = 4

// counting is a test that counts what the manager of the shared fleet does. It runs when no other test has a place.
const counting = "TestMetrics"

// places is a number of places in which tests run at the same time.
type places struct {
	mu                  sync.Mutex
	size, taken, faults int // of the taken places, faults are those of tests that measure latency
	waiting             []*placed
}

// placed is a test that has a place, or waits for one.
type placed struct {
	rank         int // the lowest begins first
	fault, alone bool
	begin        chan struct{}
}

// testPlaces has as many places as -test.parallel says.
var testPlaces places

// takePlaces has testPlaces decide, instead of Go, which tests run. Call it after flag.Parse.
func takePlaces() error {
	f := flag.Lookup("test.parallel")
	n, err := strconv.Atoi(f.Value.String())
	if err != nil || n < 1 {
		return fmt.Errorf("-test.parallel is %s; it must be at least 1", f.Value)
	}
	testPlaces.size = n
	if err := f.Value.Set(strconv.Itoa(math.MaxInt32)); err != nil {
		return fmt.Errorf("setting -test.parallel: %w", err)
	}
	return nil
}

// parallel lets a test run at the same time as others. Its subtests may call t.Parallel; they take no place.
func parallel(t *testing.T) {
	t.Helper()
	if slices.Contains(idle, t.Name()) {
		t.Parallel()
		return
	}
	inPlace(t, false)
}

// parallelOnShared is parallel for a test on the shared fleet. These begin after all others, so that this fleet, which costs
// CPU time as long as it runs, starts late.
func parallelOnShared(t *testing.T) {
	t.Helper()
	inPlace(t, true)
}

func inPlace(t *testing.T, onShared bool) {
	t.Helper()
	at := testPlaces.enter(t.Name(), onShared) // all tests do this before the first of them continues
	t.Parallel()
	began := time.Now()
	testPlaces.change(func() {})
	<-at.begin
	t.Cleanup(func() { testPlaces.leave(at) })
	t.Logf("began after %v", time.Since(began).Round(time.Second))
}

// enter makes a test wait for a place.
func (p *places) enter(name string, onShared bool) *placed {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := &placed{rank: len(longest), alone: name == counting, begin: make(chan struct{})}
	at.fault = strings.HasPrefix(name, "TestFault") || strings.HasPrefix(name, "TestWar")
	switch i := slices.Index(longest, name); {
	case at.alone:
		at.rank += 2
	case onShared:
		at.rank++
	case i >= 0:
		at.rank = i
	}
	p.waiting = append(p.waiting, at)
	return at
}

// leave frees the place of a test.
func (p *places) leave(at *placed) {
	p.change(func() {
		p.taken--
		if at.fault {
			p.faults--
		}
	})
}

// change makes a change, and gives the free places to the first of the waiting tests.
func (p *places) change(by func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	by()
	for p.taken < p.size {
		var next *placed
		for _, at := range p.waiting {
			if (next == nil || at.rank < next.rank) && (!at.fault || p.faults < mostFaults) && (!at.alone || p.taken == 0) {
				next = at
			}
		}
		if next == nil {
			return
		}
		p.waiting = slices.DeleteFunc(p.waiting, func(at *placed) bool { return at == next })
		p.taken++
		if next.fault {
			p.faults++
		}
		close(next.begin)
	}
}

// TestPlaces checks the order in which tests begin, and that all that run at the same time use parallel.
func TestPlaces(t *testing.T) {
	p := &places{size: 1}
	all := map[string]*placed{}
	for _, name := range []string{counting, "TestOnShared", "TestA", longest[3], "TestB", longest[2]} {
		all[name] = p.enter(name, name == "TestOnShared")
	}
	begun := func() (names []string) {
		for name, at := range all {
			select {
			case <-at.begin:
				names = append(names, name)
			default:
			}
		}
		return names
	}
	p.change(func() {})
	for _, want := range []string{longest[2], longest[3], "TestA", "TestB", "TestOnShared", counting} {
		if got := begun(); !slices.Equal(got, []string{want}) {
			t.Fatalf("%v begins, want %s", got, want)
		}
		at := all[want]
		delete(all, want)
		p.leave(at)
	}

	p.size = mostFaults + 2
	for _, name := range []string{counting, "TestA", "TestFaultA", "TestFaultB", "TestFaultC", "TestFaultD", "TestFaultE"} {
		all[name] = p.enter(name, false)
	}
	p.change(func() {})
	if got := begun(); len(got) != mostFaults+1 || slices.Contains(got, counting) {
		t.Errorf("%v begin, want %d tests of faults, and TestA", got, mostFaults)
	}

	files, err := filepath.Glob("*_test.go")
	must(t, err)
	placed := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		must(t, err)
		for _, function := range strings.Split(string(text), "\nfunc ")[1:] {
			name, body, _ := strings.Cut(function, "(")
			body, _, _ = strings.Cut(body, "\n}\n")
			placed[name] = strings.Contains(body, "\n\tparallel(t)") || (name == counting && strings.Contains(body, "\n\tparallelOnShared(t)"))
			if strings.HasPrefix(name, "Test") && strings.Contains(body, "shared()") && strings.Contains(body, "\n\tparallel(t)") {
				t.Errorf("%s: call parallelOnShared, as it uses the shared fleet", name)
			}
			if strings.HasPrefix(name, "Test") && strings.Contains(body, "\n\tt.Parallel()") {
				t.Errorf("%s: call parallel in place of t.Parallel", name)
			}
		}
	}
	for _, name := range slices.Concat(idle, longest, []string{counting}) {
		if !placed[name] {
			t.Errorf("there is no test %s that calls parallel", name)
		}
	}
}
