package spoke

import (
	"cmp"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rulefleet/rulefleet/pkg/testing/memory"
)

// A namespace that changes all the time has its keys enqueued at a limited rate, and once more after its last change.
func TestReplays(t *testing.T) {
	const span = time.Minute
	const usual = DefaultMaxObjects
	for name, tc := range map[string]struct{ namespaces, keys, burst int }{
		"a large namespace":     {1, usual, 0},
		"an empty namespace":    {1, 0, 0},
		"many namespaces":       {200, usual / 200, 0},
		"more than in a bucket": {1, 3 * usual, 0},
		"a larger bucket":       {100, 10 * usual / 100, 10 * usual},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				r, enqueued, calls, last := &Replays{Burst: tc.burst}, 0, 0, map[string]time.Time{}
				change := func(i int) {
					namespace := fmt.Sprint(i)
					r.Do("s", namespace, func() int {
						mu.Lock()
						defer mu.Unlock()
						enqueued += tc.keys
						calls++
						last[namespace] = time.Now()
						return tc.keys
					})
				}
				began, ended := time.Now(), time.Time{}
				for time.Since(began) < span {
					for i := range tc.namespaces {
						change(i)
					}
					ended = time.Now()
					time.Sleep(10 * time.Millisecond) //nolint:forbidigo // of the bubble's clock
					synctest.Wait()
				}
				mu.Lock()
				budget := cmp.Or(tc.burst, usual) + replayRate*int(span.Seconds())
				if most := budget + tc.namespaces*tc.keys; enqueued > most || enqueued < most/2 && tc.keys > 0 || calls > budget {
					t.Errorf("%d keys were enqueued by %d calls, want at most %d", enqueued, calls, most)
				}
				mu.Unlock()
				time.Sleep(5 * time.Minute) //nolint:forbidigo // of the bubble's clock
				synctest.Wait()
				mu.Lock()
				defer mu.Unlock()
				for i := range tc.namespaces {
					if last[fmt.Sprint(i)].Before(ended) {
						t.Errorf("the last change of namespace %d was at %v, and its keys were enqueued last at %v", i, ended, last[fmt.Sprint(i)])
					}
				}
			})
		})
	}
}

// A change of all namespaces waits for nothing, nor does that of another spoke.
func TestReplaysCostNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &Replays{}
		at := func(spoke string, namespace, keys int) {
			t.Helper()
			done := false
			r.Do(spoke, fmt.Sprint(namespace), func() int {
				done = true
				return keys
			})
			if !done {
				t.Errorf("namespace %d of %s waits", namespace, spoke)
			}
		}
		for i := range 150 {
			at("s", i, 100)
		}
		r.Do("s", "large", func() int { return DefaultMaxObjects })
		at("other", 0, 100)
		time.Sleep(time.Minute) //nolint:forbidigo // of the bubble's clock
		at("s", 0, 100)
		r.Do("s", "large", func() int { return 2 * DefaultMaxObjects })
		late := func() int {
			t.Error("the keys of a spoke that has left are enqueued")
			return 0
		}
		r.Do("s", "late", late)
		r.Forget("s")
		r.Do("s", "again", func() int { return 1 })
		time.Sleep(time.Hour) //nolint:forbidigo // of the bubble's clock
		r.Forget("s")
		if left := memory.Of(r, "s"); len(left) > 0 {
			t.Errorf("it remembers %v", left)
		}
		r = &Replays{Burst: 3 * DefaultMaxObjects} // the spoke may have that many
		at("s", 0, 2*DefaultMaxObjects)
		at("s", 1, 1)
	})
}
