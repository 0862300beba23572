package rule

import (
	"maps"
	"testing"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

func countOf(s *step) map[string]int {
	s.Helper()
	status, memory := Status(s.in)
	out := map[string]int{}
	for _, c := range CountRows(&status, memory) {
		if out[string(c.Phase)+" "+c.Reason] > 0 {
			s.Errorf("%s %s is counted twice", c.Phase, c.Reason)
		}
		out[string(c.Phase)+" "+c.Reason] = c.Spokes
	}
	return out
}

// All rows are counted, listed or not. After a restart it is told that those that no row is
// known of are among them.
func TestCountRows(t *testing.T) {
	s := sequence(t, 300)
	check := func(what string, want map[string]int) {
		t.Helper()
		if got := countOf(s); !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	check("new", map[string]int{"Pending Waiting": 300})
	s.report(0, 300, applied("", 1, 0))
	s.report(0, 150, pending("", "Rejected", 1, 0))
	check("many fail", map[string]int{"Pending Rejected": 150, "Applied ": 150})
	s.is("many fail", 100, 50, "150/300 and 150 applied 150 failing 0 unreachable")
	check("again", map[string]int{"Pending Rejected": 150, "Applied ": 150})
	s.restart()
	check("after a restart", map[string]int{"Pending Rejected": 100, "Pending Unlisted": 50, "Applied ": 150})

	s.in.Rule.Spec.State = v1alpha1.Disabled
	check("disabled", map[string]int{})
	if got := CountRows(&v1alpha1.AlertRuleStatus{}, nil); got != nil {
		t.Errorf("without a summary: %v", got)
	}
}
