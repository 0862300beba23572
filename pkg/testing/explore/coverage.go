package explore

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// Coverage is what was run: how often each operation while each fault lasted.
type Coverage struct {
	runs   map[string]map[string]int // by operation and fault
	faults map[string]bool
}

// Ran counts an operation. Without a fault, it counts as one in quiet.
func (c *Coverage) Ran(operation string, faults []string) {
	if c.runs == nil {
		c.runs, c.faults = map[string]map[string]int{}, map[string]bool{}
	}
	if c.runs[operation] == nil {
		c.runs[operation] = map[string]int{}
	}
	if len(faults) == 0 {
		faults = []string{"quiet"}
	}
	for _, f := range faults {
		c.runs[operation][f]++
		c.faults[f] = true
	}
}

// String returns the table of operations and faults.
func (c *Coverage) String() string {
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', tabwriter.AlignRight)
	faults := slices.Sorted(maps.Keys(c.faults))
	_, _ = fmt.Fprintf(w, "while\t%s\t\n", strings.Join(faults, "\t"))
	for _, operation := range slices.Sorted(maps.Keys(c.runs)) {
		_, _ = fmt.Fprintf(w, "%s\t", operation)
		for _, f := range faults {
			_, _ = fmt.Fprintf(w, "%d\t", c.runs[operation][f])
		}
		_, _ = fmt.Fprintln(w)
	}
	_ = w.Flush()
	return "how often each operation was run while each fault lasted:\n" + out.String()
}
