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

// link is a link of Markdown, and aside one in parentheses of its own.
var (
	link  = regexp.MustCompile(`\[([^\]]*)\]\(([^)]*)\)`)
	aside = regexp.MustCompile(`\(\[[^\]]*\](\([^)]*\))\)`)
)

// Remedy returns what to do about a reason of an object, or "" for a reason without an entry. Its commands have the name
// of the spoke.
func Remedy(table, reason, spoke string) string {
	for _, t := range reasons.Tables() {
		if t.Heading != table {
			continue
		}
		for _, r := range t.Reasons {
			if r.Name == reason {
				return strings.ReplaceAll(plain(r.Remedy), reasons.SpokeName, spoke)
			}
		}
	}
	return ""
}

// plain returns Markdown as text: links as addresses, and code without its marks.
func plain(markdown string) string {
	text := aside.ReplaceAllString(markdown, "[]$1")
	text = link.ReplaceAllStringFunc(text, func(text string) string {
		m := link.FindStringSubmatch(text)
		return strings.TrimSpace(m[1] + " (" + target(m[2]) + ")")
	})
	return strings.ReplaceAll(text, "`", "")
}

// Docs is the address of the documentation, for people who have only the plugin.
const Docs = "https://github.com/rulefleet/rulefleet/blob/main/"

// target returns the address that a link of docs/reference/reasons.md leads to.
func target(link string) string {
	if strings.HasPrefix(link, "#") {
		return Docs + "docs/reference/reasons.md" + link
	}
	return Docs + path.Join("docs/reference", link)
}
