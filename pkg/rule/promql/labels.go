package promql

import (
	"slices"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// MayHaveLabel reports whether a series in the result of an expression may have a label. It returns
// false only if the expression certainly drops the label, or never had it.
func MayHaveLabel(e parser.Expr, label string) bool {
	switch n := e.(type) {
	case *parser.ParenExpr:
		return MayHaveLabel(n.Expr, label)
	case *parser.UnaryExpr:
		return MayHaveLabel(n.Expr, label)
	case *parser.StepInvariantExpr:
		return MayHaveLabel(n.Expr, label)
	case *parser.SubqueryExpr:
		return MayHaveLabel(n.Expr, label)
	case *parser.MatrixSelector:
		return MayHaveLabel(n.VectorSelector, label)
	case *parser.VectorSelector:
		return !slices.ContainsFunc(n.LabelMatchers, func(m *labels.Matcher) bool {
			return m.Name == label && m.Type == labels.MatchEqual && m.Value == ""
		})
	case *parser.NumberLiteral, *parser.StringLiteral:
		return false
	case *parser.AggregateExpr:
		return aggregateMayHave(n, label)
	case *parser.BinaryExpr:
		return binaryMayHave(n, label)
	case *parser.Call:
		return callMayHave(n, label)
	}
	return true
}

func aggregateMayHave(n *parser.AggregateExpr, label string) bool {
	switch n.Op {
	case parser.TOPK, parser.BOTTOMK, parser.LIMITK, parser.LIMIT_RATIO:
		return MayHaveLabel(n.Expr, label) // they pick series, and keep them as they are
	case parser.COUNT_VALUES:
		if name, ok := stringOf(n.Param); !ok || name == label {
			return true
		}
	}
	if slices.Contains(n.Grouping, label) == n.Without || n.Without && label == model.MetricNameLabel {
		return false
	}
	return MayHaveLabel(n.Expr, label)
}

func binaryMayHave(n *parser.BinaryExpr, label string) bool {
	left, right := n.LHS.Type() == parser.ValueTypeVector, n.RHS.Type() == parser.ValueTypeVector
	switch {
	case !left && !right:
		return false
	case !right:
		return MayHaveLabel(n.LHS, label)
	case !left:
		return MayHaveLabel(n.RHS, label)
	}
	switch n.Op {
	case parser.LAND, parser.LUNLESS:
		return MayHaveLabel(n.LHS, label)
	case parser.LOR:
		return MayHaveLabel(n.LHS, label) || MayHaveLabel(n.RHS, label)
	}
	return matchedMayHave(n, label)
}

// matchedMayHave is MayHaveLabel for an operator that matches pairs of series.
func matchedMayHave(n *parser.BinaryExpr, label string) bool {
	m := n.VectorMatching
	if m == nil || m.FillValues.LHS != nil || m.FillValues.RHS != nil {
		return true // what is filled in has labels of the other side
	}
	matched := slices.Contains(m.MatchingLabels, label)
	switch m.Card {
	case parser.CardOneToOne:
		return matched == m.On && MayHaveLabel(n.LHS, label)
	case parser.CardManyToOne:
		if slices.Contains(m.Include, label) {
			return MayHaveLabel(n.RHS, label)
		}
		return MayHaveLabel(n.LHS, label)
	case parser.CardOneToMany:
		if slices.Contains(m.Include, label) {
			return MayHaveLabel(n.LHS, label)
		}
		return MayHaveLabel(n.RHS, label)
	}
	return true
}

func callMayHave(n *parser.Call, label string) bool {
	switch n.Func.Name {
	case "vector", "scalar", "time", "pi":
		return false
	case "absent", "absent_over_time":
		return absentMayHave(n.Args[0], label)
	case "label_replace", "label_join":
		if name, ok := stringOf(n.Args[1]); !ok || name == label {
			return true
		}
		return MayHaveLabel(n.Args[0], label)
	case "info", "histogram_quantiles":
		return true // they add labels
	}
	// All others keep the labels of their series: without one, as in hour(), there are none.
	for _, arg := range n.Args {
		if t := arg.Type(); t == parser.ValueTypeVector || t == parser.ValueTypeMatrix {
			if MayHaveLabel(arg, label) {
				return true
			}
		}
	}
	return false
}

// absentMayHave is MayHaveLabel for absent, whose result has the labels that its argument selects with
// =.
func absentMayHave(arg parser.Expr, label string) bool {
	if paren, ok := arg.(*parser.ParenExpr); ok {
		return absentMayHave(paren.Expr, label)
	}
	if matrix, ok := arg.(*parser.MatrixSelector); ok {
		arg = matrix.VectorSelector
	}
	selector, ok := arg.(*parser.VectorSelector)
	return ok && label != model.MetricNameLabel && slices.ContainsFunc(selector.LabelMatchers, func(m *labels.Matcher) bool {
		return m.Name == label && m.Type == labels.MatchEqual && m.Value != ""
	})
}

func stringOf(e parser.Expr) (string, bool) {
	switch n := e.(type) {
	case *parser.ParenExpr:
		return stringOf(n.Expr)
	case *parser.StringLiteral:
		return n.Val, true
	}
	return "", false
}
