package spoke

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/spoke/queue"
	"github.com/rulefleet/rulefleet/pkg/testing/memory"
)

// engagedAs makes a spoke look engaged, as a cluster.
func engagedAs(p *Provider, name, identity string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.entries[name] = &entry{current: &registration{conn: &connection{name: name, kick: make(chan struct{}, 1)}, cancel: func() {}}, spoke: &Spoke{Name: name}}
	p.members.identities[name] = identity
}

// A different cluster needs a confirmation.
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
	// A cluster that belongs to another spoke can't be taken by confirming it.
	engagedAs(p, "t", "is")
	if err := p.admit("s", "is"); err == nil {
		t.Error("two spokes are one cluster")
	}
}

// An engaged session is not used while the intended cluster is unknown.
func TestDisown(t *testing.T) {
	p, current, pending, _ := watched(t)
	p.entries["s"].spoke = &Spoke{Name: "s"}
	q := queue.New(queue.Options{Name: t.Name(), Workers: 1})
	defer q.ShutDown()
	p.follow(q)
	for range breakerThreshold {
		current.breaker.Observe(false)
	}
	p.disown(pending)
	if p.Spoke("s") != nil || p.Observation("s") != nil || len(memory.Of(q, "s")) > 0 {
		t.Errorf("engaged still: %+v", p.entries["s"])
	}
	p.observe(pending, Observation{Connected: disconnected(&IdentityError{Spoke: "s"})})
	if got := p.Observation("s"); got == nil || got.Connected.Reason != v1alpha1.ReasonIdentityChanged {
		t.Errorf("got %+v", got)
	}
	p.disown(pending) // there is nothing left
}

// A worker that has a spoke while it is disowned sends nothing more there.
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
			if err := current.breaker.pass(ctx); !errors.Is(err, errBlocked) {
				t.Errorf("it may pass: %v", err)
			}
		})
	}
}

// A renamed Secret: the same cluster under another name.
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
	// It comes back, and is the second one now.
	if err := p.admit("former", "uid"); err == nil {
		t.Error("served twice")
	}
	p.Gone("former")
	if p.Predecessors("present") != nil {
		t.Error("it is remembered")
	}
}

// waiting sets up a spoke whose kubeconfig leads to another cluster than before.
func waiting(p *Provider, name, was, is string) *connection {
	c := &connection{name: name, kick: make(chan struct{}, 1)}
	p.entries[name] = &entry{pending: &registration{conn: c, cancel: func() {}}}
	p.Known(name, was)
	p.strayed(c, is)
	return c
}

// Two swapped Secrets: each spoke is the other's former cluster, and both can be confirmed, in either order.
func TestSwapped(t *testing.T) {
	for name, order := range map[string][]string{"a first": {"a", "b"}, "b first": {"b", "a"}} {
		t.Run(name, func(t *testing.T) {
			p := NewProvider(Options{})
			var wary []string
			p.life.Replaced = append(p.life.Replaced, func(name string) { wary = append(wary, name) })
			is := map[string]string{"a": "B", "b": "A"}
			conns := map[string]*connection{"a": waiting(p, "a", "A", "B"), "b": waiting(p, "b", "B", "A")}
			first, second := order[0], order[1]
			for name, identity := range is {
				if err := p.admit(name, identity); !isIdentity(err) {
					t.Errorf("%s, not confirmed: %v", name, err)
				}
			}
			p.Accept(first, is[first])
			err := p.admit(first, is[first])
			want := "kubectl annotate --overwrite spoke " + second + " rulefleet.io/accept-identity=" + is[second]
			if f := disconnected(err); f.Reason != v1alpha1.ReasonIdentityChanged || !strings.HasSuffix(f.Message, want) {
				t.Errorf("one alone is confirmed: %+v", f)
			}
			for _, c := range conns {
				select {
				case <-c.kick:
				default:
				}
			}
			p.Accept(second, is[second])
			for name, c := range conns {
				select {
				case <-c.kick:
				default:
					t.Errorf("%s does not look again", name)
				}
			}
			for _, name := range []string{second, first} {
				if err := p.admit(name, is[name]); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				p.mu.Lock()
				p.becomeLocked(name, is[name])
				p.mu.Unlock()
				engagedAs(p, name, is[name])
			}
			if !slices.Equal(wary, []string{second, first}) {
				t.Errorf("to beware of %q", wary)
			}
			// A third spoke is not part of the swap.
			if err := p.admit("c", "A"); !isDuplicate(err) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// A cluster that a spoke is served as can't be taken by confirming it, nor by a confirmation of the spoke
// itself for another cluster.
func TestNotSwapped(t *testing.T) {
	t.Run("the other is served", func(t *testing.T) {
		p := NewProvider(Options{})
		engagedAs(p, "b", "B")
		p.Accept("b", "A")
		waiting(p, "a", "A", "B")
		p.Accept("a", "B")
		if err := p.admit("a", "B"); !isDuplicate(err) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("the other has its former kubeconfig again", func(t *testing.T) {
		p := NewProvider(Options{})
		waiting(p, "a", "A", "B")
		waiting(p, "b", "B", "A")
		p.Accept("a", "B")
		p.Accept("b", "A")
		p.mu.Lock()
		p.becomeLocked("b", "B")
		p.mu.Unlock()
		engagedAs(p, "b", "B")
		if err := p.admit("a", "B"); !isDuplicate(err) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("the other is confirmed as a third, which it is not", func(t *testing.T) {
		p := NewProvider(Options{})
		waiting(p, "a", "A", "B")
		waiting(p, "b", "B", "A")
		p.Accept("a", "B")
		p.Accept("b", "C")
		if err := p.admit("a", "B"); !isIdentity(err) {
			t.Errorf("got %v", err)
		}
	})
}

// Lifecycle.Replaced is called only for spokes that become another cluster or are confirmed.
func TestOnIdentity(t *testing.T) {
	for name, tc := range map[string]struct {
		was, accepted, is string
		forgot            bool
		want              bool
	}{
		"it was lost with its kind":        {forgot: true, is: "A", want: true},
		"as before, and nothing was lost":  {was: "A", forgot: true, is: "A"},
		"the first time":                   {is: "A"},
		"as before":                        {was: "A", is: "A"},
		"another one":                      {was: "A", is: "B", want: true},
		"another one, confirmed":           {was: "A", accepted: "B", is: "B", want: true},
		"the same, confirmed":              {was: "A", accepted: "A", is: "A", want: true},
		"the same, another's confirmation": {was: "A", accepted: "B", is: "A"},
	} {
		t.Run(name, func(t *testing.T) {
			p := NewProvider(Options{})
			told := 0
			p.life.Replaced = append(p.life.Replaced, func(string) { told++ })
			p.Known("s", tc.was)
			p.Accept("s", tc.accepted)
			if tc.forgot {
				p.Forgot("s")
			}
			for range 2 { // the second time, it has been that cluster, unless it still is confirmed
				p.mu.Lock()
				p.becomeLocked("s", tc.is)
				p.mu.Unlock()
				if (told > 0) != tc.want {
					t.Errorf("told %d times", told)
				}
				if tc.accepted == "" {
					told, tc.want = 0, false
				}
			}
		})
	}
	t.Run("confirmed while it is served", func(t *testing.T) {
		p := NewProvider(Options{})
		told := 0
		p.life.Replaced = append(p.life.Replaced, func(string) { told++ })
		engagedAs(p, "s", "A")
		p.Accept("s", "B")
		if told != 0 {
			t.Error("of another's confirmation")
		}
		p.Accept("s", "A")
		p.Accept("s", "A")
		p.Accept("s", "")
		if told != 1 {
			t.Errorf("told %d times", told)
		}
	})
}

func isDuplicate(err error) bool {
	_, ok := errors.AsType[*duplicateError](err)
	return ok
}

// After a restart, a spoke that took over from others knows of them before it is served, or it would remove
// their rules.
func TestPredecessorsAreKnown(t *testing.T) {
	p := NewProvider(Options{})
	for _, name := range []string{"former", "unlabeled", "keyless", "s"} {
		p.Known(name, "c")
		if name != "s" {
			p.Release(name)
		}
	}
	if err := p.admit("s", "c"); err != nil {
		t.Errorf("it is not admitted: %v", err)
	}
	engagedAs(p, "s", "c")
	if got := p.Predecessors("s"); len(got) != 3 {
		t.Errorf("it took over from %q", got)
	}
}

// The new identity of a spoke whose identity was lost is reported, with its time.
func TestForgot(t *testing.T) {
	p, told := NewProvider(Options{}), 0
	p.life.Replaced = append(p.life.Replaced, func(string) { told++ })
	become := func(name, identity string) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.becomeLocked(name, identity)
	}
	p.Forgot("s")
	p.Known("known", "A")
	become("s", "A")
	become("known", "A")
	engagedAs(p, "s", "A")
	p.entries["s"].seen = &Observation{Identity: "A"}
	if seen := p.Observation("s"); told != 1 || seen.IdentityTime.IsZero() {
		t.Errorf("told %d times, and seen is %+v", told, seen)
	}
	p.Gone("s")
	p.Forgot("s")
	p.Gone("s") // before it was connected
	become("s", "B")
	if told != 1 {
		t.Errorf("told %d times when it is another one", told)
	}
}

// A spoke whose SpokeCluster is gone does not hand anything down to one of the same name.
func TestGone(t *testing.T) {
	p := NewProvider(Options{})
	p.Known("s", "was")
	p.leaving["s"] = &departure{state: Departure{Done: true}, cancel: func() {}}
	if p.admit("s", "is") == nil {
		t.Fatal("it may be another cluster")
	}
	p.Gone("s")
	if p.leaving["s"] != nil {
		t.Error("it has left already")
	}
	if err := p.admit("s", "is"); err != nil {
		t.Errorf("it is taken for the former: %v", err)
	}
}

// If the account may not read the namespace with the identity, the status names the permission.
func TestIdentityIsForbidden(t *testing.T) {
	s, c, _ := connectTo(t)
	s.set(func(s *standIn) { s.refuse[pathSystem] = http.StatusForbidden })
	_, err := c.readIdentity(asProbe(t.Context()))
	if f := disconnected(err); !apierrors.IsForbidden(err) || f.Reason != v1alpha1.ReasonForbidden || !strings.Contains(f.Message, "lacks permissions: get namespaces; run kubectl rulefleet join again") {
		t.Errorf("%v is shown as %+v", err, f)
	}
}
