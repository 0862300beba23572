package generate

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rulefleet/rulefleet/pkg/testing/memory"
)

func named(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "ns", Name: name}
}

func TestQuota(t *testing.T) {
	q, told := &quota{}, 0
	q.changed = func(string) { told++ }
	take := func(spoke, rule string, want bool) {
		t.Helper()
		if got := q.take(spoke, new(int32(2)), named(rule)); got != want {
			t.Errorf("taking %s for %s: %v", rule, spoke, got)
		}
	}
	q.add("s", named("there"))
	take("s", "first", true)
	take("s", "first", true) // counted already
	take("s", "second", false)
	take("t", "second", true) // another spoke's
	q.settle("s", named("web"), true)
	q.settle("s", named("web"), true)
	if q.refusedOf("s") != 1 || told != 1 {
		t.Errorf("%d are refused, told %d times", q.refusedOf("s"), told)
	}

	q.release("s", named("first"))
	take("s", "second", true)
	take("s", "third", false)
	if w, ok := q.drop("s", named("there")); !ok || w != named("web") {
		t.Errorf("there is room for %v, %v", w, ok)
	}
	if got := q.waiting("s"); len(got) != 1 || got[0] != named("web") {
		t.Errorf("%v are waiting", got)
	}
	take("s", "third", true)
	q.settle("s", named("web"), false)
	if q.refusedOf("s") != 0 || told != 2 {
		t.Errorf("%d are refused, told %d times", q.refusedOf("s"), told)
	}
	if _, ok := q.drop("s", named("third")); ok {
		t.Error("there is room for somebody")
	}
	if !q.take("s", nil, named("any")) {
		t.Error("without a limit, there is one")
	}
	for _, name := range []string{"any", "second"} {
		q.drop("s", named(name))
	}
	q.drop("t", named("second"))
	if len(q.spokes) != 0 {
		t.Errorf("it remembers %v", q.spokes)
	}
}

// As many workloads are reconciled again as there is room for.
func TestQuotaWakesOneForEachPlace(t *testing.T) {
	q := &quota{}
	for _, name := range []string{"a", "b", "c"} {
		q.add("s", named(name))
		q.settle("s", named("web-"+name), true)
	}
	woken := map[types.NamespacedName]bool{}
	for _, name := range []string{"a", "b"} {
		workload, ok := q.drop("s", named(name))
		woken[workload] = ok
	}
	if len(woken) != 2 {
		t.Errorf("woken are %v", woken)
	}
	for workload := range woken {
		q.settle("s", workload, true) // somebody else was faster
	}
	if _, ok := q.drop("s", named("c")); !ok {
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
			if q.take("s", new(int32(20)), named(fmt.Sprint(i))) {
				taken.Add(1)
			}
		})
	}
	wg.Wait()
	if taken.Load() != 20 {
		t.Errorf("%d were taken", taken.Load())
	}
}

// The refused Deployments of a spoke are forgotten with it; its AlertRules count until they are gone.
func TestQuotaForgets(t *testing.T) {
	q, told := &quota{}, 0
	q.changed = func(string) { told++ }
	q.add("s", named("there"))
	q.add("other", named("its"))
	q.settle("s", named("web"), true)
	q.settle("other", named("web"), true)
	told = 0
	q.forget("s")
	q.forget("none")
	if q.refusedOf("s") != 0 || q.refusedOf("other") != 1 || told != 1 || len(q.waiting("s")) > 0 {
		t.Errorf("%d are refused, told %d times", q.refusedOf("s"), told)
	}
	if q.take("s", new(int32(1)), named("another")) {
		t.Error("what is on the hub does not count")
	}
	if _, ok := q.drop("s", named("there")); ok {
		t.Error("there is room for somebody")
	}
	if got := memory.Of(q, "s"); len(got) > 0 {
		t.Errorf("remembered: %q", got)
	}
	q.settle("s", named("web"), true) // by a worker that had it in hand
	q.forget("s")
	if got := memory.Of(q, "s"); len(got) > 0 {
		t.Errorf("remembered: %q", got)
	}
}
