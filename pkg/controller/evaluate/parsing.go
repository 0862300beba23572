package evaluate

import (
	"time"

	"github.com/rulefleet/rulefleet/pkg/rule"
)

// What parsing may cost per spoke, by rule.ParsingCost: in a second on average, which is about a
// hundredth of a processor, and at once. All that a spoke with 2,000 common rules has is parsed
// at once after a restart.
const (
	parsingRate  = 3_000
	parsingBurst = 250_000
)

// mayParse tells whether a spoke has some of its share of parsing left for texts, and takes it.
func (s *spokeState) mayParse(texts ...string) bool {
	now := time.Now()
	for _, cost := range []func(string) int{rule.ReadingCost, rule.ParsingCost} {
		for _, text := range texts {
			if !s.parsing.AllowN(now, cost(text)) {
				return false
			}
		}
	}
	return true
}
