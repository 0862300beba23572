package queue

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/quick"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
)

// bench works with lanes directly, with its own clock.
type bench struct {
	*testing.T
	*lanes
	now time.Time
	n   int // names keys
	// flying are the keys in flight, in the order that they were handed out.
	flying []Request
	began  map[Request]time.Time
}

func newBench(t *testing.T, workers int) *bench {
	t.Helper()
	return &bench{T: t, lanes: newLanes(workers), now: time.Unix(1e9, 0), began: map[Request]time.Time{}}
}

// add adds new keys of a spoke with this priority.
func (b *bench) add(spoke, namespace, origin string, priority, n int) []Request {
	b.Helper()
	var out []Request
	for range n {
		b.n++
		req := Request{ClusterName: multicluster.ClusterName(spoke)}
		req.NamespacedName = types.NamespacedName{Namespace: origin, Name: fmt.Sprintf("%s-%d", namespace, b.n)}
		if !b.put(req, priority, Lane{Namespace: namespace, Origin: origin}, b.now) {
			b.Fatalf("%v waited already", req)
		}
		out = append(out, req)
	}
	return out
}

// fill hands out all keys that are allowed, and returns them.
func (b *bench) fill() []Request {
	b.Helper()
	var out []Request
	for {
		req, _, ok := b.lanes.next(b.now)
		if !ok {
			return out
		}
		if _, twice := b.began[req]; twice {
			b.Fatalf("%v is handed out twice at once", req)
		}
		b.began[req] = b.now
		b.flying = append(b.flying, req)
		out = append(out, req)
	}
}

// end ends a key in flight.
func (b *bench) end(req Request, e ending) {
	b.Helper()
	b.count(req, e, b.now.Sub(b.began[req]), b.now)
	b.done(req, b.now)
	delete(b.began, req)
	b.flying = slices.DeleteFunc(b.flying, func(o Request) bool { return o == req })
}

// round ends the keys in flight of some spokes, each after some time, and hands out the next ones.
func (b *bench) round(took time.Duration, e ending, spokes ...string) {
	b.Helper()
	b.now = b.now.Add(took)
	for _, req := range slices.Clone(b.flying) {
		if slices.Contains(spokes, req.ClusterName.String()) {
			b.end(req, e)
			b.fill()
		}
	}
}

// busy makes a spoke answer for a while with more work than it can do.
func (b *bench) busy(spoke string, priority int) {
	b.Helper()
	for i := range 12 {
		b.add(spoke, fmt.Sprint("ns-", i), "o", priority, 1000)
	}
	b.fill()
	for range 10 {
		b.round(10*time.Millisecond, endAnswered, spoke)
	}
}

// held returns how many keys of a spoke, or of some of its namespaces, are in flight.
func (b *bench) held(spoke string, namespaces ...string) int {
	l := b.root.children[spoke]
	for _, name := range namespaces {
		if l != nil {
			l = l.children[name]
		}
	}
	if l == nil {
		return 0
	}
	return l.inFlight
}

func (b *bench) wantHeld(want int, spoke string, namespaces ...string) {
	b.Helper()
	if got := b.held(spoke, namespaces...); got != want {
		b.Fatalf("%d of %s %v are in flight, want %d", got, spoke, namespaces, want)
	}
}

// How many workers a spoke without answers occupies, and how many it leaves to others.
func TestLanesBounds(t *testing.T) {
	const fast = 10 * time.Millisecond
	for name, fn := range map[string]func(b *bench){
		"a spoke that answered nothing holds a few": func(b *bench) {
			for i := range 100 {
				b.add("s", fmt.Sprint("ns-", i), "o", 0, 100)
			}
			b.fill()
			b.wantHeld(few, "s")
		},
		"and one namespace of it one": func(b *bench) {
			for i := range 100 {
				b.add("s", "a", fmt.Sprint("o-", i), 0, 100)
			}
			b.fill()
			b.wantHeld(1, "s")
			b.add("s", "b", "o", 0, 1)
			b.fill()
			b.wantHeld(1, "s", "b")
		},
		"a namespace that answered gets less than its spoke, so that another one gets through": func(b *bench) {
			for i := range 100 {
				b.add("s", "a", fmt.Sprint("o-", i), 0, 100)
			}
			b.fill()
			b.round(fast, endAnswered, "s")
			b.wantHeld(most(few), "s")
			b.add("s", "b", "o", 0, 1)
			b.fill()
			b.wantHeld(1, "s", "b")
		},
		"and one namespace of the hub still less": func(b *bench) {
			b.add("s", "a", "o", 0, 1000)
			b.fill()
			b.round(fast, endAnswered, "s")
			b.wantHeld(most(most(few)), "s")
			b.add("s", "a", "p", 0, 1)
			b.fill()
			b.wantHeld(1, "s", "a", "p")
		},
		"time alone changes nothing": func(b *bench) {
			b.add("s", "a", "o", 0, 1000)
			b.fill()
			b.now = b.now.Add(time.Hour)
			b.fill()
			b.wantHeld(1, "s")
		},
		"what failed waits behind a namespace that has not had its turn": func(b *bench) {
			for i := range few {
				b.add("s", fmt.Sprint("bad-", i), "o", 0, 2)
			}
			b.fill()
			b.add("s", "good", "o", 0, 1)
			b.fill()
			b.wantHeld(0, "s", "good")
			b.now = b.now.Add(15 * time.Second)
			b.end(b.flying[0], endFailed)
			b.fill()
			b.wantHeld(1, "s", "good")
		},
		"a spoke alone that answers gets what a connection takes": func(b *bench) {
			b.busy("s", 0)
			b.wantHeld(mostPerSpoke, "s")
		},
		"and one namespace of it three quarters of that, and so on": func(b *bench) {
			b.add("s", "a", "o", 0, 3000)
			b.fill()
			for range 10 {
				b.round(100*time.Millisecond, endAnswered, "s")
			}
			b.wantHeld(most(most(most(workers))), "s")
			// It stops answering, and others come.
			b.add("s", "a", "p", 0, 1)
			b.add("s", "b", "o", 0, 1)
			b.add("t", "a", "o", 0, 1)
			if got := len(b.fill()); got != 3 {
				b.Fatalf("%d of 3 others are handed out", got)
			}
		},
		"who comes when all else stopped answering gets some at once, again and again": func(b *bench) {
			b.busy("s", 0)
			for i := range 20 {
				late := fmt.Sprint("late-", i)
				b.add(late, "a", "o", 0, 100)
				b.add(late, "b", "o", 0, 100)
				b.fill()
				if got := b.held(late); got < 1 || (i < 6 && got < 2) {
					b.Fatalf("%d of spoke %d are in flight", got, i)
				}
			}
		},
		"two spokes that answer have half each": func(b *bench) {
			b.busy("s", 0)
			b.busy("t", 0)
			for range 8 {
				b.round(fast, endAnswered, "s", "t")
			}
			if s, t := b.held("s"), b.held("t"); s > workers/2 || t > workers/2 || s+t < workers*6/7 {
				b.Fatalf("they hold %d and %d", s, t)
			}
		},
		"half is the most for what is more urgent, too": func(b *bench) {
			b.busy("t", -100)
			b.busy("s", 0)
			for range 8 {
				b.round(fast, endAnswered, "s", "t")
			}
			b.now = b.now.Add(fast)
			for _, req := range slices.Clone(b.flying) { // all at once, so that both may have any number
				b.end(req, endAnswered)
			}
			b.fill()
			if s, t := b.held("s"), b.held("t"); s != workers/2 || t < workers/3 {
				b.Fatalf("the urgent one holds %d, and the other %d", s, t)
			}
		},
		"a namespace that hangs is left one at a time, and its spoke a few": func(b *bench) {
			b.add("s", "a", "o", 0, 1000)
			b.fill()
			for range 3 {
				b.round(15*time.Second, endFailed, "s")
			}
			b.wantHeld(1, "s", "a")
			for i := range few - 1 {
				b.add("s", fmt.Sprint("late-", i), "o", 0, 1)
			}
			if got := len(b.fill()); got != few-1 {
				b.Fatalf("%d of the others are handed out", got)
			}
		},
		"a namespace that hangs takes nothing from one that answers": func(b *bench) {
			b.add("s", "bad", "o", 0, 1000)
			b.add("s", "good", "o", 0, 3000)
			b.fill()
			bad := b.flying[slices.IndexFunc(b.flying, func(r Request) bool { return r.Name[:3] == "bad" })]
			for range 200 { // each of the good ones takes 10 ms, and bad ones time out now and then
				b.now = b.now.Add(fast)
				for _, req := range slices.Clone(b.flying) {
					if req.Name[:4] == "good" {
						b.end(req, endAnswered)
					}
				}
				b.fill()
			}
			b.end(bad, endFailed)
			b.fill()
			if got := b.held("s", "good"); b.root.children["s"].window.size < workers/2 {
				b.Fatalf("the spoke's window is %d, and %d good keys are in flight", b.root.children["s"].window.size, got)
			}
		},
		"a spoke that hangs is remembered while its keys are away": func(b *bench) {
			keys := b.add("s", "a", "o", 0, 12)
			b.fill()
			b.round(fast, endAnswered, "s")
			b.wantHeld(most(most(few)), "s", "a")
			for len(b.flying) > 0 {
				b.round(15*time.Second, endFailed, "s")
			}
			b.now = b.now.Add(maxBackoff)
			for _, req := range keys {
				b.put(req, Behind, Lane{Namespace: "a", Origin: "o"}, b.now)
			}
			b.fill()
			b.wantHeld(1, "s", "a")
		},
		"but not for ever": func(b *bench) {
			b.add("s", "a", "o", 0, few)
			b.fill()
			for len(b.flying) > 0 {
				b.round(15*time.Second, endFailed, "s")
			}
			if len(b.root.children) != 1 || b.idle.Len() != 1 {
				b.Fatal("it is not remembered")
			}
			b.now = b.now.Add(remembered)
			b.add("t", "a", "o", 0, 1)
			if b.root.children["s"] != nil || b.idle.Len() != 0 {
				b.Fatal("it is remembered still")
			}
		},
		"a spoke that throttles gets one at a time": func(b *bench) {
			b.add("s", "a", "o", 0, 1000)
			b.fill()
			for range 4 {
				b.round(fast, endThrottled, "s")
			}
			b.wantHeld(1, "s")
		},
		"a spoke that comes back gets more with each answer": func(b *bench) {
			b.add("s", "a", "o", 0, 1000)
			b.fill()
			for range 4 {
				b.round(fast, endThrottled, "s")
			}
			for range 10 {
				b.round(fast, endAnswered, "s")
			}
			if got := b.held("s"); got < few {
				b.Fatalf("%d are in flight", got)
			}
		},
		"a spoke whose queue fills up gets no more": func(b *bench) {
			// It handles 8 requests at a time: with more, all take longer.
			const seats, each = 8, 60 * time.Millisecond
			b.add("s", "a", "o", 0, 100000)
			b.fill()
			for range 100 {
				b.round(each*time.Duration(max(1, b.held("s")/seats)), endAnswered, "s")
			}
			if got := b.held("s"); got < seats || got > 6*seats {
				b.Fatalf("%d are in flight", got)
			}
		},
	} {
		t.Run(name, func(t *testing.T) { fn(newBench(t, workers)) })
	}
}

// Namespaces of a spoke that hang at once delay no other namespace of it and no other spoke, whether the spoke
// was healthy before or the manager has just started.
func TestLanesOfHangingNamespaces(t *testing.T) {
	const beat, hang, limit = 100 * time.Millisecond, 15 * time.Second, time.Second
	for _, hanging := range []int{1, 3, 7} {
		for name, before := range map[string]func(b *bench){
			"at the start": func(*bench) {},
			"of a spoke that is busy": func(b *bench) {
				b.busy("s", 0)
				b.wantHeld(mostPerSpoke, "s")
			},
			"of a spoke that was busy": func(b *bench) {
				b.busy("s", 0)
				for len(b.flying) > 0 {
					b.round(10*time.Millisecond, endAnswered, "s")
				}
			},
		} {
			for order, arrive := range map[string]func(b *bench, stuck func(i int)){
				"one after the other": func(b *bench, stuck func(i int)) {
					for i := range hanging * 100 {
						stuck(i / 100)
						b.fill()
					}
				},
				"in turn": func(b *bench, stuck func(i int)) {
					for i := range hanging * 100 {
						stuck(i % hanging)
						b.fill()
					}
				},
				"all at once": func(b *bench, stuck func(i int)) {
					for i := range hanging * 100 {
						stuck(i / 100)
					}
					b.fill()
				},
			} {
				t.Run(fmt.Sprintf("%d %s, %s", hanging, name, order), func(t *testing.T) {
					b := newBench(t, workers)
					before(b)
					arrive(b, func(i int) { b.add("s", fmt.Sprint("stuck", i), "o", 0, 1) })
					type pause struct {
						until time.Time
						keys  []Request
					}
					var away []pause
					came := map[Request]time.Time{}
					for step := range 1200 {
						if step%7 == 0 {
							came[b.add("s", "fine", "o", 0, 1)[0]] = b.now
							came[b.add("other", "fine", "o", 0, 1)[0]] = b.now
						}
						b.fill()
						for _, req := range b.flying {
							if at, ok := came[req]; ok && b.now.Sub(at) > limit {
								t.Fatalf("%v was handed out after %v", req, b.now.Sub(at))
							}
							delete(came, req)
						}
						b.now = b.now.Add(beat)
						var failed []Request
						for _, req := range slices.Clone(b.flying) {
							switch stuck := req.Name[:5] == "stuck"; {
							case !stuck:
								b.end(req, endAnswered)
							case b.now.Sub(b.began[req]) >= hang:
								b.end(req, endFailed)
								failed = append(failed, req)
							}
						}
						away = append(away, pause{until: b.now.Add(maxBackoff), keys: failed})
						for ; len(away) > 0 && !b.now.Before(away[0].until); away = away[1:] {
							for _, req := range away[0].keys {
								b.put(req, Behind, Lane{Namespace: req.Name[:6], Origin: "o"}, b.now)
							}
						}
					}
					if len(came) > 2 {
						t.Errorf("%d wait", len(came))
					}
				})
			}
		}
	}
}

// Spokes without answers, each with keys in many namespaces, never occupy all workers: the more there are, the
// fewer each further one gets.
func TestLanesManyFrozenSpokes(t *testing.T) {
	b := newBench(t, workers)
	for i := range 2 * workers {
		name := fmt.Sprint("frozen-", i)
		for j := range 20 {
			b.add(name, fmt.Sprint("ns-", j), "o", 0, 5)
		}
		b.fill()
		if i == 0 {
			b.wantHeld(few, name)
		}
		if i < 40 && b.root.inFlight == workers {
			t.Fatalf("%d frozen spokes have all workers", i+1)
		}
	}
}

// Every key gets its turn.
func TestLanesStarveNobody(t *testing.T) {
	const spokes, namespaces, slots = 30, 7, 16
	b := newBench(t, slots)
	for i := range spokes {
		for j := range namespaces {
			b.add(fmt.Sprint("s-", i), fmt.Sprint("ns-", j), "o", 0, 50)
		}
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	seen := map[string]int{} // when one was last handed out
	for turn := 1; turn <= 4000; turn++ {
		for _, req := range b.fill() {
			seen[req.ClusterName.String()+req.Name[:4]] = turn
		}
		b.now = b.now.Add(time.Millisecond)
		b.end(b.flying[rnd.IntN(len(b.flying))], endAnswered)
		if turn > 2*spokes*namespaces && turn < 4000-spokes*namespaces {
			for lane, at := range seen {
				if turn-at > 3*spokes*namespaces {
					t.Fatalf("turn %d: nothing of %s since turn %d", turn, lane, at)
				}
			}
		}
	}
	if len(seen) != spokes*namespaces {
		t.Errorf("%d lanes had a turn", len(seen))
	}
}

// The order among lanes and within one.
func TestLanesOrder(t *testing.T) {
	for name, tc := range map[string]struct {
		workers int
		do      func(b *bench)
		want    []string
	}{
		"by arrival":               {workers: 1, do: func(b *bench) { b.add("s", "a", "o", 0, 3) }, want: []string{"a-1", "a-2", "a-3"}},
		"by priority":              {workers: 1, do: func(b *bench) { b.add("s", "a", "o", -100, 2); b.add("s", "a", "o", 0, 1) }, want: []string{"a-3", "a-1", "a-2"}},
		"what failed last":         {workers: 1, do: func(b *bench) { b.add("s", "a", "o", Behind, 2); b.add("s", "a", "o", -100, 1) }, want: []string{"a-3", "a-1", "a-2"}},
		"namespaces take turns":    {workers: 1, do: func(b *bench) { b.add("s", "a", "o", 0, 3); b.add("s", "b", "o", 0, 2) }, want: []string{"a-1", "b-4", "a-2", "b-5", "a-3"}},
		"spokes take turns":        {workers: 1, do: func(b *bench) { b.add("s", "a", "o", 0, 3); b.add("t", "b", "o", 0, 2) }, want: []string{"a-1", "b-4", "a-2", "b-5", "a-3"}},
		"hub namespaces, too":      {workers: 1, do: func(b *bench) { b.add("s", "a", "o", 0, 3); b.add("s", "a", "p", 0, 2) }, want: []string{"a-1", "a-4", "a-2", "a-5", "a-3"}},
		"the urgent of all first":  {workers: 1, do: func(b *bench) { b.add("s", "a", "o", -100, 2); b.add("t", "b", "o", 0, 2) }, want: []string{"b-3", "b-4", "a-1", "a-2"}},
		"who has fewest in flight": {workers: 128, do: func(b *bench) { b.add("s", "a", "o", 0, 3); b.add("t", "b", "o", 0, 2) }, want: []string{"a-1", "b-4", "a-2", "a-3", "b-5"}}, // one each, until it is answered
		"a shut spoke waits": {workers: 1, do: func(b *bench) {
			b.add("s", "a", "o", 0, 3)
			b.add("t", "b", "o", -100, 1)
			b.shut("s", true, b.now)
		}, want: []string{"b-4"}},
		"and goes on": {workers: 1, do: func(b *bench) {
			b.shut("s", true, b.now)
			b.add("s", "a", "o", 0, 2)
			b.shut("s", false, b.now)
		}, want: []string{"a-1", "a-2"}},
		"what is forgotten does not come": {workers: 1, do: func(b *bench) {
			b.add("s", "a", "o", 0, 3)
			b.add("s", "b", "p", 0, 3)
			b.add("t", "b", "o", -100, 1)
			if n := b.forget("s", b.now); n != 6 {
				b.Errorf("%d are forgotten", n)
			}
			if n := b.forget("other", b.now); n != 0 {
				b.Errorf("%d are forgotten of a spoke that is not there", n)
			}
		}, want: []string{"b-7"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, tc.workers)
			tc.do(b)
			var got []string
			for b.fill(); len(b.flying) > 0; b.fill() {
				got = append(got, b.flying[0].Name)
				b.end(b.flying[0], endAnswered)
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
			if len(b.waiting) == 0 && (len(b.root.children) > 0 || b.root.waiting != 0) {
				t.Errorf("lanes are left: %v", b.root.children)
			}
		})
	}
}

// chosen returns the key that next must hand out, by looking at all lanes.
func chosen(l *lane) (parkedKey, bool) {
	if l.shut || l.inFlight >= l.window.size {
		return parkedKey{}, false
	}
	if l.children == nil {
		if l.parked.Len() == 0 {
			return parkedKey{}, false
		}
		return slices.MinFunc(l.parked.keys, func(a, b parkedKey) int {
			if a.priority != b.priority {
				return b.priority - a.priority
			}
			return int(a.seq) - int(b.seq)
		}), true
	}
	type offer struct {
		key  parkedKey
		lane *lane
	}
	var offers []offer
	for _, c := range l.children {
		if k, ok := chosen(c); ok {
			offers = append(offers, offer{k, c})
		}
	}
	several, size, free := len(offers) > 1, l.window.size, l.window.size-l.inFlight
	offers = slices.DeleteFunc(offers, func(o offer) bool {
		has := o.lane.inFlight
		switch {
		case has == 0:
			return false
		case l.parent != nil && l.parent.parent == nil && !o.lane.window.proven():
			return true
		case several && has >= size/2:
			return true
		case l.parent == nil && !o.lane.window.proven() && has*size > few*(free-1):
			return true
		}
		return has > 3*(free-1)
	})
	if len(offers) == 0 {
		return parkedKey{}, false
	}
	first := slices.MinFunc(offers, func(a, b offer) int {
		switch {
		case a.key.priority != b.key.priority:
			return b.key.priority - a.key.priority
		case a.lane.inFlight != b.lane.inFlight:
			return a.lane.inFlight - b.lane.inFlight
		}
		return int(a.lane.served) - int(b.lane.served)
	})
	return first.key, true
}

// In any sequence of events, next hands out the right key, no key is lost, and none is handed out twice at
// once.
func TestLanesProperties(t *testing.T) {
	run := func(seed uint64) bool {
		rnd := rand.New(rand.NewPCG(seed, seed))
		slots := []int{1, 2, 3, 5, 8, 16, 40}[rnd.IntN(7)]
		b := newBench(t, slots)
		ours := map[Request]bool{} // what has to be waiting
		spokes, namespaces, origins, keys := 1+rnd.IntN(5), 1+rnd.IntN(4), 1+rnd.IntN(3), 1+rnd.IntN(200)
		for range 600 {
			b.now = b.now.Add(time.Duration(rnd.IntN(300)) * time.Millisecond)
			switch what := rnd.IntN(100); {
			case what < 55:
				name := rnd.IntN(keys)
				spoke := multicluster.ClusterName(fmt.Sprint("s-", name%spokes))
				req := Request{ClusterName: spoke}
				req.NamespacedName = types.NamespacedName{Namespace: fmt.Sprint("o-", name%origins), Name: fmt.Sprint(name)}
				if _, flies := b.began[req]; flies {
					continue
				}
				in := Lane{Namespace: fmt.Sprint("ns-", name/7%namespaces), Origin: req.Namespace}
				if b.put(req, []int{0, 0, -100, Behind, 7}[rnd.IntN(5)], in, b.now) == ours[req] {
					t.Errorf("put said that %v waits: %v", req, ours[req])
				}
				ours[req] = true
			case what < 92:
				if len(b.flying) > 0 {
					b.end(b.flying[rnd.IntN(len(b.flying))], []ending{endAnswered, endAnswered, endAnswered, endFailed, endThrottled}[rnd.IntN(5)])
				}
			case what < 97:
				b.shut(multicluster.ClusterName(fmt.Sprint("s-", rnd.IntN(spokes))), rnd.IntN(3) == 0, b.now)
			case what < 99:
				b.now = b.now.Add(remembered)
			default:
				name := multicluster.ClusterName(fmt.Sprint("s-", rnd.IntN(spokes)))
				n := b.forget(name, b.now)
				for req := range ours {
					if req.ClusterName == name {
						delete(ours, req)
						n--
					}
				}
				if n != 0 {
					t.Errorf("forgot %d too many", n)
				}
			}
			if !b.checked(ours) {
				return false
			}
		}
		return b.emptied(ours, spokes)
	}
	if err := quick.Check(run, &quick.Config{MaxCount: 150, Rand: nil}); err != nil {
		t.Error(err)
	}
}

// checked hands out all keys that are allowed, and checks each.
func (b *bench) checked(ours map[Request]bool) bool {
	b.Helper()
	for {
		var want parkedKey
		var is bool
		if b.root.children != nil {
			want, is = chosen(b.root)
		}
		req, priority, ok := b.lanes.next(b.now)
		if ok != is || (ok && (req != want.req || priority != want.priority)) {
			b.Errorf("handed out %v (%v), want %v (%v)", req, ok, want.req, is)
			return false
		}
		if !ok {
			break
		}
		if _, flies := b.began[req]; flies || !ours[req] {
			b.Errorf("%v is handed out: it is in flight: %v, it was waiting: %v", req, flies, ours[req])
			return false
		}
		delete(ours, req)
		b.began[req] = b.now
		b.flying = append(b.flying, req)
	}
	if len(b.waiting) != len(ours) || b.root.waiting != len(ours) || b.root.inFlight != len(b.flying) || b.root.inFlight > b.root.window.size {
		b.Errorf("%d and %d wait, want %d; %d are in flight, want %d", len(b.waiting), b.root.waiting, len(ours), b.root.inFlight, len(b.flying))
		return false
	}
	return true
}

// emptied works until nothing is left.
func (b *bench) emptied(ours map[Request]bool, spokes int) bool {
	b.Helper()
	for i := range spokes {
		b.shut(multicluster.ClusterName(fmt.Sprint("s-", i)), false, b.now)
	}
	for b.checked(ours) && len(b.flying) > 0 {
		b.now = b.now.Add(time.Millisecond)
		b.end(b.flying[0], endAnswered)
	}
	if len(ours) > 0 {
		b.Errorf("%d keys are lost", len(ours))
		return false
	}
	b.now = b.now.Add(2 * remembered)
	b.expire(b.now)
	b.expire(b.now.Add(2 * remembered)) // the parents of those
	b.expire(b.now.Add(4 * remembered))
	if len(b.root.children) > 0 || b.idle.Len() > 0 || len(b.flights) > 0 {
		b.Errorf("%d lanes are left, %d idle ones, %d keys in flight", len(b.root.children), b.idle.Len(), len(b.flights))
		return false
	}
	return true
}

// A replay to a whole fleet takes little time per key.
func TestLanesAreBounded(t *testing.T) {
	const spokes, namespaces, each = 500, 20, 10
	b := newBench(t, workers)
	began := time.Now()
	for i := range each {
		for s := range spokes {
			for n := range namespaces {
				req := Request{ClusterName: multicluster.ClusterName(fmt.Sprint("s-", s))}
				req.NamespacedName = types.NamespacedName{Namespace: "o", Name: fmt.Sprint(n, "-", i)}
				b.put(req, -100, Lane{Namespace: fmt.Sprint("ns-", n), Origin: "o"}, b.now)
			}
		}
	}
	put := time.Since(began)
	var flying []Request
	keys := 0
	for {
		for req, _, ok := b.lanes.next(b.now); ok; req, _, ok = b.lanes.next(b.now) {
			flying = append(flying, req)
			keys++
		}
		if len(flying) == 0 {
			break
		}
		b.now = b.now.Add(time.Millisecond)
		b.count(flying[0], endAnswered, 10*time.Millisecond, b.now)
		b.done(flying[0], b.now)
		flying = flying[1:]
	}
	took := time.Since(began)
	t.Logf("%d keys: %v each to park, %v each in all", keys, put/time.Duration(keys), took/time.Duration(keys))
	if keys != spokes*namespaces*each {
		t.Errorf("%d keys came", keys)
	}
	if each := took / time.Duration(keys); each > 200*time.Microsecond {
		t.Errorf("a key takes %v", each)
	}
}
