// Kubectl-rulefleet is the kubectl plugin of Rulefleet: kubectl rulefleet. Its code is in pkg/plugin.
package main

import (
	"context"
	"os"
	"os/signal"
	"time"

	"golang.org/x/term"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/rulefleet/rulefleet/pkg/plugin"
	"github.com/rulefleet/rulefleet/pkg/plugin/cluster"
	"github.com/rulefleet/rulefleet/pkg/plugin/env"
)

// The linker sets these: version for every build, and release for a build of 'make dist'.
var (
	version = "dev"
	release string
)

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	return plugin.Run(ctx, &env.Env{
		IOStreams:   genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr},
		Hub:         cluster.NewHub(version, os.Stderr),
		Version:     version,
		Release:     release,
		Color:       colored(os.Stdout),
		ErrColor:    colored(os.Stderr),
		Screen:      columns(os.Stdout) != nil,
		Interactive: isTerminal(os.Stdin) && isTerminal(os.Stderr),
		Columns:     columns(os.Stderr),
		Now:         time.Now,
	}, os.Args[1:])
}

func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// colored reports whether colors are wanted: see https://no-color.org.
func colored(f *os.File) bool {
	return isTerminal(f) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// columns returns a function for the width of a terminal, which can change. It returns nil for anything else.
func columns(f *os.File) func() int {
	if !isTerminal(f) || os.Getenv("TERM") == "dumb" {
		return nil
	}
	return func() int {
		width, _, err := term.GetSize(int(f.Fd()))
		if err != nil {
			return 0
		}
		return width
	}
}
