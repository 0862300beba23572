// Package advice has the remedy for each reason, as text for a terminal. The table is that of pkg/reasons.
package advice

import (
	"regexp"

	"github.com/rulefleet/rulefleet/pkg/reasons"
)

// The headings of the tables in pkg/reasons.
const (
	OfSpoke = "SpokeCluster"
	OfRule  = "AlertRule"
)

var link = regexp.MustCompile(`\[([^\]]*)\]\(([^)]*)\)`)

// Remedy returns what to do about a reason of an object, or "" for a reason without an entry.
func Remedy(table, reason string) string {
	for _, t := range reasons.Tables() {
		if t.Heading != table {
			continue
		}
		for _, r := range t.Reasons {
			if r.Name == reason {
				return link.ReplaceAllString(r.Remedy, "$1")
			}
		}
	}
	return ""
}
