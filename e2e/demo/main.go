// Demo shows Rulefleet's main functions on this machine, with only Go: a hub and two spokes as real control
// planes, the operator, and kubectl.
//
// On a terminal it keeps running afterwards, for trying it by hand, until Ctrl-C. With ONCE=1, or if its
// standard output is not a terminal, it ends after the last step. Every step is checked, and the first failure
// ends the demo with exit code 1.
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

// parentCheck is the interval at which the parent process is checked.
const parentCheck = time.Second

func main() {
	// `demo | head` closes the output. A failing write reports that, instead of a signal that would end the
	// process before it has cleaned up.
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	ctx, cancel := context.WithCancelCause(ctx)
	go followParent(ctx, cancel)
	code := run(ctx, newConsole(os.Stdout, cancel))
	cancel(nil)
	stop()
	os.Exit(code)
}

// run runs the demo and cleans up after it. Signals stay caught during the cleanup, so that a second Ctrl-C
// leaves nothing behind.
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

// followParent ends the demo when its parent process has ended: `go run` and make do not forward signals that
// they can't catch.
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
