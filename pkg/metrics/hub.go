package metrics

import (
	"context"

	clientmetrics "k8s.io/client-go/tools/metrics"
)

// hubRequests counts only the requests to the hub. client-go counts those of every client by host, so
// each spoke would add series that stay when it has left. rulefleet_spoke_requests_total counts the
// requests to spokes.
type hubRequests struct {
	next clientmetrics.ResultMetric
	host string
}

// OnlyHub makes rest_client_requests_total, which controller-runtime has registered, count only the requests to
// the host of the hub, with its port. Call it once, before the first request.
func OnlyHub(host string) {
	clientmetrics.RequestResult = &hubRequests{next: clientmetrics.RequestResult, host: host}
}

// Increment implements client-go's ResultMetric.
func (h *hubRequests) Increment(ctx context.Context, code, method, host string) {
	if host == h.host {
		h.next.Increment(ctx, code, method, host)
	}
}
