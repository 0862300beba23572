package rule

import (
	"fmt"
	"regexp/syntax"
	"strings"

	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/util/strutil"
)

// What parsing an expression may cost, and what all expressions of an object may
// together. A unit is about 3 µs. Prometheus' parser takes time that grows with the
// square of the number of tokens, and compiles regular expressions, in which
// repetitions are written out.
const (
	maxExprCost      = 50_000
	maxTotalExprCost = 200_000
)

// checkCost refuses an expression that takes too long to parse.
func checkCost(expr string) *fault {
	_, f := exprCost(expr)
	return f
}

// exprCost returns what parsing an expression costs. What is wrong with its tokens and
// regular expressions is the parser's to say.
func exprCost(expr string) (int, *fault) {
	var (
		at             position
		item           parser.Item
		tokens, regexs int
	)
	lexer := parser.Lex(expr)
	for lexer.NextItem(&item); item.Typ != parser.EOF && item.Typ != parser.ERROR; lexer.NextItem(&item) {
		if item.Typ == parser.COMMENT {
			continue
		}
		tokens++
		if item.Typ == parser.STRING && at.role() == regex {
			if pattern, err := strutil.Unquote(item.Val); err == nil {
				regexs += regexCost(pattern)
			}
			if regexs > maxExprCost {
				return 0, &fault{int(item.Pos), "the regular expressions are too large: repetitions such as {1000} are written out, and wide classes such as [^/] are slow when there are many"}
			}
		}
		at.next(item)
	}
	cost := regexs + tokens*tokens/1000
	if cost > maxExprCost {
		return 0, &fault{-1, fmt.Sprintf("the expression has too many parts to be parsed in good time: %d", tokens)}
	}
	return cost, nil
}

// regexCost returns about what compiling a regular expression costs; nothing for one
// that is not valid.
func regexCost(pattern string) int {
	// Sets such as \pL are large before anything is known of the tree.
	sets := 100 * (strings.Count(pattern, `\p`) + strings.Count(pattern, `\P`) + strings.Count(pattern, `[^`))
	if sets > maxExprCost {
		return sets
	}
	tree, err := syntax.Parse(pattern, syntax.Perl|syntax.DotNL)
	if err != nil {
		return sets
	}
	return sets + treeCost(tree)
}

func treeCost(re *syntax.Regexp) int {
	const (
		most     = 1 << 30
		foldable = 0x1e943 // no character above has an upper or lower case
	)
	cost := 1 + len(re.Rune)
	if re.Op == syntax.OpCharClass {
		// Prometheus looks at every character that a class may fold.
		for i := 0; i+1 < len(re.Rune); i += 2 {
			cost += int(min(re.Rune[i+1], foldable)-min(re.Rune[i], foldable)) / 64
		}
	}
	for _, sub := range re.Sub {
		cost += treeCost(sub)
	}
	if re.Op == syntax.OpRepeat {
		cost *= max(re.Min, re.Max, 1)
	}
	return min(cost, most)
}
