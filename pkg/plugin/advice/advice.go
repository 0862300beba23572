// Package advice has the remedy for each reason, as text for a terminal. The table is that of pkg/reasons.
package advice

import (
	"path"
	"regexp"
	"strings"

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
				return link.ReplaceAllStringFunc(r.Remedy, func(text string) string {
					m := link.FindStringSubmatch(text)
					return m[1] + " (" + target(m[2]) + ")"
				})
			}
		}
	}
	return ""
}

// target returns the path in the repository that a link of docs/reference/reasons.md leads to.
func target(link string) string {
	if strings.HasPrefix(link, "#") {
		return "docs/reference/reasons.md" + link
	}
	return path.Join("docs/reference", link)
}
