package e2e

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"
)

// figure is a line of a benchmark's table.
type figure struct {
	Row  string `json:"row"`
	What string `json:"what"`
	// Value is the median of as many rounds as there were.
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	// Floor is the same of the raw loop, and Ratio is the Value divided by it; 0 where there is no floor.
	Floor  float64 `json:"floor,omitempty"`
	Ratio  float64 `json:"ratio,omitempty"`
	Rounds int     `json:"rounds"`
	// Load is the load average of the last minute, at the end of the row.
	Load float64 `json:"load"`
}

// report collects figures. It is safe for concurrent use.
type report struct {
	mu      sync.Mutex
	figures []figure
}

// add adds a line with the medians of the values, and of the floor's if it has any.
func (r *report) add(t *testing.T, what, unit string, values, floor []float64) {
	t.Helper()
	_, row, _ := strings.Cut(t.Name(), "/")
	f := figure{Row: row, What: what, Value: median(values), Unit: unit, Rounds: len(values), Load: load(t)}
	if len(floor) > 0 {
		f.Floor = median(floor)
		if f.Floor > 0 {
			f.Ratio = f.Value / f.Floor
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.figures = append(r.figures, f)
	t.Log(f.String())
}

func (f figure) String() string {
	if f.Ratio == 0 {
		return fmt.Sprintf("%s\t%s\t%.4g %s\t\t\t%d\t%.1f", f.Row, f.What, f.Value, f.Unit, f.Rounds, f.Load)
	}
	return fmt.Sprintf("%s\t%s\t%.4g %s\t%.4g %s\t%.2f\t%d\t%.1f", f.Row, f.What, f.Value, f.Unit, f.Floor, f.Unit, f.Ratio, f.Rounds, f.Load)
}

// write prints the table, and writes the figures to a file in bin.
func (r *report) write(t *testing.T, file string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "row\twhat\tRulefleet\tfloor\tratio\trounds\tload")
	for _, f := range r.figures {
		_, _ = fmt.Fprintln(w, f)
	}
	must(t, w.Flush())
	fmt.Printf("%s, %d cores, process control planes\n%s", time.Now().UTC().Format(time.RFC3339), runtime.NumCPU(), &table)
	data, err := json.MarshalIndent(map[string]any{"time": time.Now().UTC(), "cores": runtime.NumCPU(), "figures": r.figures}, "", "  ")
	must(t, err)
	must(t, os.WriteFile(filepath.Join("..", "bin", file), append(data, '\n'), 0o644)) //nolint:gosec // a report
}

// load returns the load average of the last minute.
func load(t *testing.T) float64 {
	t.Helper()
	data, err := os.ReadFile("/proc/loadavg")
	must(t, err)
	var out float64
	_, err = fmt.Sscan(string(data), &out)
	must(t, err)
	return out
}

func median[T cmp.Ordered](of []T) T {
	return slices.Sorted(slices.Values(of))[len(of)/2]
}
