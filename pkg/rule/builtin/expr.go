package builtin

import (
	"fmt"
	"strings"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/placeholder"
)

// metrics writes PromQL over the series of kube-state-metrics for one workload.
//
// If kube-state-metrics is scraped with honorLabels, the labels namespace, pod and container are those
// of the object. Otherwise they are those of kube-state-metrics, and the labels of the object are
// exported_namespace, exported_pod and exported_container. Every expression supports both, with the
// two sides of an "or". The first side excludes series with exported_namespace: their namespace is
// that of kube-state-metrics, which may contain a workload of the same name.
//
// Two instances of kube-state-metrics, or one that was restarted, have the same series twice. Each
// series is reduced with max to labels of the object, so that the alert stays the same.
type metrics struct {
	selector string // the matchers in every selector, each followed by a comma
	kind     v1alpha1.WorkloadKind
}

func newMetrics(selector string, kind v1alpha1.WorkloadKind) metrics {
	matchers, err := selectorMatchers(selector)
	if err != nil {
		// It is written unchanged, so that Template reports it.
		return metrics{selector + ",", kind}
	}
	var b strings.Builder
	for _, m := range matchers {
		// Placeholders are not replaced here, even if a regular expression looks like one.
		b.WriteString(placeholder.Escape(m.String()) + ",")
	}
	return metrics{b.String(), kind}
}

// series selects the series of a metric, or of several metrics separated by |, for the workload's
// namespace, for both ways of scraping. before and after are written around each selector.
func (m metrics) series(before, metric, after string, matchers ...string) string {
	const namespace = `namespace="$(workload.namespace)"`
	head := metric + "{"
	if strings.Contains(metric, "|") {
		head = fmt.Sprintf("{__name__=~%q,", metric)
	}
	half := func(namespace ...string) string {
		return before + head + m.selector + strings.Join(append(namespace, matchers...), ",") + "}" + after
	}
	return indent(half(namespace, `exported_namespace=""`)) + "\nor\n" + indent(half("exported_"+namespace))
}

// workload is the value of a metric of the workload, without labels.
func (m metrics) workload(metric string, matchers ...string) string {
	return enclose("max", m.series("", metric, "", append([]string{m.named()}, matchers...)...))
}

// before is the value that workload had some time ago, such as 10m.
func (m metrics) before(metric, ago string) string {
	return enclose("max", m.series("", metric, " offset "+ago, m.named()))
}

// moved is true if a metric of the workload had different values within a window. Unlike changes(), it also
// detects a change from one instance of kube-state-metrics to the next.
func (m metrics) moved(metric, window string) string {
	return m.highest(metric, window) + "\n>\n" + enclose("min", m.series("min_over_time(", metric, window+")", m.named()))
}

// highest is the highest value of a metric of the workload within a window.
func (m metrics) highest(metric, window string) string {
	return enclose("max", m.series("max_over_time(", metric, window+")", m.named()))
}

// named matches the series of the workload.
func (m metrics) named() string {
	return fmt.Sprintf(`%s="$(workload.name)"`, rule.WorkloadLabel(m.kind))
}

// autoscaler is the value of a metric of each HorizontalPodAutoscaler.
func (m metrics) autoscaler(metric string, matchers ...string) string {
	return enclose("max by (horizontalpodautoscaler) ", m.series("", metric, "", matchers...))
}

// containers returns an element with the labels pod and container for each container of the workload
// for which a metric is 1. before and after are as in series.
func (m metrics) containers(before, metric, after string, matchers ...string) string {
	return enclose("max by (pod, container) ",
		relabel("container", "exported_container", relabel("pod", "exported_pod", m.series(before, metric, after, matchers...)))) +
		" > 0\nand on (pod) (\n" + indent(m.pods()) + "\n)"
}

// pods returns an element with the label pod for each pod of the workload. It follows owners, because names
// are ambiguous: web-api is not a pod of Deployment web. Between a Deployment and its pods, there are ReplicaSets.
func (m metrics) pods() string {
	owner := []string{fmt.Sprintf("owner_kind=%q", m.kind), `owner_name="$(workload.name)"`}
	if m.kind != v1alpha1.DeploymentKind {
		return relabel("pod", "exported_pod", m.series("", "kube_pod_owner", "", owner...))
	}
	owned := m.series("", "kube_pod_owner", "", `owner_kind="ReplicaSet"`)
	return relabel("replicaset", "owner_name", relabel("pod", "exported_pod", owned)) +
		"\nand on (replicaset) (\n" +
		indent(m.series("", "kube_replicaset_owner", "", owner...)) +
		"\n)"
}

// relabel copies the value of a label to another label, if it exists.
func relabel(to, from, expr string) string {
	return enclose("label_replace", expr+",\n"+fmt.Sprintf(`%q, "$1", %q, "(.+)"`, to, from))
}

// eitherOf writes one of two expressions: the second one where the first one has no result.
func eitherOf(a, b string) string { return "(\n" + indent(a) + "\nor\n" + indent(b) + "\n)" }

// all joins conditions that must all be true.
func all(exprs ...string) string { return strings.Join(exprs, "\nand\n") }

// enclose writes a function or an aggregation around its arguments.
func enclose(function, arguments string) string {
	return function + "(\n" + indent(arguments) + "\n)"
}

func indent(s string) string { return "  " + strings.ReplaceAll(s, "\n", "\n  ") }
