package expect

import (
	"strings"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"
)

func TestWrites(t *testing.T) {
	for name, tc := range map[string]struct {
		do      func(w *Writes[string], c *testclock.FakePassiveClock)
		pending bool
	}{
		"nothing was written":  {do: func(*Writes[string], *testclock.FakePassiveClock) {}},
		"written and not seen": {do: func(w *Writes[string], _ *testclock.FakePassiveClock) { w.Begin("k"); w.Wrote("k", "7") }, pending: true},
		"seen at that version": {do: func(w *Writes[string], _ *testclock.FakePassiveClock) {
			w.Begin("k")
			w.Wrote("k", "7")
			w.Seen("k", "7")
		}},
		"seen at a later version": {do: func(w *Writes[string], _ *testclock.FakePassiveClock) {
			w.Begin("k")
			w.Wrote("k", "9")
			w.Seen("k", "10")
		}},
		"seen at an older version": {do: func(w *Writes[string], _ *testclock.FakePassiveClock) {
			w.Begin("k")
			w.Wrote("k", "10")
			w.Seen("k", "9")
		}, pending: true},
		"another key seen": {do: func(w *Writes[string], _ *testclock.FakePassiveClock) {
			w.Begin("k")
			w.Wrote("k", "7")
			w.Seen("l", "9")
		}, pending: true},
		"deleted, an old event": {do: func(w *Writes[string], _ *testclock.FakePassiveClock) {
			w.Begin("k")
			w.Deleted("k", "7")
			w.Seen("k", "7")
		}, pending: true},
		"deleted, the deletion seen": {do: func(w *Writes[string], _ *testclock.FakePassiveClock) {
			w.Begin("k")
			w.Deleted("k", "7")
			w.Seen("k", "8")
		}},
		"a version that can't be compared": {do: func(w *Writes[string], _ *testclock.FakePassiveClock) {
			w.Begin("k")
			w.Wrote("k", "7")
			w.Seen("k", "")
		}},
		"begun and not answered": {do: func(w *Writes[string], _ *testclock.FakePassiveClock) { w.Begin("k") }, pending: true},
		"begun and refused":      {do: func(w *Writes[string], _ *testclock.FakePassiveClock) { w.Begin("k"); w.Failed("k") }},
		"the event came before the answer": {do: func(w *Writes[string], _ *testclock.FakePassiveClock) {
			w.Begin("k")
			w.Seen("k", "7")
			w.Wrote("k", "7")
		}},
		"an old event came before the answer": {do: func(w *Writes[string], _ *testclock.FakePassiveClock) {
			w.Begin("k")
			w.Seen("k", "6")
			w.Wrote("k", "7")
		}, pending: true},
		"the deletion's event came before the answer": {do: func(w *Writes[string], _ *testclock.FakePassiveClock) {
			w.Begin("k")
			w.Seen("k", "8")
			w.Deleted("k", "7")
		}},
		"never seen, and patience at an end": {do: func(w *Writes[string], c *testclock.FakePassiveClock) {
			w.Begin("k")
			w.Wrote("k", "7")
			c.SetTime(c.Now().Add(patience))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			c := testclock.NewFakePassiveClock(time.Unix(0, 0))
			w := New[string](c)
			tc.do(w, c)
			if got := w.Pending("k") > 0; got != tc.pending {
				t.Errorf("Pending: %v, want %v", got, tc.pending)
			}
		})
	}
}

// Spokes send versions. One that is longer than any of an API server is not kept.
func TestLongVersions(t *testing.T) {
	long := strings.Repeat("1", 65)
	for name, do := range map[string]func(w *Writes[string]){
		"written": func(w *Writes[string]) { w.Wrote("k", long) },
		"deleted": func(w *Writes[string]) { w.Deleted("k", long) },
		"seen":    func(w *Writes[string]) { w.Begin("k"); w.Seen("k", long) },
	} {
		t.Run(name, func(t *testing.T) {
			w := New[string](testclock.NewFakePassiveClock(time.Unix(0, 0)))
			do(w)
			if is := w.pending["k"]; is.version != "" || is.seen != "" {
				t.Errorf("kept: %+v", is)
			}
			if w.Pending("k") == 0 {
				t.Error("nothing is pending")
			}
		})
	}
}

// A write is overdue if it was answered and the cache has not shown it in time.
func TestOverdue(t *testing.T) {
	for name, tc := range map[string]struct {
		do   func(w *Writes[string], late func())
		want bool
	}{
		"nothing was written": {do: func(_ *Writes[string], late func()) { late() }},
		"not answered":        {do: func(w *Writes[string], late func()) { w.Begin("k"); late() }},
		"just answered":       {do: func(w *Writes[string], _ func()) { w.Begin("k"); w.Wrote("k", "7") }},
		"in time":             {do: func(w *Writes[string], late func()) { w.Begin("k"); w.Wrote("k", "7"); w.Seen("k", "7"); late() }},
		"late":                {do: func(w *Writes[string], late func()) { w.Begin("k"); w.Wrote("k", "7"); late() }, want: true},
		"late, asked before":  {do: func(w *Writes[string], late func()) { w.Begin("k"); w.Wrote("k", "7"); late(); w.Pending("k") }, want: true},
		"shown after all":     {do: func(w *Writes[string], late func()) { w.Begin("k"); w.Wrote("k", "7"); late(); w.Seen("k", "8") }},
		"gone":                {do: func(w *Writes[string], late func()) { w.Begin("k"); w.Wrote("k", "7"); late(); w.Failed("k") }},
		"there":               {do: func(w *Writes[string], late func()) { w.Begin("k"); w.Wrote("k", "7"); late(); w.Wrote("k", "9") }},
		"deleted":             {do: func(w *Writes[string], late func()) { w.Begin("k"); w.Deleted("k", "7"); late() }},
	} {
		t.Run(name, func(t *testing.T) {
			c := testclock.NewFakePassiveClock(time.Unix(0, 0))
			w := New[string](c)
			tc.do(w, func() { c.SetTime(c.Now().Add(patience)) })
			if got := w.overdue("k"); got != tc.want {
				t.Errorf("overdue: %v, want %v", got, tc.want)
			}
		})
	}
}

// Forget drops the writes of some keys and keeps others.
func TestForget(t *testing.T) {
	w := New[string](testclock.NewFakePassiveClock(time.Unix(1e9, 0)))
	w.Begin("s/a")
	w.Wrote("s/b", "1")
	w.Begin("t/a")
	w.Forget(func(key string) bool { return strings.HasPrefix(key, "s/") })
	if w.Pending("s/a") != 0 || w.Pending("s/b") != 0 || w.Pending("t/a") == 0 || len(w.pending) != 1 {
		t.Errorf("pending: %v", w.pending)
	}
}

// A list can show a deletion without an event that has its version.
func TestDeletionsAreForgotten(t *testing.T) {
	c := testclock.NewFakePassiveClock(time.Unix(0, 0))
	w := New[string](c)
	w.Begin("k")
	w.Deleted("k", "7")
	w.Seen("k", "7")
	if w.Pending("k") == 0 {
		t.Error("nothing is pending")
	}
	c.SetTime(c.Now().Add(patience))
	if left := w.Pending("k"); left != 0 || len(w.pending) > 0 {
		t.Errorf("it is pending for another %v, and kept: %v", left, w.pending)
	}
}
