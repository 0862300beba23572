package compat

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/prometheus/promql/parser"
	"k8s.io/utils/lru"

	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/gotemplate"
	"github.com/rulefleet/rulefleet/pkg/rule/promql"
)

// known are the demands of expressions, by a digest of the expression: rules are rendered for each spoke, and each time
// that something changes there.
var known = lru.New(1 << 13)

// exprDemands returns the demands of an expression on Prometheus, by position. It returns none for an
// expression that does not parse, which is reported elsewhere.
func exprDemands(expr string) []demand {
	id := rule.Hash(expr)
	if found, ok := known.Get(id); ok {
		return found.([]demand)
	}
	out := findDemands(expr)
	known.Add(id, out)
	return out
}

func findDemands(expr string) []demand {
	tree, f := promql.Parse(expr, promql.Any)
	if f != nil {
		return nil
	}
	out := tokenDemands(expr)
	parser.Inspect(tree, func(node parser.Node, _ []parser.Node) error {
		if node == nil {
			return nil
		}
		for _, d := range nodeDemands(node) {
			if d.pos == 0 {
				d.pos = int(node.PositionRange().Start)
			}
			out = append(out, d)
		}
		return nil
	})
	slices.SortStableFunc(out, func(a, b demand) int { return a.pos - b.pos })
	return out
}

func nodeDemands(node parser.Node) []demand {
	var out []demand
	need := func(c came, format string, args ...any) {
		if c != (came{}) { // every release has it
			out = append(out, demand{what: fmt.Sprintf(format, args...), came: c})
		}
	}
	switch n := node.(type) {
	case *parser.Call:
		need(functionCame[n.Func.Name], "function %q", n.Func.Name)
	case *parser.AggregateExpr:
		need(operatorCame[n.Op], "aggregation %q", n.Op.String())
	case *parser.BinaryExpr:
		need(operatorCame[n.Op], "operator %q", n.Op.String())
		if m := n.VectorMatching; m != nil && (m.FillValues.LHS != nil || m.FillValues.RHS != nil) {
			need(fillCame, `modifier "fill"`)
		}
	case *parser.VectorSelector:
		timeDemands(n.Timestamp, n.StartOrEnd, n.OriginalOffset, n.OriginalOffsetExpr, need)
		if n.Anchored || n.Smoothed {
			need(extendedCame, `modifiers "anchored" and "smoothed"`)
		}
	case *parser.MatrixSelector:
		durationDemands(n.RangeExpr, need)
	case *parser.SubqueryExpr:
		timeDemands(n.Timestamp, n.StartOrEnd, n.OriginalOffset, n.OriginalOffsetExpr, need)
		durationDemands(n.RangeExpr, need)
		durationDemands(n.StepExpr, need)
	case *parser.NumberLiteral:
		if n.Duration {
			need(numbersCame, "durations in place of numbers")
		}
	}
	return out
}

// timeDemands returns the demands of the modifiers of a selector, @ and offset.
func timeDemands(at *int64, startOrEnd parser.ItemType, offset time.Duration, offsetExpr *parser.DurationExpr, need func(came, string, ...any)) {
	if at != nil || startOrEnd != 0 {
		need(atModifierCame, `modifier "@"`)
	}
	if offset < 0 {
		need(negativeOffsetCame, "negative offsets")
	}
	durationDemands(offsetExpr, need)
}

func durationDemands(e *parser.DurationExpr, need func(came, string, ...any)) {
	if e == nil {
		return
	}
	need(durationExprCame, "arithmetic with durations")
	switch e.Op {
	case parser.STEP:
		need(durationStepCame, `duration "step()"`)
	case parser.MIN_OF, parser.MAX_OF:
		need(durationMinMaxCame, "duration %q", e.Op.String()+"()")
	}
	for _, side := range []parser.Expr{e.LHS, e.RHS} {
		if sub, ok := side.(*parser.DurationExpr); ok {
			durationDemands(sub, need)
		}
	}
}

// Tokens before names in braces and parentheses, before parentheses that contain names, and before
// durations.
var (
	beforeNames     = []parser.ItemType{parser.LEFT_BRACE, parser.LEFT_PAREN, parser.COMMA}
	beforeGroupings = []parser.ItemType{parser.BY, parser.WITHOUT, parser.ON, parser.IGNORING, parser.GROUP_LEFT, parser.GROUP_RIGHT}
	beforeDurations = []parser.ItemType{parser.LEFT_BRACKET, parser.OFFSET, parser.COLON}
)

// tokenDemands returns the demands that are not visible in the parsed tree: quoted names, and the
// notation of numbers.
func tokenDemands(expr string) []demand {
	var (
		out      []demand
		item     parser.Item
		last     parser.Item
		brackets []bool // for each open bracket, whether it may contain names
	)
	lexer := parser.Lex(expr)
	for lexer.NextItem(&item); item.Typ != parser.EOF && item.Typ != parser.ERROR; lexer.NextItem(&item) {
		switch item.Typ {
		case parser.COMMENT:
			continue
		case parser.LEFT_BRACE:
			brackets = append(brackets, true)
		case parser.LEFT_PAREN:
			brackets = append(brackets, slices.Contains(beforeGroupings, last.Typ))
		case parser.RIGHT_BRACE, parser.RIGHT_PAREN:
			brackets = brackets[:max(len(brackets)-1, 0)]
		case parser.STRING:
			if len(brackets) > 0 && brackets[len(brackets)-1] && slices.Contains(beforeNames, last.Typ) {
				out = append(out, demand{int(item.Pos), `quoted names, as in {"a.b"}`, quotedNamesCame})
			}
		case parser.NUMBER:
			switch {
			case strings.Contains(item.Val, "_"):
				out = append(out, demand{int(item.Pos), "underscores in numbers", numbersCame})
			case slices.Contains(beforeDurations, last.Typ):
				out = append(out, demand{int(item.Pos), "numbers in place of durations", numbersCame})
			}
		}
		last = item
	}
	return out
}

// textDemands returns the demands of a text on Prometheus' templates.
func textDemands(text string) []demand {
	if !strings.Contains(text, "{{") {
		return nil
	}
	uses, err := gotemplate.Uses(text)
	if err != nil {
		return nil
	}
	var out []demand
	for _, name := range slices.Sorted(maps.Keys(uses)) {
		if c, ok := templateCame[name]; ok {
			kind := "template function"
			if strings.HasPrefix(name, "$") {
				kind = "template variable"
			}
			out = append(out, demand{what: fmt.Sprintf("%s %q", kind, name), came: c})
		}
	}
	return out
}
