package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// console is the output of the demo.
type console struct {
	terminal bool

	mu     sync.Mutex
	w      io.Writer
	bold   bool
	broken func(error) // called when the output is closed
}

func newConsole(f *os.File, broken func(error)) *console {
	terminal := isTerminal(f)
	return &console{terminal: terminal, w: f, bold: terminal && os.Getenv("NO_COLOR") == "", broken: broken}
}

// isTerminal reports whether a file is a character device other than the null device.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err == nil && !os.SameFile(info, null)
}

// Write implements io.Writer, for the progress of the fleet.
func (c *console) Write(p []byte) (int, error) {
	c.print("  " + strings.ReplaceAll(strings.TrimRight(string(p), "\n"), "\n", "\n  ") + "\n")
	return len(p), nil
}

func (c *console) heading(text string) { c.print("\n" + c.strong("== "+text) + "\n") }

// note explains what the next output shows.
func (c *console) note(text string) { c.print(text + "\n") }

// done reports a successful check and its duration.
func (c *console) done(what string, after time.Duration) {
	c.print(fmt.Sprintf("  ok, after %4d ms: %s\n", after.Milliseconds(), what))
}

// command shows a command line and what it printed.
func (c *console) command(line, output string) {
	c.print("\n" + c.strong("$ "+line) + "\n" + strings.TrimRight(output, "\n") + "\n")
}

func (c *console) line(format string, args ...any) { c.print(fmt.Sprintf(format, args...) + "\n") }

func (c *console) strong(text string) string {
	if c.bold {
		return "\x1b[1m" + text + "\x1b[0m"
	}
	return text
}

func (c *console) print(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := io.WriteString(c.w, text); err != nil {
		c.broken(fmt.Errorf("writing the output: %w", err))
	}
}
