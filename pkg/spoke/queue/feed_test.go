package queue

import (
	"slices"
	"testing"

	"k8s.io/client-go/util/workqueue"
)

// A controller gets what is sent after its start; what is sent before is dropped, and a nil Feed drops everything.
func TestFeed(t *testing.T) {
	var f Feed[[]string]
	f.Send([]string{"early"})
	q := workqueue.NewTypedRateLimitingQueue(Backoff[string]())
	defer q.ShutDown()
	err := Source(&f, func(q workqueue.TypedRateLimitingInterface[string], keys []string) {
		for _, key := range keys {
			q.Add(key)
		}
	}).Start(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	f.Send([]string{"a", "b"})
	var got []string
	for q.Len() > 0 {
		key, _ := q.Get()
		got = append(got, key)
	}
	if !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("enqueued %q", got)
	}

	var none *Feed[int]
	none.Send(1)
	if err := Source(none, func(workqueue.TypedRateLimitingInterface[string], int) {}).Start(t.Context(), q); err != nil {
		t.Error(err)
	}
}
