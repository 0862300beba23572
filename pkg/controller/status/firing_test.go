package status

import (
	"testing"
	"time"

	"github.com/rulefleet/rulefleet/pkg/rule/rollup"
)

// A storm of alerts: every rule changes all the time; each is written at most once in 30 s, and all together
// at most 20 times a second after the first hundred.
func TestFiringStorm(t *testing.T) {
	t.Parallel()
	const rules, seconds = 1000, 300
	fleet, all := newBoard().firing, [rules]paced{}
	begun := time.Unix(1e9, 0)
	due, last, writes := map[int]time.Time{}, map[int]time.Time{}, 0
	retries := 0
	for s := range seconds {
		now := begun.Add(time.Duration(s) * time.Second)
		written := 0
		for i := range rules {
			if now.Before(due[i]) {
				continue
			}
			wait := all[i].hold(fleet, rollup.ChangeFiring, now, firingInterval)
			if wait > 0 {
				if wait > rules/firingRate*time.Second {
					t.Fatalf("a rule waits for %v", wait)
				}
				retries++
				due[i] = now.Add(wait)
				continue
			}
			if was, ok := last[i]; ok && now.Sub(was) < firingInterval {
				t.Fatalf("rule %d is written after %v", i, now.Sub(was))
			}
			last[i], due[i] = now, now
			written++
		}
		if limit := firingRate + 1; s > 0 && written > limit || s == 0 && written > firingBurst {
			t.Fatalf("%d writes in second %d", written, s)
		}
		writes += written
	}
	if len(last) != rules {
		t.Errorf("of %d rules, only %d were written at all", rules, len(last))
	}
	if retries > 3*writes {
		t.Errorf("%d writes take %d retries", writes, retries)
	}
	if writes > firingBurst+firingRate*seconds || writes < firingRate*(seconds-1) {
		t.Errorf("%d writes in %d s", writes, seconds)
	}
	t.Logf("%d rules that change all the time: %d writes and %d retries in %d s", rules, writes, retries, seconds)
}

func TestFiringInterval(t *testing.T) {
	t.Parallel()
	var r paced
	fleet, now := newBoard().firing, time.Unix(1e9, 0)
	if r.hold(fleet, rollup.ChangeFiring, now, firingInterval) != 0 || r.hold(fleet, rollup.ChangeFiring, now.Add(time.Second), firingInterval) != firingInterval-time.Second {
		t.Error("a rule does not wait")
	}
	if r.hold(fleet, rollup.ChangeFiring, now.Add(firingInterval), firingInterval) != 0 {
		t.Error("a rule waits for too long")
	}
	r.written(now.Add(firingInterval), now.Add(firingInterval+2*time.Second)) // it took 2 s
	r.written(now, now.Add(2*firingInterval))                                 // one that was not counted
	if r.hold(fleet, rollup.ChangeFiring, now.Add(2*firingInterval), firingInterval) != 2*time.Second {
		t.Error("the interval does not begin at the end of a write")
	}
}

// That a rule is loading and is evaluated again is written once per interval. Other changes, and the first
// evaluation of a rule, never wait.
func TestProofIsHeld(t *testing.T) {
	t.Parallel()
	const lost, found, fires, other = rollup.ChangeLost, rollup.ChangeFound, rollup.ChangeFiring, rollup.ChangeOther
	type news struct {
		at     time.Duration
		change rollup.Change
		want   time.Duration
	}
	const s = time.Second
	for name, steps := range map[string][]news{
		"loaded, again and again": {{0, found, 0}, {s, other, 0}, {2 * s, found, 0}, {3 * s, found, 0}},
		"to and fro": {
			{0, lost, 0}, {10 * s, found, 20 * s}, {30 * s, found, 0}, {40 * s, lost, 20 * s}, {60 * s, lost, 0}, {70 * s, found, 20 * s}, {90 * s, found, 0},
		},
		"soon after it fired": {{0, fires, 0}, {s, lost, 29 * s}, {30 * s, lost, 0}},
		"found, as it fires":  {{0, fires, 0}, {s, found, 0}},
		"changed meanwhile":   {{0, lost, 0}, {s, other, 0}, {2 * s, found, 0}},
		"found only once":     {{0, lost, 0}, {30 * s, found, 0}, {31 * s, found, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var r paced
			fleet, begun := newBoard().firing, time.Unix(1e9, 0)
			for i, n := range steps {
				if got := r.hold(fleet, n.change, begun.Add(n.at), firingInterval); got != n.want {
					t.Errorf("step %d, after %v: it waits for %v, and not for %v", i, n.at, got, n.want)
				}
			}
		})
	}
}

// A Prometheus that loses all rules and has them again must not load the hub either.
func TestProofStorm(t *testing.T) {
	t.Parallel()
	fleet, begun, writes := newBoard().firing, time.Unix(1e9, 0), 0
	for range 5000 {
		var r paced
		if r.hold(fleet, rollup.ChangeLost, begun, firingInterval) == 0 {
			writes++
		}
	}
	if writes != firingBurst {
		t.Errorf("%d are written at once", writes)
	}
}
