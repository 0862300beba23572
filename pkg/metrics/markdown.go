package metrics

import (
	"fmt"
	"strings"
)

const intro = `# Metrics

<!-- Made by ` + "`make generate`" + ` from pkg/metrics: change the code there, not this file. -->

The manager serves its metrics at ` + "`/metrics`" + ` of ` + "`--metrics-bind-address`" + `.
[charts/rulefleet/files](../../charts/rulefleet/files) has alerts and a Grafana dashboard that use them. The
[runbooks](../how-to/runbooks.md) say what to do about each alert.

Only the replica that leads has metrics of the fleet, so a sum over all replicas is correct. No label has more values than
there are spokes; values that depend on the answers of a spoke are limited to known ones. Only ` + "`rulefleet_alerts`" + ` has a
series for each AlertRule and spoke, and only if an alert fires or is pending.

## Rulefleet's own

`

const outro = `
### What is measured as propagation

The time starts when the manager receives the event of a change: of an AlertRule on the hub (` + "`from=\"AlertRule\"`" + `), or of a
Deployment in a spoke (` + "`from=\"Deployment\"`" + `, for generated AlertRules). It ends when the spoke's API server has accepted the
PrometheusRule that follows from the change. A second change before that does not restart it. These do not count:

- writes without a change: the replay when a spoke is engaged, for example after a restart of the manager, and the
  correction of drift;
- deletions, because they may be held on purpose;
- changes that wait for a person: a namespace that is missing in the spoke, or a rule that the spoke refuses;
- changes while a spoke is not engaged. When it is engaged, the replay writes everything that it lacks.

A spoke that stops answering stays engaged, and its changes wait. That time counts, in separate series: such a change has
` + "`interrupted=\"true\"`" + `. The alert ignores these series, because it would only repeat that the spoke was away. A webhook in
the spoke that cannot be called does not count as an outage: its retries are in ` + "`interrupted=\"false\"`" + `.

## Of the libraries

controller-runtime, client-go and the Prometheus client library serve these metrics and more. The dashboard and the alerts
use these.

`

// Markdown returns docs/reference/metrics.md.
func Markdown() string {
	var b strings.Builder
	b.WriteString(intro)
	table(&b, Own())
	b.WriteString(outro)
	table(&b, Others())
	return b.String()
}

func table(b *strings.Builder, metrics []Metric) {
	b.WriteString("| Metric | Type | Labels | Meaning | What to do with it |\n| --- | --- | --- | --- | --- |\n")
	for _, m := range metrics {
		labels := make([]string, 0, len(m.Labels))
		for _, l := range m.Labels {
			labels = append(labels, "`"+l+"`")
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s | %s |\n", m.Name, m.Type, strings.Join(labels, ", "), cell(m.Help), cell(m.Use))
	}
}

func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }
