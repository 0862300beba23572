package brake

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/rulefleet/rulefleet/pkg/rule"
)

// braked is a Brake that records its callbacks.
type braked struct {
	*testing.T
	*Brake

	clock   *testingclock.FakePassiveClock
	woken   map[string]int // by hop and spoke
	changes int
}

func newBraked(t *testing.T, span time.Duration) *braked {
	t.Helper()
	b := &braked{T: t, clock: testingclock.NewFakePassiveClock(start), woken: map[string]int{}}
	b.Brake = New(b.clock, span)
	b.changed.Listen(func(string) { b.Held("s"); b.changes++ }) // Held: the lock is free
	for _, hop := range hops {
		b.released[hop].Listen(func(w woken) {
			b.Held(w.spoke)
			b.woken[string(hop)+" "+w.spoke] += len(w.owners)
		})
	}
	return b
}

// mass wants 60 deletions of a spoke with as many rules, and returns how many are held.
func (b *braked) mass(hop Hop, spoke string) int {
	b.Helper()
	held := 0
	for n := range 60 {
		answer, err := b.Ask(Question{
			Hop: hop, Spoke: spoke, Owner: name(n), Deletions: []Deletion{{Key: name(n)}},
			Holds: func() (sets.Set[key], error) { b.Held(spoke); return keys(60), nil },
		})
		if err != nil {
			b.Fatal(err)
		}
		if held += answer.Held.Len(); (answer.Held.Len() > 0) != (answer.Wait > 0) {
			b.Fatalf("got %+v", answer)
		}
	}
	return held
}

// sixty says that a spoke has 60 rules.
func sixty() (sets.Set[key], error) { return keys(60), nil }

// Each spoke and each hop has its own count.
func TestApart(t *testing.T) {
	b := newBraked(t, span)
	for _, name := range []string{"s", "other"} {
		for _, hop := range hops {
			if n := b.mass(hop, name); n != 40 {
				t.Errorf("%s for %s: %d are held", hop, name, n)
			}
		}
	}
	if n := b.Acknowledge("s", nil); n != 80 || b.woken["generate s"] != 40 || b.woken["distribute s"] != 40 || len(b.woken) != 2 {
		t.Errorf("%d acknowledged, and woken are %v", n, b.woken)
	}
	if b.mass(Generate, "s") != 0 || b.mass(Generate, "other") != 40 {
		t.Error("the acknowledgement is not that spoke's")
	}
	b.drop("other")
	if b.mass(Generate, "other") != 40 || len(b.spokes) != 2 {
		t.Error("a spoke that is gone is remembered")
	}
}

// What the SpokeCluster shows.
func TestPublish(t *testing.T) {
	b := newBraked(t, span)
	b.mass(Generate, "s")
	b.mass(Distribute, "s")
	if b.Held("s") != nil {
		t.Error("it is shown already")
	}
	p := b.publish("s", true)
	if p.was != nil || p.is == nil || p.is.Count != 80 || len(p.is.Names) != 50 || p.next != span || !p.is.Equal(b.Held("s")) {
		t.Fatalf("got %+v with %+v", p, p.is)
	}
	for _, words := range []string{
		"40 AlertRules will be deleted at 2001-09-09T01:56:40Z, because workloads or templates are gone or no longer match (20 others were deleted before, within the limit). ",
		"40 PrometheusRules will be deleted at 2001-09-09T01:56:40Z, because rules on the hub are gone, disabled or no longer placed on the spoke (20 others were deleted before, within the limit). ",
		"To keep the rules, restore the workloads or templates, and restore the rules on the hub", `kubectl patch spoke s --type=merge -p '{"spec":{"suspend":true}}'. `,
		"To delete them now: kubectl annotate spoke s rulefleet.io/acknowledge-deletions=true",
	} {
		if !strings.Contains(p.is.Message, words) {
			t.Errorf("it does not say %q: %s", words, p.is.Message)
		}
	}
	if len(p.is.Message) > 1000 {
		t.Errorf("the message has %d bytes, which an Event does not take", len(p.is.Message))
	}
	if again := b.publish("s", true); !again.was.Equal(again.is) {
		t.Errorf("it changed without a reason: %+v", again.is)
	}
	// Nobody asks when the time is over, for example because the spoke is away.
	b.clock.SetTime(at(span))
	if p = b.publish("s", true); p.was == nil || p.is != nil || p.ended != waited || b.woken["generate s"] != 40 || p.held[Generate] != 0 {
		t.Errorf("got %+v, and woken are %v", p, b.woken)
	}
	if b.changes < 2 {
		t.Errorf("it told of %d changes", b.changes)
	}
	changes := b.changes
	if _, err := b.Ask(Question{Hop: Generate, Spoke: "new", Owner: name(1)}); err != nil || b.changes != changes || len(b.spokes) != 1 {
		t.Errorf("a question without a deletion is kept, or told of: %v", err)
	}
}

// Deletions held before a restart are shown until they are held again or no longer wanted.
func TestRecall(t *testing.T) {
	shown := &Held{Count: 40, Names: []string{"a/b"}, Message: "held"}
	b := newBraked(t, span)
	b.Recall("s", shown, time.Time{})
	b.Recall("well", nil, time.Time{})
	if p := b.publish("s", true); !b.unsettled("s") || !p.is.Equal(shown) || p.next != settling || len(b.spokes) != 1 {
		t.Errorf("got %+v", p)
	}
	if n := b.mass(Generate, "s"); n != 60 {
		t.Errorf("%d are held", n)
	}
	if p := b.publish("s", true); b.unsettled("s") || !p.was.Equal(shown) || p.is.Count != 60 {
		t.Errorf("got %+v", p)
	}

	b = newBraked(t, span)
	b.Recall("s", shown, time.Time{})
	b.clock.SetTime(at(settling))
	if p := b.publish("s", true); b.unsettled("s") || !p.was.Equal(shown) || p.is != nil {
		t.Errorf("got %+v", p)
	}
}

// suspects wants 60 suspect deletions of spoke s, and returns how many are held.
func (b *braked) suspects(hop Hop) int {
	b.Helper()
	held := 0
	for n := range 60 {
		answer, err := b.Ask(Question{Hop: hop, Spoke: "s", Owner: name(n), Deletions: []Deletion{suspect(n)}})
		if err != nil {
			b.Fatal(err)
		}
		if held += answer.Held.Len(); (answer.Held.Len() > 0) != (answer.Wait > 0) {
			b.Fatalf("got %+v", answer)
		}
	}
	return held
}

// Suspects need an acknowledgement whatever the span is, and are shown until then.
func TestSuspectsOfASpoke(t *testing.T) {
	for _, span := range []time.Duration{span, 0} {
		t.Run(span.String(), func(t *testing.T) {
			b := newBraked(t, span)
			if n := b.suspects(Distribute); n != 60 {
				t.Fatalf("%d are held", n)
			}
			p := b.publish("s", true)
			if p.is == nil || p.is.Count != 60 || p.is.Suspects != 60 || len(p.is.Names) != 50 || p.next != 0 {
				t.Fatalf("got %+v with %+v", p, p.is)
			}
			for _, words := range []string{
				"The deletion of 60 PrometheusRules waits until you decide, without a time limit. ", "may have been lost", "restore or recreate the AlertRules, RulePacks, templates and labels of SpokeClusters",
				"kubectl annotate spoke s rulefleet.io/acknowledge-deletions=true",
			} {
				if !strings.Contains(p.is.Message, words) {
					t.Errorf("it does not say %q: %s", words, p.is.Message)
				}
			}
			if strings.Contains(p.is.Message, "To gain time") {
				t.Errorf("there is no time limit: %s", p.is.Message)
			}
			if len(b.Owners(Distribute, "s")) != 60 || len(b.Owners(Generate, "s")) != 0 {
				t.Error("the owners are others")
			}
			b.clock.SetTime(at(365 * 24 * time.Hour))
			if p := b.publish("s", true); b.suspects(Distribute) != 60 || !p.is.Equal(p.was) {
				t.Errorf("a year later: %+v", p.is)
			}

			// After a restart they are shown until they are detected again, and other deletions are not held because
			// of them.
			shown := b.Held("s")
			again := newBraked(t, span)
			again.Recall("s", shown, time.Time{})
			if p := again.publish("s", true); !p.is.Equal(shown) {
				t.Errorf("after a restart: %+v", p.is)
			}
			if n := len(again.few(20)); n != 0 {
				t.Errorf("after a restart %d others are held", n)
			}
			if n := again.suspects(Distribute); n != 60 {
				t.Errorf("after a restart %d are held", n)
			}

			// One of them is decided otherwise.
			answer, err := b.Ask(Question{Hop: Distribute, Spoke: "s", Owner: name(59), Deletions: []Deletion{{Key: name(59)}}, Holds: sixty})
			if err != nil || answer.Held.Len() != 0 || b.spokes["s"].ledgers[Distribute].ended != decided {
				t.Errorf("got %+v, %v", answer, err)
			}
			// Suspects that are not named can't be acknowledged.
			b.suspects(Distribute)
			p = b.publish("s", true)
			if !strings.Contains(p.is.Message, "To delete the 50 in status.pendingDeletions.names: kubectl") {
				t.Errorf("it does not say how many are named: %s", p.is.Message)
			}
			if n := b.Acknowledge("s", p.is.Names); n != 50 || b.woken["distribute s"] != 50 || b.suspects(Distribute) != 10 || b.Brake.suspects("s") != 10 {
				t.Errorf("%d were acknowledged", n)
			}
			if n := b.Acknowledge("s", p.is.Names); n != 0 {
				t.Errorf("%d were acknowledged by names of before", n)
			}
			p = b.publish("s", true)
			if n := b.Acknowledge("s", p.is.Names); n != 10 || b.woken["distribute s"] != 60 || b.suspects(Distribute) != 0 {
				t.Errorf("%d were acknowledged then", n)
			}
			if p := b.publish("s", true); p.is != nil || p.ended != acknowledged {
				t.Errorf("got %+v", p)
			}
		})
	}
}

// few wants some deletions, and returns those that are held.
func (b *braked) few(n int) (held []key) {
	b.Helper()
	for i := range n {
		key := name(1000 + i)
		answer, err := b.Ask(Question{
			Hop: Distribute, Spoke: "s", Owner: key, Deletions: []Deletion{{Key: key}}, Holds: sixty,
		})
		if err != nil {
			b.Fatal(err)
		}
		held = append(held, answer.Held.UnsortedList()...)
	}
	return held
}

// The longest message fits into an Event.
func TestMessage(t *testing.T) {
	b := newBraked(t, span)
	b.Beware("s")
	for _, hop := range hops {
		b.suspects(hop)
		for n := range 60 {
			if _, err := b.Ask(Question{
				Hop: hop, Spoke: "s", Owner: name(100 + n), Deletions: []Deletion{{Key: name(100 + n)}}, Holds: sixty,
			}); err != nil {
				t.Fatal(err)
			}
		}
	}
	p := b.publish("s", true)
	if p.is.Count != 240 || p.is.Suspects != 120 || p.next != span {
		t.Errorf("got %+v with %+v", p, p.is)
	}
	if !strings.Contains(p.is.Message, "To delete the 50 in status.pendingDeletions.names, and all that have a time limit: kubectl") {
		t.Errorf("it does not say what else an acknowledgement releases: %s", p.is.Message)
	}
	if len(p.is.Message) > 1000 {
		t.Errorf("the message has %d bytes: %s", len(p.is.Message), p.is.Message)
	}
	t.Log(p.is.Message)
}

// While the spoke is away nobody asks, and the held deletions stay. When it is back, all its deletions are
// held.
func TestRecallOfASpokeThatIsAway(t *testing.T) {
	shown := &Held{Count: 40, Names: []string{"a/b"}, Message: "held"}
	b := newBraked(t, span)
	b.Recall("s", shown, time.Time{})
	for range 5 {
		b.clock.SetTime(b.clock.Now().Add(span))
		if p := b.publish("s", false); !b.unsettled("s") || !p.is.Equal(shown) || p.next != settling {
			t.Fatalf("got %+v", p)
		}
	}
	if n := b.mass(Generate, "s"); n != 60 {
		t.Errorf("%d are held", n)
	}
}

// Without a span, nothing is held.
func TestOff(t *testing.T) {
	b := newBraked(t, 0)
	b.Recall("s", &Held{Count: 1}, time.Time{})
	if n := b.mass(Generate, "s"); n != 0 || len(b.spokes) != 0 {
		t.Errorf("%d are held", n)
	}
}

// One acknowledgement covers both hops, even without a span.
func TestVouchWithoutASpan(t *testing.T) {
	b := newBraked(t, 0)
	b.suspects(Generate)
	b.Acknowledge("s", b.publish("s", true).is.Names)
	for n := range 50 {
		b.Vouch("s", name(n), "uid")
	}
	if n := b.suspects(Distribute); n != 10 {
		t.Errorf("%d are held", n)
	}
	for n := range 60 { // they are gone
		if _, err := b.Ask(Question{Hop: Distribute, Spoke: "s", Owner: name(n)}); err != nil {
			t.Fatal(err)
		}
	}
	if owners := b.spokes["s"].ledgers[Distribute].owners; len(owners) != 0 {
		t.Errorf("remembered are %v", owners)
	}
}

// Suspects are named first: other held deletions do not need to be named.
func TestNames(t *testing.T) {
	b := newBraked(t, span)
	b.mass(Generate, "s")
	key := rule.AlertRuleKey("z", "suspect")
	if _, err := b.Ask(Question{Hop: Distribute, Spoke: "s", Owner: key, Deletions: []Deletion{{Key: key, Suspect: true}}}); err != nil {
		t.Fatal(err)
	}
	if names := b.publish("s", true).is.Names; len(names) != 41 || names[0] != "z/suspect" || !slices.IsSorted(names[1:]) {
		t.Errorf("named are %q", names)
	}
}

// An acknowledgement of an AlertRule's deletion does not release that of another kind with the same name.
func TestKinds(t *testing.T) {
	b := newBraked(t, span)
	for _, kind := range []string{"AlertRule", "RulePack"} {
		key := key{Kind: kind, Namespace: "z", Name: "suspect"}
		if _, err := b.Ask(Question{Hop: Distribute, Spoke: "s", Owner: key, Deletions: []Deletion{{Key: key, Suspect: true}}}); err != nil {
			t.Fatal(err)
		}
	}
	if names := b.publish("s", true).is.Names; !slices.Equal(names, []string{"z/suspect", "RulePack z/suspect"}) {
		t.Errorf("named are %q", names)
	}
	if n := b.Acknowledge("s", []string{"z/suspect"}); n != 1 || b.Brake.suspects("s") != 1 {
		t.Errorf("%d are released, and %d are held", n, b.Brake.suspects("s"))
	}
}

func TestHoldsFails(t *testing.T) {
	b := newBraked(t, span)
	broken := errors.New("no answer")
	_, err := b.Ask(Question{Hop: Generate, Spoke: "s", Owner: name(1), Deletions: []Deletion{{Key: name(1)}}, Holds: func() (sets.Set[key], error) { return nil, broken }})
	if !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}

// The limit holds for any number of concurrent workers.
func TestConcurrently(t *testing.T) {
	b := newBraked(t, span)
	b.changed.Listen(func(string) {})
	var mu sync.Mutex
	var wg sync.WaitGroup
	var went []key
	for worker := range 8 {
		wg.Go(func() {
			for n := worker; n < 60; n += 8 {
				answer, err := b.Ask(Question{
					Hop: Generate, Spoke: "s", Owner: name(n), Deletions: []Deletion{{Key: name(n)}},
					Holds: sixty,
				})
				if err == nil && answer.Held.Len() == 0 {
					mu.Lock()
					went = append(went, name(n))
					mu.Unlock()
				}
				b.publish("s", true)
			}
		})
	}
	wg.Wait()
	slices.SortFunc(went, compare)
	if len(slices.Compact(went)) != free {
		t.Errorf("%d went", len(went))
	}
}
