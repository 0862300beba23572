package status

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
)

// told records the spokes whose message changed.
type told struct {
	*testing.T
	*Board

	mu   sync.Mutex
	news []string
}

func withFailures(t *testing.T, fn func(t *told)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := &told{T: t}
		h.Board = NewBoard(0, 10, func(spoke string) {
			h.Failing(spoke) // would never return if the lock were held
			h.mu.Lock()
			defer h.mu.Unlock()
			h.news = append(h.news, spoke)
		})
		fn(h)
		for name := range h.spokes {
			h.forgetSpoke(name)
		}
	})
}

// wait lets time pass, and checks the spokes that were reported in it.
func (h *told) wait(d time.Duration, news ...string) {
	h.Helper()
	time.Sleep(d) //nolint:forbidigo // the test's own time
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	slices.Sort(h.news)
	if !slices.Equal(h.news, news) {
		h.Errorf("news of %v, want %v", h.news, news)
	}
	h.news = nil
}

func (h *told) report(spoke, name, reason, message string) {
	phase := v1alpha1.PhasePending
	if reason == "" {
		phase = v1alpha1.PhaseApplied
	}
	h.Report(rule.AlertRuleKey("shop", name), "", v1alpha1.ClusterStatus{
		Name: v1alpha1.ClusterName(spoke), Phase: phase, Reason: reason, Message: message,
	})
}

// want checks parts of a spoke's message; none for no message.
func (h *told) want(spoke string, known bool, parts ...string) {
	h.Helper()
	message, got := h.Failing(spoke)
	if got != known || (message == "") != (len(parts) == 0) {
		h.Errorf("of %s it tells %q, known: %v", spoke, message, got)
	}
	for _, part := range parts {
		if !strings.Contains(message, part) {
			h.Errorf("of %s it tells %q, without %q", spoke, message, part)
		}
	}
}

// Rules that could not be removed are reported, also if their AlertRules are gone.
func TestFailuresToRemove(t *testing.T) {
	withFailures(t, func(h *told) {
		key := rule.AlertRuleKey("shop", "web")
		left := v1alpha1.ClusterStatus{Name: "a", Phase: v1alpha1.PhasePending, Reason: v1alpha1.ReasonRejected, Message: "still there"}
		h.Leftover(key, left)
		h.wait(failuresInterval, "a")
		h.drop(key, "")
		h.Leftover(key, left)
		h.wait(time.Minute)
		h.want("a", true, "but 1 rule could not be removed from it: AlertRule shop/web (Rejected): still there")
		h.report("a", "api", v1alpha1.ReasonQuotaExceeded, "no room")
		h.wait(failuresInterval, "a")
		h.want("a", true, "but 1 rule could not be removed from it", "And 1 rule is not in effect there: AlertRule shop/api (QuotaExceeded)")
		h.report("a", "api", "", "")
		h.Forget(key, "a")
		h.wait(failuresInterval, "a")
		h.want("a", true)
		// It is placed there again.
		h.Leftover(key, left)
		h.wait(failuresInterval, "a")
		h.report("a", "web", "", "")
		h.wait(failuresInterval, "a")
		h.want("a", true)
	})
}

func TestFailures(t *testing.T) {
	withFailures(t, func(h *told) {
		key := rule.AlertRuleKey("shop", "web")
		h.report("a", "web", v1alpha1.ReasonNamespaceMissing, "no namespace")
		if rows := h.rows(key, ""); len(rows) != 1 {
			t.Errorf("the board has %v", rows)
		}
		h.report("a", "api", v1alpha1.ReasonQuotaExceeded, "no room")
		h.report("a", "db", v1alpha1.ReasonNamespaceMissing, "none either")
		h.report("b", "web", "", "")
		h.want("a", false)
		h.wait(failuresInterval, "a", "b") // b is known to be well
		h.want("a", true, "3 rules are", "2 NamespaceMissing, 1 QuotaExceeded", "shop/api: no room", "columns READY and REASON of: kubectl get alertrules,rulepacks -A")
		h.want("b", true)

		// Repeated verdicts do not change the message.
		for range 100 {
			h.report("a", "web", v1alpha1.ReasonNamespaceMissing, "no namespace")
			h.report("b", "web", "", "")
			h.wait(time.Second)
		}
		// A change of a message that is not quoted does not count, and many changes are one report.
		h.report("a", "web", v1alpha1.ReasonNamespaceMissing, "other words")
		h.wait(time.Minute)
		for n := range 50 {
			h.report("a", fmt.Sprintf("more-%d", n), v1alpha1.ReasonRejected, "no")
		}
		h.wait(failuresInterval-time.Second, []string{}...)
		h.want("a", true, "3 rules are")
		h.wait(time.Second, "a")
		h.want("a", true, "53 rules are", "50 Rejected, 2 NamespaceMissing, 1 QuotaExceeded")
		h.wait(time.Minute)

		// It recovers when the rules' verdicts change or the rules are gone.
		for n := range 50 {
			h.drop(rule.AlertRuleKey("shop", fmt.Sprintf("more-%d", n)), "")
		}
		h.Forget(rule.AlertRuleKey("shop", "api"), "a")
		h.report("a", "db", "", "")
		h.wait(failuresInterval, "a")
		h.want("a", true, "1 rule is", "AlertRule shop/web (NamespaceMissing): other words")
		h.report("a", "web", "", "")
		h.wait(failuresInterval, "a")
		h.want("a", true)
		h.Forget(key, "b")
		h.drop(key, "")
		h.wait(time.Hour)
	})
}

// Failures of a spoke as a whole, and other reasons, are not reported for its rules.
func TestFailureReasons(t *testing.T) {
	withFailures(t, func(h *told) {
		for _, reason := range []string{
			"", v1alpha1.ReasonWaiting, v1alpha1.ReasonSuspended, v1alpha1.ReasonContested, v1alpha1.ReasonUnreachable, v1alpha1.ReasonCRDMissing,
		} {
			h.report("a", "rule-"+strings.ToLower(reason), reason, "x")
		}
		h.wait(failuresInterval, "a")
		h.want("a", true)
		h.Report(rule.AlertRuleKey("shop", "web"), "", v1alpha1.ClusterStatus{Name: "a", Phase: v1alpha1.PhaseApplied, Reason: v1alpha1.ReasonSuspended})
		h.wait(time.Minute)
		for _, reason := range []string{v1alpha1.ReasonMutated, v1alpha1.ReasonConflict, v1alpha1.ReasonError, v1alpha1.ReasonInvalidSpec} {
			h.report("a", strings.ToLower(reason), reason, "x")
		}
		h.wait(failuresInterval, "a")
		h.want("a", true, "4 rules are", "1 Conflict, 1 Error, 1 InvalidSpec, 1 Mutated")
	})
}

// A restart does not change the message: nothing is known before the verdicts are in, within limits.
func TestFailuresAfterRestart(t *testing.T) {
	withFailures(t, func(h *told) {
		h.want("a", false) // the spoke is connected
		for n := range 14 {
			h.report("a", fmt.Sprintf("rule-%d", n), v1alpha1.ReasonRejected, "no")
			h.wait(time.Second)
		}
		h.want("a", false)
		h.wait(failuresQuiet+time.Second, "a")
		h.want("a", true, "14 rules are")
	})
	withFailures(t, func(h *told) {
		h.want("a", false) // no rule is placed there
		h.wait(failuresInterval, "a")
		h.want("a", true)
	})
	withFailures(t, func(h *told) {
		for range int(failuresPatience/time.Second) - 1 {
			h.report("a", "web", v1alpha1.ReasonRejected, "no")
			h.wait(time.Second)
		}
		h.want("a", false)
		for range 6 {
			h.report("a", "web", v1alpha1.ReasonRejected, "no")
			time.Sleep(time.Second) //nolint:forbidigo // the test's own time
		}
		h.wait(0, "a")
		h.want("a", true, "1 rule is")
	})
}

// A spoke that is gone leaves nothing behind, and its timer reports nothing.
func TestFailuresOfASpokeThatIsGone(t *testing.T) {
	withFailures(t, func(h *told) {
		h.report("a", "web", v1alpha1.ReasonRejected, "no")
		was := h.spokes["a"]
		h.forgetSpoke("a")
		h.look(was) // its timer went off meanwhile
		h.drop(rule.AlertRuleKey("shop", "web"), "")
		h.wait(time.Hour)
		if len(h.spokes) > 0 || len(h.holders) > 0 {
			t.Errorf("left: %v, %v", h.spokes, h.holders)
		}
	})
}
