package rule

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
	"unicode/utf8"

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
	maxTokens        = 7071        // whose square, in thousands, is maxExprCost
	maxPatterns      = 2 * maxExpr // bytes of all regular expressions; finding out what they cost takes about 1 µs for each
)

const foldable = 0x1e943 // no character above has an upper or lower case

// exprCost returns what parsing an expression costs, and refuses one that costs too much. Finding that
// out takes time that grows with the length alone, and ends at the limit. What is wrong with the
// tokens and regular expressions is the parser's to say.
func exprCost(expr string) (int, *fault) {
	if len(expr) > maxObject {
		return 0, &fault{-1, fmt.Sprintf("the expression has %d bytes; at most %d are allowed", len(expr), maxObject)}
	}
	var (
		at             position
		item           parser.Item
		tokens, regexs int
		patterns       int // bytes
	)
	lexer := parser.Lex(expr)
	for lexer.NextItem(&item); item.Typ != parser.EOF && item.Typ != parser.ERROR; lexer.NextItem(&item) {
		if item.Typ == parser.COMMENT {
			continue
		}
		tokens++
		if tokens > maxTokens {
			return 0, &fault{int(item.Pos), fmt.Sprintf("the expression is too large to parse quickly: it has more than %d parts", maxTokens)}
		}
		if item.Typ == parser.STRING && at.role() == regex {
			pattern, err := strutil.Unquote(item.Val)
			if patterns += len(pattern); err == nil && patterns <= maxPatterns {
				regexs += regexCost(pattern)
			}
			if patterns > maxPatterns || regexs > maxExprCost {
				return 0, &fault{int(item.Pos), "the regular expressions are too large; avoid large repetitions such as {1000}, and many wide classes such as [^/]"}
			}
		}
		at.next(item)
	}
	cost := regexs + tokens*tokens/1000
	if cost > maxExprCost {
		return 0, &fault{-1, fmt.Sprintf("the expression is too large to parse quickly: it has %d parts, in addition to its regular expressions", tokens)}
	}
	return cost, nil
}

// ReadingCost and ParsingCost return what finding out the cost of parsing a text takes, and what parsing it takes
// after that, in units of about 3 µs. They bound what is done for a spoke, whose texts are no user's.
func ReadingCost(text string) int {
	const least, bytes = 10, 20
	if len(text) > maxObject { // it is refused unread
		return least
	}
	return least + len(text)/bytes
}

// ParsingCost is described with ReadingCost.
func ParsingCost(text string) int {
	cost, f := exprCost(text)
	if f != nil {
		return 2_000
	}
	return cost
}

// regexCost returns about what compiling a regular expression costs; nothing for one
// that is not valid.
func regexCost(pattern string) int {
	// Sets such as \pL are large before anything is known of the tree, and so are the cases of a range.
	sets := 100*(strings.Count(pattern, `\p`)+strings.Count(pattern, `\P`)+strings.Count(pattern, `[^`)) + foldingCost(pattern) + len(pattern)/4
	if sets > maxExprCost {
		return sets
	}
	tree, err := syntax.Parse(pattern, syntax.Perl|syntax.DotNL)
	if err != nil {
		return sets
	}
	return sets + treeCost(tree)
}

// ignoresCase finds the flag (?i). Text that only looks like it, as in \(?i, is taken for it.
var ignoresCase = regexp.MustCompile(`\(\?[a-zA-Z]*i`)

// foldingCost returns about what Go's parser takes to look up the cases of all characters of the ranges in a
// pattern, as in (?i)[a-\x{10FFFF}], one by one.
func foldingCost(pattern string) int {
	if !ignoresCase.MatchString(pattern) {
		return 0
	}
	cost := 0
	for i := range len(pattern) - 1 {
		if pattern[i] != '-' {
			continue
		}
		from, _ := utf8.DecodeLastRuneInString(pattern[:i])
		to, _ := utf8.DecodeRuneInString(pattern[i+1:])
		if to == '\\' {
			to = foldable // whatever it stands for
		}
		cost += max(0, int(min(to, foldable)-from)) / 16
	}
	return cost
}

func treeCost(re *syntax.Regexp) int {
	const most = 1 << 30
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
