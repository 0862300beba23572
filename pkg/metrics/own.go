package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
)

// The types of metrics, as Prometheus calls them.
const (
	typeCounter   = "counter"
	typeGauge     = "gauge"
	typeHistogram = "histogram"
)

// metric describes a metric. docs/reference/metrics.md is generated from it.
type metric struct {
	Name   string
	Type   string
	Labels []string
	// Help is the description for Prometheus. Use tells users what to do with the metric.
	Help, Use string
}

// own has all metrics of this package.
var own []metric

func counter(m metric) *prometheus.CounterVec {
	m.Type = typeCounter
	own = append(own, m)
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: m.Name, Help: m.Help}, m.Labels)
}

func gauge(m metric) *prometheus.GaugeVec {
	m.Type = typeGauge
	own = append(own, m)
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: m.Name, Help: m.Help}, m.Labels)
}

func histogram(m metric, buckets []float64) *prometheus.HistogramVec {
	m.Type = typeHistogram
	own = append(own, m)
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: m.Name, Help: m.Help, Buckets: buckets}, m.Labels)
}

// atScrape describes a gauge that is computed at a scrape.
func atScrape(m metric) *prometheus.Desc {
	m.Type = typeGauge
	own = append(own, m)
	return prometheus.NewDesc(m.Name, m.Help, m.Labels, nil)
}
