package rollup

import (
	"fmt"
	"slices"
	"testing"
	"unique"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/internal/ruletest"
)

// fleet has 500 spokes: 120 have a conflict, 30 do not load the rule, and 350 evaluate it.
func fleet(t *testing.T) *step {
	t.Helper()
	s := sequence(t, 500)
	s.report(0, 120, pending("", "Conflict", 1, 0))
	s.report(120, 150, rowOf("", v1alpha1.PhaseSelected, v1alpha1.ReasonLoading, 1, 0))
	s.report(150, 500, evaluated("", 0, 1, 0))
	return s
}

func groupsOf(s *v1alpha1.RuleStatus) []string {
	var out []string
	for _, g := range s.Groups {
		out = append(out, fmt.Sprintf("%d %s %s %v %d", g.Count, g.Phase, g.Reason, g.Outage, g.ObservedGeneration))
	}
	return out
}

func checkGroups(t *testing.T, what string, s v1alpha1.RuleStatus, want ...string) {
	t.Helper()
	if got := groupsOf(&s); !slices.Equal(got, want) {
		t.Errorf("%s: the groups are %q, want %q", what, got, want)
	}
}

// All spokes are listed or counted in a group, and up to 100 are listed without groups.
func TestGroups(t *testing.T) {
	t.Parallel()
	s := fleet(t)
	checkGroups(t, "at first", s.is("at first", 100, 50, "350/500 and 380 applied 120 failing 0 unreachable"),
		"20 Pending Conflict false 1", "30 Selected Loading false 1", "350 Evaluating  false 1")
	for i := range 30 {
		s.in.Clusters[470+i].Shown = away("", "Unreachable").Shown
	}
	checkGroups(t, "30 are away", s.is("30 are away", 100, 80, "320/500 and 380 applied 120 failing 30 unreachable"),
		"20 Pending Conflict false 1", "30 Evaluating Unreachable true 1", "30 Selected Loading false 1", "320 Evaluating  false 1")
	ruleOf(s.in.Rule).Generation = 2
	checkGroups(t, "edited", s.is("edited", 100, 400, "0/500 and 380 applied 120 failing 30 unreachable"),
		"20 Pending Conflict false 1", "30 Evaluating Unreachable true 1", "30 Selected Loading false 1", "320 Evaluating  false 1")
	s.in.Clusters = s.in.Clusters[:100]
	checkGroups(t, "few are left", s.is("few are left", 100, 0, "0/100 and 0 applied 100 failing 0 unreachable"))
}

// Another client may write anything.
func TestGroupsOfOthers(t *testing.T) {
	t.Parallel()
	s := sequence(t, 500)
	for i := range 500 {
		s.report(i, i+1, pending("", fmt.Sprintf("Reason%d", i), 1, 0))
	}
	got, _ := Status(s.in)
	if len(got.Groups) != maxGroups {
		t.Errorf("%d groups", len(got.Groups))
	}
	got.Groups[0].Count = 1 << 30
	if n := len(Rows(&got)); n != maxCounted+len(got.Clusters) {
		t.Errorf("%d rows", n)
	}
	got.Groups = got.Groups[:1]
	got.Groups[0].Count, got.Summary = -1, nil
	ruleOf(s.in.Rule).Status = got
	for _, s.in.Invalid = range []*rule.Invalid{nil, {Reason: v1alpha1.ReasonInvalidSpec, Field: "spec", Message: "no"}} {
		s.restart()
		if is, _ := Status(s.in); is.Summary.Ready == "" {
			t.Errorf("it is %+v", is.Summary)
		}
	}
}

// After a restart, a status waits for the spokes that are connected, and then counts those that are down as before.
func TestRestartOfMany(t *testing.T) {
	t.Parallel()
	always := func(s Shown) func(int) Shown { return func(int) Shown { return s } }
	for name, shown := range map[string]func(int) Shown{
		"down for long":   always(away("", "Unreachable").Shown),
		"down for a time": always(disconnected("", "Unreachable").Shown),
		"connected":       always(Shown{}),
		"some are down": func(i int) Shown {
			if i < 160 {
				return Shown{Top: OverlayOff}
			}
			return away("", "Unreachable").Shown
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := fleet(t)
			silent := []int{3, 110, 115, 130, 149, 160, 499} // in all states
			for _, i := range silent {
				s.in.Clusters[i].Shown = shown(i)
			}
			before, _ := Status(s.in)
			all := s.in.Verdicts
			ruleOf(s.in.Rule).Status = before
			s.restart()
			unchanged := func(what string) {
				t.Helper()
				again(t, what, s.in, before)
			}
			unchanged("nothing is reported")
			// Those that report have no effect until all have that are connected.
			s.report(150, 300, pending("", "Rejected", 1, 0))
			unchanged("some report something else")
			for i := range s.in.Clusters {
				n := s.in.Clusters[i].Name
				if s.in.Verdicts[n] = all[n]; slices.Contains(silent, i) {
					delete(s.in.Verdicts, n)
				}
			}
			unchanged("most have reported")
			if _, rows := Status(s.in); (rows != nil) != shown(silent[1]).Lagging {
				t.Errorf("it has %d rows while some are still to report", len(rows))
			}
			s.in.Starting = false
			unchanged("the others do not report")
			got, rows := Status(s.in)
			if n := presumedIn(rows); len(rows) != 500 || n != len(silent)-1 { // one is listed
				t.Errorf("of %d rows, %d are presumed", len(rows), n)
			}
			// What they report counts from then on, whatever was presumed.
			ruleOf(s.in.Rule).Status, s.in.Last = got, rows
			for _, i := range silent {
				s.in.Clusters[i].Shown = Shown{Top: OverlayOff}
			}
			s.report(0, 500, evaluated("", 0, 1, 0))
			ruleOf(s.in.Rule).Status, s.in.Last = Status(s.in)
			checkGroups(t, "all evaluate it", ruleOf(s.in.Rule).Status, "500 Evaluating  false 1")
			if n := presumedIn(s.in.Last); n > 0 {
				t.Errorf("%d are presumed", n)
			}
		})
	}
}

func presumedIn(rows []unique.Handle[Row]) (n int) {
	for _, r := range rows {
		if r.Value().Presumed {
			n++
		}
	}
	return n
}

// A status does not change with every report after a start, but an edit that is not valid is shown at once.
func TestStartWaits(t *testing.T) {
	t.Parallel()
	s := fleet(t)
	ruleOf(s.in.Rule).Status, s.in.Last = Status(s.in)
	before := ruleOf(s.in.Rule).Status
	s.restart()
	ruleOf(s.in.Rule).Generation = 2
	got, rows := Status(s.in)
	if rows != nil || !equality.Semantic.DeepEqual(got, before) {
		t.Errorf("it has %d rows, and is %+v", len(rows), got)
	}
	s.in.Starting = false
	s.is("nothing is reported for a minute", 100, 400, "0/500 and 380 applied 120 failing 0 unreachable")
}

// A presumed state is counted, and not listed: it may be that of another spoke.
func TestPresumedAreNotListed(t *testing.T) {
	t.Parallel()
	s := fleet(t)
	ruleOf(s.in.Rule).Status, _ = Status(s.in)
	s.restart()
	s.in.Starting = false
	s.report(0, 100, evaluated("", 0, 1, 0)) // those that were listed
	checkGroups(t, "the others have not reported", s.is("the others have not reported", 0, 50, "450/500 and 480 applied 20 failing 0 unreachable"),
		"20 Pending Conflict false 1", "30 Selected Loading false 1", "450 Evaluating  false 1")
	ready := ruleOf(s.in.Rule).Status.Conditions[1]
	if want := "ready in 450/500 spokes; 50 spokes that are not listed"; ready.Message != want {
		t.Errorf("Ready says %q, want %q", ready.Message, want)
	}
	s.in.Clusters = many(501)
	s.is("one joins", 1, 50, "450/501 and 480 applied 20 failing 0 unreachable")
	s.in.Clusters = many(500)
	s.report(150, 500, evaluated("", 0, 1, 0))
	s.is("some have", 0, 50, "450/500 and 480 applied 20 failing 0 unreachable")
	s.report(100, 120, pending("", "Conflict", 1, 0))
	s.is("those that fail have", 20, 30, "450/500 and 480 applied 20 failing 0 unreachable")
}

// A spoke that joins when another one leaves has not the state of that one.
func TestOneSpokeReplacesAnother(t *testing.T) {
	t.Parallel()
	s := sequence(t, 500)
	s.report(0, 500, evaluated("", 0, 1, 0))
	s.is("all evaluate it", 0, 0, "500/500 and 500 applied 0 failing 0 unreachable")
	s.in.Clusters = many(501)[1:]
	got := s.is("one leaves, and one joins", 1, 0, "499/500 and 499 applied 0 failing 0 unreachable")
	for _, r := range got.Clusters {
		if r.Name != "s0500" || r.Reason != v1alpha1.ReasonWaiting {
			t.Errorf("listed is %+v", r)
		}
	}
}

// A former version wrote no groups, and the API server drops its unlistedClusters.
func TestStatusOfFormerVersion(t *testing.T) {
	t.Parallel()
	const summary = "350/500 and 380 applied 120 failing 0 unreachable"
	s := fleet(t)
	now := s.is("now", 100, 50, summary)
	former := *now.DeepCopy()
	former.Groups = nil
	all := s.in.Verdicts

	ruleOf(s.in.Rule).Status = former
	s.restart()
	got, rows := Status(s.in)
	if rows != nil || !equality.Semantic.DeepEqual(got, former) {
		t.Errorf("it is written before anything is reported: %+v", got)
	}
	s.in.Verdicts = all
	got, _ = Status(s.in)
	if !equality.Semantic.DeepEqual(got, now) {
		t.Errorf("it is %+v", got)
	}

	// Of those that do not report, the summary has the phases.
	s.restart()
	s.in.Starting = false
	checkGroups(t, "nothing is reported", s.is("nothing is reported", 100, 50, "350/500 and 380 applied 100 failing 0 unreachable"),
		"20 Pending Progressing false 1", "30 Selected Progressing false 1", "350 Evaluating  false 1")
	ruleOf(s.in.Rule).Status, s.in.Last = former, nil
	for i := range 500 {
		if i%7 > 0 {
			s.in.Verdicts[s.in.Clusters[i].Name] = all[s.in.Clusters[i].Name]
		}
	}
	s.is("some are reported", 100, 50, "350/500 and 380 applied 117 failing 0 unreachable")

	// While it is not valid, nothing else is known of it.
	ruleOf(s.in.Rule).Status, s.in.Last, ruleOf(s.in.Rule).Generation = former, nil, 2
	s.in.Invalid = &rule.Invalid{Reason: v1alpha1.ReasonInvalidSpec, Field: "spec", Message: "no"}
	checkGroups(t, "not valid", s.is("not valid", 100, 400, "0/500 and 380 applied 100 failing 0 unreachable"),
		"20 Pending Progressing false 1", "30 Selected Progressing false 1", "350 Evaluating  false 1")

	// Up to 100 spokes, nothing differs.
	few := sequence(t, 100)
	few.report(0, 100, applied("", 1, 0))
	few.is("few", 100, 0, "100/100 and 100 applied 0 failing 0 unreachable")
	few.restart()
	few.is("few, after a restart", 100, 0, "100/100 and 100 applied 0 failing 0 unreachable")
}

// Restarts of random fleets keep every total, whoever is down.
func TestRandomRestarts(t *testing.T) {
	t.Parallel()
	rnd := ruletest.Random()
	states := []v1alpha1.ClusterStatus{
		pending("", "Conflict", 2, 0), pending("", "NamespaceMissing", 2, 0), rowOf("", v1alpha1.PhaseApplied, "NotSelected", 2, 0),
		selected("", "Predicted", 2, 0), evaluated("", 0, 2, 0), evaluated("", 0, 1, 0), pending("", "Rejected", 1, 0),
	}
	for run := range 30 {
		s := sequence(t, 101+rnd.IntN(300))
		ruleOf(s.in.Rule).Generation = 2
		for i := range s.in.Clusters {
			s.report(i, i+1, ruletest.Pick(rnd, states[rnd.IntN(len(states)):]))
			switch rnd.IntN(8) {
			case 0:
				s.in.Clusters[i].Shown = away("", "Unreachable").Shown
			case 1:
				s.in.Clusters[i].Shown = disconnected("", "AuthFailed").Shown
			}
		}
		before, _ := Status(s.in)
		checkStatus(t, before)
		for i := range s.in.Clusters {
			if s.in.Clusters[i].Shown.Lagging {
				delete(s.in.Verdicts, s.in.Clusters[i].Name)
			}
		}
		ruleOf(s.in.Rule).Status = before
		for _, s.in.Starting = range []bool{true, false} {
			again(t, fmt.Sprintf("run %d, starting: %v", run, s.in.Starting), s.in, before)
		}
	}
}
