package main

import (
	"io"
	"os"
)

// lifelineEnv is the environment variable with which a parent requests this process to exit with it: its value
// "3" means that file descriptor 3 is the read end of a pipe whose write end only the parent has.
const lifelineEnv = "RULEFLEET_LIFELINE"

// followLifeline ends this process when its parent has ended in any way, including SIGKILL: the kernel closes
// the parent's end of the pipe, and the read returns. Without the variable it does nothing, so the programs
// behave as usual under envtest and by hand.
func followLifeline() {
	if os.Getenv(lifelineEnv) != "3" {
		return
	}
	lifeline := os.NewFile(3, "lifeline")
	go func() {
		_, _ = io.Copy(io.Discard, lifeline)
		os.Exit(1)
	}()
}
