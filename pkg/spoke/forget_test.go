package spoke

import (
	"slices"
	"testing"
	"time"

	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/rulefleet/rulefleet/pkg/spoke/queue"
	"github.com/rulefleet/rulefleet/pkg/testing/memory"
)

// The state of a spoke is dropped when it is no longer registered, and all of it with its SpokeCluster.
func TestProviderForgets(t *testing.T) {
	var removed []string
	p := NewProvider(Options{})
	p.SetLifecycle(Lifecycle{Left: []func(string){func(name string) {
		p.Changed(name) // would never return if the lock were held
		removed = append(removed, name)
	}}})
	p.Known("s", "A")
	p.Known("other", "B")
	q := queue.New(queue.Options{Name: t.Name(), Workers: 1})
	defer q.ShutDown()
	p.follow(q)
	for _, name := range []string{"s", "other"} {
		c := waiting(p, name, "A", "C")
		p.Accept(name, "D")
		engagedAs(p, name, "A")
		c.p = p
		q.SetCircuit(multicluster.ClusterName(name), true)
		p.leaving[name] = &departure{cancel: func() {}}
	}
	before := len(memory.Of(p, "other"))
	for _, where := range []string{".entries[s]", ".members.identities[s]", ".members.accepted[s]", ".members.found[s]", ".leaving[s]"} {
		if got := memory.Of(p, "s"); !slices.Contains(got, where) {
			t.Errorf("%s is not among what is remembered: %q", where, got)
		}
	}
	p.Release("s") // the Secret is gone
	if !slices.Equal(removed, []string{"s"}) || !slices.Contains(memory.Of(p, "s"), ".members.identities[s]") {
		t.Errorf("removed: %q; remembered: %q", removed, memory.Of(p, "s"))
	}
	p.Gone("s") // and the SpokeCluster
	if got := memory.Of(p, "s"); len(got) > 0 {
		t.Errorf("remembered: %q", got)
	}
	if got := memory.Of(p, "other"); len(got) != before {
		t.Errorf("of the other is left: %q", got)
	}
	if !slices.Equal(removed, []string{"s", "s"}) {
		t.Errorf("told of %q", removed)
	}
	// A report about a spoke that has left does not restore its state.
	c := &connection{name: "s", kick: make(chan struct{}, 1), breaker: newBreaker(func() {}), p: p}
	p.strayed(c, "E")
	p.observe(c, Observation{Contact: time.Now()})
	p.circuit(c)
	p.disown(c)
	if got := memory.Of(p, "s"); len(got) > 0 {
		t.Errorf("remembered: %q", got)
	}
}
