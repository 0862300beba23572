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

// version is set by the linker.
var version = "dev"

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	return plugin.Run(ctx, &env.Env{
		IOStreams:   genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr},
		Hub:         cluster.NewHub(version, os.Stderr),
		Version:     version,
		Color:       colored(os.Stdout),
		Interactive: isTerminal(os.Stdin) && isTerminal(os.Stderr),
		Now:         time.Now,
	}, os.Args[1:])
}

func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// colored reports whether colors are wanted: see https://no-color.org.
func colored(f *os.File) bool {
	return isTerminal(f) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}
