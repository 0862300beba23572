package rule

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/prometheus/prometheus/promql/parser"
)

// promQL takes what Prometheus takes with no feature flag.
var promQL = parser.NewParser(parser.Options{})

// checkSize checks an expression as it was written.
func checkSize(expr string) *Invalid {
	switch {
	case expr == "":
		return invalidExpr(expr, &fault{-1, "an alert needs an expression"})
	case utf8.RuneCountInString(expr) > maxExpr:
		return invalidExpr(expr, &fault{-1, fmt.Sprintf("it has more than %d characters", maxExpr)})
	}
	return nil
}

// checkExpr checks an expression that has no placeholders any more.
func checkExpr(expr string) *Invalid {
	tree, err := promQL.ParseExpr(expr)
	if err != nil {
		return invalidExpr(expr, faultOf(err))
	}
	switch t := tree.Type(); t {
	case parser.ValueTypeVector, parser.ValueTypeScalar:
		return nil
	default:
		return invalidExpr(expr, &fault{0, fmt.Sprintf("it yields a %s, and an alert needs an instant vector or a scalar", parser.DocumentedType(t))})
	}
}

// faultOf takes the first of Prometheus' errors apart.
func faultOf(err error) *fault {
	var all parser.ParseErrors
	if errors.As(err, &all) && len(all) > 0 {
		return &fault{int(all[0].PositionRange.Start), all[0].Err.Error()}
	}
	return &fault{-1, err.Error()}
}
