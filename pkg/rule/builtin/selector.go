package builtin

import (
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/rulefleet/rulefleet/pkg/clip"
	"github.com/rulefleet/rulefleet/pkg/rule/promql"
)

// ValidateSelector returns an error if s is not a valid list of PromQL matchers, such as
// job="kube-state-metrics". s may be empty.
func ValidateSelector(s string) error {
	_, err := selectorMatchers(s)
	return err
}

// maxSelector limits a selector, in bytes, because some templates contain it a dozen times.
const maxSelector = 512

// selectorMatchers returns the matchers of a selector, in their order.
func selectorMatchers(s string) ([]*labels.Matcher, error) {
	const metric = "kube_pod_info"
	const expected = `write only the matchers, without braces, such as job="kube-state-metrics"`
	if strings.TrimSpace(s) == "" {
		return nil, nil
	}
	if len(s) > maxSelector {
		return nil, fmt.Errorf("%q is longer than %d bytes; use fewer matchers", clip.Excerpt(s), maxSelector)
	}
	// With a metric name in front, matchers that match the empty string are allowed.
	text := metric + "{" + s + "}"
	tree, f := promql.Parse(text, promql.Stable)
	if f != nil {
		return nil, fmt.Errorf("%q is not valid: %s; %s", clip.Excerpt(s), f.Message, expected)
	}
	selector, ok := tree.(*parser.VectorSelector)
	if !ok || int(selector.PosRange.End) != len(text) {
		return nil, fmt.Errorf("%q is not valid; %s", clip.Excerpt(s), expected)
	}
	// The parser refuses a second matcher for the metric name.
	return slices.DeleteFunc(selector.LabelMatchers, func(m *labels.Matcher) bool { return m.Name == model.MetricNameLabel }), nil
}
