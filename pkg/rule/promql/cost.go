package promql

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
	"unicode/utf8"

	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/util/strutil"

	"github.com/rulefleet/rulefleet/pkg/rule"
)

// Limits of the cost of parsing an expression. A unit is about 3 µs. The time of Prometheus' parser grows with the square of the number of tokens. It also compiles regular
// expressions, in which repetitions are expanded.
const (
	maxCost     = 50_000
	maxTokens   = 7071             // whose square, in thousands, is maxCost
	maxPatterns = 2 * rule.MaxExpr // bytes of all regular expressions; finding out what they cost takes about 1 µs for each
)

const foldable = 0x1e943 // no character above has an upper or lower case

// Cost returns the cost of parsing an expression, and refuses an expression that costs too much.
// Its own time grows linearly with the length, and ends at the limit. The parser reports errors in
// tokens and regular expressions.
func Cost(expr string) (int, *rule.Fault) {
	if len(expr) > rule.MaxObject {
		return 0, &rule.Fault{Pos: -1, Message: fmt.Sprintf("the expression has %d bytes; at most %d are allowed; shorten it", len(expr), rule.MaxObject)}
	}
	var (
		at             Position
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
			return 0, &rule.Fault{Pos: int(item.Pos), Message: fmt.Sprintf("the expression has more than %d tokens; split it into several alerts, or use recording rules", maxTokens)}
		}
		if item.Typ == parser.STRING && at.Role() == Regex {
			pattern, err := strutil.Unquote(item.Val)
			if patterns += len(pattern); err == nil && patterns <= maxPatterns {
				regexs += RegexCost(pattern)
			}
			if patterns > maxPatterns || regexs > maxCost {
				return 0, &rule.Fault{Pos: int(item.Pos), Message: "the regular expressions are too large; avoid large repetitions such as {1000}, and many wide classes such as [^/]"}
			}
		}
		at.Next(item)
	}
	cost := regexs + tokens*tokens/1000
	if cost > maxCost {
		return 0, &rule.Fault{Pos: -1, Message: fmt.Sprintf("the expression is too expensive to parse (%d tokens and their regular expressions); shorten it", tokens)}
	}
	return cost, nil
}

// ReadingCost returns the cost of computing the cost of parsing a text, and ParsingCost the cost of
// parsing it after that, in units of about 3 µs. They limit the work for a spoke, whose texts are not
// from users of the hub.
func ReadingCost(text string) int {
	const least, bytes = 10, 20
	if len(text) > rule.MaxObject { // it is refused unread
		return least
	}
	return least + len(text)/bytes
}

// ParsingCost is documented with ReadingCost.
func ParsingCost(text string) int {
	cost, f := Cost(text)
	if f != nil {
		return 2_000
	}
	return cost
}

// RegexCost returns the approximate cost of compiling a regular expression, or 0 if it is not valid.
func RegexCost(pattern string) int {
	// Sets such as \pL are large before anything is known of the tree, and so are the cases of a range.
	sets := 100*(strings.Count(pattern, `\p`)+strings.Count(pattern, `\P`)+strings.Count(pattern, `[^`)) + foldingCost(pattern) + len(pattern)/4
	if sets > maxCost {
		return sets
	}
	tree, err := syntax.Parse(pattern, syntax.Perl|syntax.DotNL)
	if err != nil {
		return sets
	}
	return sets + treeCost(tree)
}

// ignoresCase finds the flag (?i). It also matches text that only looks like the flag, as in \(?i.
var ignoresCase = regexp.MustCompile(`\(\?[a-zA-Z]*i`)

// foldingCost returns the approximate cost of Go's parser for looking up the cases of all characters
// in the ranges of a pattern, as in (?i)[a-\x{10FFFF}], one by one.
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
			to = foldable // assume the maximum
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
