// Command document prints docs/metrics.md.
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/rulefleet/rulefleet/pkg/metrics"
)

func main() {
	if _, err := io.WriteString(os.Stdout, metrics.Markdown()); err != nil {
		fmt.Fprintln(os.Stderr, "document:", err)
		os.Exit(1)
	}
}
