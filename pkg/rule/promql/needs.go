package promql

import (
	"slices"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// maxNeeds limits the result for expressions with many "or".
const maxNeeds = 64

// Needs returns the needs of an alert: of each element, at least one of its vector selectors must
// not be empty. Selectors have no modifiers of time (offset, @, a range). An "or" needs each selector of
// its left side or each of its right side; with a side that is never empty, as in a or vector(0), it needs
// nothing. Selectors that may be empty at times are left out (the argument of absent and similar
// functions, the right side of unless, the labels that info looks up), and so are Prometheus' own ALERTS
// and ALERTS_FOR_STATE. There are none for an expression that does not parse.
func Needs(expr string) [][]string {
	out, _ := NeedsOfResult(expr)
	return out
}

// NeedsOfResult returns the Needs, and whether an expression should have a result while the series in them exist. It should
// not if it may be empty by intention: if it filters (comparisons, and, unless, limitk), depends on absence or on series
// that are not in Needs (absent, ALERTS, info), reads the past (offset, @, subqueries), or does not parse. Labels are not
// considered: if the two sides of an operation do not match, there is no result.
func NeedsOfResult(expr string) (out [][]string, shouldYield bool) {
	parsed, f := Parse(expr, Any)
	if f != nil {
		return nil, false
	}
	out = needs(nil, parsed)
	slices.SortFunc(out, slices.Compare)
	return slices.CompactFunc(out, slices.Equal), yields(parsed)
}

// either returns the needs if one of two sides is enough. It returns none if the result would be too
// large.
func either(left, right [][]string) [][]string {
	if len(left)*len(right) > maxNeeds {
		return nil
	}
	var out [][]string
	for _, l := range left {
		for _, r := range right {
			if len(l)+len(r) > maxNeeds {
				return nil
			}
			both := slices.Concat(l, r)
			slices.Sort(both)
			out = append(out, slices.Compact(both))
		}
	}
	return out
}

// needs adds the needs of a node.
func needs(out [][]string, node parser.Node) [][]string {
	switch n := node.(type) {
	case *parser.VectorSelector:
		switch metricName(n) {
		case "ALERTS", "ALERTS_FOR_STATE":
			return out
		}
		return append(out, []string{selectorText(n)})
	case *parser.BinaryExpr:
		switch n.Op {
		case parser.LUNLESS:
			return needs(out, n.LHS)
		case parser.LOR:
			both := either(needs(nil, n.LHS), needs(nil, n.RHS))
			if len(out) == 0 {
				return both // a chain of them is not copied over and over
			}
			return append(out, both...)
		}
	case *parser.Call:
		switch n.Func.Name {
		case "absent", "absent_over_time", "present_over_time":
			return out
		case "info":
			return needs(out, n.Args[0])
		}
	}
	for child := range parser.ChildrenIter(node) {
		out = needs(out, child)
	}
	return out
}

// yields reports whether no part of an expression may be empty by intention.
func yields(node parser.Node) bool {
	if mayBeEmpty(node) {
		return false
	}
	for child := range parser.ChildrenIter(node) {
		if !yields(child) {
			return false
		}
	}
	return true
}

// mayBeEmpty reports whether a node may have no result by intention although its children have one.
func mayBeEmpty(node parser.Node) bool {
	switch n := node.(type) {
	case *parser.VectorSelector:
		return needs(nil, n) == nil || n.OriginalOffset != 0 || n.OriginalOffsetExpr != nil || n.Timestamp != nil || n.StartOrEnd != 0
	case *parser.SubqueryExpr:
		return true // it reads the past
	case *parser.BinaryExpr:
		return n.Op == parser.LAND || n.Op == parser.LUNLESS || n.Op.IsComparisonOperator() && !n.ReturnBool
	case *parser.AggregateExpr:
		return n.Op == parser.LIMITK || n.Op == parser.LIMIT_RATIO
	case *parser.Call:
		return slices.Contains([]string{"absent", "absent_over_time", "present_over_time", "info"}, n.Func.Name)
	}
	return false
}

// selectorText returns a selector with only its name and matchers.
func selectorText(s *parser.VectorSelector) string {
	return (&parser.VectorSelector{Name: s.Name, LabelMatchers: s.LabelMatchers}).String()
}

// MetricName returns the name of the metric that a vector selector selects. It is empty if the name is
// not fixed, or if the text is not a vector selector.
func MetricName(selector string) string {
	parsed, _ := Parse(selector, Any)
	if s, ok := parsed.(*parser.VectorSelector); ok {
		return metricName(s)
	}
	return ""
}

func metricName(s *parser.VectorSelector) string {
	if s.Name != "" {
		return s.Name
	}
	for _, m := range s.LabelMatchers {
		if m.Name == model.MetricNameLabel && m.Type == labels.MatchEqual {
			return m.Value
		}
	}
	return ""
}
