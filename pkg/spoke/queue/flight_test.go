package queue

import (
	"context"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
)

// Only requests of a Flight control how many keys may be in flight.
func TestFlight(t *testing.T) {
	for name, tc := range map[string]struct {
		code int
		err  error
		want int // of the lane's window, after one such request
	}{
		"an answer":   {code: 201, want: most(most(few)) + 1},
		"a refusal":   {code: 403, want: most(most(few)) + 1},
		"an error":    {code: 500, want: most(most(few)) / 2},
		"a proxy":     {code: 503, want: most(most(few)) / 2},
		"a timeout":   {err: context.DeadlineExceeded, want: most(most(few)) / 2},
		"a 429":       {code: 429, want: most(most(few))},
		"given up":    {err: context.Canceled, want: most(most(few))},
		"no requests": {want: most(most(few))},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := New(Options{Name: "c", Workers: workers, Answering: true})
				defer q.ShutDown()
				for _, name := range []string{"a", "b", "c", "d"} {
					q.Add(key("s", name))
				}
				req, _ := q.Get()
				q.count(req, endAnswered, time.Millisecond) // the others are in flight, too
				synctest.Wait()
				began := time.Now()
				<-time.After(time.Millisecond)
				switch ctx := q.Flight(t.Context(), req); {
				case tc.err != nil:
					Ended(ctx, began, nil, tc.err)
				case tc.code != 0:
					Ended(ctx, began, &http.Response{StatusCode: tc.code}, nil)
				}
				leaf := q.lanes.flights[req].lane
				if got := leaf.window.size; got != tc.want {
					t.Errorf("the lane's window is %d, want %d", got, tc.want)
				}
				if tc.code == http.StatusTooManyRequests && q.lanes.root.children["s"].window.size != few/2 {
					t.Errorf("the spoke's window is %d", q.lanes.root.children["s"].window.size)
				}
				q.Done(req)
				if got := leaf.window.size; got != tc.want {
					t.Errorf("the end of the reconcile made it %d", got)
				}
			})
		})
	}
}

// Without requests that count, a controller uses its reconciles.
func TestQueueLearnsFromReconciles(t *testing.T) {
	withQueue(t, workers, func(h *harness) {
		h.add(0, "s", "first", "a", "b", "c", "d")
		leaf := h.Queue.lanes.flights[key("s", "first")].lane
		window := func() int { return leaf.window.size }
		h.done("s", "first")
		h.took()
		before := window()
		h.done("s", "a")
		if got := window(); got != before+1 {
			t.Errorf("after one that went well, the window is %d", got)
		}
		h.AddRateLimited(key("s", "b"))
		h.done("s", "b") // fails at the very moment of the answer to a
		<-time.After(time.Second)
		h.AddRateLimited(key("s", "c"))
		h.done("s", "c")
		if got := window(); got > before {
			t.Errorf("after one that failed, the window is %d", got)
		}
		h.done("s", "d")
		for back := h.took(); len(back) > 0; back = h.took() { // b and c
			for _, name := range back {
				h.done("s", name[len("s/"):])
			}
		}
		h.ForgetSpoke("s")
		h.wantEmpty()
	})
}

// A failed key comes after all others of its lane, whatever its priority was.
func TestQueueFailedKeyGoesToTheBack(t *testing.T) {
	for name, again := range map[string]func(h *harness){
		"by AddRateLimited": func(h *harness) { h.AddRateLimited(key("s", "a")) },
		"as the controller does": func(h *harness) {
			h.AddWithOpts(priorityqueue.AddOpts{RateLimited: true, Priority: new(10)}, key("s", "a"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			withQueue(t, 1, func(h *harness) {
				h.add(10, "s", "a")
				h.want("s/a")
				h.add(0, "s", "b")
				h.add(-100, "s", "c")
				again(h)
				h.done("s", "a")
				<-time.After(maxBackoff)
				h.want("s/b")
				h.add(-100, "s", "d")
				h.done("s", "b")
				h.want("s/c")
				h.done("s", "c")
				h.want("s/d")
				h.done("s", "d")
				h.want("s/a")
				h.done("s", "a")
				h.ForgetSpoke("s") // its window is remembered
				h.wantEmpty()
			})
		})
	}
}

// Keys that wait behind a key of their namespace are returned once, and again when something about them
// changed. Failed keys are not returned.
func TestWaitingBehind(t *testing.T) {
	withQueue(t, workers, func(h *harness) {
		h.place = func(req Request) Lane { return Lane{Namespace: req.Name[:1], Origin: req.Name[1:2]} }
		h.add(0, "s", "ax-1", "ax-2", "ay-3", "bx-4")
		h.add(Behind, "s", "ax-5")
		h.add(0, "t", "ax-6", "ax-7")
		h.want("s/ax-1", "s/bx-4", "t/ax-6")
		ctx := h.Flight(t.Context(), key("s", "ax-1"))
		behind := func() []string {
			var out []string
			for _, req := range WaitingBehind(ctx) {
				out = append(out, req.ClusterName.String()+"/"+req.Name)
			}
			slices.Sort(out)
			return out
		}
		for i, want := range [][]string{{"s/ax-2", "s/ay-3"}, nil, {"s/ax-2"}, nil} {
			if i == 2 {
				h.add(-100, "s", "ax-2")
			}
			if got := behind(); !slices.Equal(got, want) {
				t.Errorf("%d: got %v, want %v", i, got, want)
			}
		}
		if got := WaitingBehind(t.Context()); got != nil {
			t.Errorf("without a queue: %v", got)
		}
		h.done("s", "ax-1")
		if got := behind(); got != nil {
			t.Errorf("after it was done: %v", got)
		}
		h.ForgetSpoke("s")
		h.ForgetSpoke("t")
	})
}
