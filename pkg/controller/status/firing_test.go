package status

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// A storm of alerts: every rule has news all the time, and each is written at most once in 30 s,
// and all together at most 20 times a second after the first hundred.
func TestFiringStorm(t *testing.T) {
	t.Parallel()
	const rules, seconds = 1000, 300
	var f firing
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
			wait := f.wait(types.NamespacedName{Namespace: "shop", Name: fmt.Sprint(i)}, now, firingInterval)
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

func TestFiringForgets(t *testing.T) {
	t.Parallel()
	var f firing
	now, key := time.Unix(1e9, 0), types.NamespacedName{Namespace: "shop", Name: "a"}
	if f.wait(key, now, firingInterval) != 0 || f.wait(key, now.Add(time.Second), firingInterval) != firingInterval-time.Second {
		t.Error("a rule does not wait")
	}
	if f.wait(key, now.Add(firingInterval), firingInterval) != 0 {
		t.Error("a rule waits for too long")
	}
	f.forget(key)
	if len(f.last) != 0 || f.wait(key, now.Add(firingInterval), firingInterval) != 0 {
		t.Error("what was not written counts")
	}
}
