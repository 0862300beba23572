package metrics

import (
	"context"
	"sync/atomic"

	clientmetrics "k8s.io/client-go/tools/metrics"
)

// hubRequests counts only the requests to the hub. client-go counts those of every client by host, so
// each spoke would add series that stay when it has left. rulefleet_spoke_requests_total counts the
// requests to spokes.
type hubRequests struct {
	next clientmetrics.ResultMetric
	host atomic.Pointer[string]
}

// toHub wraps controller-runtime's rest_client_requests_total. The init of controller-runtime has
// registered it, because this package imports it.
var toHub = func() *hubRequests {
	h := &hubRequests{next: clientmetrics.RequestResult}
	clientmetrics.RequestResult = h
	return h
}()

// SetHub sets the host of the hub, with its port. From then on, rest_client_requests_total does not
// count requests to other hosts.
func SetHub(host string) { toHub.host.Store(&host) }

// Increment implements client-go's ResultMetric.
func (h *hubRequests) Increment(ctx context.Context, code, method, host string) {
	if hub := h.host.Load(); hub == nil || *hub == host {
		h.next.Increment(ctx, code, method, host)
	}
}
