package main

import (
	"context"
	"math"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// gcPercent is the value of GOGC unless the environment sets it. Go's default is 100. In a burst of new rules, long-lived
// objects are allocated among short-lived ones, and the memory around them stays in use. With 50, the manager needs a
// tenth less memory with 10,000 rules, and a burst takes no longer.
const gcPercent = 50

// collectOften sets the garbage collection target to gcPercent, unless GOGC is set.
func collectOften() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}

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

// spokesMemory returns how much memory all spokes may use together, in bytes: two fifths of Go's memory limit. It is 0 if
// there is no limit. The rest is for the hub's objects, for answers that are being decoded, and for garbage that is not
// collected yet.
func spokesMemory() int64 {
	limit := debug.SetMemoryLimit(-1)
	if limit == math.MaxInt64 {
		return 0
	}
	return limit / 5 * 2
}

const (
	// releaseInterval is how often the manager looks whether it has become quiet.
	releaseInterval = 15 * time.Second
	// smallHeap is a live heap for which it does not matter how much memory is free beside it.
	smallHeap = 16 << 20
)

// releaseMemory returns free memory to the system whenever the manager has become quiet, until ctx ends. By itself, Go
// keeps as much as the heap had at its largest for minutes, such as while the first lists are read, and then one
// and a half times the live heap.
func releaseMemory(ctx context.Context) {
	samples := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/live:bytes"}}
	tick := time.NewTicker(releaseInterval)
	defer tick.Stop()
	for r := (releases{}); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		metrics.Read(samples)
		if r.due(samples[0].Value.Uint64(), samples[1].Value.Uint64()) {
			debug.FreeOSMemory()
		}
	}
}

// releases decides when free memory is returned. Each time, garbage is collected, so it is not worth it for little.
type releases struct {
	// allocated is how many bytes were allocated since the start of the process at the last look, and released at the
	// last release.
	allocated, released uint64
}

// due reports whether memory is to be returned: little was allocated since the last look, and much since the last
// release. allocated is the number of bytes since the start of the process, and live is what the last garbage collection
// left.
func (r *releases) due(allocated, live uint64) bool {
	live = max(live, smallHeap)
	quiet := allocated-r.allocated <= live/8
	r.allocated = allocated
	if !quiet || allocated-r.released < live/4 {
		return false
	}
	r.released = allocated
	return true
}
