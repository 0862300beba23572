package env

import (
	"fmt"
	"time"

	"github.com/rulefleet/rulefleet/pkg/plugin/output"
)

// Progress shows what a command waits for: in a line that changes if the standard error is a terminal, and
// otherwise as a line for each change.
type Progress struct {
	e     *Env
	since time.Time
	shown string
}

// Progress begins to show progress.
func (e *Env) Progress() *Progress { return &Progress{e: e, since: e.Now()} }

// Show shows what is being waited for.
func (p *Progress) Show(text string) {
	switch {
	case p.e.Columns != nil:
		line := fmt.Sprintf("Waiting (%v): %s", p.e.Now().Sub(p.since).Round(time.Second), output.Clean(text))
		if width := p.e.Columns(); width > 1 && len([]rune(line)) >= width { // a line that wraps can't be replaced
			line = string([]rune(line)[:width-1])
		}
		_, _ = fmt.Fprint(p.e.ErrOut, clearLine, line)
	case text != p.shown:
		p.e.Say("Waiting: %s", text)
	}
	p.shown = text
}

// clearLine returns to the beginning of a line of a terminal, and clears it.
const clearLine = "\r\x1b[K"

// Done ends the progress, and removes its line from a terminal.
func (p *Progress) Done() {
	if p.e.Columns != nil && p.shown != "" {
		_, _ = fmt.Fprint(p.e.ErrOut, clearLine)
	}
	p.shown = ""
}
