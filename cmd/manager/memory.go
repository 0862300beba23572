package main

import (
	"math"
	"os"
	"runtime/debug"
)

// leaveHeadroom lowers Go's memory limit by a tenth if GOMEMLIMIT sets one. The chart sets it to the
// container's limit, which also counts memory that Go's limit does not, such as the program itself.
func leaveHeadroom() {
	if os.Getenv("GOMEMLIMIT") == "" {
		return
	}
	if limit := debug.SetMemoryLimit(-1); limit < math.MaxInt64 {
		debug.SetMemoryLimit(limit - limit/10)
	}
}
