package rule

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/prometheus/prometheus/promql/parser"
)

// promQL takes what Prometheus takes with no feature flag. anyPromQL takes what any
// Prometheus takes.
var (
	promQL    = parser.NewParser(parser.Options{})
	anyPromQL = parser.NewParser(parser.Options{
		EnableExperimentalFunctions: true, ExperimentalDurationExpr: true,
		EnableExtendedRangeSelectors: true, EnableBinopFillModifiers: true,
	})
)

// checkSize checks an expression as it was written.
func checkSize(expr string) *Invalid {
	switch {
	case expr == "":
		return invalidExpr(expr, &fault{-1, "an expression is required"})
	case utf8.RuneCountInString(expr) > maxExpr:
		return invalidExpr(expr, &fault{-1, fmt.Sprintf("longer than %d characters; shorten it", maxExpr)})
	}
	return nil
}

// checkExpr checks an expression that has no placeholders any more. It takes what any
// Prometheus takes: whether the one at hand does is checkEvaluators' to say.
func checkExpr(expr string) *Invalid {
	_, f := parseExpr(expr, anyPromQL)
	if f != nil {
		return invalidExpr(expr, f)
	}
	return nil
}

// parsePromQL parses PromQL without placeholders, whoever wrote it: a user on the hub, anybody in a
// spoke, or a Prometheus that was asked. Nothing else calls Prometheus' parser, since what is too
// long or takes too much time to parse has to be refused before.
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
		return nil, &fault{0, fmt.Sprintf("the expression returns a %s; an alert needs an instant vector or a scalar", parser.DocumentedType(t))}
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

// faultOf takes the first of Prometheus' errors apart.
func faultOf(err error) *fault {
	var all parser.ParseErrors
	if errors.As(err, &all) && len(all) > 0 {
		return &fault{int(all[0].PositionRange.Start), all[0].Err.Error()}
	}
	return &fault{-1, err.Error()}
}
