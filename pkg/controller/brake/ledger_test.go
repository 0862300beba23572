package brake

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/rulefleet/rulefleet/pkg/rule"
)

const span = 10 * time.Minute

var start = time.Unix(1e9, 0)

func at(d time.Duration) time.Time { return start.Add(d) }

func name(n int) key { return rule.AlertRuleKey("g", fmt.Sprintf("r-%04d", n)) }

// keys returns the first n names.
func keys(n int) sets.Set[key] {
	out := sets.New[key]()
	for i := range n {
		out.Insert(name(i))
	}
	return out
}

// want wants the deletions from..to-1, each by its own owner, of a spoke with this number of rules. It returns
// how many are held.
func want(l *ledger, now time.Time, holds, from, to int) int {
	held := 0
	for n := from; n < to; n++ {
		held += ask(l, now, holds, name(n), Deletion{Key: name(n)})
	}
	return held
}

func ask(l *ledger, now time.Time, holds int, owner key, wants ...Deletion) int {
	l.roll(now)
	if l.toCount(now, owner, wants) {
		l.count(now, keys(holds))
	}
	held, _ := l.ask(now, owner, wants, "")
	return held.Len()
}

// How many deletions of a mass are released, depending on the rules in the spoke.
func TestLimit(t *testing.T) {
	for name, tc := range map[string]struct{ holds, wanted, held int }{
		"one":                            {60, 1, 0},
		"as many as are free":            {60, 20, 0},
		"one more":                       {60, 21, 1},
		"all of a few":                   {20, 20, 0},
		"all":                            {60, 60, 40},
		"a quarter of many":              {1000, 250, 0},
		"more than a quarter of many":    {1000, 251, 1},
		"a quarter that is no number":    {87, 22, 1},
		"all of very many":               {20000, 20000, 15000},
		"nothing is held by the spoke":   {0, 21, 1},
		"just where a quarter gets more": {84, 21, 0},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger(span)
			if held := want(l, start, tc.holds, 0, tc.wanted); held != tc.held || l.held != tc.held {
				t.Errorf("%d are held (%d), want %d", held, l.held, tc.held)
			}
			if l.tripped() != (tc.held > 0) {
				t.Errorf("tripped: %v", l.tripped())
			}
		})
	}
}

// What happens afterwards.
func TestLedger(t *testing.T) {
	mass := func(t *testing.T) *ledger {
		t.Helper()
		l := newLedger(span)
		if held := want(l, start, 60, 0, 60); held != 40 {
			t.Fatalf("%d are held", held)
		}
		return l
	}
	for name, tc := range map[string]struct {
		then    func(l *ledger) int // returns how many are held of what it asked for
		held    int
		left    int // in the ledger
		tripped bool
		woken   int
		ended   outcome
	}{
		"asked again": {
			then: func(l *ledger) int { return want(l, at(span-1), 60, 0, 60) },
			held: 40, left: 40, tripped: true,
		},
		"another one meanwhile": {
			then: func(l *ledger) int { return want(l, at(time.Minute), 60, 60, 61) },
			held: 1, left: 41, tripped: true,
		},
		"the time is over": {
			then:  func(l *ledger) int { return want(l, at(span), 60, 20, 60) },
			woken: 40, ended: waited,
		},
		"another mass when the time is over": {
			then: func(l *ledger) int { return want(l, at(span), 40, 20, 60) + want(l, at(span), 100, 100, 200) },
			held: 75, left: 75, tripped: true, woken: 40, ended: waited,
		},
		"another mass meanwhile, and the time of the first is over": {
			then: func(l *ledger) int {
				want(l, at(span-time.Minute), 60, 100, 140)
				return want(l, at(span), 60, 20, 60) + want(l, at(span), 60, 100, 140)
			},
			held: 40, left: 40, tripped: true, woken: 40,
		},
		"two other masses meanwhile, and the time of the second is over": {
			then: func(l *ledger) int {
				want(l, at(span-2*time.Minute), 60, 100, 140)
				want(l, at(span-time.Minute), 60, 200, 240)
				want(l, at(span), 60, 20, 60)
				return want(l, at(2*span-2*time.Minute), 60, 100, 140) + want(l, at(2*span-2*time.Minute), 60, 200, 240)
			},
			held: 40, left: 40, tripped: true, woken: 80,
		},
		"another mass meanwhile, and the time of both is over": {
			then: func(l *ledger) int {
				want(l, at(span-time.Minute), 60, 100, 140)
				want(l, at(span), 60, 20, 60)
				return want(l, at(2*span-time.Minute), 60, 100, 140)
			},
			woken: 80, ended: waited,
		},
		"acknowledged": {
			then: func(l *ledger) int {
				if n := l.acknowledge(nil); n != 40 {
					t.Errorf("%d were acknowledged", n)
				}
				return want(l, at(1), 60, 20, 60)
			},
			woken: 40, ended: acknowledged,
		},
		"a few more, acknowledged": {
			then:  func(l *ledger) int { l.acknowledge(nil); return want(l, at(1), 60, 60, 80) },
			woken: 40, ended: acknowledged,
		},
		"another mass, acknowledged too early": {
			then: func(l *ledger) int { l.acknowledge(nil); return want(l, at(1), 60, 60, 120) },
			held: 40, left: 40, tripped: true, woken: 40, ended: acknowledged,
		},
		"all come back": {
			then:  func(l *ledger) int { return back(l, at(1), 20, 60) },
			ended: receded,
		},
		"all but one come back": {
			then: func(l *ledger) int { return back(l, at(1), 20, 59) },
			left: 1, tripped: true,
		},
		"some come back, and want it again": {
			then: func(l *ledger) int { back(l, at(1), 20, 30); return want(l, at(2), 60, 20, 30) },
			held: 10, left: 40, tripped: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := mass(t)
			if held := tc.then(l); held != tc.held {
				t.Errorf("%d are held, want %d", held, tc.held)
			}
			names := l.names(false)
			if l.held != tc.left || len(names) != tc.left || l.tripped() != tc.tripped || l.ended != tc.ended {
				t.Errorf("in the ledger are %d (%d), tripped %v, ended %q", l.held, len(names), l.tripped(), l.ended)
			}
			woken := l.takeWoken()
			slices.SortFunc(woken, compare)
			if n := len(slices.Compact(woken)); n != tc.woken || n != len(woken) {
				t.Errorf("%d are woken of %d, want %d", n, len(woken), tc.woken)
			}
		})
	}
}

func compare(a, b key) int {
	switch {
	case a == b:
		return 0
	case a.Name < b.Name:
		return -1
	}
	return 1
}

// back withdraws the deletions of the owners from..to-1.
func back(l *ledger, now time.Time, from, to int) int {
	for n := from; n < to; n++ {
		l.ask(now, name(n), nil, "")
		l.roll(now)
	}
	return 0
}

// A few at a time over a long time: deletions older than the span do not count, and the part is taken of the
// present rules.
func TestSpan(t *testing.T) {
	l := newLedger(span)
	for n := range 300 { // two a minute: 20 within the span
		if want(l, at(time.Duration(n)*span/free), 300-n, n, n+1) > 0 {
			t.Fatalf("number %d is held", n)
		}
	}
	if len(l.gone) > free || len(l.goneKeys) != len(l.gone) || len(l.owners) > 0 {
		t.Errorf("it remembers %d, %d and %d", len(l.gone), len(l.goneKeys), len(l.owners))
	}
	l = newLedger(span)
	for n := range 21 {
		if held := want(l, at(time.Duration(n)*time.Second), 60, n, n+1); held != n/free {
			t.Errorf("number %d: %d are held", n, held)
		}
	}
	// A new span has a new count: 60 more would be a quarter of the rules.
	l = newLedger(span)
	want(l, start, 60, 0, 1)
	if held := want(l, at(recount), 1000, 1, 240); held != 0 {
		t.Errorf("%d are held though the spoke holds much more by now", held)
	}
	// Not every deletion requires a count.
	l = newLedger(span)
	counts := 0
	for n := range 60 {
		if l.toCount(start, name(n), []Deletion{{Key: name(n)}}) {
			counts++
			l.count(start, keys(1000))
		}
		l.ask(start, name(n), []Deletion{{Key: name(n)}}, "")
	}
	if counts != 1 {
		t.Errorf("it was counted %d times", counts)
	}
}

// A released deletion that fails is retried. It counts once, from the last attempt on, because the object may be
// deleted only then.
func TestTriedAgain(t *testing.T) {
	for title, tc := range map[string]struct {
		wanted int                 // at the start
		then   func(l *ledger) int // returns how many are held at the end of the span
	}{
		"another": {free, func(l *ledger) int { return want(l, at(span), 60, 100, 101) }},
		"another, when those held at the start have waited": {
			40, func(l *ledger) int { return want(l, at(span), 60, free, 40) + want(l, at(span), 60, 100, 101) },
		},
		"another, which is held for longer than those held at the start": {
			40, func(l *ledger) int {
				want(l, at(span-time.Minute), 60, 100, 101)
				return want(l, at(span), 60, free, 40) + want(l, at(span), 60, 100, 101)
			},
		},
	} {
		t.Run(title, func(t *testing.T) {
			l := newLedger(span)
			want(l, start, 60, 0, tc.wanted)
			for now := start; !now.After(at(span / 2)); now = now.Add(30 * time.Second) {
				if want(l, now, 60, 0, free) > 0 {
					t.Fatal("a retry is held")
				}
			}
			if held := tc.then(l); held != 1 || len(l.gone) != free || len(l.goneKeys) != free {
				t.Errorf("%d are held, %d and %d count", held, len(l.gone), len(l.goneKeys))
			}
			if want(l, at(span+span/2), 60, 100, 101) > 0 || l.tripped() {
				t.Error("the last attempt counts for longer than the span")
			}
		})
	}
}

// An owner with several deletions: each is wanted and withdrawn separately.
func TestOwner(t *testing.T) {
	l := newLedger(span)
	want(l, start, 60, 0, free)
	owner := key{Name: "web"}
	a, b := Deletion{Key: name(100)}, Deletion{Key: name(101)}
	if n := ask(l, start, 60, owner, a, b); n != 2 {
		t.Errorf("%d are held", n)
	}
	if n := ask(l, start, 60, owner, b); n != 1 || l.held != 1 {
		t.Errorf("%d are held (%d)", n, l.held)
	}
	if names := l.names(false); !slices.Equal(names, []key{b.Key}) || !l.until.Equal(at(span)) {
		t.Errorf("got %v until %v", names, l.until)
	}
}

func suspect(n int) Deletion { return Deletion{Key: name(n), Suspect: true} }

// Suspects need an acknowledgement, however long it takes, and do not hold other deletions.
func TestSuspects(t *testing.T) {
	for title, tc := range map[string]struct {
		span time.Duration // 0 is no limit by the count
		then func(l *ledger)
		// held and suspects are those that are left in the ledger, of 30 suspects.
		held, suspects int
		woken          int
		ended          outcome
	}{
		"asked again": {
			span: span, then: func(l *ledger) { askSuspects(t, l, at(time.Minute), 0, 30, 30) },
			held: 30, suspects: 30,
		},
		"a year later": {
			span: span, then: func(l *ledger) { askSuspects(t, l, at(365*24*time.Hour), 0, 30, 30) },
			held: 30, suspects: 30,
		},
		"a year later, without a limit": {
			then: func(l *ledger) { askSuspects(t, l, at(365*24*time.Hour), 0, 30, 30) },
			held: 30, suspects: 30,
		},
		"others go meanwhile, as many as are free": {
			span: span, then: func(l *ledger) {
				if want(l, start, 60, 100, 120) != 0 || l.tripped() || want(l, start, 60, 120, 121) != 1 {
					t.Error("suspects count")
				}
			},
			held: 31, suspects: 30,
		},
		"others go meanwhile, without a limit": {
			then: func(l *ledger) {
				if want(l, start, 60, 100, 200) != 0 {
					t.Error("they are held")
				}
			},
			held: 30, suspects: 30,
		},
		"what the count holds has waited": {
			span: span, then: func(l *ledger) {
				want(l, start, 60, 100, 160)
				if want(l, at(span), 60, 120, 160) != 0 {
					t.Error("the others are held for too long")
				}
				askSuspects(t, l, at(span), 0, 30, 30)
			},
			held: 30, suspects: 30, woken: 40, ended: waited,
		},
		"acknowledged": {
			span: span, then: func(l *ledger) { acknowledgeAll(t, l, 30); askSuspects(t, l, at(1), 0, 30, 0) },
			woken: 30, ended: acknowledged,
		},
		"acknowledged, without a limit": {
			then:  func(l *ledger) { acknowledgeAll(t, l, 30); askSuspects(t, l, at(1), 0, 30, 0) },
			woken: 30, ended: acknowledged,
		},
		"acknowledged before they are named": {
			span: span, then: func(l *ledger) {
				if n := l.acknowledge(nil); n != 0 {
					t.Errorf("%d were acknowledged", n)
				}
				askSuspects(t, l, at(1), 0, 30, 30)
			},
			held: 30, suspects: 30,
		},
		"some more after they are named, acknowledged": {
			span: span, then: func(l *ledger) {
				named := allNamed(l)
				askSuspects(t, l, at(1), 30, 40, 10)
				if n := l.acknowledge(named); n != 30 {
					t.Errorf("%d were acknowledged", n)
				}
				askSuspects(t, l, at(2), 30, 40, 10)
				askSuspects(t, l, at(2), 0, 30, 0)
			},
			held: 10, suspects: 10, woken: 30, ended: acknowledged,
		},
		"restored": {
			span: span, then: func(l *ledger) { back(l, at(time.Minute), 0, 30) }, ended: receded,
		},
		"all but one restored": {
			span: span, then: func(l *ledger) { back(l, at(time.Minute), 0, 29) }, held: 1, suspects: 1, ended: receded,
		},
		"a few are decided on": {
			span: span, then: func(l *ledger) {
				if want(l, at(1), 60, 0, free) != 0 {
					t.Error("they are held")
				}
			},
			held: 10, suspects: 10, ended: decided,
		},
		"a mass is decided on": {
			span: span, then: func(l *ledger) {
				if n := want(l, at(1), 60, 0, 30); n != 10 {
					t.Errorf("%d are held", n)
				}
			},
			held: 10, ended: decided,
		},
	} {
		t.Run(title, func(t *testing.T) {
			l := newLedger(tc.span)
			askSuspects(t, l, start, 0, 30, 30)
			tc.then(l)
			if woken := len(l.takeWoken()); l.held != tc.held || l.suspects != tc.suspects || woken != tc.woken || l.ended != tc.ended {
				t.Errorf("left are %d and %d, %d are woken, it ended %q", l.held, l.suspects, woken, l.ended)
			}
		})
	}
}

// askSuspects wants suspect deletions, each by its own owner.
func askSuspects(t *testing.T, l *ledger, now time.Time, from, to, want int) {
	t.Helper()
	held := 0
	for n := from; n < to; n++ {
		held += ask(l, now, 60, name(n), suspect(n))
	}
	if held != want {
		t.Errorf("%d are held, want %d", held, want)
	}
}

// allNamed are the names of all suspects.
func allNamed(l *ledger) sets.Set[string] {
	names := sets.New[string]()
	for _, k := range l.names(true) {
		names.Insert(k.Listed())
	}
	return names
}

func acknowledgeAll(t *testing.T, l *ledger, want int) {
	t.Helper()
	if n := l.acknowledge(allNamed(l)); n != want {
		t.Errorf("%d were acknowledged, want %d", n, want)
	}
}

// Deletions that become suspect after they were released, or would have been.
func TestBecomesSuspect(t *testing.T) {
	for title, tc := range map[string]struct {
		before func(l *ledger) // of 60 deletions
		n      int
		held   int
	}{
		"let go by the count": {before: func(*ledger) {}, n: 0, held: 1},
		"held by the count":   {before: func(*ledger) {}, n: 59, held: 1},
		"waited":              {before: func(l *ledger) { l.roll(at(span)) }, n: 59, held: 1},
		"acknowledged":        {before: func(l *ledger) { l.acknowledge(nil) }, n: 59, held: 1}, // for another cause
		"vouched for":         {before: func(l *ledger) { l.vouch(start, name(59), "uid") }, n: 59, held: 0},
	} {
		t.Run(title, func(t *testing.T) {
			l := newLedger(span)
			want(l, start, 60, 0, 60)
			tc.before(l)
			if held := ask(l, at(span), 60, name(tc.n), suspect(tc.n)); held != tc.held {
				t.Errorf("%d are held, want %d", held, tc.held)
			}
		})
	}
}

// After a restart with held deletions, all deletions are held for a span.
func TestWary(t *testing.T) {
	l := newLedger(span)
	l.wary = at(span)
	if held := want(l, at(time.Minute), 60, 0, 15); held != 15 {
		t.Errorf("%d are held", held)
	}
	if want(l, at(span), 60, 0, 15) != 0 { // few enough, after that
		t.Error("they are held for too long")
	}
	l = newLedger(span)
	l.wary = at(span)
	l.acknowledge(nil)
	if want(l, start, 60, 0, 15) != 0 {
		t.Error("the acknowledgement did not end it")
	}
}

// Deletions released by the previous hop are not counted again.
func TestVouch(t *testing.T) {
	l := newLedger(span)
	for n := range 60 {
		l.vouch(start, name(n), "uid")
		l.ask(start, name(n), nil, "uid") // the cache still shows the AlertRule
	}
	if want(l, start, 60, 0, 60) != 0 || len(l.gone) != 0 {
		t.Error("they are held, or count")
	}
	back(l, start, 0, 60) // they are gone
	if len(l.owners) != 0 {
		t.Errorf("%d are remembered", len(l.owners))
	}

	for title, then := range map[string]func(l *ledger){
		"taken back":               func(l *ledger) { l.withdraw(name(0), "uid") },
		"the AlertRule is another": func(l *ledger) { l.ask(start, name(0), nil, types.UID("other")) },
		"a day later":              func(l *ledger) { l.roll(at(vouchLife)) },
	} {
		t.Run(title, func(t *testing.T) {
			l := newLedger(span)
			l.vouch(start, name(0), "uid")
			then(l)
			want(l, at(vouchLife), 60, 0, 1)
			if len(l.gone) != 1 || len(l.owners) != 0 {
				t.Errorf("%s: it is not counted", title)
			}
		})
	}
	l = newLedger(span)
	l.vouch(start, name(0), "uid")
	l.withdraw(name(0), "other")
	want(l, start, 60, 0, 1)
	if len(l.gone) != 0 {
		t.Error("a vouch for another object was taken back")
	}
	// A deletion that is already held is released.
	l = newLedger(span)
	want(l, start, 60, 0, 60)
	l.vouch(start, name(59), "uid")
	if want(l, start, 60, 59, 60) != 0 || l.held != 39 {
		t.Errorf("%d are held", l.held)
	}
}

// A count while the cache still shows deleted rules does not count them twice.
func TestCountWithAnOldCache(t *testing.T) {
	l := newLedger(span)
	if held := want(l, start, 100, 0, 25); held != 0 {
		t.Fatalf("%d are held", held)
	}
	if held := want(l, start.Add(recount), 100, 25, 26); held != 1 {
		t.Errorf("%d are held after another count", held)
	}
}
