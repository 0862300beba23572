// Package output prints the answers of the plugin: as tables, or as the API objects behind them.
package output

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Tone is the meaning of a cell, which a terminal shows as a color.
type Tone int

// The tones.
const (
	Plain Tone = iota
	Good
	Warn
	Bad
)

var colors = map[Tone]string{Good: "\x1b[32m", Warn: "\x1b[33m", Bad: "\x1b[31m"}

const noColor = "\x1b[0m"

// Cell is a cell of a table.
type Cell struct {
	Text string
	Tone Tone
}

// Text returns a cell without a tone.
func Text(s string) Cell { return Cell{Text: s} }

// Textf returns a formatted cell without a tone.
func Textf(format string, args ...any) Cell { return Cell{Text: fmt.Sprintf(format, args...)} }

// Table is a table with a heading for each column.
type Table struct {
	Columns []string
	Rows    [][]Cell
}

// Add adds a row.
func (t *Table) Add(cells ...Cell) { t.Rows = append(t.Rows, cells) }

// write prints a table. No line ends with spaces.
func (t *Table) write(w io.Writer, color bool) error {
	widths, heading := make([]int, len(t.Columns)), make([]Cell, len(t.Columns))
	for i, c := range t.Columns {
		widths[i], heading[i] = utf8.RuneCountInString(c), Text(c)
	}
	for _, row := range t.Rows {
		for i := range row {
			row[i].Text = Clean(row[i].Text)
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i].Text))
		}
	}
	var b strings.Builder
	writeLine(&b, heading, widths, color)
	for _, row := range t.Rows {
		writeLine(&b, row, widths, color)
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("writing the output: %w", err)
	}
	return nil
}

func writeLine(b *strings.Builder, row []Cell, widths []int, color bool) {
	gap := 0
	for i, c := range row {
		if c.Text == "" {
			gap += widths[i] + 3
			continue
		}
		b.WriteString(strings.Repeat(" ", gap))
		b.WriteString(Paint(c, color))
		gap = widths[i] - utf8.RuneCountInString(c.Text) + 3
	}
	b.WriteByte('\n')
}

// Paint returns the text of a cell, in the color of its tone if color is true.
func Paint(c Cell, color bool) string {
	if code := colors[c.Tone]; color && code != "" && c.Text != "" {
		return code + c.Text + noColor
	}
	return c.Text
}

// Clean removes what could control the terminal: messages quote the answers of spokes, which are not trusted.
func Clean(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t' || r == '\r':
			return ' '
		case !unicode.IsGraphic(r):
			return unicode.ReplacementChar
		}
		return r
	}, s)
}

// CleanLines is Clean for a text of several lines.
func CleanLines(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = Clean(lines[i])
	}
	return strings.Join(lines, "\n")
}
