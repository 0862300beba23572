package pipeline

import (
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
)

// exporter serves metrics that a test sets.
type exporter struct {
	server  *http.Server
	address string

	mu sync.Mutex
	// families are the metrics by name, with their series by labels.
	families map[string]map[string]*dto.Metric
}

func startExporter() (*exporter, error) {
	l, err := net.Listen("tcp", net.JoinHostPort(loopback, "0"))
	if err != nil {
		return nil, fmt.Errorf("listening for scrapes: %w", err)
	}
	e := &exporter{address: l.Addr().String(), families: map[string]map[string]*dto.Metric{}}
	e.server = &http.Server{Handler: e, ReadHeaderTimeout: askTimeout}
	go func() { _ = e.server.Serve(l) }() // ends when it is closed
	return e, nil
}

func (e *exporter) set(name string, labels map[string]string, value float64) {
	m := &dto.Metric{Gauge: &dto.Gauge{Value: &value}}
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		m.Label = append(m.Label, &dto.LabelPair{Name: &key, Value: new(labels[key])})
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.families[name] == nil {
		e.families[name] = map[string]*dto.Metric{}
	}
	e.families[name][seriesKey(labels)] = m
}

func (e *exporter) remove(name string, labels map[string]string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.families[name], seriesKey(labels))
}

func seriesKey(labels map[string]string) string {
	var key strings.Builder
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		fmt.Fprintf(&key, "%s=%q,", name, labels[name])
	}
	return key.String()
}

// ServeHTTP answers a scrape.
func (e *exporter) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	format := expfmt.NewFormat(expfmt.TypeTextPlain)
	w.Header().Set("Content-Type", string(format))
	encoder := expfmt.NewEncoder(w, format)
	for _, name := range slices.Sorted(maps.Keys(e.families)) {
		f := &dto.MetricFamily{Name: &name, Type: dto.MetricType_GAUGE.Enum()}
		for _, key := range slices.Sorted(maps.Keys(e.families[name])) {
			f.Metric = append(f.Metric, e.families[name][key])
		}
		if len(f.Metric) == 0 {
			continue
		}
		if err := encoder.Encode(f); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
	}
}
