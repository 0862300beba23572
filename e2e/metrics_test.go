package e2e

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// scan finds the value of a metric in the text format, by its name with labels.
func scan(r io.Reader, name string) (float64, error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if value, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			return strconv.ParseFloat(value, 64)
		}
	}
	if err := lines.Err(); err != nil {
		return 0, fmt.Errorf("reading metrics: %w", err)
	}
	return 0, fmt.Errorf("there is no metric %s", name)
}
