package contest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/rulefleet/rulefleet/pkg/interval"
	"github.com/rulefleet/rulefleet/pkg/live"
	"github.com/rulefleet/rulefleet/pkg/rule"
)

var (
	source = rule.AlertRuleKey("rulefleet", "down")
	object = Object{Spoke: "eu-1", Kind: "PrometheusRule", NamespacedName: types.NamespacedName{Namespace: "shop", Name: "down"}}
	write  = Write{Object: object, Rule: source, Meant: "a"}
	at     = metav1.Unix(1e9, 0)
	ours   = &metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{{Manager: Manager, Time: &at}}}
	theirs = &metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "argocd-controller", Time: &at}}}
)

// front is a contest between the operator and another client.
type front struct {
	*testing.T
	*Writes

	clock   *testingclock.FakePassiveClock
	version int
}

func newFront(t *testing.T) *front {
	t.Helper()
	c := testingclock.NewFakePassiveClock(time.Unix(1e9, 0))
	return &front{T: t, Writes: New(c, 0), clock: c}
}

// lost has a write refused, because the object has a new version each time.
func (f *front) lost() time.Duration {
	f.version++
	return f.Lost(write, strconv.Itoa(f.version)).Wait
}

func (f *front) pass(d time.Duration) { f.clock.SetTime(f.clock.Now().Add(d)) }

// again makes a write as soon as it is allowed, and returns how long that took.
func (f *front) again(write Write) time.Duration {
	f.Helper()
	began := f.clock.Now()
	for turn := f.Ask(write); turn.Wait > 0; turn = f.Ask(write) {
		if turn.News {
			f.Blame(write.Object, theirs)
		}
		f.pass(turn.Wait)
	}
	f.Wrote(write, ours)
	return f.clock.Now().Sub(began)
}

func (f *front) shown() (message string, again time.Duration) {
	f.Helper()
	message, again = f.InSpoke(object.Spoke)
	if of, _ := f.OfRule(object.Kind, source, object.Spoke); of != message {
		f.Errorf("the spoke shows %q, and the rule %q", message, of)
	}
	return message, again
}

// TestDelays reverts every write at once.
func TestDelays(t *testing.T) {
	f := newFront(t)
	var delays []time.Duration
	writes, began := 0, f.clock.Now()
	f.again(write)
	for range 14 {
		delays = append(delays, f.again(write))
		if f.clock.Now().Sub(began) <= time.Minute {
			writes++
		}
	}
	s, m := time.Second, time.Minute
	want := []time.Duration{0, s, 2 * s, 4 * s, 8 * s, 16 * s, 32 * s, 64 * s, 128 * s, 4 * m, 4 * m, 4 * m, 4 * m, 4 * m}
	if !slices.Equal(delays, want) {
		t.Errorf("the delays are %v, want %v", delays, want)
	}
	if writes > 12 {
		t.Errorf("%d writes in the first minute", writes)
	}
}

func TestScaledDelays(t *testing.T) {
	c := testingclock.NewFakePassiveClock(time.Unix(1e9, 0))
	f := &front{T: t, Writes: New(c, interval.Scale(0.1)), clock: c}
	f.again(write)
	f.again(write)
	if d := f.again(write); d != 100*time.Millisecond {
		t.Errorf("the second undo waits %v", d)
	}
}

func TestAsk(t *testing.T) {
	other := write
	other.Meant = "b"
	forgotten := func(f *front) {
		f.again(write)
		f.again(write)
		f.again(write)
		f.pass(memory - sweepInterval/2)
		f.InSpoke("")
		f.pass(sweepInterval / 2)
	}
	for name, tc := range map[string]struct {
		play func(f *front)
		want Turn
	}{
		"the first write":            {play: func(*front) {}},
		"another write":              {play: func(f *front) { f.again(other) }},
		"the first undo":             {play: func(f *front) { f.again(write) }},
		"the second undo":            {play: func(f *front) { f.again(write); f.again(write) }, want: Turn{Wait: time.Second, News: true}},
		"the second undo once more":  {play: func(f *front) { f.again(write); f.again(write); f.Ask(write); f.pass(time.Second / 4) }, want: Turn{Wait: 3 * time.Second / 4}},
		"the second undo was waited": {play: func(f *front) { f.again(write); f.again(write); f.Ask(write); f.pass(time.Second) }},
		"the write failed": {play: func(f *front) {
			f.again(write)
			f.again(write)
			f.Ask(write)
			f.pass(time.Minute) // and was not made
			f.Ask(write)
		}},
		"it is meant to be something else": {play: func(f *front) { f.again(write); f.again(write); f.again(write); f.again(other) }},
		"an edit takes nothing back": {
			play: func(f *front) { f.again(other); f.again(other); f.again(other); f.again(write) }, // 2 undos
			want: Turn{Wait: 2 * time.Second, News: true},
		},
		"an edit while it waits": {
			play: func(f *front) { f.again(other); f.again(other); f.Ask(other); f.again(write) },
			want: Turn{Wait: 2 * time.Second, News: true},
		},
		"the write before stood for long": {play: func(f *front) { f.again(write); f.again(write); f.again(write); f.pass(memory) }},
		"the write before stood for long, and what is forgotten was looked for shortly before": {play: forgotten},
		"another contest after that, and what is forgotten was looked for shortly before": {
			play: func(f *front) { forgotten(f); f.again(write); f.again(write) },
			want: Turn{Wait: time.Second, News: true},
		},
		"an undo shortly before the write would be forgotten": {
			play: func(f *front) {
				f.again(write)
				f.again(write)
				f.again(write)
				f.pass(memory - time.Second)
				f.Ask(write)
				f.pass(time.Second)
			},
			want: Turn{Wait: time.Second},
		},
		"the write before stood for a while": {
			play: func(f *front) { f.again(write); f.again(write); f.again(write); f.pass(memory - time.Second) },
			want: Turn{Wait: 2 * time.Second, News: true},
		},
		"it stood for long, and the next undo": {play: func(f *front) {
			f.again(write)
			f.again(write)
			f.again(write)
			f.pass(memory)
			f.again(write)
		}},
		"an edit after it stood for long": {play: func(f *front) {
			f.again(write)
			f.again(write)
			f.again(write)
			f.pass(memory)
			f.again(other)
			f.again(write)
		}},
		"another object": {play: func(f *front) {
			o := write
			o.Name = "other"
			f.again(o)
			f.again(o)
		}},
		"the spoke left":          {play: func(f *front) { f.again(write); f.again(write); f.again(write); f.ForgetSpoke("eu-1"); f.again(write) }},
		"the spoke left in peace": {play: func(f *front) { f.again(write); f.ForgetSpoke("eu-1"); f.again(write) }},
		"another spoke left": {
			play: func(f *front) { f.again(write); f.again(write); f.ForgetSpoke("us-1") },
			want: Turn{Wait: time.Second, News: true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFront(t)
			tc.play(f)
			if got := f.Ask(write); got != tc.want {
				t.Errorf("Ask returns %+v, want %+v", got, tc.want)
			}
		})
	}
}

// TestLost has another client that is always faster than the operator.
func TestLost(t *testing.T) {
	f := newFront(t)
	f.Ask(write)
	if d := f.lost(); d != 0 {
		t.Errorf("a write that was refused once waits %v", d)
	}
	f.again(write)
	f.Ask(write)
	if d := f.lost(); d != 0 {
		t.Errorf("a write that was undone once waits %v", d)
	}
	f.Wrote(write, ours)
	f.pass(f.Ask(write).Wait)
	for _, want := range []time.Duration{2 * time.Second, 4 * time.Second, 8 * time.Second} {
		if d := f.lost(); d != want || f.Ask(write).Wait != want {
			t.Errorf("it waits %v, want %v", d, want)
		}
		f.pass(want)
	}
	f.Wrote(write, ours)
	if d := f.lost(); d != 0 {
		t.Errorf("after a write that was not undone, it waits %v", d)
	}
}

// TestNeverFirst has another client that is always faster, so that no write succeeds.
func TestNeverFirst(t *testing.T) {
	other := write
	other.Meant = "b"
	for name, tc := range map[string]struct {
		// between is called before each refused write. It returns the version on which the write is based.
		between func(f *front, n int) string
		want    bool
	}{
		"from the start":                {want: true},
		"after a write that stands":     {between: func(f *front, n int) string { f.once(n == 0, func() { f.Wrote(other, ours) }); return "" }, want: true},
		"after a contest of another":    {between: func(f *front, n int) string { f.once(n == 0, func() { f.again(other); f.again(other) }); return "" }, want: true},
		"the cache is behind":           {between: func(*front, int) string { return "same" }},
		"a write succeeds meanwhile":    {between: func(f *front, n int) string { f.once(n == 2, func() { f.Wrote(other, ours) }); return "" }},
		"it is as intended meanwhile":   {between: func(f *front, n int) string { f.once(n == 2, func() { f.Stands(object) }); return "" }},
		"the spoke leaves meanwhile":    {between: func(f *front, n int) string { f.once(n == 2, func() { f.ForgetSpoke("eu-1") }); return "" }},
		"now and then":                  {between: func(f *front, _ int) string { f.pass(refusedWithin); return "" }},
		"the intention changed in time": {between: func(f *front, n int) string { f.once(n == 2, func() { f.Ask(other) }); return "" }, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFront(t)
			for n := range refusedFrom {
				base := ""
				if tc.between != nil {
					base = tc.between(f, n)
				}
				if base == "" {
					f.version++
					base = strconv.Itoa(f.version)
				}
				turn := f.Lost(write, base)
				contested := n == refusedFrom-1 && tc.want
				if (turn != Turn{}) != contested || contested && (turn.Wait != firstDelay || !turn.News) {
					t.Errorf("refusal %d: %+v", n, turn)
				}
			}
			if message, _ := f.shown(); (message != "") != tc.want {
				t.Errorf("shown is %q", message)
			}
			if !tc.want {
				return
			}
			for want := 2 * firstDelay; want < maxDelay; want *= 2 {
				f.pass(f.Ask(write).Wait)
				if d := f.lost(); d != want {
					t.Errorf("it waits %v, want %v", d, want)
				}
			}
			f.pass(f.Ask(write).Wait)
			f.Wrote(write, ours)
			f.pass(hiddenAfter)
			if message, _ := f.shown(); message != "" {
				t.Errorf("after its end it shows %q", message)
			}
		})
	}
}

// once calls a function if it is time.
func (f *front) once(now bool, fn func()) {
	if now {
		fn()
	}
}

// TestShown tests what is shown of a contest.
func TestShown(t *testing.T) {
	f := newFront(t)
	expect := func(when, words string, again time.Duration) {
		t.Helper()
		if message, left := f.shown(); (words == "") != (message == "") || !strings.Contains(message, words) || left != again {
			t.Errorf("%s: %q, again after %v; want %q, %v", when, message, left, words, again)
		}
	}
	f.again(write)
	expect("written", "", 0)
	f.Ask(write)
	expect("undone", "", 0)
	f.Wrote(write, ours)
	expect("put right", "", 0)
	f.Ask(write)
	expect("undone twice", "an unknown client changes PrometheusRule shop/down back after each write (2 times)", 31*time.Second)
	f.Blame(object, theirs)
	expect("by somebody", `field manager "argocd-controller" changes`, 31*time.Second)
	f.pass(time.Second)
	f.Wrote(write, ours)
	expect("it may be undone again", "argocd-controller", 30*time.Second)
	f.pass(30 * time.Second)
	expect("it stands", "", 0)

	f.Ask(write)
	expect("undone after it stood for 30 seconds", "3 times", 32*time.Second)
	f.Stands(object)
	expect("they gave in", "3 times", 75*time.Second)
	f.pass(75 * time.Second)
	expect("and leave it so", "", 0)

	f.Ask(write)
	f.pass(4*time.Second + late)
	expect("nobody wants to write it any more", "", 0)
}

// TestOpponents lets each write last for a while, over a day. From the second revert on, the object is always
// shown as contested, and the end is shown in time.
func TestOpponents(t *testing.T) {
	random := func(longest time.Duration) func(int) time.Duration {
		r := rand.New(rand.NewPCG(1, uint64(longest)))
		return func(int) time.Duration { return time.Duration(r.Int64N(int64(longest))) }
	}
	always := func(d time.Duration) func(int) time.Duration { return func(int) time.Duration { return d } }
	const s, m = time.Second, time.Minute
	for name, stands := range map[string]func(round int) time.Duration{
		"at once": always(0), "1 s": always(s), "30 s": always(30 * s), "150 s": always(150 * s),
		"4 min": always(4 * m), "10 min": always(10 * m), "29 min": always(29 * m),
		"up to 30 s": random(30 * s), "up to 150 s": random(150 * s), "up to 4 min": random(4 * m), "up to 29 min": random(29 * m),
		"about 10 min": func(round int) time.Duration { return 10*m + time.Duration(round%5-2)*15*s },
		"slow once, and then not": func(round int) time.Duration {
			if round == 2 {
				return 29 * m
			}
			return 0
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFront(t)
			f.again(write)
			var longest time.Duration // since the first revert
			var writes []time.Time
			for round, began := 1, f.clock.Now(); f.clock.Now().Sub(began) < 24*time.Hour; round++ {
				d := stands(round)
				f.pass(d)
				record := d > longest+max(minQuiet, longest/8)
				if message, _ := f.shown(); (message != "") != (round > 2) && !record {
					t.Errorf("in round %d, after a write stood for %v and others for up to %v: %q", round, d, longest, message)
				}
				if round > 1 {
					longest = max(longest, d)
				}
				if took := f.again(write); took > maxDelay || round == 1 && took > 0 || longest > maxDelay && took > slowDelay {
					t.Errorf("undo %d waited %v", round, took)
				}
				writes = append(writes, f.clock.Now())
				if n := len(writes); n > 12 && writes[n-1].Sub(writes[n-13]) < m {
					t.Errorf("more than 12 writes in a minute, up to %v", writes[n-1].Sub(began))
				}
			}
			f.ends(0, longest)
		})
	}
}

// ends lets the last write last from now on. No contest may be shown any more within 5 minutes of that, or
// slightly longer than writes lasted before.
func (f *front) ends(after, longest time.Duration) {
	f.Helper()
	_, again := f.shown()
	f.pass(again)
	within := 5*time.Minute - 15*time.Second
	if longest > 4*time.Minute {
		within = longest + longest/8 + slowDelay
	}
	if message, _ := f.shown(); message != "" || after+again > within {
		f.Errorf("writes stood for up to %v, and the end is shown after %v: %q", longest, after+again, message)
	}
}

// TestDrift has a person change an object from time to time: it is corrected at once each time, and never
// shown.
func TestDrift(t *testing.T) {
	const m, h = time.Minute, time.Hour
	for name, edits := range map[string][]time.Duration{
		"twice in a day":                        {9 * h, 8 * h},
		"twice within minutes":                  {9 * h, 5 * m},
		"soon after it was made, and once more": {5 * m, 8 * h},
		"every hour":                            {h, h, h, h, h, h},
		"every half hour":                       {30 * m, 30 * m, 30 * m, 30 * m, 30 * m},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFront(t)
			f.Wrote(write, ours)
			for _, after := range edits {
				f.pass(after)
				if turn := f.Ask(write); turn != (Turn{}) {
					t.Errorf("after %v: %+v", after, turn)
				}
				f.Wrote(write, ours)
				if message, _ := f.shown(); message != "" {
					t.Errorf("after %v it shows %q", after, message)
				}
			}
		})
	}
}

// TestBehind asks with a cache that does not show the last write yet.
func TestBehind(t *testing.T) {
	f := newFront(t)
	ask := func(base string, want Turn) {
		t.Helper()
		w := write
		w.Base = base
		for range 2 {
			turn := f.Ask(w)
			if turn != want {
				t.Fatalf("at version %q: %+v, want %+v", base, turn, want)
			}
			want.News = false
		}
		if want == (Turn{}) {
			f.Wrote(w, ours)
		}
	}
	ask("1", Turn{})
	ask("1", Turn{Behind: true})
	ask("3", Turn{})
	ask("3", Turn{Behind: true})
	ask("5", Turn{Wait: time.Second, News: true})
	f.pass(time.Second)
	ask("5", Turn{})
	ask("5", Turn{Behind: true})
}

// TestParts contests an object and one of its annotations alternately.
func TestParts(t *testing.T) {
	f := newFront(t)
	part := write
	part.Annotation, part.Meant = "rulefleet.io/x", "true"
	var waits []time.Duration
	for range 4 {
		waits = append(waits, f.again(write), f.again(part))
	}
	if want := []time.Duration{0, 0, 0, 0, time.Second, time.Second, 2 * time.Second, 2 * time.Second}; !slices.Equal(waits, want) {
		t.Errorf("they wait %v, want %v", waits, want)
	}
}

// TestForget drops the writes of a SpokeCluster and those in its spoke separately.
func TestForget(t *testing.T) {
	member := Write{Object: Object{Spoke: object.Spoke, Kind: SpokeCluster}, Meant: "a"}
	member.Name = object.Spoke
	for _, undos := range []int{0, 2} {
		for name, tc := range map[string]struct {
			forget   func(f *front)
			of, kept Write
		}{
			"the spoke":        {func(f *front) { f.ForgetSpoke(object.Spoke) }, write, member},
			"the SpokeCluster": {func(f *front) { f.ForgetMembership(object.Spoke) }, member, write},
		} {
			f := newFront(t)
			for range undos + 1 {
				f.again(write)
				f.again(member)
			}
			remembers := func(w Write) bool { return f.disputes[w.Object] != nil || len(f.peaceful[w.scope()]) > 0 }
			tc.forget(f)
			if remembers(tc.of) || !remembers(tc.kept) {
				t.Errorf("%s, after %d undos: it remembers %v and %v", name, undos, f.peaceful, f.disputes)
			}
		}
	}
}

// TestLostWithItsKind forgets the undos of an object when its kind is not served or is being deleted, which deletes the
// object as often as it is created meanwhile.
func TestLostWithItsKind(t *testing.T) {
	resource := schema.GroupResource{Group: "monitoring.coreos.com", Resource: "prometheusrules"}
	unserved := apierrors.NewGenericServerResponse(http.StatusNotFound, "create", resource, object.Name, "404 page not found", 0, true)
	for name, tc := range map[string]struct {
		err     error
		gone    bool
		forgets bool
	}{
		"not served":             {unserved, true, true},
		"a proxy's 404":          {apierrors.NewGenericServerResponse(http.StatusNotFound, "create", resource, object.Name, "<h1>Not Found</h1>", 0, true), true, false},
		"it is being deleted":    {fmt.Errorf("create: %w", apierrors.NewMethodNotSupported(resource, "create")), true, true},
		"it is terminating":      {apierrors.NewForbidden(resource, object.Name, errors.New(live.KindTerminating)), true, true},
		"an update":              {apierrors.NewNotFound(resource, object.Name), false, false},
		"a namespace is missing": {apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, object.Namespace), true, false},
		"denied":                 {apierrors.NewForbidden(resource, object.Name, errors.New("denied")), true, false},
		"no answer":              {context.DeadlineExceeded, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFront(t)
			w := write
			w.Gone = tc.gone
			for range 3 {
				f.again(w)
			}
			if message, _ := f.shown(); message == "" {
				t.Error("no contest is shown before")
			}
			f.Refused(w, tc.err)
			message, _ := f.shown()
			if wait := f.Ask(w).Wait; (message == "") != tc.forgets || (wait == 0) != tc.forgets {
				t.Errorf("it shows %q, and the next write waits for %v", message, wait)
			}
		})
	}
}

// TestNeverGone does not count an undo if the object that the cache lacks exists.
func TestNeverGone(t *testing.T) {
	f := newFront(t)
	gone := write
	gone.Gone = true
	exists := apierrors.NewAlreadyExists(schema.GroupResource{Group: "monitoring.coreos.com", Resource: "prometheusrules"}, object.Name)
	f.again(write)
	f.again(write) // somebody undid it once
	for range 3 {  // a proxy answers with empty lists
		f.pass(time.Minute)
		f.pass(f.Ask(gone).Wait)
		f.Refused(gone, exists)
		if message, _ := f.shown(); message != "" {
			t.Errorf("it shows %q", message)
		}
		f.Stands(object)
	}
	if stood := f.disputes[object].stood; stood != 0 {
		t.Errorf("it counts that the write stood for %v", stood)
	}
	if wait := f.again(write); wait != time.Second {
		t.Errorf("after the second undo, the write waited for %v", wait)
	}
	if message, _ := f.shown(); message == "" {
		t.Error("the second undo is not shown")
	}
}

// TestTwins has two managers that revert each other's writes with growing delays. Both always show the
// contest.
func TestTwins(t *testing.T) {
	for _, scale := range []interval.Scale{1, 0.2} {
		const latency = 50 * time.Millisecond
		c := testingclock.NewFakePassiveClock(time.Unix(1e9, 0))
		twins := []*front{{T: t, Writes: New(c, scale), clock: c}, {T: t, Writes: New(c, scale), clock: c}}
		for _, f := range twins {
			f.again(write)
		}
		var writes int
		for turn := 0; c.Now().Sub(time.Unix(1e9, 0)) < 30*time.Minute; turn++ {
			f := twins[turn%2]
			for began := c.Now(); ; {
				f.pass(latency)
				for i, f := range twins {
					if message, _ := f.InSpoke(object.Spoke); message == "" && turn >= 6 {
						t.Fatalf("at a scale of %v, after %v, manager %d shows nothing", scale, c.Now().Sub(time.Unix(1e9, 0)), i)
					}
				}
				if f.Ask(write).Wait <= 0 && c.Now().Sub(began) > latency {
					break
				}
			}
			f.Wrote(write, ours)
			writes++
		}
		if float64(writes)*float64(scale) > 40 {
			t.Errorf("%d writes in half an hour", writes)
		}
	}
}

// TestEnd ends a contest at various times: nothing is shown any more within 5 minutes.
func TestEnd(t *testing.T) {
	for _, stands := range []time.Duration{0, time.Second, 20 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute, 5 * time.Minute, 29 * time.Minute} {
		for rounds := range 20 {
			f := newFront(t)
			f.again(write)
			for range rounds {
				f.pass(stands)
				f.again(write)
			}
			f.pass(stands) // the last undo
			f.ends(f.again(write), stands)
		}
	}
}

func TestMessages(t *testing.T) {
	gone, absent := write, write
	gone.Gone = true
	absent.Meant = Absent
	for name, tc := range map[string]struct {
		write  Write
		by     *metav1.ObjectMeta
		rounds int
		words  []string
	}{
		"changed":             {write, theirs, 2, []string{`field manager "argocd-controller" changes PrometheusRule shop/down back after each write (2 times)`, "managed-by=rulefleet"}},
		"changed often":       {write, theirs, 12, []string{"(10 times or more)", "up to 4 minutes"}},
		"changed by a double": {write, ours, 3, []string{`another client named "rulefleet-manager" changes`, "a second Rulefleet manager has the id of this hub", "Do not change hubID"}},
		"deleted":             {gone, nil, 4, []string{"an unknown client deletes PrometheusRule shop/down after each write (4 times)", "audit log"}},
		"made again":          {absent, theirs, 5, []string{"creates PrometheusRule shop/down again after each deletion (5 times or more)"}},
		"a SpokeCluster":      {Write{Object: Object{Spoke: "eu-1", Kind: SpokeCluster, NamespacedName: types.NamespacedName{Name: "eu-1"}}}, theirs, 2, []string{"changes SpokeCluster eu-1 back", "labels and finalizers"}},
		"an annotation": {
			Write{Object: Object{Spoke: "eu-1", Kind: SpokeCluster, NamespacedName: types.NamespacedName{Name: "eu-1"}, Annotation: "rulefleet.io/x"}}, theirs, 2,
			[]string{"sets annotation rulefleet.io/x of SpokeCluster eu-1 again", "remove the annotation from the manifest"},
		},
		"a webhook": {
			Write{Object: Object{Kind: WebhookConfiguration, NamespacedName: types.NamespacedName{Name: "rulefleet"}}, Meant: "b"}, theirs, 2,
			[]string{"changes ValidatingWebhookConfiguration rulefleet back", "clientConfig.caBundle"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFront(t)
			for range tc.rounds {
				f.again(tc.write)
			}
			f.Ask(tc.write)
			if tc.by != nil {
				f.Blame(tc.write.Object, tc.by)
			}
			message := f.Message(tc.write.Object)
			for _, words := range tc.words {
				if !strings.Contains(message, words) {
					t.Errorf("%q does not say %q", message, words)
				}
			}
		})
	}
}

func TestSeveralAreContested(t *testing.T) {
	f := newFront(t)
	for _, name := range []string{"b", "a", "c"} {
		w := write
		w.Name = name
		for range 3 {
			f.Ask(w)
			f.Wrote(w, ours)
		}
		f.pass(100 * time.Millisecond)
	}
	if message, again := f.InSpoke("eu-1"); !strings.HasPrefix(message, "3 objects are contested. For example: ") || !strings.Contains(message, "shop/a ") || again != 29700*time.Millisecond {
		t.Errorf("%q, again after %v", message, again)
	}
	if message, _ := f.InSpoke("us-1"); message != "" {
		t.Errorf("another spoke: %q", message)
	}
	if message, _ := f.OfRule("AlertRule", source, ""); message != "" {
		t.Errorf("another kind: %q", message)
	}
	if message, _ := f.OfRule("PrometheusRule", source, "us-1"); message != "" {
		t.Errorf("the rule in another spoke: %q", message)
	}
}

// TestMemory lets time pass over many writes.
func TestMemory(t *testing.T) {
	f := newFront(t)
	for i := range 1000 {
		w := write
		w.Name = fmt.Sprint(i)
		f.again(w)
		if i%10 == 0 {
			f.Ask(w)
		}
		if i%20 == 0 {
			f.Wrote(w, ours)
			f.Ask(w)
		}
	}
	if len(f.peaceful[write.scope()]) != 900 || len(f.disputes) != 100 || len(f.byRule[source]) != 50 {
		t.Fatalf("it remembers %d, %d and %d", len(f.peaceful[write.scope()]), len(f.disputes), len(f.byRule[source]))
	}
	f.pass(memory + time.Minute)
	f.InSpoke("")
	if len(f.peaceful) != 0 || len(f.disputes) != 0 || len(f.byRule) != 0 {
		t.Errorf("it still remembers %d, %d and %d", len(f.peaceful), len(f.disputes), len(f.byRule))
	}
}

// A caller that has the object is told of each revert to wait for, with the client that made it, unless the object is
// gone.
func TestYield(t *testing.T) {
	for name, tc := range map[string]struct {
		gone bool
		want string
	}{
		"changed": {want: `field manager "argocd-controller"`},
		"deleted": {gone: true, want: "an unknown client"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFront(t)
			f.again(write)
			f.again(write)
			w := write
			w.Gone = tc.gone
			var told []string
			for range 2 {
				if turn := f.Yield(w, theirs, func(message string) { told = append(told, message) }); turn.Wait != time.Second {
					t.Errorf("got %+v", turn)
				}
			}
			if len(told) != 1 || !strings.Contains(told[0], tc.want) {
				t.Errorf("told %q", told)
			}
		})
	}
}

// TestBlame writes an object as the operator at second 10.
func TestBlame(t *testing.T) {
	const us, them = Manager, "kyverno"
	entry := func(manager, subresource string, second int64, fields string) metav1.ManagedFieldsEntry {
		at := metav1.Unix(second, 0)
		return metav1.ManagedFieldsEntry{Manager: manager, Subresource: subresource, Time: &at, FieldsV1: metav1.NewFieldsV1(fields)}
	}
	const all, part = `{"f:spec":{"f:a":{},"f:b":{}}}`, `{"f:spec":{"f:a":{}}}`
	wrote := entry(us, "", 10, all)
	for name, tc := range map[string]struct {
		deleted bool // and not written
		found   []metav1.ManagedFieldsEntry
		want    writer
	}{
		"nobody":                          {},
		"they":                            {found: []metav1.ManagedFieldsEntry{wrote, entry(them, "", 12, part)}, want: writer{name: them}},
		"they, in the same second":        {found: []metav1.ManagedFieldsEntry{entry(them, "", 10, part), wrote}, want: writer{name: them}},
		"they, and others before":         {found: []metav1.ManagedFieldsEntry{entry("x", "", 11, part), entry(them, "", 12, part), wrote}, want: writer{name: them}},
		"they, and own all of it":         {found: []metav1.ManagedFieldsEntry{entry(them, "", 12, all)}, want: writer{name: them}},
		"our double":                      {found: []metav1.ManagedFieldsEntry{entry(us, "", 12, all), entry(them, "", 9, part)}, want: writer{name: us, ours: true}},
		"our double, in the same second":  {found: []metav1.ManagedFieldsEntry{wrote}, want: writer{name: us, ours: true}},
		"our double that mirrors labels":  {found: []metav1.ManagedFieldsEntry{entry(MirrorManager, "", 12, all)}, want: writer{name: MirrorManager, ours: true}},
		"our double that applies":         {found: []metav1.ManagedFieldsEntry{entry("rulefleet", "", 12, all)}, want: writer{name: "rulefleet", ours: true}},
		"fields were removed":             {found: []metav1.ManagedFieldsEntry{entry(us, "", 10, part), entry(them, "", 9, part)}},
		"all our fields were removed":     {found: []metav1.ManagedFieldsEntry{entry(them, "", 9, part)}},
		"somebody writes its status":      {found: []metav1.ManagedFieldsEntry{entry(us, "", 10, part), entry("prometheus-operator", "status", 12, part)}},
		"no time":                         {found: []metav1.ManagedFieldsEntry{{Manager: them}}},
		"they made it again":              {deleted: true, found: []metav1.ManagedFieldsEntry{entry(them, "", 9, all)}, want: writer{name: them}},
		"our double made it again":        {deleted: true, found: []metav1.ManagedFieldsEntry{wrote}, want: writer{name: us, ours: true}},
		"a name that is not to be quoted": {found: []metav1.ManagedFieldsEntry{entry("a\x00\x1b[31m"+strings.Repeat("ü", 200), "", 12, part)}, want: writer{name: "a[31m" + strings.Repeat("ü", 61)}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFront(t)
			answer := &metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{wrote, entry("kubectl", "", 8, part)}}
			since := f.markOf(object, answer)
			if tc.deleted {
				since = f.markOf(object, nil)
			}
			if got := f.blame(object, since, &metav1.ObjectMeta{ManagedFields: tc.found}); got != tc.want {
				t.Errorf("it is %+v, want %+v", got, tc.want)
			}
		})
	}
}
