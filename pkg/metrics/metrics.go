// Package metrics holds the operator's own metrics. They are served beside
// controller-runtime's.
package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var (
	// SpokeRequests counts requests to spokes' API servers by HTTP method and by the
	// class of the answer ("error": none came).
	SpokeRequests = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "rulefleet_spoke_requests_total",
		Help: "Requests to the API servers of spokes, by method and class of the answer (error: none came).",
	}, []string{"method", "code"})

	// ParkedKeys is the number of keys that wait for their spoke, by controller.
	ParkedKeys = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "rulefleet_parked_keys",
		Help: "Keys that wait because their spoke is at its limit or its circuit is open, by controller.",
	}, []string{"controller"})

	// OpenCircuits is the number of spokes whose circuit is open, or which throttle.
	OpenCircuits = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "rulefleet_open_circuits",
		Help: "Spokes whose circuit is open: they don't answer, or say 429, and are probed alone.",
	})

	// EngagedSpokes is the number of spokes that are engaged.
	EngagedSpokes = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "rulefleet_engaged_spokes",
		Help: "Spokes that are connected and served.",
	})

	// HeldDeletions is the number of deletions that the brake holds, by spoke and by
	// the controller that they are held of.
	HeldDeletions = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "rulefleet_held_deletions",
		Help: "Deletions that wait for an acknowledgement or for their time, because there are so many at once, by spoke and by hop (generate: AlertRules, distribute: PrometheusRules).",
	}, []string{"cluster", "hop"})
)

func init() {
	metrics.Registry.MustRegister(SpokeRequests, ParkedKeys, OpenCircuits, EngagedSpokes, HeldDeletions)
}
