package reasons

import (
	"fmt"
	"strings"
)

const intro = `# Reasons

This page lists every reason that a condition, a row of ` + "`status.clusters`" + ` or an Event can have, with what to do about
it. It is generated from the code (` + "`make generate`" + `). Names and numbers in messages are examples, and "…" stands for
the rest of a message. In commands, NAME stands for the name of the spoke, and CONTEXT for its context in your
kubeconfig.

If a spoke cannot be reached or read, it keeps its rules. Rulefleet never removes anything from a spoke, or from the
hub, because an object could not be read. Writes can continue although READY is False. With the reasons DeletionsHeld,
Contested and MaxRulesReached, only some objects are affected, and all other work continues. With DeletionsHeld, held
deletions with a time limit are carried out when the time limit ends. The others wait until you acknowledge them. With
Leaving, the rules are being removed.
`

// Markdown returns docs/reference/reasons.md.
func Markdown() string {
	var b strings.Builder
	b.WriteString(intro)
	for _, t := range Tables() {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n", t.Heading, t.Intro)
		if len(t.Reasons) == 0 {
			continue
		}
		b.WriteString("\n| Reason | On | Typical message | Meaning | What to do |\n| --- | --- | --- | --- | --- |\n")
		for _, r := range t.Reasons {
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", r.Name, strings.Join(r.On, ", "), quoted(r.Message), cell(r.Meaning), cell(strings.ReplaceAll(r.Remedy, SpokeName, "NAME")))
		}
	}
	return b.String()
}

// quoted returns a message as code, so that Markdown leaves it as it is.
func quoted(message string) string {
	if message == "" {
		return ""
	}
	return "`" + cell(message) + "`"
}

func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }
