package metrics

import (
	"context"
	"sync/atomic"

	clientmetrics "k8s.io/client-go/tools/metrics"
)

// hubRequests counts the requests to the hub alone. client-go counts those of every client
// by its host: each spoke would add series, which stay when it has left.
// rulefleet_spoke_requests_total counts those to spokes.
type hubRequests struct {
	next clientmetrics.ResultMetric
	host atomic.Pointer[string]
}

// toHub stands before controller-runtime's rest_client_requests_total, which
// controller-runtime's init has put there: this package imports it.
var toHub = func() *hubRequests {
	h := &hubRequests{next: clientmetrics.RequestResult}
	clientmetrics.RequestResult = h
	return h
}()

// SetHub says which host the hub has, with its port. Requests to others are not counted in
// rest_client_requests_total from then on.
func SetHub(host string) { toHub.host.Store(&host) }

// Increment implements client-go's ResultMetric.
func (h *hubRequests) Increment(ctx context.Context, code, method, host string) {
	if hub := h.host.Load(); hub == nil || *hub == host {
		h.next.Increment(ctx, code, method, host)
	}
}
