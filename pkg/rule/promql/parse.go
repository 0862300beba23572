package promql

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/rulefleet/rulefleet/pkg/rule"
)

// Stable accepts the syntax of Prometheus without feature flags. Any accepts the syntax of any
// Prometheus.
var (
	Stable = parser.NewParser(parser.Options{})
	Any    = parser.NewParser(parser.Options{
		EnableExperimentalFunctions: true, ExperimentalDurationExpr: true,
		EnableExtendedRangeSelectors: true, EnableBinopFillModifiers: true,
	})
)

// Parse parses PromQL without placeholders, from any source: a user on the hub, an object in a
// spoke, or an answer of a Prometheus. Apart from pkg/evaluator, which parses selectors of accepted
// expressions, only this function calls Prometheus' parser, because texts that are too long or too
// expensive have to be refused before.
func Parse(text string, p parser.Parser) (parser.Expr, *rule.Fault) {
	if _, f := Cost(text); f != nil {
		return nil, f
	}
	tree, err := p.ParseExpr(text)
	if err != nil {
		return nil, faultOf(err)
	}
	return tree, nil
}

// ParseAlert parses the expression of an alert, without placeholders.
func ParseAlert(expr string, p parser.Parser) (parser.Expr, *rule.Fault) {
	tree, f := Parse(expr, p)
	if f != nil {
		return nil, f
	}
	switch t := tree.Type(); t {
	case parser.ValueTypeVector, parser.ValueTypeScalar:
		return tree, nil
	default:
		return nil, &rule.Fault{Pos: 0, Message: fmt.Sprintf("the expression returns a %s; an alert needs an instant vector or a scalar", parser.DocumentedType(t))}
	}
}

// CheckQuery checks a query of a template, which may be of any type.
func CheckQuery(query string) error {
	if utf8.RuneCountInString(query) > rule.MaxExpr {
		return fmt.Errorf("longer than %d characters; shorten it", rule.MaxExpr)
	}
	if _, f := Parse(query, Any); f != nil {
		return f
	}
	return nil
}

// faultOf returns the first of Prometheus' errors with its position.
func faultOf(err error) *rule.Fault {
	var all parser.ParseErrors
	if errors.As(err, &all) && len(all) > 0 {
		return &rule.Fault{Pos: int(all[0].PositionRange.Start), Message: all[0].Err.Error()}
	}
	return &rule.Fault{Pos: -1, Message: err.Error()}
}

// Canonical returns an expression as this version of Prometheus writes it. An expression that is
// refused is returned unchanged, because no hub wrote it.
func Canonical(expr string) string {
	tree, f := Parse(expr, Any)
	if f != nil {
		return expr
	}
	return tree.String()
}
