package metrics

import (
	"fmt"
	"slices"
	"strings"
)

const intro = `# Metrics

The manager serves its metrics at the path ` + "`/metrics`" + ` of port 8443 (chart value ` + "`metrics.port`" + `), over https.
[Scrape the metrics](../how-to/install.md#scrape-the-metrics) describes how to read them. This page is generated from the
code (` + "`make generate`" + `). [charts/rulefleet/files](../../charts/rulefleet/files) contains alerts and a Grafana dashboard
that use the metrics. The [runbooks](../how-to/runbooks.md) say what to do about each alert.

Only the leader reports on the fleet, so you can sum over all replicas. No spoke can create an unlimited number of
series: label values that come from a spoke are limited to a fixed set. Only ` + "`rulefleet_alerts`" + ` has a series for each
AlertRule and spoke, and only if an alert fires or is pending.

## Rulefleet's own metrics

`

const outro = `
### What propagation measures

The clock starts when the manager receives the event of a change: of an AlertRule or RulePack on the hub, or of
a workload in a spoke, for generated AlertRules. The label ` + "`from`" + ` is the kind of the changed object. The clock stops when the spoke's API server has
accepted the resulting PrometheusRule. A second change in the meantime does not restart the clock. The following is not
measured:

- Writes without a change: the check of all rules when Rulefleet connects to a spoke, for example after a restart of the
  manager, and the correction of drift.
- Deletions, which can be held on purpose.
- Changes that wait for you: a namespace that is missing in the spoke, or a rule that the spoke refuses.
- Changes that are made before Rulefleet has connected to a spoke. Rulefleet writes them when it connects.

If a connected spoke stops answering, its changes wait. That time is measured, but kept apart: such changes
have ` + "`interrupted=\"true\"`" + `. ` + "`RulefleetPropagationSlow`" + ` leaves them out, because other alerts report the outage. A webhook
in the spoke that can't be called does not count as an outage: its retries are part of ` + "`interrupted=\"false\"`" + `.

## Metrics of the libraries

Libraries (controller-runtime, client-go and the Prometheus client) also serve metrics. The dashboard and the alerts use
those in this table.

`

// Markdown returns docs/reference/metrics.md.
func Markdown() string {
	var b strings.Builder
	b.WriteString(intro)
	table(&b, own)
	b.WriteString(outro)
	table(&b, others)
	return b.String()
}

func table(b *strings.Builder, metrics []metric) {
	b.WriteString("| Metric | Type | Labels | Meaning | What to do with it |\n| --- | --- | --- | --- | --- |\n")
	for _, m := range slices.SortedFunc(slices.Values(metrics), func(a, b metric) int { return strings.Compare(a.Name, b.Name) }) {
		labels := make([]string, 0, len(m.Labels))
		for _, l := range m.Labels {
			labels = append(labels, "`"+l+"`")
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s | %s |\n", m.Name, m.Type, strings.Join(labels, ", "), cell(m.Help), cell(m.Use))
	}
}

func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }
