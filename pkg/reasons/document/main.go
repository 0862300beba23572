// Command document prints docs/reference/reasons.md.
package main

import (
	"fmt"
	"os"

	"github.com/rulefleet/rulefleet/pkg/reasons"
)

func main() {
	if _, err := os.Stdout.WriteString(reasons.Markdown()); err != nil {
		fmt.Fprintln(os.Stderr, "document:", err)
		os.Exit(1)
	}
}
