//go:build !race

package rule

import (
	"runtime"
	"strings"
	"testing"
	"time"
)

// raceDetector tells that the tests run slowly.
const raceDetector = false

// TestGoTemplatesAreBounded measures, so it runs without the race detector, under which
// everything takes ten times as long. `make test-measured` runs it.
func TestGoTemplatesAreBounded(t *testing.T) {
	const limit, allocations = 100 * time.Millisecond, uint64(24 << 20)
	for name, text := range monsters() {
		if len(text) > 3*maxText {
			t.Errorf("%s: %d bytes, which is refused before", name, len(text))
		}
		b := newBudget()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		start := cpuTime(t)
		err := checkGoTemplate(text, b)
		took := cpuTime(t) - start
		runtime.ReadMemStats(&after)
		if allocated := after.TotalAlloc - before.TotalAlloc; allocated > allocations {
			t.Errorf("%s: it allocates %d MiB", name, allocated>>20)
		}
		if took > limit {
			t.Errorf("%s: it takes %v", name, took)
		}
		if err == nil {
			t.Errorf("%s: it is accepted", name)
			continue
		}
		if len(err.Error()) > maxMessage || strings.Contains(err.Error(), stepFunc) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// hostileExprs are expressions that take much to parse for their length, or look like it. Some are within all bounds.
func hostileExprs() map[string]string {
	fill := func(unit string, bytes int) string { return long(unit, bytes/len(unit)) }
	return map[string]string{
		"parentheses":            long("(", 700_000),
		"closed parentheses":     long("(", 350_000) + "1" + long(")", 350_000),
		"parentheses within":     long("(", 3_500) + "1" + long(")", 3_500),
		"minus":                  long("-", 700_000) + "1",
		"minus within":           long("- ", 7_000) + "1",
		"aggregations":           long("sum(", 200_000) + "a",
		"aggregations within":    long("sum(", 2_300) + "a" + long(")", 2_300),
		"calls within":           long("abs(", 2_300) + "a" + long(")", 2_300),
		"powers within":          "1" + long("^1", 3_500),
		"sums within":            "a" + long("+b", 3_500),
		"ors within":             "a" + long(" or b", 3_500),
		"longer ors":             "a" + fill(" or bb", 16_000),
		"ors of sums":            "a" + long("+b", 1_700) + long(" or c", 1_700),
		"groupings":              "a" + long(" + on(x) group_left(y) b", 29_000),
		"@":                      "a" + long(" @ 1", 170_000),
		"offsets":                "a" + long(" offset 1m", 70_000),
		"subqueries":             "a" + long("[1m:]", 1_400),
		"digits of a duration":   "a[" + long("1", 200_000) + "m]",
		"parts of a duration":    "a[" + long("1m", 100_000) + "]",
		"durations within":       "a[" + long("(", 3_400) + "1m" + long(")", 3_400) + "]",
		"braces":                 long("{", 700_000),
		"histograms":             long("{{", 100_000),
		"comments":               long("#\n", 100_000) + "a",
		"matchers":               "a{" + long(`b="",`, 140_000) + "}",
		"matchers within":        "a{" + long(`b="",`, 1_700) + "}",
		"a long literal":         `a{b="` + long("x", 250_000) + `"}`,
		"escapes":                `a{b="` + long(`\x01`, 60_000) + `"}`,
		"a literal with no end":  `a{b="` + long("x", 250_000),
		"a long name":            long("a", 250_000),
		"a long label name":      "a{" + long("b", 250_000) + `="c"}`,
		"bytes that are no text": long("\xff\xfe", 120_000),
		"text in no language":    long("\u2028\U0010ffff\x00", 30_000),
		"groups":                 `a{b=~"` + long("(", 100_000) + `"}`,
		"groups within":          `a{b=~"` + long("(", 900) + long(")", 900) + `"}`,
		"repetitions":            `a{b=~"` + long("(?:a{30}){30}", 15_000) + `"}`,
		"alternatives":           `a{b=~"` + long("ab.*|", 50_000) + `"}`,
		"stars":                  `a{b=~"` + long(".*", 100_000) + `"}`,
		"negated classes":        `a{b=~"` + long("[^b]", 60_000) + `"}`,
		"classes of Perl":        `a{b=~"(?i)` + long(`\\S\\W`, 40_000) + `"}`,
		"scripts":                `a{b=~"(?i)` + long(`\\pL`, 499) + `"}`,
		"ranges, any case":       `a{b=~"(?i)` + long(`[B-\\x{1e900}]`, 1_100) + `"}`,
		"ranges, in a group":     `a{b=~"` + long("(?i:[B-𞤀])", 900) + `"}`,
		"ranges, with flags":     `a{b=~"(?smi)` + long("[B-𞤀]", 1_300) + `"}`,
		"ranges":                 `a{b=~"` + long("[B-𞤀]", 1_300) + `"}`,
		"ranges within":          `a{b=~"(?i)` + long("[B-𞤀]", 12) + `"}`,
	}
}

// TestExpressionsAreBounded measures, as TestGoTemplatesAreBounded does. What is refused costs little, and what is
// not costs about what is said of it.
func TestExpressionsAreBounded(t *testing.T) {
	const unit, noise = 3 * time.Microsecond, 25 * time.Millisecond
	for name, expr := range hostileExprs() {
		t.Run(name, func(t *testing.T) {
			measured := func(what string, limit time.Duration, fn func()) {
				start := cpuTime(t)
				fn()
				if took := cpuTime(t) - start; took > limit {
					t.Errorf("%s takes %v, more than %v", what, took, limit)
				}
			}
			var (
				cost int
				f    *fault
			)
			measured("finding out what it costs", noise, func() { cost, f = exprCost(expr) })
			limit := noise
			if f == nil {
				limit = 2*noise + 2*time.Duration(ReadingCost(expr)+cost)*unit
			}
			measured("parsing it", limit, func() { _, _ = parsePromQL(expr, anyPromQL) })
			measured("its canonical form", limit, func() { _ = canonical(expr) })
			measured("what it needs", limit, func() { _ = SelectorNeeds(expr) })
			measured("what it demands", limit, func() { _ = exprDemands(expr) })
		})
	}
}
