package e2e

import (
	"bytes"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"
)

// waiting are the longest of the tests that wait almost all of their time. They begin at once, and take no place.
var waiting = []string{"TestSlowLinks", "TestTokensAreRenewed", "TestKindsLost", "TestEachRight"}

// longest are the longest of the others. Go starts parallel tests in a random order, so that one of them could begin last,
// and run alone in the end. These begin first.
var longest = []string{
	"TestFaultSpokes", "TestFaultHub", "TestEvaluation", "TestCoverage", "TestFiring", "TestBackup", "TestWhyMends", "TestBrake", "TestJoin",
	"TestAccess", "TestCostOfADeployment", "TestLifecycle", "TestChart", "TestSecretsSwapped", "TestHealth",
}

// places has a number of places in which tests run at the same time.
type places struct {
	mu      sync.Mutex
	free    int
	waiting []*placed
}

// placed is a test that has, or waits for, a place.
type placed struct {
	rank  int // the lowest begins first
	begin chan struct{}
}

// testPlaces has as many places as -test.parallel says.
var testPlaces places

// takePlaces makes testPlaces give the places in place of Go. Call it after flag.Parse.
func takePlaces() error {
	f := flag.Lookup("test.parallel")
	n, err := strconv.Atoi(f.Value.String())
	if err != nil {
		return fmt.Errorf("reading -test.parallel: %w", err)
	}
	testPlaces.free = n
	if err := f.Value.Set(strconv.Itoa(math.MaxInt32)); err != nil {
		return fmt.Errorf("setting -test.parallel: %w", err)
	}
	return nil
}

// parallel lets a test run at the same time as others, as t.Parallel does.
func parallel(t *testing.T) {
	t.Helper()
	if slices.Contains(waiting, t.Name()) {
		t.Parallel()
		return
	}
	at := testPlaces.enter(t.Name()) // all tests do this before the first of them continues
	t.Parallel()
	began := time.Now()
	testPlaces.await(at)
	t.Cleanup(testPlaces.leave)
	t.Logf("began after %v", time.Since(began).Round(time.Second))
}

// enter makes a test wait for a place.
func (p *places) enter(name string) *placed {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := &placed{rank: len(longest), begin: make(chan struct{})}
	if i := slices.Index(longest, name); i >= 0 {
		at.rank = i
	}
	p.waiting = append(p.waiting, at)
	return at
}

// await waits until a test has a place.
func (p *places) await(at *placed) {
	p.give(0)
	<-at.begin
}

// leave frees a place.
func (p *places) leave() { p.give(1) }

// give gives the free places, and some more, to the first tests that wait.
func (p *places) give(more int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.free += more; p.free > 0 && len(p.waiting) > 0; p.free-- {
		first := 0
		for i, at := range p.waiting {
			if at.rank < p.waiting[first].rank {
				first = i
			}
		}
		close(p.waiting[first].begin)
		p.waiting = slices.Delete(p.waiting, first, first+1)
	}
}

// TestPlaces checks that the longest tests exist, and begin first.
func TestPlaces(t *testing.T) {
	files, err := filepath.Glob("*_test.go")
	must(t, err)
	var source []byte
	for _, file := range files {
		text, err := os.ReadFile(file)
		must(t, err)
		source = append(source, text...)
	}
	for _, name := range slices.Concat(waiting, longest) {
		if !bytes.Contains(source, []byte("\nfunc "+name+"(")) {
			t.Errorf("there is no %s", name)
		}
	}
	p := &places{free: 1}
	var all []*placed
	for _, name := range []string{"TestA", longest[1], "TestB", longest[0]} {
		all = append(all, p.enter(name))
	}
	var order []int
	for range all {
		p.give(0)
		for i, at := range all {
			select {
			case <-at.begin:
				if !slices.Contains(order, i) {
					order = append(order, i)
				}
			default:
			}
		}
		p.leave()
	}
	if want := []int{3, 1, 0, 2}; !slices.Equal(order, want) {
		t.Errorf("the order is %v, want %v", order, want)
	}
}
