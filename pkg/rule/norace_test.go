//go:build !race

package rule

import (
	"runtime"
	"strings"
	"testing"
	"time"
)

// raceDetector tells that the tests run slowly.
const raceDetector = false

// TestGoTemplatesAreBounded measures, so it runs without the race detector, under which
// everything takes ten times as long. `make test-measured` runs it.
func TestGoTemplatesAreBounded(t *testing.T) {
	const limit, allocations = 100 * time.Millisecond, uint64(24 << 20)
	for name, text := range monsters() {
		if len(text) > 3*maxText {
			t.Errorf("%s: %d bytes, which is refused before", name, len(text))
		}
		b := newBudget()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		start := cpuTime(t)
		err := checkGoTemplate(text, b)
		took := cpuTime(t) - start
		runtime.ReadMemStats(&after)
		if allocated := after.TotalAlloc - before.TotalAlloc; allocated > allocations {
			t.Errorf("%s: it allocates %d MiB", name, allocated>>20)
		}
		if took > limit {
			t.Errorf("%s: it takes %v", name, took)
		}
		if err == nil {
			t.Errorf("%s: it is accepted", name)
			continue
		}
		if len(err.Error()) > maxMessage || strings.Contains(err.Error(), stepFunc) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
