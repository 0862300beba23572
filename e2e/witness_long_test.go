package e2e

import (
	"os"
	"testing"
	"time"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

const (
	// longVariable enables tests that take as long as in production.
	longVariable = "E2E_LONG"
	// longHold is how long deletions are held, and longLoss how long a kind's objects are missing.
	longHold = time.Minute
	longLoss = 10 * time.Minute
)

// TestKindsLostForLong loses a kind for longer than deletions are held and than any periodic check.
func TestKindsLostForLong(t *testing.T) {
	if os.Getenv(longVariable) == "" {
		t.Skipf("%s=1 runs it, for 12 minutes", longVariable)
	}
	parallel(t)
	for plural, row := range map[string]struct {
		waiting int
		restore func(t *testing.T, l *losing)
	}{
		"spokeclusters": {lostRules + lostDeployments, func(t *testing.T, l *losing) {
			t.Helper()
			l.setLabel(t, "gold")
		}},
		"alertrules": {lostRules, func(t *testing.T, l *losing) {
			t.Helper()
			l.restoreRules(t)
		}},
	} {
		t.Run(plural, func(t *testing.T) {
			t.Parallel()
			l := startLosing(t, longHold)
			l.reset(t)
			l.remember(t)
			l.lose(t, plural)
			l.expectWaiting(t, row.waiting)
			for until := time.Now().Add(longLoss); time.Now().Before(until); pause(t, 5*time.Second) {
				must(t, l.has(t.Context(), lostRules+lostDeployments))
			}
			l.expectWaiting(t, row.waiting)
			row.restore(t, l)
			l.expectWaiting(t, 0)
			l.expectNone(t)
			l.invariants(t)
		})
	}
}

// remember records the rules in the spoke that must not be written.
func (l *losing) remember(t *testing.T) {
	t.Helper()
	l.row = &fault{place: l.healthy, t: t, gone: &v1alpha1.AlertRule{}}
	l.row.remember()
}

// invariants checks the invariants of the fault suite: nobody writes in the end, unrelated and foreign objects
// are unchanged, and no credential appears.
func (l *losing) invariants(t *testing.T) {
	t.Helper()
	l.row.t = t
	l.row.holds(t, false)
	if err := l.row.keptAsItWas(); err != nil {
		t.Errorf("what nobody changed: %v", err)
	}
}
