package main

import (
	"io"
	"os"
)

// lifelineEnv names the environment variable by which a parent asks this
// process to die with it: its value "3" says that file descriptor 3 is the read
// end of a pipe whose write end only the parent holds.
const lifelineEnv = "RULEFLEET_LIFELINE"

// followLifeline ends this process when the parent that started it is gone,
// however that happened (SIGKILL included): the kernel closes the parent's end
// of the pipe, and the read returns. Without the variable it does nothing, so
// the binaries behave as usual under envtest and by hand.
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
