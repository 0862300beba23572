package continuity

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
)

// runInformer runs an informer against a server.
func runInformer(t *testing.T, g *Guard, s *server) (state func() map[string]string, stop func()) {
	t.Helper()
	informer := toolscache.NewSharedIndexInformer(g.ListerWatcher(s, &corev1.ConfigMap{}), &corev1.ConfigMap{}, 0, toolscache.Indexers{})
	// client-go's handler sleeps by the time of the last error, which may be that of another bubble.
	if err := informer.SetWatchErrorHandlerWithContext(func(context.Context, *toolscache.Reflector, error) {}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { informer.RunWithContext(ctx); close(done) }()
	return func() map[string]string {
		out := map[string]string{}
		for _, o := range informer.GetStore().List() {
			cm := o.(*corev1.ConfigMap)
			out[cm.Name] = cm.ResourceVersion
		}
		return out
	}, func() { cancel(); s.cut(); <-done }
}

// pass lets time pass.
func pass(d time.Duration) { time.Sleep(d) } //nolint:forbidigo // of the bubble's clock

// TestInformer breaks watches in all ways. Afterwards the informer must have the server's state, and the guard
// must report whether the server was restored.
func TestInformer(t *testing.T) {
	const restored, same = true, false
	for name, tc := range map[string]struct {
		// before happens while the informer watches, and then afterwards.
		before, then func(s *server)
		restored     bool
		// asked lists all requests that the server may have got, without repetitions; "" means any.
		asked string
	}{
		"a watch is lost": {
			before: func(s *server) { s.put("a", "b"); s.put("a") },
			then:   func(s *server) { s.cut() },
			asked:  "watch",
		},
		"a watch is lost, and events with it": {
			before: func(s *server) { s.put("a", "b"); s.put("a") },
			then:   func(s *server) { s.stop(); s.put("b", "c"); s.remove("a"); s.set(func() { s.down = false }) },
			asked:  "watch",
		},
		"a watch is lost after a deletion": {
			before: func(s *server) { s.put("a", "b"); s.remove("a") },
			then:   func(s *server) { s.cut(); s.put("c") },
			asked:  "watch watch-list", // a deletion has no time, so it proves nothing
		},
		"a watch is lost after bookmarks": {
			before: func(s *server) { s.put("a"); s.others(50) },
			then:   func(s *server) { s.cut(); s.put("c") },
			asked:  "watch",
		},
		"a watch is lost, and nothing was seen since the list": {
			before: func(s *server) { s.cut(); s.put("a", "b", "c"); s.restart() },
			then:   func(s *server) { s.cut() },
			asked:  "watch watch-list", // the server has no events from before its start
		},
		"a watch is lost where nothing is": {
			before: func(*server) {},
			then:   func(s *server) { s.cut(); s.put("a") },
			asked:  "watch read",
		},
		"a watch is lost where nothing is or comes": {
			before: func(*server) {},
			then:   func(s *server) { s.cut() },
			asked:  "watch read",
		},
		"a watch ends as it should": {
			before: func(s *server) { s.put("a", "b") },
			then:   func(*server) { pass(10 * time.Minute) },
			asked:  "watch",
		},
		"a watch ends as it should where nothing is": {
			before: func(*server) {},
			then:   func(*server) { pass(10 * time.Minute) },
			asked:  "watch",
		},
		"the server is started anew": {
			before: func(s *server) { s.put("a", "b"); s.remove("b") },
			then:   func(s *server) { s.stop(); s.others(10); s.restart() },
			asked:  "watch watch-list",
		},
		"connections are refused for a while": {
			before: func(s *server) { s.put("a", "b") },
			then:   func(s *server) { s.stop(); pass(5 * time.Second); s.set(func() { s.down = false }); s.put("b") },
		},
		"versions that can't be compared": {
			before: func(s *server) { s.set(func() { s.opaque = true }); s.put("a"); s.restart() },
			then:   func(s *server) { s.cut() },
			asked:  "watch",
		},
		"a list is empty by a lie": {
			before: func(s *server) { s.put("a", "b") },
			then: func(s *server) {
				s.set(func() { s.lies = true })
				s.restart()
				pass(10 * time.Second)
				s.set(func() { s.lies, s.empty = false, 1 })
			},
		},
		"a list is empty by a lie, and the watch after it is not": {
			before: func(s *server) { s.put("a", "b") },
			then:   func(s *server) { s.set(func() { s.empty = 1 }); s.restart() },
		},
		"restored, many writes are lost": {
			before:   func(s *server) { s.put("a", "b"); s.save(); s.put("c", "d", "e", "b", "a"); s.remove("c") },
			then:     func(s *server) { s.restore() },
			restored: restored,
			asked:    "watch read watch-list",
		},
		"restored while connections are refused": {
			before:   func(s *server) { s.put("a", "b"); s.save(); s.put("c", "d", "e", "b", "a") },
			then:     func(s *server) { s.stop(); pass(5 * time.Second); s.restore() },
			restored: restored,
		},
		"restored, few writes are lost": {
			before:   func(s *server) { s.put("a", "b"); s.save(); s.put("c") },
			then:     func(s *server) { s.restore(func() { s.others(3); s.put("d") }) },
			restored: restored,
		},
		"restored, few writes are lost, and others of the same objects come": {
			before:   func(s *server) { s.put("a", "b"); s.save(); s.put("a") },
			then:     func(s *server) { s.restore(func() { s.put("b", "a", "b") }) },
			restored: restored,
		},
		"restored, and the object of the last event is deleted at its version": {
			before:   func(s *server) { s.put("a", "b"); s.save(); s.put("c", "a") },
			then:     func(s *server) { s.restore(func() { s.put("b"); s.remove("a") }) },
			restored: restored,
		},
		"restored, and the object of the last event is written at its version": {
			before:   func(s *server) { s.put("a", "b"); s.save(); s.put("c", "a") },
			then:     func(s *server) { s.restore(func() { s.put("b", "a") }) },
			restored: restored,
		},
		"restored, and the object that was deleted last is deleted at the same version": {
			before:   func(s *server) { s.put("a", "b"); s.save(); s.put("c"); s.remove("a") },
			then:     func(s *server) { s.restore(func() { s.put("b"); s.remove("a") }) },
			restored: same, // there is no proof, and the kind is listed again
		},
		"restored, a deletion is lost": {
			before:   func(s *server) { s.put("a", "b"); s.save(); s.remove("b") },
			then:     func(s *server) { s.restore(func() { s.others(1); s.put("c") }) },
			restored: restored,
		},
		"restored, few writes are lost, and the server has passed them before it started": {
			before:   func(s *server) { s.put("a", "b"); s.save(); s.put("a") },
			then:     func(s *server) { s.restore(func() { s.others(30); s.restart() }) },
			restored: restored,
		},
		"restored, a deletion is lost, and the server has passed it before it started": {
			before:   func(s *server) { s.put("a", "b"); s.save(); s.remove("a"); s.put("c", "d", "e") },
			then:     func(s *server) { s.restore(func() { s.others(30); s.restart() }) },
			restored: restored,
		},
		"an object is made anew while the server is started anew": {
			before: func(s *server) { s.put("a", "b"); s.remove("a") },
			then:   func(s *server) { s.stop(); s.put("a"); s.restart() },
			asked:  "watch watch-list",
		},
		"restored, few writes are lost, and others make up for them at once": {
			before:   func(s *server) { s.put("a", "b"); s.save(); s.put("c") },
			then:     func(s *server) { s.restore(func() { s.others(3) }) },
			restored: same, // there is no proof, and the kind is listed again
		},
		"restored after a watch that was waited for": {
			before: func(s *server) { s.put("a", "b"); s.save(); s.put("c") },
			then: func(s *server) {
				s.set(func() { s.wait = 20 * time.Minute })
				s.cut()
				pass(21 * time.Minute)
				s.set(func() { s.wait = 0 })
				s.restore()
			},
			restored: restored,
		},
		"restored, and only writes of other kinds are lost": {
			before:   func(s *server) { s.put("a"); s.save(); s.others(50) },
			then:     func(s *server) { s.restore() },
			restored: restored,
		},
		"restored to nothing": {
			before:   func(s *server) { s.save(); s.put("a", "b") },
			then:     func(s *server) { s.restore() },
			restored: restored,
		},
		"restored, and the server has passed all that was seen before it started": {
			before:   func(s *server) { s.put("a", "b"); s.save(); s.put("c") },
			then:     func(s *server) { s.restore(func() { s.others(30); s.restart() }) },
			restored: same,
		},
		"restored where nothing was left": {
			before:   func(s *server) { s.put("a"); s.save(); s.remove("a"); s.restart() },
			then:     func(s *server) { s.restore() },
			restored: restored,
		},
	} {
		for _, plain := range []bool{false, true} {
			name := name
			if plain {
				name += ", without streams"
			}
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var told atomic.Int32
					g, s := NewGuard(func() { told.Add(1) }, nil), newServer()
					s.plain = plain
					state, stop := runInformer(t, g, s)
					defer stop()
					synctest.Wait()
					tc.before(s)
					pass(time.Minute)
					s.requests()
					if got := state(); !maps.Equal(got, s.state()) {
						t.Fatalf("before: the informer has %v, and the server %v", got, s.state())
					}
					tc.then(s)
					pass(time.Minute)
					if got := state(); !maps.Equal(got, s.state()) {
						t.Errorf("the informer has %v, and the server %v", got, s.state())
					}
					if got := g.Err() != nil; got != tc.restored || (told.Load() == 1) != got {
						t.Errorf("the guard says %v, and told %d times", g.Err(), told.Load())
					}
					asked := strings.Join(slices.Compact(s.requests()), " ")
					want := tc.asked
					if plain {
						want = strings.ReplaceAll(want, "watch-list", "watch-list list watch")
					}
					if want != "" && asked != want {
						t.Errorf("the server was asked for %q, and not %q", asked, want)
					}
				})
			})
		}
	}
}

// TestCurrent checks whether a cache belongs to the cluster's history: right after an event, before the
// informer has watched again, and later.
func TestCurrent(t *testing.T) {
	const current, uncertain, restored = "current", "uncertain", "restored"
	back := func(s *server) { s.set(func() { s.down = false }) }
	for name, tc := range map[string]struct {
		before, then func(s *server)
		now, later   string
	}{
		"nothing happens":        {func(s *server) { s.put("a", "b") }, func(*server) {}, current, current},
		"nothing is or happens":  {func(*server) {}, func(*server) {}, current, current},
		"a watch is lost":        {func(s *server) { s.put("a", "b") }, func(s *server) { s.cut(); pass(time.Minute) }, current, current},
		"the server is down":     {func(s *server) { s.put("a", "b") }, func(s *server) { s.stop(); pass(time.Minute) }, uncertain, uncertain},
		"it was down":            {func(s *server) { s.put("a", "b") }, func(s *server) { s.stop(); pass(time.Minute); back(s) }, uncertain, current},
		"it was started anew":    {func(s *server) { s.put("a", "b") }, func(s *server) { s.stop(); pass(time.Minute); s.restart() }, uncertain, current},
		"it was down, and empty": {func(*server) {}, func(s *server) { s.stop(); pass(time.Minute); back(s) }, uncertain, current},
		"all is deleted":         {func(s *server) { s.put("a") }, func(s *server) { s.remove("a"); s.restart(); pass(time.Minute) }, current, current},
		"versions that can't be compared": {
			func(s *server) { s.set(func() { s.opaque = true }); s.put("a"); s.restart() },
			func(s *server) { s.cut(); pass(time.Minute) }, current, current,
		},
		"restored, many writes are lost": {
			func(s *server) { s.put("a", "b"); s.save(); s.put("c", "d", "e", "b", "a") },
			func(s *server) { s.stop(); pass(time.Minute); s.restore() }, restored, restored,
		},
		"restored, and the server has passed them": {
			func(s *server) { s.put("a", "b"); s.save(); s.put("a") },
			func(s *server) { s.stop(); pass(time.Minute); s.restore(func() { s.others(30) }) }, uncertain, restored,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, s := NewGuard(nil, nil), newServer()
				_, stop := runInformer(t, g, s)
				defer stop()
				synctest.Wait()
				tc.before(s)
				pass(time.Minute)
				tc.then(s)
				for _, want := range []string{tc.now, tc.later} {
					err, got := g.Current(t.Context()), uncertain
					if _, is := errors.AsType[*RestoredError](err); is || err == nil {
						got = map[bool]string{true: restored, false: current}[is]
					}
					if got != want {
						t.Errorf("it is %s, and not %s: %v", got, want, err)
					}
					pass(2 * time.Minute)
				}
			})
		})
	}
}

// A list at resourceVersion 0 may be older than earlier reads, and proves nothing.
func TestListOfAnyVersion(t *testing.T) {
	for name, tc := range map[string]struct {
		versions []string // requested versions, each older than the one before
		restored bool
	}{
		"consistent lists":        {[]string{"", ""}, true},
		"any after a consistent":  {[]string{"", "0"}, false},
		"a consistent after any":  {[]string{"0", ""}, false},
		"any after any":           {[]string{"0", "0"}, false},
		"any between consistents": {[]string{"", "0", ""}, true},
	} {
		t.Run(name, func(t *testing.T) {
			g, s := NewGuard(nil, nil), newServer()
			lw := g.ListerWatcher(s, &corev1.ConfigMap{})
			for _, version := range tc.versions {
				if _, err := lw.ListWithContext(t.Context(), metav1.ListOptions{ResourceVersion: version}); err != nil {
					t.Fatal(err)
				}
				s.version--
			}
			if got := g.Err() != nil; got != tc.restored {
				t.Errorf("the guard says %v", g.Err())
			}
		})
	}
}

// The newest events of other objects are remembered beside those of a busy one.
func TestWitnesses(t *testing.T) {
	g, at := NewGuard(nil, nil), func(name string, version int) moment {
		return momentOf(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: strconv.Itoa(version)}})
	}
	k := &kind{guard: g, history: history{kind: "ConfigMap"}}
	for v := range 100 {
		k.history.showed(at("busy", 300+2*v))
		k.history.showed(at("other-"+strconv.Itoa(v%(maxWitnesses-1)), 301+2*v))
	}
	if n := len(k.history.witnesses); n != maxWitnesses {
		t.Errorf("%d events are remembered", n)
	}
	list := &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "600"}}
	list.Items = []corev1.ConfigMap{{ObjectMeta: metav1.ObjectMeta{Name: "other-7", ResourceVersion: "250"}}}
	k.noteList(list, "", metav1.ListOptions{ResourceVersion: "0"})
	if g.Err() != nil {
		t.Errorf("a list of any version: %v", g.Err())
	}
	k.noteList(list, "", metav1.ListOptions{ResourceVersion: "500"})
	if g.Err() == nil {
		t.Error("an object went back, and that is not noticed")
	}
}

// A paged list has the age of its first page, and its newest object may be on any page.
func TestPages(t *testing.T) {
	g, s := NewGuard(nil, nil), newServer()
	k := &kind{guard: g, inner: s}
	page := func(version string, o ...string) *corev1.ConfigMapList {
		list := &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: version}}
		for _, v := range o {
			list.Items = append(list.Items, corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "at-" + v, ResourceVersion: v}})
		}
		return list
	}
	k.history.interrupted()
	k.noteList(page("90", "50", "80"), "", metav1.ListOptions{})
	if !k.history.uncertain() {
		t.Error("the first page ends the uncertainty")
	}
	k.noteList(page("70", "60"), "90", metav1.ListOptions{Continue: "more"})
	k.noteList(page("90"), "90", metav1.ListOptions{Continue: "more"})
	k.history.interrupted()
	if got := k.history.resume("90"); got.version != "79" || got.expected.key.Name != "at-80" || g.Err() != nil {
		t.Errorf("the watch begins by %+v; %v", got, g.Err())
	}
}

// Reads by others count, too, unless something newer was read meanwhile.
func TestReading(t *testing.T) {
	for name, tc := range map[string]struct {
		kind, version string
		restored      bool
	}{
		"newer":          {"ConfigMap", "101", false},
		"the same":       {"ConfigMap", "100", false},
		"older":          {"ConfigMap", "99", true},
		"shorter":        {"ConfigMap", "99", true},
		"no number":      {"ConfigMap", "x", false},
		"none":           {"ConfigMap", "", false},
		"zero":           {"ConfigMap", "0", false},
		"of other kinds": {"Secret", "99", false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewGuard(nil, nil)
			lw := g.ListerWatcher(newServer(), &corev1.ConfigMap{})
			early := g.Reading(tc.kind)
			if _, err := lw.ListWithContext(t.Context(), metav1.ListOptions{}); err != nil {
				t.Fatal(err)
			}
			early(tc.version)
			if g.Err() != nil {
				t.Errorf("a read that began before: %v", g.Err())
			}
			g.Reading(tc.kind)(tc.version)
			if got := g.Err() != nil; got != tc.restored {
				t.Errorf("the guard says %v", g.Err())
			}
			select {
			case <-g.Restored():
				if !tc.restored {
					t.Error("the channel is closed")
				}
			default:
				if tc.restored {
					t.Error("the channel is open")
				}
			}
		})
	}
}

// Expired is true until the kind was listed again.
func TestExpired(t *testing.T) {
	g, s := NewGuard(nil, nil), newServer()
	lw := g.ListerWatcher(s, &corev1.ConfigMap{})
	for _, kind := range []string{"ConfigMap", "other"} {
		if g.Expired(kind) {
			t.Errorf("%s has expired at first", kind)
		}
	}
	w, err := lw.WatchWithContext(t.Context(), metav1.ListOptions{ResourceVersion: "50"})
	if err != nil {
		t.Fatal(err)
	}
	for e := range w.ResultChan() {
		if e.Type != watch.Error {
			t.Errorf("got %+v", e)
		}
	}
	if !g.Expired("ConfigMap") {
		t.Error("it has not expired")
	}
	if _, err := lw.ListWithContext(t.Context(), metav1.ListOptions{}); err != nil || g.Expired("ConfigMap") {
		t.Errorf("it has expired after a list: %v", err)
	}
}

// The owner bounds the guard's own reads.
func TestBound(t *testing.T) {
	bounded := 0
	g := NewGuard(nil, func(ctx context.Context) (context.Context, context.CancelFunc) {
		bounded++
		return context.WithCancel(ctx)
	})
	k := &kind{guard: g, inner: newServer(), history: history{kind: "ConfigMap"}}
	if _, _, err := k.readOne(t.Context()); err != nil || bounded != 1 {
		t.Errorf("it was bounded %d times: %v", bounded, err)
	}
	ctx, cancel := NewGuard(nil, nil).bound(t.Context())
	defer cancel()
	if until, ok := ctx.Deadline(); !ok || time.Until(until) > readTimeout {
		t.Errorf("by default, it ends at %v", until)
	}
}
