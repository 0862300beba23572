package metrics

import (
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// Type is the type of a metric, as Prometheus calls it.
type Type string

// The types of metrics.
const (
	Counter   Type = "counter"
	Gauge     Type = "gauge"
	Histogram Type = "histogram"
)

// Metric describes a metric. docs/reference/metrics.md is generated from it.
type Metric struct {
	Name   string
	Type   Type
	Labels []string
	// Help is the description for Prometheus. Use tells users what to do with the metric.
	Help, Use string
}

// own has all metrics of this package.
var own []Metric

// Own returns the operator's own metrics, by name.
func Own() []Metric { return byName(own) }

func byName(metrics []Metric) []Metric {
	return slices.SortedFunc(slices.Values(metrics), func(a, b Metric) int { return strings.Compare(a.Name, b.Name) })
}

func counter(m Metric) *prometheus.CounterVec {
	m.Type = Counter
	own = append(own, m)
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: m.Name, Help: m.Help}, m.Labels)
}

func gauge(m Metric) *prometheus.GaugeVec {
	m.Type = Gauge
	own = append(own, m)
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: m.Name, Help: m.Help}, m.Labels)
}

func histogram(m Metric, buckets []float64) *prometheus.HistogramVec {
	m.Type = Histogram
	own = append(own, m)
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: m.Name, Help: m.Help, Buckets: buckets}, m.Labels)
}

// atScrape describes a gauge that is computed at a scrape.
func atScrape(m Metric) *prometheus.Desc {
	m.Type = Gauge
	own = append(own, m)
	return prometheus.NewDesc(m.Name, m.Help, m.Labels, nil)
}
