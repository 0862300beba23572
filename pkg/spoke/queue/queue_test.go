package queue

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/rulefleet/rulefleet/pkg/metrics"
)

// workers is the number of workers of a controller, as in production.
const workers = 128

// key is a key of a spoke.
func key(spoke multicluster.ClusterName, name string) Request {
	req := Request{ClusterName: spoke}
	req.NamespacedName = types.NamespacedName{Namespace: "ns", Name: name}
	return req
}

// harness works with a Queue directly, in a bubble where time stands still while anything else can happen. It
// has as many workers as the queue has keys to give: keys that it took are in flight until done is called.
type harness struct {
	*testing.T
	*Queue

	mu       sync.Mutex
	got      []string
	at       time.Time // of the last of got
	priority int       // of the last of got
	inFlight int
}

func withQueue(t *testing.T, workers int, fn func(h *harness)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := &harness{T: t, Queue: New(Options{Name: t.Name(), Workers: workers})}
		go func() {
			for {
				req, priority, shutdown := h.Queue.GetWithPriority()
				if shutdown {
					return
				}
				h.mu.Lock()
				h.got = append(h.got, req.ClusterName.String()+"/"+req.Name)
				h.at, h.priority = time.Now(), priority
				h.inFlight++
				if h.inFlight > workers {
					h.Errorf("%s is in flight with %d others, and there are %d workers", req, h.inFlight-1, workers)
				}
				h.mu.Unlock()
			}
		}()
		fn(h)
		h.ShutDown()
	})
}

// apart gives every key its own namespace.
func (h *harness) apart() {
	h.Queue.place = func(req Request) Lane { return Lane{Namespace: req.Name} }
}

// add adds keys of a spoke, one after the other.
func (h *harness) add(priority int, spoke multicluster.ClusterName, names ...string) {
	h.Helper()
	for _, name := range names {
		h.AddWithOpts(priorityqueue.AddOpts{Priority: &priority}, key(spoke, name))
		synctest.Wait()
	}
}

func (h *harness) done(spoke multicluster.ClusterName, names ...string) {
	h.Helper()
	for _, name := range names {
		h.mu.Lock()
		h.inFlight--
		h.mu.Unlock()
		h.Queue.Done(key(spoke, name))
		synctest.Wait()
	}
}

// took returns the keys handed out since the last call.
func (h *harness) took() []string {
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	out := h.got
	h.got = nil
	return out
}

// parked returns the number of parked keys of a spoke.
func (h *harness) parked(spoke string) int {
	h.Queue.mu.Lock()
	defer h.Queue.mu.Unlock()
	if l := h.Queue.lanes.root.children[spoke]; l != nil {
		return l.waiting
	}
	return 0
}

func (h *harness) want(names ...string) {
	h.Helper()
	if got := h.took(); !slices.Equal(got, names) {
		h.Fatalf("handed out %q, want %q", got, names)
	}
}

// wantEmpty wants nothing left of any spoke.
func (h *harness) wantEmpty() {
	h.Helper()
	h.want()
	if n := spokesOf(h.Queue); n > 0 {
		h.Errorf("%d lanes are left", n)
	}
	if left := testutil.ToFloat64(metrics.ParkedKeys.WithLabelValues(h.Queue.name)); left != 0 {
		h.Errorf("the metric says that %v keys are parked", left)
	}
}

func spokesOf(q *Queue) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.lanes.root.children)
}

// One spoke never delays another.
func TestQueueKeepsSpokesApart(t *testing.T) {
	withQueue(t, workers, func(h *harness) {
		names := make([]string, 1000)
		for i := range names {
			names[i] = fmt.Sprintf("rule-%03d", i)
			h.Add(key("frozen", names[i]))
		}
		const alone = 1 // as long as it has answered nothing
		if got := len(h.took()); got != alone {
			t.Fatalf("%d keys of the frozen spoke are handed out, want %d", got, alone)
		}
		if got := h.parked("frozen"); got != len(names)-alone {
			t.Errorf("%d are parked, want %d", got, len(names)-alone)
		}
		if got := testutil.ToFloat64(metrics.ParkedKeys.WithLabelValues(h.Queue.name)); got != float64(len(names)-alone) {
			t.Errorf("the metric says %v, want %d", got, len(names)-alone)
		}
		for _, name := range names[:20] { // none of the frozen spoke comes back meanwhile
			h.add(-100, "good", name)
			h.want("good/" + name)
			h.done("good", name)
		}
		h.add(0, "good", names[:3]...)
		h.want("good/rule-000")
		h.done("good", names[0])
		h.want("good/rule-001", "good/rule-002")
		h.done("good", names[1], names[2])

		// It answers again.
		for _, name := range names {
			h.done("frozen", name)
		}
		if got := len(h.took()); got != len(names)-alone {
			t.Errorf("%d keys came after, want %d", got, len(names)-alone)
		}
		h.wantEmpty()
	})
}

func TestQueueParking(t *testing.T) {
	for name, fn := range map[string]func(h *harness){
		"by priority, then by arrival": func(h *harness) {
			h.add(0, "s", "b", "c")
			h.add(-100, "s", "d")
			h.add(10, "s", "e")
			h.add(0, "s", "f")
			h.add(-100, "s", "g")
			before := "a"
			for _, name := range []string{"e", "b", "c", "f", "d", "g"} {
				h.done("s", before)
				h.want("s/" + name)
				before = name
			}
			h.done("s", before)
		},
		"once, however often it is added": func(h *harness) {
			h.add(0, "s", "b", "b", "b")
			h.add(-100, "s", "b")
			h.done("s", "a")
			h.want("s/b")
			h.done("s", "b")
		},
		"more urgent than before": func(h *harness) {
			h.add(-100, "s", "b", "c", "d")
			h.add(0, "s", "c")
			h.done("s", "a")
			h.want("s/c")
			h.done("s", "c")
			h.want("s/b")
			h.done("s", "b")
			h.want("s/d")
			h.done("s", "d")
		},
		"its priority stays": func(h *harness) {
			h.add(-100, "s", "b")
			h.done("s", "a")
			h.want("s/b")
			if h.priority != -100 {
				h.Errorf("handed out with priority %d", h.priority)
			}
			h.done("s", "b")
		},
		"less urgent than before": func(h *harness) {
			h.add(0, "s", "b")
			h.add(-50, "s", "c")
			h.add(-100, "s", "b")
			h.done("s", "a")
			h.want("s/b")
			h.done("s", "b")
			h.want("s/c")
			h.done("s", "c")
		},
		"added again while it is in flight": func(h *harness) {
			h.add(0, "s", "a")
			h.want()
			h.done("s", "a")
			h.want("s/a")
			h.done("s", "a")
		},
		"the spoke is forgotten": func(h *harness) {
			h.add(0, "s", "b", "c")
			h.ForgetSpoke("s")
			if got := h.parked("s"); got != 0 {
				h.Errorf("%d are parked", got)
			}
			h.want()
			h.add(0, "s", "d")
			h.want() // a is still in flight
			h.done("s", "a")
			h.want("s/d")
			h.done("s", "d")
		},
		"a spoke without keys is forgotten": func(h *harness) {
			h.ForgetSpoke("other")
			h.done("s", "a")
		},
	} {
		t.Run(name, func(t *testing.T) {
			withQueue(t, 1, func(h *harness) {
				h.add(0, "s", "a")
				h.want("s/a")
				fn(h)
				h.wantEmpty()
			})
		})
	}
}

// How deep the queue is, and for how long keys wait, is counted by spoke.
func TestQueueDepth(t *testing.T) {
	withQueue(t, 3, func(h *harness) { // one of them for who comes
		h.apart()
		wait := func(d time.Duration) { time.Sleep(d) } //nolint:forbidigo // the test's own time
		check := func(what string, backlog time.Duration, depths map[string]int) {
			t.Helper()
			if got := h.Depth(); !maps.Equal(got.Depths, depths) || got.Backlog != backlog || got.Controller != h.Queue.name {
				t.Errorf("%s: %+v, want %v and %v", what, got, backlog, depths)
			}
		}
		check("nothing", 0, map[string]int{})
		h.add(0, "s", "a", "b")
		check("none waits", 0, map[string]int{"s": 2})
		h.add(0, "s", "c", "d")
		h.add(0, "t", "a", "b", "c")
		h.took()
		wait(time.Minute)
		check("some wait", time.Minute, map[string]int{"s": 4, "t": 3})
		h.SetCircuit("s", true)
		h.SetCircuit("t", true)
		check("the circuits are open", 0, map[string]int{"s": 4, "t": 3})
		h.done("s", "a", "b")
		h.SetCircuit("s", false)
		h.took()
		check("one is closed", 0, map[string]int{"s": 2, "t": 3})
		h.SetCircuit("t", false)
		wait(time.Second)
		check("both are closed", time.Second, map[string]int{"s": 2, "t": 3})
		h.done("s", "c", "d")
		h.done("t", "a")
		h.took()
		check("less waits", 0, map[string]int{"t": 2})
		h.done("t", "b", "c")
		h.wantEmpty()
	})
}

func TestQueueCircuit(t *testing.T) {
	for name, fn := range map[string]func(h *harness){
		"open parks everything": func(h *harness) {
			h.SetCircuit("s", true)
			h.add(0, "s", "a", "b", "c")
			h.add(100, "s", "d")
			h.want()
			h.add(0, "other", "a")
			h.want("other/a")
			h.done("other", "a")
			h.SetCircuit("s", false)
			h.want("s/d", "s/a")
			h.done("s", "d", "a")
			h.want("s/b", "s/c")
			h.done("s", "b", "c")
		},
		"open while keys are in flight": func(h *harness) {
			h.add(0, "s", "a", "b", "c", "d")
			h.want("s/a", "s/b")
			h.SetCircuit("s", true)
			h.done("s", "a", "b")
			h.want()
			h.SetCircuit("s", false)
			h.want("s/c", "s/d")
			h.done("s", "c", "d")
		},
		"closed while keys are in flight": func(h *harness) {
			h.add(0, "s", "a", "b", "c", "d")
			h.want("s/a", "s/b")
			h.SetCircuit("s", true)
			h.done("s", "a")
			h.SetCircuit("s", false)
			h.want("s/c") // b is still in flight, and it may have two
			h.done("s", "b", "c")
			h.want("s/d")
			h.done("s", "d")
		},
		"opened and closed at once": func(h *harness) {
			h.add(0, "s", "a", "b", "c")
			h.want("s/a", "s/b")
			h.SetCircuit("s", true)
			h.SetCircuit("s", false)
			h.SetCircuit("s", true)
			h.SetCircuit("s", false)
			h.want()
			h.done("s", "a")
			h.want("s/c")
			h.done("s", "b", "c")
		},
		"opened again while keys are on their way": func(h *harness) {
			h.SetCircuit("s", true)
			h.add(0, "s", "a", "b", "c")
			h.SetCircuit("s", false)
			h.SetCircuit("s", true) // before anybody took one
			early := h.took()
			h.SetCircuit("s", false)
			all := slices.Concat(early, h.took())
			for i := 0; i < len(all); i++ {
				h.done("s", all[i][len("s/"):])
				all = append(all, h.took()...)
			}
			slices.Sort(all)
			if !slices.Equal(all, []string{"s/a", "s/b", "s/c"}) {
				h.Errorf("handed out %v", all)
			}
		},
		"of a spoke without keys": func(h *harness) {
			h.SetCircuit("s", true)
			h.SetCircuit("s", false)
		},
		"of a spoke that is forgotten": func(h *harness) {
			h.SetCircuit("s", true)
			h.add(0, "s", "a")
			h.ForgetSpoke("s")
			h.want()
			h.add(0, "s", "b") // it was registered again
			h.want("s/b")
			h.done("s", "b")
		},
		"a key whose delay ends meanwhile": func(h *harness) {
			h.AddAfter(key("s", "a"), time.Minute)
			h.SetCircuit("s", true)
			<-time.After(2 * time.Minute)
			h.want()
			if got := h.parked("s"); got != 1 {
				h.Errorf("%d are parked, want 1", got)
			}
			h.SetCircuit("s", false)
			h.want("s/a")
			h.done("s", "a")
		},
	} {
		t.Run(name, func(t *testing.T) {
			withQueue(t, 3, func(h *harness) { // one of them for who comes
				h.apart()
				fn(h)
				h.wantEmpty()
			})
		})
	}
}

func TestQueueShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(Options{Name: t.Name(), Workers: 1})
		q.SetCircuit("s", true)
		q.Add(key("s", "a"))
		var waiting sync.WaitGroup
		for range 10 {
			waiting.Go(func() {
				if req, _, shutdown := q.GetWithPriority(); !shutdown {
					t.Errorf("got %v", req)
				}
			})
		}
		synctest.Wait()
		q.ShutDown()
		waiting.Wait()
		if _, shutdown := q.Get(); !shutdown {
			t.Error("Get does not tell of the shutdown")
		}
	})
}

// Backoff never exceeds 30 s.
func TestQueueBackoff(t *testing.T) {
	withQueue(t, 4, func(h *harness) {
		var last time.Duration
		for i := range 100 {
			start := time.Now()
			h.AddRateLimited(key("s", "a"))
			<-time.After(31 * time.Second)
			h.want("s/a")
			took := h.at.Sub(start)
			switch {
			case took > 30*time.Second:
				t.Fatalf("failure %d is tried again after %s", i, took)
			case took < last:
				t.Fatalf("failure %d is tried again after %s, and the one before after %s", i, took, last)
			}
			last = took
			h.done("s", "a")
		}
		if last != maxBackoff {
			t.Errorf("it ends at %s", last)
		}
		h.Forget(key("s", "a"))
		h.AddRateLimited(key("s", "a"))
		<-time.After(minBackoff)
		h.want("s/a")
		h.done("s", "a")
		h.wantEmpty()
	})
}

// stress checks the guarantees of a Queue under concurrent use.
type stress struct {
	*testing.T
	q       *Queue
	workers int

	mu       sync.Mutex
	owed     map[Request]bool // added, and not handed out since
	inFlight map[Request]bool
	settled  chan struct{} // closed when all was added and nothing is owed
	adding   bool
}

func (s *stress) add(rnd *rand.Rand, req Request) {
	s.mu.Lock()
	s.owed[req] = true
	s.mu.Unlock()
	priority := rnd.IntN(3) - 1
	s.q.AddWithOpts(priorityqueue.AddOpts{Priority: &priority, After: time.Duration(rnd.IntN(2)) * time.Millisecond}, req)
}

func (s *stress) work() {
	for {
		req, shutdown := s.q.Get()
		if shutdown {
			return
		}
		s.mu.Lock()
		if s.inFlight[req] {
			s.Errorf("%v is handed out twice at once", req)
		}
		s.inFlight[req] = true
		delete(s.owed, req)
		if len(s.inFlight) > s.workers {
			s.Errorf("%d keys at once", len(s.inFlight))
		}
		s.mu.Unlock()
		runtime.Gosched()
		s.mu.Lock()
		delete(s.inFlight, req)
		s.mu.Unlock()
		s.q.Done(req)
		s.settle()
	}
}

func (s *stress) settle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.adding && len(s.owed) == 0 && s.settled != nil {
		close(s.settled)
		s.settled = nil
	}
}

func TestQueueStress(t *testing.T) {
	const (
		spokes, keys, adders, threads, workers, rounds = 6, 40, 6, 32, 16, 1500
	)
	s := &stress{
		T: t, q: New(Options{Name: t.Name(), Workers: workers}), workers: workers, adding: true,
		owed: map[Request]bool{}, inFlight: map[Request]bool{},
		settled: make(chan struct{}),
	}
	settled := s.settled
	var working, adding sync.WaitGroup
	for range threads {
		working.Go(s.work)
	}
	name := func(i int) multicluster.ClusterName { return multicluster.ClusterName(fmt.Sprintf("spoke-%d", i)) }
	for i := range adders {
		adding.Go(func() {
			rnd := rand.New(rand.NewPCG(1, uint64(i)))
			for range rounds {
				spoke := rnd.IntN(spokes)
				s.add(rnd, key(name(spoke), fmt.Sprintf("rule-%d", rnd.IntN(keys))))
				if rnd.IntN(20) == 0 {
					s.q.SetCircuit(name(spoke), rnd.IntN(2) == 0)
				}
			}
		})
	}
	adding.Wait()
	for i := range spokes {
		s.q.SetCircuit(name(i), false)
	}
	s.mu.Lock()
	s.adding = false
	s.mu.Unlock()
	s.settle()
	select {
	case <-settled:
	case <-time.After(30 * time.Second):
		s.mu.Lock()
		t.Errorf("%d keys were never handed out", len(s.owed))
		s.mu.Unlock()
	}
	for deadline := time.Now().Add(30 * time.Second); spokesOf(s.q) > 0 && time.Now().Before(deadline); { // until what was added twice has been through as well
		<-time.After(time.Millisecond)
	}
	s.q.ShutDown()
	working.Wait()
	if n := spokesOf(s.q); n > 0 {
		t.Errorf("%d lanes are left", n)
	}
}

// Objects of two kinds with one name are two keys.
func TestQueueKinds(t *testing.T) {
	withQueue(t, workers, func(h *harness) {
		of := func(kind string) Request {
			req := key("s", "down")
			req.Kind = kind
			return req
		}
		h.Add(of("AlertRule"))
		h.want("s/down")
		h.Add(of("RulePack"))
		synctest.Wait()
		if h.parked("s") != 1 { // the same key would wait for the end of its flight elsewhere
			t.Errorf("%d keys are parked", h.parked("s"))
		}
		h.Done(of("AlertRule"))
		h.want("s/down")
		h.Done(of("RulePack"))
		h.ForgetSpoke("s")
		h.wantEmpty()
	})
}
