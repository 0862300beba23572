package evaluate

import (
	"slices"
	"strings"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/prometheus/common/model"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/delivery"
	"github.com/rulefleet/rulefleet/pkg/rule/evaluation"
	"github.com/rulefleet/rulefleet/pkg/rule/promql"
)

const (
	// maxNeeds bounds the selectors of one rule that are queried, and maxPackNeeds those of all rules of a RulePack.
	maxNeeds     = 256
	maxPackNeeds = 2048
	// maxRecordingNeeds bounds the selectors of a recording rule whose result is checked, and maxLookback the age of that:
	// Prometheus finds no series that are older than 5 min.
	maxRecordingNeeds = 16
	maxLookback       = 4 * time.Minute
)

// needs are the selectors of a PrometheusRule at one generation; see promql.Needs.
type needs struct {
	generation int64
	of         [][]string
	recordings []recording
	metrics    map[string]string // the name of each selector's metric, and of each such name
	key        rule.Key
	missing    []string
	checked    bool // whether the result is known
}

// recording is a recording rule that should have a result while the series that it needs exist.
type recording struct {
	result string // the selector of its series
	needs  [][]string
	// since is when the check of the result began to find none although the series exist; zero if it does not.
	since time.Time
}

// parseNeeds returns the needs of new and changed PrometheusRules, as far as the spoke's parsing budget
// allows. It holds no lock while parsing.
func (s *spokeState) parseNeeds(t *task, render delivery.Options) map[types.UID]*needs {
	s.mu.Lock()
	known := s.series.needs // it is replaced and never modified
	s.mu.Unlock()
	out := map[types.UID]*needs{}
	for uid, o := range t.objects {
		if n := known[uid]; (n == nil || n.generation != o.Generation) && s.mayParse(evaluation.Exprs(o)...) {
			out[uid] = needsOf(o, render)
		}
	}
	return out
}

// needsOf returns the selectors in the expressions of a PrometheusRule.
func needsOf(o *monitoringv1.PrometheusRule, render delivery.Options) *needs {
	n := &needs{generation: o.Generation, metrics: map[string]string{}}
	n.key, _ = rule.ParseRuleKey(o)
	contents := evaluation.Contents(o)
	own := recorded(contents)
	for i := range contents {
		expr := render.Readable(n.key.Namespace, contents[i].Rule.Expr.String())
		needs, shouldYield := promql.NeedsOfResult(expr)
		if shouldYield && len(n.recordings) < maxPackNeeds && len(needs) <= maxRecordingNeeds {
			if result := resultOf(&contents[i], n.key.Namespace, render); result != "" {
				n.recordings = append(n.recordings, recording{result: result, needs: slices.Clone(needs)})
				n.metrics[result] = contents[i].Rule.Record
			}
		}
		needs = slices.DeleteFunc(needs, func(need []string) bool { return slices.ContainsFunc(need, own) })
		n.of = append(n.of, needs[:min(len(needs), maxNeeds)]...)
	}
	slices.SortFunc(n.of, slices.Compare)
	n.of = slices.CompactFunc(n.of, slices.Equal)
	n.of = n.of[:min(len(n.of), maxPackNeeds)]
	for _, selector := range slices.Concat(n.of...) {
		metric := promql.MetricName(selector)
		n.metrics[selector], n.metrics[metric] = metric, promql.MetricName(metric)
	}
	return n
}

// resultOf returns the selector of the series of a recording rule, or "" if their absence says nothing.
func resultOf(c *evaluation.Content, namespace string, render delivery.Options) string {
	name := c.Rule.Record
	if !model.LegacyValidation.IsValidMetricName(name) || len(name) > maxMissingBytes || strings.HasPrefix(name, kubeStateMetrics) || c.Age() > maxLookback {
		return ""
	}
	if needs := promql.Needs(render.Readable(namespace, name)); len(needs) == 1 {
		return needs[0][0]
	}
	return ""
}

// recorded returns a function that reports whether a recording rule of the same PrometheusRule creates the series of a
// selector. If they are missing, the series that this rule reads are missing, and those are reported.
func recorded(contents []evaluation.Content) func(selector string) bool {
	names := map[string]bool{}
	for i := range contents {
		if name := contents[i].Rule.Record; name != "" {
			names[name] = true
		}
	}
	return func(selector string) bool {
		if len(names) == 0 {
			return false
		}
		return names[promql.MetricName(selector)]
	}
}
