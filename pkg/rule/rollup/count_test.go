package rollup

import (
	"maps"
	"testing"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

func countOf(s *step) map[string]int {
	s.Helper()
	status, memory := Status(s.in)
	out := map[string]int{}
	seen := map[RowCount]bool{}
	for _, c := range Count(&status, memory) {
		what := string(c.Phase) + " " + c.Reason
		id := RowCount{Cluster: c.Cluster}
		if c.Cluster == "" {
			id = RowCount{Phase: c.Phase, Reason: c.Reason}
			what += " (no names)"
		} else if c.Spokes != 1 {
			s.Errorf("%s is counted as %d spokes", c.Cluster, c.Spokes)
		}
		if seen[id] {
			s.Errorf("%+v is counted twice", id)
		}
		seen[id] = true
		out[what] += c.Spokes
	}
	return out
}

// All rows are counted with the names of their spokes, listed or not. After a restart, spokes whose
// rows are not known are counted without names.
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
	check("after a restart", map[string]int{"Pending Rejected": 100, "Pending Unlisted (no names)": 50, "Applied  (no names)": 150})

	s.in.Rule.Spec.State = v1alpha1.Disabled
	check("disabled", map[string]int{})
	if got := Count(&v1alpha1.AlertRuleStatus{}, nil); got != nil {
		t.Errorf("without a summary: %v", got)
	}
}
