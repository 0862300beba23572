package rule

import (
	"slices"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// maxNeeds bounds what is made of expressions with many an "or".
const maxNeeds = 64

// Selectors returns the vector selectors of an expression whose emptiness means that
// its alert can't work, each once and sorted, without what moves or spreads them in
// time (offset, @, a range). Left out are those that are there to be empty at times
// (what absent and its like look at, the right side of unless and of or, the labels
// that info looks for), and Prometheus' own ALERTS and ALERTS_FOR_STATE. An
// expression that does not parse has none.
//
// The left side of an or may well be empty where its right side is not: see
// SelectorNeeds.
func Selectors(expr string) []string {
	out := slices.Concat(selectorNeeds(expr, func(left, _ [][]string) [][]string { return left })...)
	slices.Sort(out)
	return slices.Compact(out)
}

// SelectorNeeds returns what an alert needs to work: of each element, at least one
// selector that is not empty. They are those of Selectors, and where there is an "or",
// each selector of its left side with each of its right side. Nothing is needed of an
// "or" that has a side which is never empty, as in a or vector(0).
func SelectorNeeds(expr string) [][]string {
	return selectorNeeds(expr, either)
}

func selectorNeeds(expr string, or func(left, right [][]string) [][]string) [][]string {
	parsed, f := parsePromQL(expr, anyPromQL)
	if f != nil {
		return nil
	}
	out := needs(nil, parsed, or)
	slices.SortFunc(out, slices.Compare)
	return slices.CompactFunc(out, slices.Equal)
}

// either is what is needed when one of two sides is enough. It is nothing where it
// would be too much to tell.
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

// needs adds what a node needs; or tells what the sides of an "or" need together.
func needs(out [][]string, node parser.Node, or func(left, right [][]string) [][]string) [][]string {
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
			return needs(out, n.LHS, or)
		case parser.LOR:
			both := or(needs(nil, n.LHS, or), needs(nil, n.RHS, or))
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
			return needs(out, n.Args[0], or)
		}
	}
	for child := range parser.ChildrenIter(node) {
		out = needs(out, child, or)
	}
	return out
}

// selectorText writes a selector's name and matchers alone.
func selectorText(s *parser.VectorSelector) string {
	return (&parser.VectorSelector{Name: s.Name, LabelMatchers: s.LabelMatchers}).String()
}

// MetricName returns the name of the metric that a vector selector selects. It is
// empty when the name is not fixed, and for what is no vector selector.
func MetricName(selector string) string {
	parsed, f := parsePromQL(selector, anyPromQL)
	if f != nil {
		return ""
	}
	s, ok := parsed.(*parser.VectorSelector)
	if !ok {
		return ""
	}
	return metricName(s)
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
