package rollup

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unique"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/internal/ruletest"
)

// step is one derivation in a sequence: the outcome is the base of the next.
type step struct {
	*testing.T
	in Input
}

func sequence(t *testing.T, n int) *step {
	t.Helper()
	return &step{T: t, in: Input{Rule: ruletest.Rule(), Clusters: many(n), Now: at(1), Verdicts: verdicts{}}}
}

// report gives spokes i to j the same verdict.
func (s *step) report(from, to int, v v1alpha1.ClusterStatus) {
	for _, spoke := range s.in.Clusters[from:to] {
		v.Name = v1alpha1.ClusterName(spoke.Name)
		s.in.Verdicts[spoke.Name] = v
	}
}

func (s *step) restart() { s.in.Verdicts, s.in.Last, s.in.Starting = verdicts{}, nil, true }

// is derives the next status, and checks how many rows are listed and how many are not although they are not
// ready, and the summary, as in 1/3 and 1 applied 0 failing 0 unreachable.
func (s *step) is(what string, listed, unlisted int, summary string) v1alpha1.RuleStatus {
	s.Helper()
	got, last := Status(s.in)
	checkStatus(s.T, got)
	again(s.T, what, s.in, got)
	is := fmt.Sprintf("%s and %d applied %d failing %d unreachable", got.Summary.Ready, got.Summary.Applied, got.Summary.Failing, got.Summary.Unreachable)
	if n := int(Lagging(&got)); len(got.Clusters) != listed || n != unlisted || is != summary {
		s.Errorf("%s: %d rows, %d not listed, %s; want %d, %d, %s", what, len(got.Clusters), n, is, listed, unlisted, summary)
	}
	for kind, rows := range map[string][]unique.Handle[Row]{"the derivation": last, "the status": Rows(&got)} {
		applied := 0
		for _, r := range rows {
			if r.Value().State.Phase != v1alpha1.PhasePending {
				applied++
			}
		}
		if rows != nil && (len(rows) != int(got.Summary.Desired) || applied != int(got.Summary.Applied)) {
			s.Errorf("%s: %s has %d rows, %d of them applied", what, kind, len(rows), applied)
		}
	}
	ruleOf(s.in.Rule).Status, s.in.Last = got, last
	return got
}

func names(status v1alpha1.RuleStatus) []string {
	var out []string
	for _, r := range status.Clusters {
		out = append(out, string(r.Name))
	}
	return out
}

func TestUpTo100AreListed(t *testing.T) {
	s := sequence(t, 100)
	s.report(0, 100, applied("", 1, 0))
	s.is("all", 100, 0, "100/100 and 100 applied 0 failing 0 unreachable")
	s.in.Clusters = many(101)
	s.report(0, 101, applied("", 1, 0))
	s.is("one more", 0, 0, "101/101 and 101 applied 0 failing 0 unreachable")
	s.report(7, 8, pending("", "Conflict", 1, 0))
	s.is("one fails", 1, 0, "100/101 and 100 applied 1 failing 0 unreachable")
}

func TestManySpokes(t *testing.T) {
	s := sequence(t, 500)
	s.report(0, 500, applied("", 1, 0))
	s.report(7, 8, pending("", "NamespaceMissing", 1, 0))
	s.is("one lags", 1, 0, "499/500 and 499 applied 0 failing 0 unreachable")

	// After a restart nothing is reported, and the groups have the others.
	s.restart()
	s.is("after a restart", 1, 0, "499/500 and 499 applied 0 failing 0 unreachable")

	// One that came while the operator was away is seen when the others have reported, or do not.
	grown := *s
	grown.in.Rule = ruleOf(s.in.Rule).DeepCopy()
	grown.in.Clusters = many(501)
	grown.is("one more, after a restart", 1, 0, "499/500 and 499 applied 0 failing 0 unreachable")
	grown.in.Starting = false
	grown.is("one more, and nothing is reported", 2, 0, "499/501 and 499 applied 0 failing 0 unreachable")

	// With the others known, the new one is.
	grown.in.Rule = ruleOf(s.in.Rule).DeepCopy()
	grown.restart()
	grown.report(0, 500, applied("", 1, 0))
	got := grown.is("one more", 1, 0, "500/501 and 500 applied 0 failing 0 unreachable")
	if got.Clusters[0].Reason != v1alpha1.ReasonWaiting {
		t.Errorf("the new one is %+v", got.Clusters[0])
	}

	// An edit makes all of them lag; an invalid one leaves what was known.
	ruleOf(s.in.Rule).Generation = 2
	s.in.Invalid = &rule.Invalid{Reason: v1alpha1.ReasonInvalidSpec, Field: "spec.for", Message: "no"}
	s.is("invalid", 1, 499, "0/500 and 499 applied 0 failing 0 unreachable")
	s.in.Invalid, ruleOf(s.in.Rule).Generation = nil, 3
	got = s.is("valid again", 100, 400, "0/500 and 499 applied 0 failing 0 unreachable")
	if got.Clusters[0].ObservedGeneration != 1 {
		t.Errorf("the spokes have the last valid generation, not %+v", got.Clusters[0])
	}

	// Down to a number of which all are listed.
	s.in.Clusters = many(100)
	s.is("few left", 100, 0, "0/100 and 99 applied 0 failing 0 unreachable")
}

func TestMoreLagThanFit(t *testing.T) {
	s := sequence(t, 1000)
	s.is("at first", 100, 900, "0/1000 and 0 applied 0 failing 0 unreachable")
	s.report(0, 1000, applied("", 1, 0))
	s.is("applied", 0, 0, "1000/1000 and 1000 applied 0 failing 0 unreachable")
	s.report(0, 300, pending("", "NamespaceMissing", 1, 0))
	s.report(990, 1000, pending("", "Conflict", 1, 0))
	got := s.is("some lag", 100, 210, "690/1000 and 690 applied 10 failing 0 unreachable")
	if list := names(got); list[0] != "s0000" || list[89] != "s0089" || list[90] != "s0990" || !slices.IsSorted(list) {
		t.Errorf("listed are %v", list)
	}
	ready := meta.FindStatusCondition(got.Conditions, v1alpha1.ConditionReady)
	if ready.Message != "ready in 690/1000 spokes; s0990: Conflict; s0991: Conflict; s0992: Conflict; and 307 more" {
		t.Errorf("Ready says %q", ready.Message)
	}
	s.report(990, 1000, applied("", 1, 0))
	s.is("one reason", 100, 200, "700/1000 and 700 applied 0 failing 0 unreachable")

	// After a restart nobody knows which those are. Nothing is written for it, and
	// nothing for what is reported again.
	all := s.in.Verdicts
	s.restart()
	for i := 0; i <= 1000; i += 100 {
		for _, spoke := range s.in.Clusters[max(0, i-100):i] {
			s.in.Verdicts[spoke.Name] = all[spoke.Name]
		}
		before := ruleOf(s.in.Rule).Status
		after := s.is(fmt.Sprintf("restarted, %d reported", i), 100, 200, "700/1000 and 700 applied 0 failing 0 unreachable")
		again(t, "restarted", s.in, before)
		if after.Conditions[1].Reason != v1alpha1.ReasonNamespaceMissing {
			t.Errorf("Ready is %+v", after.Conditions[1])
		}
	}

	// What is not known can't be told better than it was: a spoke that is down for
	// long is not at the top, and an edit makes all of them lag.
	s.restart()
	s.report(0, 300, applied("", 1, 0))
	for i := 300; i < 1000; i += 2 {
		s.in.Clusters[i].Shown = away("", "Unreachable").Shown
	}
	s.is("restarted, others are down", 100, 200, "700/1000 and 700 applied 0 failing 0 unreachable")
	s.in.Starting = false
	s.is("some of them do not report", 100, 250, "650/1000 and 800 applied 0 failing 150 unreachable")
	ruleOf(s.in.Rule).Generation = 2
	s.is("edited", 100, 900, "0/1000 and 800 applied 0 failing 350 unreachable")
}

// All that are listed have one reason, and one that is not has another.
func TestReasonOfWhatIsNotListed(t *testing.T) {
	s := sequence(t, 300)
	s.report(0, 120, pending("", "Conflict", 1, 0))
	s.report(120, 300, applied("", 1, 0))
	s.report(299, 300, pending("", "NamespaceMissing", 1, 0))
	for _, what := range []string{"all reported", "restarted"} {
		got := s.is(what, 100, 21, "179/300 and 179 applied 120 failing 0 unreachable")
		if got.Conditions[1].Reason != v1alpha1.ReasonProgressing {
			t.Errorf("%s: Ready is %+v", what, got.Conditions[1])
		}
		s.restart()
	}
}

// The worst of them choose first, and what the status alone remembers keeps its place.
func TestWhoIsListed(t *testing.T) {
	s := sequence(t, 1000)
	mutated := pending("", "Mutated", 1, 0)
	mutated.AnswerDigest = ruletest.Long("d", 64)
	s.report(0, 200, applied("", 1, 0))
	s.report(200, 300, pending("", "NamespaceMissing", 1, 0))
	s.report(300, 400, pending("", "Error", 1, 0))
	s.report(700, 760, mutated)
	s.report(800, 820, pending("", "Unsupported", 1, 0))
	for i := range 50 {
		s.in.Clusters[i].Shown = away("", "AuthFailed").Shown
	}
	s.is("many kinds", 100, 750, "150/1000 and 200 applied 180 failing 50 unreachable")
	if got := names(ruleOf(s.in.Rule).Status); got[0] != "s0300" || got[19] != "s0319" || got[20] != "s0700" || got[79] != "s0759" || got[80] != "s0800" || got[99] != "s0819" {
		t.Errorf("listed are %v", got)
	}
	for _, r := range ruleOf(s.in.Rule).Status.Clusters[20:80] {
		if len(r.AnswerDigest) != 64 {
			t.Fatalf("the answer is lost: %+v", r)
		}
	}
	s.report(300, 400, applied("", 1, 0))
	got := s.is("no errors", 100, 650, "250/1000 and 300 applied 80 failing 50 unreachable")
	if list := names(got); list[0] != "s0000" || list[19] != "s0019" || list[20] != "s0700" {
		t.Errorf("listed are %v", list)
	}
	s.report(0, 1000, pending("", "Conflict", 1, 0))
	got = s.is("all fail", 100, 900, "0/1000 and 0 applied 1000 failing 0 unreachable")
	if m := got.Conditions[2].Message; m != "s0000: Conflict; s0001: Conflict; s0002: Conflict; and 997 more" {
		t.Errorf("Stalled says %q", m)
	}
}

func TestMessagesShrink(t *testing.T) {
	for _, words := range []string{ruletest.Long("e", 1024), ruletest.Long("ü", 512), ruletest.Long("<", 1024), ruletest.Long("\x01", 1024), ruletest.Long(`"`, 1024)} {
		for n, most := range map[int]int{1: 1024 + 2, 10: 1024 + 2, 50: 16<<10/50 + 2, 1000: 16<<10/100 + 2} {
			s := sequence(t, n)
			s.report(0, n, v1alpha1.ClusterStatus{Reason: "Rejected", Message: words, ObservedGeneration: 1})
			got := s.is(fmt.Sprintf("%d fail", n), min(n, 100), max(0, n-100), fmt.Sprintf("0/%d and 0 applied %[1]d failing 0 unreachable", n))
			for _, r := range got.Clusters {
				text, err := json.Marshal(r.Message)
				if err != nil || len(text) > most || len(text) < most-10 || !strings.HasSuffix(r.Message, "…") && len(words) > len(r.Message) {
					t.Fatalf("%d fail: a message of %d bytes, at most %d: %s, %v", n, len(text), most, text, err)
				}
			}
		}
	}
}

func TestOverriddenAndWarnings(t *testing.T) {
	in := Input{Rule: ruletest.Rule(), Now: at(1), Overridden: []string{"for", "labels.team", "for"}, Warnings: []string{"a", "b"}}
	got, _ := Status(in)
	if !slices.Equal(got.OverriddenFields, []string{"for", "labels.team"}) {
		t.Errorf("overridden are %q", got.OverriddenFields)
	}
	if m := got.Conditions[0].Message; m != "the spec is valid; warning: a; b" {
		t.Errorf("Accepted says %q", m)
	}
	again(t, "warnings", in, got)
	for i := range 1000 {
		in.Overridden = append(in.Overridden, fmt.Sprintf("%d%s", i, ruletest.Long("x", 999)))
		in.Warnings = append(in.Warnings, ruletest.Long("w", 100))
	}
	got, _ = Status(in)
	if n := len(got.OverriddenFields); n != 256 || len(got.OverriddenFields[255]) > 512 {
		t.Errorf("%d overridden, the last is %s", n, got.OverriddenFields[255])
	}
	if n := len(got.Conditions[0].Message); n != 900 {
		t.Errorf("Accepted says %d bytes", n)
	}
}

// A spoke that comes and goes changes no row of a rule more often than once in OutageDelay,
// whatever it does meanwhile.
func TestFlapsAreRare(t *testing.T) {
	begin := time.Unix(1e9, 0)
	for name, c := range map[string]struct {
		down, up time.Duration
		rows     int // times that the row of a rule at the top changed, at most
	}{
		"every few seconds":    {2 * time.Second, 3 * time.Second, 0},
		"every minute":         {time.Minute, time.Minute, 0},
		"4:59 down":            {OutageDelay - time.Second, time.Second, 0},
		"6 min down, 1 min up": {6 * time.Minute, time.Minute, 10},
		"5:01 down, 1 s up":    {OutageDelay + time.Second, time.Second, 15},
		"6 min, 6 min":         {6 * time.Minute, 6 * time.Minute, 10},
	} {
		t.Run(name, func(t *testing.T) {
			in := Input{Rule: ruletest.Rule(), Clusters: many(1), Verdicts: verdicts{"s0000": applied("s0000", 1, 0)}}
			var shown Shown
			var last time.Time
			changes := 0
			connected := &metav1.Condition{Status: metav1.ConditionTrue, Reason: "Connected", LastTransitionTime: metav1.NewTime(begin.Add(-time.Hour))}
			for now := begin; now.Before(begin.Add(time.Hour)); now = now.Add(time.Second) {
				status := metav1.ConditionFalse
				if now.Sub(begin)%(c.down+c.up) >= c.down {
					status = metav1.ConditionTrue
				}
				if connected.Status != status {
					connected = &metav1.Condition{Status: status, Reason: "Unreachable", LastTransitionTime: metav1.NewTime(now)}
				}
				shown, _ = Damp(shown, connected, now)
				in.Clusters[0].Shown, in.Now = shown, metav1.NewTime(now)
				next, _ := Status(in)
				if was := ruleOf(in.Rule).Status.Clusters; len(was) == 1 && !reflect.DeepEqual(was[0], next.Clusters[0]) {
					changes++
					if now.Sub(last) < OutageDelay {
						t.Fatalf("at %v the row changed %v after it did", now.Sub(begin), now.Sub(last))
					}
					last = now
				}
				ruleOf(in.Rule).Status = next
			}
			t.Logf("in an hour the row changed %d times", changes)
			if changes > c.rows || (c.rows > 0 && changes == 0) {
				t.Errorf("the row changed %d times, at most %d were due", changes, c.rows)
			}
		})
	}
}
