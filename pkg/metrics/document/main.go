// Command document prints docs/reference/metrics.md.
package main

import (
	"fmt"
	"os"

	"github.com/rulefleet/rulefleet/pkg/metrics"
)

func main() {
	if _, err := os.Stdout.WriteString(metrics.Markdown()); err != nil {
		fmt.Fprintln(os.Stderr, "document:", err)
		os.Exit(1)
	}
}
