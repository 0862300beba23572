// Demo runs Rulefleet's main job on this machine, with Go alone: a hub and two spokes
// as real control planes, the operator between them, and kubectl to look at it.
//
// On a terminal it stays up afterwards, to be tried by hand, until Ctrl-C. With ONCE=1,
// or when its standard output is no terminal, it ends after the last step. Either way
// every step is checked, and the first that fails ends the demo with exit code 1.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

const (
	exitFailed      = 1
	exitInterrupted = 130
)

// parentCheck is how often to look whether the process that started the demo is there.
const parentCheck = time.Second

func main() {
	// `demo | head` closes the output: that is told by a failing write, in place of a
	// signal that would end the process before it has cleaned up.
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	ctx, cancel := context.WithCancelCause(ctx)
	go followParent(ctx, cancel)
	code := run(ctx, newConsole(os.Stdout, cancel))
	cancel(nil)
	stop()
	os.Exit(code)
}

// run runs the demo and cleans up after it. The signals that end it stay caught
// meanwhile, so that a second Ctrl-C leaves nothing behind.
func run(ctx context.Context, out *console) int {
	d := &demo{out: out}
	once := os.Getenv("ONCE") == "1" || !out.terminal
	err := d.run(ctx, once)
	failed := err != nil && ctx.Err() == nil
	if failed {
		d.dump(os.Stderr)
	}
	stopErr := d.stop()
	switch {
	case failed:
		fmt.Fprintf(os.Stderr, "demo: failed: %v\n", errors.Join(err, stopErr))
		return exitFailed
	case stopErr != nil:
		fmt.Fprintf(os.Stderr, "demo: failed: cleaning up: %v\n", stopErr)
		return exitFailed
	case d.result == "":
		fmt.Fprintf(os.Stderr, "demo: interrupted: %v\n", context.Cause(ctx))
		return exitInterrupted
	case once:
		out.line("%s", d.result)
	}
	return 0
}

// followParent ends the demo when the process that started it has ended: `go run` and
// make pass on no signal that they can't catch.
func followParent(ctx context.Context, cancel context.CancelCauseFunc) {
	parent := os.Getppid()
	ticker := time.NewTicker(parentCheck)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if os.Getppid() != parent {
				cancel(errors.New("the process that started the demo has exited"))
				return
			}
		}
	}
}
