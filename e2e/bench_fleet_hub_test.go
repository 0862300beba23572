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
var hubSample = regexp.MustCompile(`(?m)^(apiserver_request_total|apiserver_storage_size_bytes)\{([^}]*)\} (\S+)$`)

// hubLabel is a label of such a line.
var hubLabel = regexp.MustCompile(`(\w+)="([^"]*)"`)

// hubFigures returns the number of writes of objects that the manager writes on the hub, and the size of its etcd. An
// audit log of some hundred thousand requests would take longer to read than the manager takes to send them.
func hubFigures(ctx context.Context, c *http.Client, host string) (writes, size float64, err error) {
	text, err := fetch(ctx, c, host+"/metrics")
	if err != nil {
		return 0, 0, err
	}
	for _, sample := range hubSample.FindAllStringSubmatch(text, -1) {
		value, err := strconv.ParseFloat(sample[3], 64)
		if err != nil {
			return 0, 0, fmt.Errorf("reading the metrics of the hub: %w", err)
		}
		labels := map[string]string{}
		for _, label := range hubLabel.FindAllStringSubmatch(sample[2], -1) {
			labels[label[1]] = label[2]
		}
		switch {
		case strings.HasPrefix(sample[1], "apiserver_storage"):
			size += value
		case isManagers(labels):
			writes += value
		}
	}
	return writes, size, nil
}

// isManagers reports whether a count is of writes that nobody but the manager makes while the test waits.
func isManagers(labels map[string]string) bool {
	return slices.Contains([]string{"POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"}, labels["verb"]) &&
		(labels["group"] == "rulefleet.io" || slices.Contains([]string{"events", "secrets", "configmaps"}, labels["resource"]))
}

// figures is hubFigures of the hub.
func (b *fleetBench) figures(ctx context.Context, t *testing.T) (writes, size float64) {
	t.Helper()
	writes, size, err := hubFigures(ctx, b.hub, b.Hub.RESTConfig().Host)
	must(t, err)
	return writes, size
}
