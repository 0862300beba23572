package queue

import (
	"context"
	"errors"
	"net/http"
	"time"
)

// flightKey marks a context whose requests count for the lanes of a key.
type flightKey struct{}

// inQueue is a key in flight and its queue.
type inQueue struct {
	queue *Queue
	req   Request
}

// Flight returns a context whose requests count for the lanes of a key in flight.
func (q *Queue) Flight(ctx context.Context, req Request) context.Context {
	return context.WithValue(ctx, flightKey{}, inQueue{queue: q, req: req})
}

// WaitingBehind returns the keys that wait for the key that a reconcile with this context works on: those in
// the same namespace of the spoke that have not failed themselves. Each is returned once. It returns none for
// a context without a Flight.
func WaitingBehind(ctx context.Context) []Request {
	if f, ok := ctx.Value(flightKey{}).(inQueue); ok {
		return f.queue.behind(f.req)
	}
	return nil
}

// Ended reports to the lanes of a Flight how a request ended.
func Ended(ctx context.Context, began time.Time, resp *http.Response, err error) {
	f, ok := ctx.Value(flightKey{}).(inQueue)
	if !ok || errors.Is(err, context.Canceled) {
		return
	}
	e := endAnswered
	switch {
	case err != nil, resp.StatusCode >= http.StatusInternalServerError:
		e = endFailed
	case resp.StatusCode == http.StatusTooManyRequests:
		e = endThrottled
	}
	f.queue.count(f.req, e, time.Since(began))
}
