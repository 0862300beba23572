//go:build !race

package gotemplate

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/internal/ruletest"
)

// raceDetector tells that the tests run slowly.
const raceDetector = false

// TestGoTemplatesAreBounded measures, so it runs without the race detector, under which
// everything takes ten times as long. `make test-measured` runs it.
func TestGoTemplatesAreBounded(t *testing.T) {
	const limit = 100 * time.Millisecond
	for name, text := range monsters() {
		if len(text) > maxBytes+rule.MaxText {
			t.Errorf("%s: %d bytes, which is refused before", name, len(text))
		}
		b := NewBudget()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		start := ruletest.CPUTime(t)
		err := checkGoTemplate(text, b)
		took := ruletest.CPUTime(t) - start
		runtime.ReadMemStats(&after)
		if allocated := after.TotalAlloc - before.TotalAlloc; allocated > maxAllocated {
			t.Errorf("%s: it allocates %d MiB", name, allocated>>20)
		}
		if took > limit {
			t.Errorf("%s: it takes %v", name, took)
		}
		if err == nil {
			t.Errorf("%s: it is accepted", name)
			continue
		}
		if len(err.Error()) > rule.MaxMessage || strings.Contains(err.Error(), mainTemplate) && !strings.Contains(text, mainTemplate) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
