package promql

import (
	"slices"
	"testing"

	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/internal/ruletest"
)

// FuzzParsing: whatever is written in a spoke as PromQL, what is done with it takes no longer than it should.
func FuzzParsing(f *testing.F) {
	for _, text := range []string{
		"up == 0", "sum by (a) (rate(b[5m])) / c", ruletest.Long("(", 9000), ruletest.Long("-", 3000) + "1", "a" + ruletest.Long("+b", 3000), "a" + ruletest.Long(" or b", 2000),
		`a{b=~"(?i)` + ruletest.Long(`[B-\\x{1e900}]`, 900) + `"}`, `a{b=~"` + ruletest.Long(".{999}", 900) + `"}`, `label_replace(a, "b", "$1", "c", "` + ruletest.Long("[^d]", 900) + `")`,
		"a" + ruletest.Long("[1m:]", 900), "a" + ruletest.Long(" @ 1", 900), "a" + ruletest.Long(" offset -1m", 900), ruletest.Long("\xff", 900), `{"` + ruletest.Long(`\x00`, 900) + `"}`, "a # " + ruletest.Long("b", 900), "{{",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 2*rule.MaxExpr {
			t.Skip() // the same, and slower to try
		}
		defer ruletest.Watch()()
		start := ruletest.CPUTime(t)
		cost := ParsingCost(text)
		selectors := slices.Concat(Needs(text)...)
		for _, need := range Needs(text) {
			if len(need) > maxNeeds {
				t.Errorf("one of %d selectors is needed", len(need))
			}
		}
		for _, s := range selectors[:min(len(selectors), 10)] {
			_ = MetricName(s)
		}
		_ = Canonical(text)
		if took := ruletest.CPUTime(t) - start; took > ruletest.FuzzLimit {
			t.Errorf("it takes %v, and costs %d", took, cost)
		}
	})
}
