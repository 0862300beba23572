package metrics

import (
	"github.com/rulefleet/rulefleet/pkg/reasons"
)

// reason returns a reason as the value of a label. Unknown reasons share a value, which limits the number of series,
// whatever is in a status.
func reason(r string) string {
	switch {
	case r == "":
		return noReason
	case !reasons.Known(r):
		return otherReason
	}
	return r
}
