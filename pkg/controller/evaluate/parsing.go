package evaluate

import (
	"time"

	"github.com/rulefleet/rulefleet/pkg/rule/promql"
)

// The parsing budget of a spoke in units of promql.ParsingCost: per second on average, about 1 % of a processor,
// and as a burst. The burst suffices to parse all of a spoke with 2,000 common rules after a restart.
const (
	parsingRate  = 3_000
	parsingBurst = 250_000
	// maxParsing is the cost of the largest valid RulePack, as intended and as loaded. Texts that cost more are never
	// parsed. They can only come from an object that was changed in the spoke, which is about to be corrected.
	maxParsing = 1_250_000
)

// mayParse reports whether a spoke's budget allows parsing these texts, and uses it. Texts that cost more than the burst,
// such as those of a very large RulePack, wait until all of it is there.
func (s *spokeState) mayParse(texts ...string) bool {
	now, left := time.Now(), parsingBurst
	for _, cost := range []func(string) int{promql.ReadingCost, promql.ParsingCost} {
		total := 0
		for _, text := range texts {
			total += cost(text)
		}
		if total > maxParsing || !s.parsing.AllowN(now, min(total, left)) {
			return false
		}
		left -= min(total, left)
	}
	return true
}
