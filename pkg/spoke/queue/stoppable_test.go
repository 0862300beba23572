package queue

import (
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
)

// heldBack stops a priority queue while it hands out a key, with its locks held: it then measures its depth.
type heldBack struct {
	handsOut, goOn chan struct{}
}

// number is every metric of the queue.
type number struct{ decreased func() }

func (number) Inc()            {}
func (n number) Dec()          { n.decreased() }
func (number) Set(float64)     {}
func (number) Observe(float64) {}

func (h *heldBack) NewDepthMetric(string) workqueue.GaugeMetric {
	return number{decreased: func() {
		h.handsOut <- struct{}{}
		<-h.goOn
	}}
}
func (*heldBack) NewAddsMetric(string) workqueue.CounterMetric           { return number{} }
func (*heldBack) NewLatencyMetric(string) workqueue.HistogramMetric      { return number{} }
func (*heldBack) NewWorkDurationMetric(string) workqueue.HistogramMetric { return number{} }
func (*heldBack) NewUnfinishedWorkSecondsMetric(string) workqueue.SettableGaugeMetric {
	return number{}
}

func (*heldBack) NewLongestRunningProcessorSecondsMetric(string) workqueue.SettableGaugeMetric {
	return number{}
}
func (*heldBack) NewRetriesMetric(string) workqueue.CounterMetric { return number{} }

// TestShutDownWhileAKeyIsHandedOut shuts a queue down when it is about to hand a key to a worker. Another worker is done
// with a key only then, and both end.
func TestShutDownWhileAKeyIsHandedOut(t *testing.T) {
	t.Parallel()
	h := &heldBack{handsOut: make(chan struct{}), goOn: make(chan struct{})}
	q := newStoppable("test", Backoff[string](), func(o *priorityqueue.Opts[string]) { o.MetricProvider = h })
	q.Add("first")
	got := make(chan bool)
	get := func() {
		_, shutdown := q.Get()
		got <- shutdown
	}
	go get()
	<-h.handsOut
	h.goOn <- struct{}{}
	if <-got {
		t.Fatal("the queue is shut down")
	}
	q.Add("second")
	go get()
	<-h.handsOut
	const waiting = 8
	var comes sync.WaitGroup
	comes.Add(waiting)
	for range waiting {
		go func() {
			comes.Done()
			get()
		}()
	}
	comes.Wait()
	q.ShutDown()
	expectEnd := func(what string) {
		select {
		case shutdown := <-got:
			if !shutdown {
				t.Errorf("%s gets a key after the shutdown", what)
			}
		case <-time.After(10 * time.Second):
			t.Errorf("%s does not end", what)
		}
	}
	for range 1 + waiting {
		expectEnd("a worker that waits")
	}
	close(h.goOn) // nobody takes the key
	go func() {
		q.Done("first")
		get()
	}()
	expectEnd("a worker that is done")
}
