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
)

// mayParse reports whether a spoke's budget allows parsing these texts, and uses it.
func (s *spokeState) mayParse(texts ...string) bool {
	now := time.Now()
	for _, cost := range []func(string) int{promql.ReadingCost, promql.ParsingCost} {
		for _, text := range texts {
			if !s.parsing.AllowN(now, cost(text)) {
				return false
			}
		}
	}
	return true
}
