package metrics

import (
	"fmt"
	"strings"
)

const intro = `# Metrics

The manager serves its metrics at ` + "`/metrics`" + ` of ` + "`--metrics-bind-address`" + `. This page is generated from the code
(` + "`make generate`" + `). [charts/rulefleet/files](../../charts/rulefleet/files) has alerts and a Grafana dashboard that use them;
what to do about an alert is in the [runbooks](../how-to/runbooks.md).

Only the replica that leads knows the fleet, so a sum over all replicas is right. No label has more values than there are
spokes: those that would depend on what a spoke answers are cut to what is known. Only ` + "`rulefleet_alerts`" + ` has a series for
each AlertRule and spoke, and only where an alert fires or is pending.

## Rulefleet's own

`

const outro = `
### What is measured as propagation

The clock begins when the manager hears of a change: by the event of an AlertRule on the hub (` + "`from=\"AlertRule\"`" + `), or of a
Deployment in a spoke (` + "`from=\"Deployment\"`" + `, for the AlertRules that templates make). It ends when the spoke's API server has
taken the PrometheusRule that follows from it. A second change before that does not restart it. What does not count:

- what nobody changed: the replay when a spoke is engaged, as after a restart of the manager; drift that is put right;
- deletions, which may be held on purpose;
- what waits for a person: a namespace that is missing in the spoke, a rule that the spoke refuses;
- changes while a spoke is not engaged. When it is, it gets all that it lacks by the replay.

A spoke that stops to answer stays engaged, and its changes wait. That time counts, and is told apart: such a change has
` + "`interrupted=\"true\"`" + `, and is not in the alert, which would only repeat that the spoke was away. A webhook in the spoke that
can't be asked does not count as an outage: its retries are in ` + "`interrupted=\"false\"`" + `.

## Of the libraries

controller-runtime, client-go and Prometheus' client serve these and more. The dashboard and the alerts use these.

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
