package generate

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/testing/memory"
)

func named(name string) rule.Key {
	return rule.Key{Namespace: "ns", Name: name}
}

func TestQuota(t *testing.T) {
	q, told := &quota{}, 0
	q.changed = func(string) { told++ }
	take := func(spoke, name string, want bool) {
		t.Helper()
		if got := q.take(spoke, new(int32(2)), "ns", named(name).NamespacedName()); got != want {
			t.Errorf("taking %s for %s: %v", name, spoke, got)
		}
	}
	q.add("s", "ns", named("there").NamespacedName())
	take("s", "first", true)
	take("s", "first", true) // counted already
	take("s", "second", false)
	take("t", "second", true) // another spoke's
	q.record("s", named("web"), true)
	q.record("s", named("web"), true)
	if n, _ := q.lackingOf("s"); n != 1 || told != 1 {
		t.Errorf("%d lack AlertRules, told %d times", n, told)
	}

	q.release("s", named("first").NamespacedName())
	take("s", "second", true)
	take("s", "third", false)
	if w, ok := q.drop("s", named("there").NamespacedName()); !ok || w != named("web") {
		t.Errorf("there is room for %v, %v", w, ok)
	}
	if got := q.waiting("s"); len(got) != 1 || got[0] != named("web") {
		t.Errorf("%v are waiting", got)
	}
	take("s", "third", true)
	q.record("s", named("web"), false)
	if n, _ := q.lackingOf("s"); n != 0 || told != 2 {
		t.Errorf("%d lack AlertRules, told %d times", n, told)
	}
	if _, ok := q.drop("s", named("third").NamespacedName()); ok {
		t.Error("there is room for somebody")
	}
	if !q.take("s", nil, "ns", named("any").NamespacedName()) {
		t.Error("without a limit, there is one")
	}
	for _, name := range []string{"any", "second"} {
		q.drop("s", named(name).NamespacedName())
	}
	q.drop("t", named("second").NamespacedName())
	if len(q.spokes) != 0 {
		t.Errorf("it remembers %v", q.spokes)
	}
}

// As many workloads are reconciled again as there is room for.
func TestQuotaWakesOneForEachPlace(t *testing.T) {
	q := &quota{}
	for _, name := range []string{"a", "b", "c"} {
		q.add("s", "ns", named(name).NamespacedName())
		q.record("s", named("web-"+name), true)
	}
	q.record("s", rule.Key{Namespace: "gone", Name: "web"}, true)
	q.record("s", rule.Key{Namespace: "gone", Name: "web"}, false)
	if n := len(q.spokes["s"].namespaces); n != 1 {
		t.Errorf("it remembers %d namespaces", n)
	}
	woken := map[rule.Key]bool{}
	for _, name := range []string{"a", "b"} {
		workload, ok := q.drop("s", named(name).NamespacedName())
		woken[workload] = ok
	}
	if len(woken) != 2 {
		t.Errorf("woken are %v", woken)
	}
	for workload := range woken {
		q.record("s", workload, true) // somebody else was faster
	}
	if _, ok := q.drop("s", named("c").NamespacedName()); !ok {
		t.Error("none is woken any more")
	}
}

// Concurrent keys do not exceed the limit together.
func TestQuotaSideBySide(t *testing.T) {
	q := &quota{}
	var taken atomic.Int32
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			if q.take("s", new(int32(20)), "ns", named(fmt.Sprint(i)).NamespacedName()) {
				taken.Add(1)
			}
		})
	}
	wg.Wait()
	if taken.Load() != 20 {
		t.Errorf("%d were taken", taken.Load())
	}
}

// The Deployments of a spoke that lack AlertRules are forgotten with it; its AlertRules count until they are gone.
func TestQuotaForgets(t *testing.T) {
	q, told := &quota{}, 0
	q.changed = func(string) { told++ }
	q.add("s", "ns", named("there").NamespacedName())
	q.add("other", "ns", named("its").NamespacedName())
	q.record("s", named("web"), true)
	q.record("other", named("web"), true)
	told = 0
	q.forget("s")
	q.forget("none")
	n, _ := q.lackingOf("s")
	if others, _ := q.lackingOf("other"); n != 0 || others != 1 || told != 1 || len(q.waiting("s")) > 0 {
		t.Errorf("%d lack AlertRules, told %d times", n, told)
	}
	if q.take("s", new(int32(1)), "ns", named("another").NamespacedName()) {
		t.Error("what is on the hub does not count")
	}
	if _, ok := q.drop("s", named("there").NamespacedName()); ok {
		t.Error("there is room for somebody")
	}
	if got := memory.Of(q, "s"); len(got) > 0 {
		t.Errorf("remembered: %q", got)
	}
	q.record("s", named("web"), true) // by a worker that had it in hand
	q.forget("s")
	if got := memory.Of(q, "s"); len(got) > 0 {
		t.Errorf("remembered: %q", got)
	}
}

// One namespace of a spoke can't use the last quarter of the limit, whoever comes first.
func TestQuotaOfANamespace(t *testing.T) {
	of := func(namespace string, n int) rule.Key {
		return rule.Key{Namespace: namespace, Name: fmt.Sprint(n)}
	}
	fill := func(q *quota, limit int32, namespace string) (taken int) {
		for n := range 100 {
			if q.take("s", &limit, namespace, of(namespace, n).NamespacedName()) {
				taken++
			}
		}
		return taken
	}
	for name, c := range map[string]struct {
		percent    int
		limit      int32
		own, other int // what the first namespace gets, and then two others together
	}{
		"a quarter":            {75, 20, 15, 5},
		"rounded":              {75, 21, 16, 5},
		"a single place":       {75, 1, 1, 0},
		"too few for quarters": {75, 3, 3, 0},
		"one is reserved":      {75, 4, 3, 1},
		"nothing is reserved":  {100, 20, 20, 0},
		"no share":             {0, 20, 20, 0},
	} {
		t.Run(name, func(t *testing.T) {
			q := &quota{percent: c.percent}
			if own := fill(q, c.limit, "greedy"); own != c.own {
				t.Errorf("one namespace gets %d of %d", own, c.limit)
			}
			if other := fill(q, c.limit, "b") + fill(q, c.limit, "c"); other != c.other {
				t.Errorf("the others get %d of %d", other, c.limit)
			}
		})
	}

	// What exists keeps its place, also above the share, and a restart makes no difference.
	q := &quota{percent: 75}
	limit := int32(20)
	for n := range 18 {
		q.add("s", "greedy", of("greedy", n).NamespacedName())
	}
	if !q.take("s", &limit, "greedy", of("greedy", 17).NamespacedName()) || q.take("s", &limit, "greedy", of("greedy", 18).NamespacedName()) {
		t.Error("one that exists has lost its place, or a new one has got one")
	}
	for _, w := range []rule.Key{of("greedy", 18), of("greedy", 19), of("b", 7), of("b", 8), of("c", 9)} {
		q.record("s", w, true)
	}
	if n, crowded := q.lackingOf("s"); n != 5 || crowded != "greedy" {
		t.Errorf("%d lack AlertRules, because of %q", n, crowded)
	}
	// The room goes to namespaces that have the fewest.
	q.add("s", "c", of("c", 1).NamespacedName())
	q.add("s", "b", of("b", 0).NamespacedName())
	none := rule.Key{}
	absent := of("absent", 0)
	for i, c := range []struct{ dropped, want rule.Key }{
		{absent, none}, {of("greedy", 0), of("b", 7)}, {absent, none}, {of("greedy", 1), of("c", 9)}, {of("greedy", 2), of("b", 8)}, {of("greedy", 3), of("greedy", 18)},
	} {
		if got, _ := q.drop("s", c.dropped.NamespacedName()); got != c.want {
			t.Errorf("%d: reconciled next is %v, want %v", i, got, c.want)
		}
	}
	if got, ok := q.drop("s", of("c", 1).NamespacedName()); ok {
		t.Errorf("%v is reconciled, and the room of its namespace is about to be used", got)
	}
	q.add("s", "b", of("b", 1).NamespacedName())
	q.add("s", "b", of("b", 2).NamespacedName())
	q.add("s", "b", of("b", 3).NamespacedName())
	q.add("s", "b", of("b", 4).NamespacedName())
	q.add("s", "b", of("b", 5).NamespacedName())
	if n, crowded := q.lackingOf("s"); n != 5 || crowded != "" {
		t.Errorf("where the limit is reached: %d lack AlertRules, because of %q", n, crowded)
	}
}

// The answer to a creation can be lost after the hub's cache has shown the AlertRule.
func TestQuotaOfALostAnswer(t *testing.T) {
	q, limit := &quota{}, new(int32(1))
	made := named("made").NamespacedName()
	if !q.take("s", limit, "ns", made) {
		t.Fatal("there is no room")
	}
	q.add("s", "ns", made)
	q.release("s", made)
	if q.take("s", limit, "ns", named("another").NamespacedName()) {
		t.Error("an AlertRule that exists does not count")
	}
	q.drop("s", made)
	if !q.take("s", limit, "ns", named("another").NamespacedName()) {
		t.Error("an AlertRule that was deleted counts")
	}
}
