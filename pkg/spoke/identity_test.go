package spoke

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// engagedAs makes a spoke look engaged, as a cluster.
func engagedAs(p *Provider, name, identity string) {
	p.entries[name] = &entry{current: &registration{conn: &connection{name: name, kick: make(chan struct{}, 1)}, cancel: func() {}}, spoke: &Spoke{Name: name}}
	p.members.identities[name] = identity
}

// DESIGN §3.12: another cluster than before is confirmed first.
func TestIdentityChanged(t *testing.T) {
	p := NewProvider(Options{})
	p.Known("s", "was")
	err := p.admit("s", "is")
	changed, ok := errors.AsType[*IdentityError](err)
	if !ok || changed.Was != "was" || changed.Is != "is" {
		t.Fatalf("got %v", err)
	}
	f := disconnected(err)
	if f.Reason != v1alpha1.ReasonIdentityChanged || !strings.HasSuffix(f.Message, "kubectl annotate --overwrite spoke s rulefleet.io/accept-identity=is") {
		t.Errorf("got %+v", f)
	}
	for _, other := range []string{"", "was", "third"} {
		p.Accept("s", other)
		if p.admit("s", "is") == nil {
			t.Errorf("confirmed by %q", other)
		}
	}
	p.Accept("s", "is")
	if err := p.admit("s", "is"); err != nil {
		t.Errorf("confirmed: %v", err)
	}
	if err := p.admit("s", "was"); err != nil {
		t.Errorf("as before: %v", err)
	}
	// A cluster that is another spoke's is not to be had by confirming it.
	engagedAs(p, "t", "is")
	if err := p.admit("s", "is"); err == nil {
		t.Error("two spokes are one cluster")
	}
}

// What was engaged is not worked on while it is not known which cluster is meant.
func TestDisown(t *testing.T) {
	p, current, pending, _ := watched(t)
	p.entries["s"].spoke = &Spoke{Name: "s"}
	q := NewQueue(t.Name(), 1)
	defer q.ShutDown()
	p.follow(q)
	for range breakerThreshold {
		current.breaker.Observe(false)
	}
	p.disown(pending)
	if p.Spoke("s") != nil || p.Observation("s") != nil || spokesOf(q) != 0 {
		t.Errorf("engaged still: %+v", p.entries["s"])
	}
	p.observe(pending, Observation{Connected: disconnected(&IdentityError{Spoke: "s"})})
	if got := p.Observation("s"); got == nil || got.Connected.Reason != v1alpha1.ReasonIdentityChanged {
		t.Errorf("got %+v", got)
	}
	p.disown(pending) // there is nothing left
}

// A worker that has a spoke in hand while it is disowned sends nothing more there.
func TestDisownStopsWhatIsUnderWay(t *testing.T) {
	for name, by := range map[string]func(current, pending *connection) *connection{
		"by its new kubeconfig":      func(_, pending *connection) *connection { return pending },
		"by the connection's repair": func(current, _ *connection) *connection { return current },
	} {
		t.Run(name, func(t *testing.T) {
			p, current, pending, _ := watched(t)
			p.disown(by(current, pending))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := current.breaker.pass(ctx); !errors.Is(err, errShut) {
				t.Errorf("it may pass: %v", err)
			}
		})
	}
}

// A Secret that was renamed: the same cluster, under another name.
func TestHandover(t *testing.T) {
	p := NewProvider(Options{})
	engagedAs(p, "former", "uid")
	if err := p.admit("present", "uid"); err == nil {
		t.Error("served twice")
	}
	waiting := &connection{name: "present", kick: make(chan struct{}, 1)}
	p.entries["present"] = &entry{pending: &registration{conn: waiting, cancel: func() {}}}
	p.Release("former")
	select {
	case <-waiting.kick:
	default:
		t.Error("the other does not look again")
	}
	if err := p.admit("present", "uid"); err != nil {
		t.Errorf("when the former has no Secret: %v", err)
	}
	if p.Predecessors("present") != nil || p.Successor("former") != "" {
		t.Error("it has taken over before it was engaged")
	}
	engagedAs(p, "present", "uid")
	engagedAs(p, "elsewhere", "other")
	p.Release("unrelated")
	if got := p.Predecessors("present"); !slices.Equal(got, []string{"former"}) {
		t.Errorf("it took over from %q", got)
	}
	if got := p.Successor("former"); got != "present" {
		t.Errorf("it was taken over by %q", got)
	}
	if p.Predecessors("elsewhere") != nil || p.Predecessors("former") != nil || p.Successor("elsewhere") != "" || p.Successor("unrelated") != "" {
		t.Error("others are concerned")
	}
	// It comes back, and is the second now.
	if err := p.admit("former", "uid"); err == nil {
		t.Error("served twice")
	}
	p.Gone("former")
	if p.Predecessors("present") != nil {
		t.Error("it is remembered")
	}
}
