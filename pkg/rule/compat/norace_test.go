//go:build !race

package compat

import (
	"runtime"
	"testing"
	"time"

	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/internal/ruletest"
	"github.com/rulefleet/rulefleet/pkg/rule/promql"
)

// hostileExprs are expressions that take much to parse for their length, or look like it. Some are within all bounds.
func hostileExprs() map[string]string {
	fill := func(unit string, bytes int) string { return ruletest.Long(unit, bytes/len(unit)) }
	return map[string]string{
		"parentheses":            ruletest.Long("(", 700_000),
		"closed parentheses":     ruletest.Long("(", 350_000) + "1" + ruletest.Long(")", 350_000),
		"parentheses within":     ruletest.Long("(", 3_500) + "1" + ruletest.Long(")", 3_500),
		"minus":                  ruletest.Long("-", 700_000) + "1",
		"minus within":           ruletest.Long("- ", 7_000) + "1",
		"aggregations":           ruletest.Long("sum(", 200_000) + "a",
		"aggregations within":    ruletest.Long("sum(", 2_300) + "a" + ruletest.Long(")", 2_300),
		"calls within":           ruletest.Long("abs(", 2_300) + "a" + ruletest.Long(")", 2_300),
		"powers within":          "1" + ruletest.Long("^1", 3_500),
		"sums within":            "a" + ruletest.Long("+b", 3_500),
		"ors within":             "a" + ruletest.Long(" or b", 3_500),
		"longer ors":             "a" + fill(" or bb", 16_000),
		"ors of sums":            "a" + ruletest.Long("+b", 1_700) + ruletest.Long(" or c", 1_700),
		"groupings":              "a" + ruletest.Long(" + on(x) group_left(y) b", 29_000),
		"@":                      "a" + ruletest.Long(" @ 1", 170_000),
		"offsets":                "a" + ruletest.Long(" offset 1m", 70_000),
		"subqueries":             "a" + ruletest.Long("[1m:]", 1_400),
		"digits of a duration":   "a[" + ruletest.Long("1", 200_000) + "m]",
		"parts of a duration":    "a[" + ruletest.Long("1m", 100_000) + "]",
		"durations within":       "a[" + ruletest.Long("(", 3_400) + "1m" + ruletest.Long(")", 3_400) + "]",
		"braces":                 ruletest.Long("{", 700_000),
		"histograms":             ruletest.Long("{{", 100_000),
		"comments":               ruletest.Long("#\n", 100_000) + "a",
		"matchers":               "a{" + ruletest.Long(`b="",`, 140_000) + "}",
		"matchers within":        "a{" + ruletest.Long(`b="",`, 1_700) + "}",
		"a long literal":         `a{b="` + ruletest.Long("x", 250_000) + `"}`,
		"escapes":                `a{b="` + ruletest.Long(`\x01`, 60_000) + `"}`,
		"a literal with no end":  `a{b="` + ruletest.Long("x", 250_000),
		"a long name":            ruletest.Long("a", 250_000),
		"a long label name":      "a{" + ruletest.Long("b", 250_000) + `="c"}`,
		"bytes that are no text": ruletest.Long("\xff\xfe", 120_000),
		"text in no language":    ruletest.Long("\u2028\U0010ffff\x00", 30_000),
		"groups":                 `a{b=~"` + ruletest.Long("(", 100_000) + `"}`,
		"groups within":          `a{b=~"` + ruletest.Long("(", 900) + ruletest.Long(")", 900) + `"}`,
		"repetitions":            `a{b=~"` + ruletest.Long("(?:a{30}){30}", 15_000) + `"}`,
		"alternatives":           `a{b=~"` + ruletest.Long("ab.*|", 50_000) + `"}`,
		"stars":                  `a{b=~"` + ruletest.Long(".*", 100_000) + `"}`,
		"negated classes":        `a{b=~"` + ruletest.Long("[^b]", 60_000) + `"}`,
		"classes of Perl":        `a{b=~"(?i)` + ruletest.Long(`\\S\\W`, 40_000) + `"}`,
		"scripts":                `a{b=~"(?i)` + ruletest.Long(`\\pL`, 499) + `"}`,
		"ranges, any case":       `a{b=~"(?i)` + ruletest.Long(`[B-\\x{1e900}]`, 1_100) + `"}`,
		"ranges, in a group":     `a{b=~"` + ruletest.Long("(?i:[B-𞤀])", 900) + `"}`,
		"ranges, with flags":     `a{b=~"(?smi)` + ruletest.Long("[B-𞤀]", 1_300) + `"}`,
		"ranges":                 `a{b=~"` + ruletest.Long("[B-𞤀]", 1_300) + `"}`,
		"ranges within":          `a{b=~"(?i)` + ruletest.Long("[B-𞤀]", 12) + `"}`,
	}
}

// TestExpressionsAreBounded measures, as TestGoTemplatesAreBounded does. What is refused costs little, and what is
// not costs about what is said of it.
func TestExpressionsAreBounded(t *testing.T) {
	const unit, noise = 3 * time.Microsecond, 25 * time.Millisecond
	for name, expr := range hostileExprs() {
		t.Run(name, func(t *testing.T) {
			measured := func(what string, limit time.Duration, fn func()) {
				runtime.GC() // earlier garbage does not count towards its cost
				start := ruletest.CPUTime(t)
				fn()
				if took := ruletest.CPUTime(t) - start; took > limit {
					t.Errorf("%s takes %v, more than %v", what, took, limit)
				}
			}
			var (
				cost int
				f    *rule.Fault
			)
			measured("finding out what it costs", noise, func() { cost, f = promql.Cost(expr) })
			limit := noise
			if f == nil {
				limit = 2*noise + 2*time.Duration(promql.ReadingCost(expr)+cost)*unit
			}
			measured("parsing it", limit, func() { _, _ = promql.Parse(expr, promql.Any) })
			measured("its canonical form", limit, func() { _ = promql.Canonical(expr) })
			measured("what it needs", limit, func() { _ = promql.Needs(expr) })
			measured("what it demands", limit, func() { _ = exprDemands(expr) })
		})
	}
}
