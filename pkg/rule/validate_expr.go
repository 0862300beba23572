package rule

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/prometheus/prometheus/promql/parser"
)

// promQL accepts the syntax of Prometheus without feature flags. anyPromQL accepts the syntax of any
// Prometheus.
var (
	promQL    = parser.NewParser(parser.Options{})
	anyPromQL = parser.NewParser(parser.Options{
		EnableExperimentalFunctions: true, ExperimentalDurationExpr: true,
		EnableExtendedRangeSelectors: true, EnableBinopFillModifiers: true,
	})
)

// checkSize checks the size of an expression as it is written.
func checkSize(expr string) *Invalid {
	switch {
	case expr == "":
		return invalidExpr(expr, &fault{pos: -1, message: "an expression is required"})
	case utf8.RuneCountInString(expr) > maxExpr:
		return invalidExpr(expr, &fault{pos: -1, message: fmt.Sprintf("longer than %d characters; shorten it", maxExpr)})
	}
	return nil
}

// checkExpr checks an expression without placeholders. It accepts the syntax of any Prometheus;
// checkEvaluators checks that of a known one.
func checkExpr(expr string) *Invalid {
	_, f := parseExpr(expr, anyPromQL)
	if f != nil {
		return invalidExpr(expr, f)
	}
	return nil
}

// parsePromQL parses PromQL without placeholders, from any source: a user on the hub, an object in a
// spoke, or an answer of a Prometheus. Only this function calls Prometheus' parser, because texts that
// are too long or too expensive have to be refused before.
func parsePromQL(text string, p parser.Parser) (parser.Expr, *fault) {
	if _, f := exprCost(text); f != nil {
		return nil, f
	}
	tree, err := p.ParseExpr(text)
	if err != nil {
		return nil, faultOf(err)
	}
	return tree, nil
}

// parseExpr parses the expression of an alert, without placeholders.
func parseExpr(expr string, p parser.Parser) (parser.Expr, *fault) {
	tree, f := parsePromQL(expr, p)
	if f != nil {
		return nil, f
	}
	switch t := tree.Type(); t {
	case parser.ValueTypeVector, parser.ValueTypeScalar:
		return tree, nil
	default:
		return nil, &fault{pos: 0, message: fmt.Sprintf("the expression returns a %s; an alert needs an instant vector or a scalar", parser.DocumentedType(t))}
	}
}

// checkQuery checks a query of a template, which may be of any type.
func checkQuery(query string) error {
	if utf8.RuneCountInString(query) > maxExpr {
		return fmt.Errorf("longer than %d characters; shorten it", maxExpr)
	}
	if _, f := parsePromQL(query, anyPromQL); f != nil {
		return f
	}
	return nil
}

// faultOf returns the first of Prometheus' errors with its position.
func faultOf(err error) *fault {
	var all parser.ParseErrors
	if errors.As(err, &all) && len(all) > 0 {
		return &fault{pos: int(all[0].PositionRange.Start), message: all[0].Err.Error()}
	}
	return &fault{pos: -1, message: err.Error()}
}
