package brake

import (
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/rulefleet/rulefleet/pkg/spoke"
)

// After a spoke became another cluster, even the first few deletions are held.
func TestBeware(t *testing.T) {
	for which, hop := range map[string]Hop{"generate": Generate, "distribute": Distribute} {
		t.Run(which, func(t *testing.T) {
			b := newBraked(t, span)
			b.Beware("s")
			ask := func(spoke string, n int) bool {
				t.Helper()
				answer, err := b.Ask(Question{
					Hop: hop, Spoke: spoke, Owner: name(n), Deletions: []Deletion{{Key: name(n)}}, Holds: func() (sets.Set[key], error) { return keys(1000), nil },
				})
				if err != nil {
					t.Fatal(err)
				}
				return answer.Held.Len() > 0
			}
			if !ask("s", 0) || ask("other", 0) {
				t.Error("the first goes at once, or another spoke is concerned")
			}
			b.clock.SetTime(at(span - time.Second))
			if !ask("s", 1) {
				t.Error("the span is not over")
			}
			b.clock.SetTime(at(span))
			if ask("s", 0) || ask("s", 1) || ask("s", 2) {
				t.Error("the span is over")
			}
		})
	}
}

// An acknowledgement releases them as usual.
func TestBewareAcknowledged(t *testing.T) {
	b := newBraked(t, span)
	b.Beware("s")
	if n := b.mass(Generate, "s"); n != 60 {
		t.Errorf("%d are held", n)
	}
	if n := b.Acknowledge("s", nil); n != 60 || b.mass(Generate, "s") != 0 {
		t.Errorf("%d were acknowledged", n)
	}
}

// Releases and vouches concerned the former cluster, and waiting there does not release what is held.
func TestBewareOfWhatWasDecided(t *testing.T) {
	t.Run("acknowledged", func(t *testing.T) {
		b := newBraked(t, span)
		b.mass(Distribute, "s")
		b.Acknowledge("s", nil)
		b.Beware("s")
		if n := b.mass(Distribute, "s"); n != 60 {
			t.Errorf("%d are held", n)
		}
	})
	t.Run("vouched for", func(t *testing.T) {
		b := newBraked(t, span)
		for n := range 60 {
			b.Vouch("s", name(n), "uid")
		}
		b.Beware("s")
		if n := b.mass(Distribute, "s"); n != 60 {
			t.Errorf("%d are held", n)
		}
	})
	t.Run("held", func(t *testing.T) {
		b := newBraked(t, span)
		b.mass(Distribute, "s")
		b.clock.SetTime(at(span - time.Second))
		b.Beware("s")
		b.clock.SetTime(at(span))
		if n := b.mass(Distribute, "s"); n != 60 {
			t.Errorf("%d are held", n)
		}
	})
}

// After a restart, a spoke is treated as before it, and others are not affected.
func TestBewareRecalled(t *testing.T) {
	for name, tc := range map[string]struct {
		identified time.Time
		until      time.Duration // 0 is not wary
	}{
		"never":                   {},
		"a while ago":             {at(-span / 2), span / 2},
		"a span ago":              {at(-span), 0},
		"by a clock that is fast": {at(100 * span), span},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBraked(t, span)
			b.Recall("s", nil, tc.identified)
			if tc.until == 0 {
				if n := len(b.few(free)); n != 0 {
					t.Errorf("%d are held", n)
				}
				return
			}
			if n := len(b.few(1)); n != 1 {
				t.Error("the first goes at once")
			}
			b.clock.SetTime(at(tc.until - time.Second))
			if n := len(b.few(free)); n != free {
				t.Errorf("%d are held before the span is over", n)
			}
			b.clock.SetTime(at(tc.until + span))
			if n := b.mass(Distribute, "s"); n != 60-free {
				t.Errorf("%d are held", n)
			}
		})
	}
}

// Without a span, nothing is held.
func TestBewareOff(t *testing.T) {
	b := newBraked(t, 0)
	b.Beware("s")
	if n := b.mass(Generate, "s"); n != 0 || len(b.spokes) != 0 {
		t.Errorf("%d are held", n)
	}
}

// The message says why even a single deletion is held. The kubeconfig is a remedy only if the cluster is the cause.
func TestWhyAll(t *testing.T) {
	const (
		cluster    = "Every deletion is held, because the identity of the cluster changed or was recorded again."
		restart    = "Every deletion is held, because the manager was restarted while deletions were held."
		kubeconfig = "restore the former kubeconfig"
	)
	shown := &Held{Count: 1, Names: []string{"a/b"}, Message: "held"}
	for name, tc := range map[string]struct {
		before func(*braked)
		says   []string
	}{
		"many deletions": {func(*braked) {}, nil},
		"the cluster":    {func(b *braked) { b.Beware("s") }, []string{cluster, kubeconfig}},
		"a restart":      {func(b *braked) { b.Recall("s", shown, time.Time{}) }, []string{restart}},
		"a restart, after the cluster became another one": {func(b *braked) { b.Recall("s", shown, start) }, []string{cluster, kubeconfig}},
		"a restart, long after that":                      {func(b *braked) { b.Recall("s", shown, at(-span)) }, []string{restart}},
		"an acknowledgement": {func(b *braked) {
			b.Beware("s")
			b.mass(Distribute, "s")
			b.Acknowledge("s", nil)
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBraked(t, span)
			tc.before(b)
			b.mass(Generate, "s")
			message := b.publish("s", true).is.Message
			if len(message) > spoke.MaxNote {
				t.Errorf("the message has %d bytes, which an Event does not take", len(message))
			}
			for _, words := range []string{cluster, restart, kubeconfig} {
				if want := slices.Contains(tc.says, words); strings.Contains(message, words) != want {
					t.Errorf("%q: want %t: %s", words, want, message)
				}
			}
		})
	}
}

// An Event takes the whole message, with the command at its end: if there is no room, the advice to gain time is
// left out.
func TestMessageFitsIntoAnEvent(t *testing.T) {
	for _, length := range []int{1, 63, 253} {
		b, spokeName := newBraked(t, span), strings.Repeat("s", length)
		b.Beware(spokeName)
		b.mass(Generate, spokeName)
		b.mass(Distribute, spokeName)
		message := b.publish(spokeName, true).is.Message
		if len(message) > spoke.MaxNote || !strings.HasSuffix(message, "spoke "+spokeName+" rulefleet.io/acknowledge-deletions=true") || strings.Contains(message, "To gain time") != (length < 253) {
			t.Errorf("a name of %d: %d bytes: %s", length, len(message), message)
		}
	}
}
