package controlplane

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	tailLines = 40

	// tailBytes bounds the part of a log that is read; it is ample for tailLines.
	tailBytes = 64 << 10
)

func (c *Cluster) logPath(program string) string {
	return c.path(logsDir, program+".log")
}

// Dump writes the end of each program's log, for a test that has failed.
func (c *Cluster) Dump(w io.Writer) error {
	names, err := filepath.Glob(c.path(logsDir, "*.log"))
	if err != nil {
		return fmt.Errorf("listing logs: %w", err)
	}
	slices.Sort(names)
	for _, name := range names {
		program := strings.TrimSuffix(filepath.Base(name), ".log")
		if _, err := fmt.Fprintf(w, "---- cluster %s: end of the log of %s\n%s", c.Name(), program, Tail(c.logPath(program), tailLines)); err != nil {
			return fmt.Errorf("writing logs: %w", err)
		}
	}
	return nil
}

// lastWords returns, for an error, the end of the log of each program that ended without being stopped.
func (c *Cluster) lastWords() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var words strings.Builder
	for _, p := range []*Process{c.etcd, c.apiServer, c.controllerManager} {
		if p != nil && !p.Running() {
			fmt.Fprintf(&words, "\n---- end of the log of %s\n%s", p.name, Tail(c.logPath(p.name), tailLines))
		}
	}
	return words.String()
}

// Tail returns the last lines of a log, or "" if there is none. If the log can't be read, it returns the error
// as text.
func Tail(path string, lines int) string {
	content, err := readEnd(path, tailBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	if err != nil {
		return err.Error() + "\n"
	}
	all := strings.SplitAfter(string(content), "\n")
	return strings.Join(all[max(0, len(all)-lines-1):], "")
}

func readEnd(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if _, err := f.Seek(max(0, info.Size()-limit), io.SeekStart); err != nil {
		return nil, err
	}
	return io.ReadAll(f)
}
