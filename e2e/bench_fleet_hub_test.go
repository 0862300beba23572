package e2e

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// hubSample is a line of the metrics of an API server: its name, its labels and its value.
var hubSample = regexp.MustCompile(`(?m)^(apiserver_request_total|apiserver_storage_size_bytes|process_cpu_seconds_total)(?:\{([^}]*)\})? (\S+)$`)

// hubLabel is a label of such a line.
var hubLabel = regexp.MustCompile(`(\w+)="([^"]*)"`)

// hubFigures are the number of writes of objects that the manager writes on the hub, the size of the hub's etcd in bytes,
// and the CPU time of its API server in seconds. An audit log of some hundred thousand requests would take longer to read
// than the manager takes to send them.
type hubFigures struct {
	writes, size, cpu float64
	// of are the writes by verb, resource and subresource.
	of map[string]float64
}

func readHub(ctx context.Context, c *http.Client, host string) (out hubFigures, err error) {
	text, err := fetch(ctx, c, host+"/metrics")
	if err != nil {
		return out, err
	}
	out.of = map[string]float64{}
	for _, sample := range hubSample.FindAllStringSubmatch(text, -1) {
		value, err := strconv.ParseFloat(sample[3], 64)
		if err != nil {
			return out, fmt.Errorf("reading the metrics of the hub: %w", err)
		}
		labels := map[string]string{}
		for _, label := range hubLabel.FindAllStringSubmatch(sample[2], -1) {
			labels[label[1]] = label[2]
		}
		switch {
		case strings.HasPrefix(sample[1], "apiserver_storage"):
			out.size += value
		case strings.HasPrefix(sample[1], "process_cpu"):
			out.cpu += value
		case isManagers(labels):
			out.writes += value
			out.of[labels["verb"]+" "+strings.TrimSuffix(labels["resource"]+"/"+labels["subresource"], "/")] += value
		}
	}
	return out, nil
}

// isManagers reports whether a count is of writes that nobody but the manager makes while the test waits.
func isManagers(labels map[string]string) bool {
	return slices.Contains([]string{"POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"}, labels["verb"]) &&
		(labels["group"] == "rulefleet.io" || slices.Contains([]string{"events", "secrets", "configmaps"}, labels["resource"]))
}

// figures are those of the hub.
func (b *fleetBench) figures(t *testing.T) hubFigures {
	t.Helper()
	out, err := readHub(t.Context(), b.hub, b.Hub.RESTConfig().Host)
	must(t, err)
	return out
}

// since returns the writes since an earlier moment, by verb, resource and subresource.
func (f hubFigures) since(before hubFigures) map[string]float64 {
	out := map[string]float64{}
	for of, n := range f.of {
		if n != before.of[of] {
			out[of] = n - before.of[of]
		}
	}
	return out
}
