package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
)

// scan finds the value of a metric in the text format, by its name with labels.
func scan(r io.Reader, name string) (float64, error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if value, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			return strconv.ParseFloat(value, 64)
		}
	}
	if err := lines.Err(); err != nil {
		return 0, fmt.Errorf("reading metrics: %w", err)
	}
	return 0, fmt.Errorf("there is no metric %s", name)
}

// TestMetrics checks the metrics of a working fleet: those computed at the scrape exist, and the latency from
// a Deployment to its PrometheusRule is measured. Requests to spokes create no series with their hosts.
func TestMetrics(t *testing.T) {
	onProcesses(t)
	parallelOnShared(t)
	a, ns := shared().Spoke(spokeA), unique(t)
	namespace(t, ns, a)
	create(t, a, deployment(ns, "first"))
	expectGenerated(t, shared(), spokeA, ns, "first", 1) // from here on, the templates are known
	const fromDeployment = `rulefleet_propagation_duration_seconds_count{from="Deployment",interrupted="false"}`
	before, err := metric(t.Context(), sharedManager(), fromDeployment)
	if err != nil {
		before = 0 // it does not exist before the first one
	}
	create(t, a, deployment(ns, "web"))
	for name, least := range map[string]float64{
		fromDeployment: before + 1,
		`rulefleet_rules{cluster="` + spokeA + `",phase="Applied",reason="NoEvaluator"}`: 1,
		`rulefleet_alertrules{condition="Accepted",reason="Accepted",status="True"}`:     1,
		`rulefleet_spoke_ready{cluster="` + spokeA + `",reason="Ready"}`:                 1,
		`rulefleet_spokes{condition="Connected",reason="Connected",status="True"}`:       2,
		`rulefleet_queue_depth{cluster="_other",controller="distribute"}`:                0,
		`rulefleet_queue_backlog_seconds{controller="generate"}`:                         0,
		`rulefleet_spoke_requests_total{code="200",verb="probe"}`:                        1,
		`rulefleet_spoke_requests_total{code="200",verb="list"}`:                         1,
		`rulefleet_spoke_requests_total{code="200",verb="watch"}`:                        1,
		`rulefleet_spoke_requests_total{code="201",verb="create"}`:                       1,
	} {
		t.Run(name, func(t *testing.T) {
			eventually(t, name, func(ctx context.Context) error { return metricAtLeast(ctx, sharedManager(), name, least) })
		})
	}
	served, err := exposed(t.Context(), sharedManager())
	must(t, err)
	for line := range strings.Lines(served) {
		name, _, _ := strings.Cut(line, "{")
		if host := regexp.MustCompile(`host="([^"]*)"`).FindStringSubmatch(line); name == "rest_client_requests_total" && "https://"+host[1] != shared().Hub.RESTConfig().Host {
			t.Errorf("requests to others than the hub are counted: %s", line)
		}
	}
	if !strings.Contains(served, "\nrulefleet_build_info{version=") {
		t.Error("the manager does not say its version")
	}
}

// exposed returns all metrics of a manager.
func exposed(ctx context.Context, m *fleet.Manager) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, m.MetricsURL, http.NoBody)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	return string(data), err
}
