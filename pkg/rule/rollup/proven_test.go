package rollup

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule/evaluation"
	"github.com/rulefleet/rulefleet/pkg/rule/internal/ruletest"
)

func selected(name, reason string, generation, since int64) v1alpha1.ClusterStatus {
	return rowOf(name, v1alpha1.PhaseSelected, reason, generation, since)
}

// evaluated returns a row of a rule that fires so many alerts.
func evaluated(name string, firing int32, generation, since int64, missing ...string) v1alpha1.ClusterStatus {
	r := rowOf(name, v1alpha1.PhaseEvaluating, "", generation, since)
	r.Firing, r.MissingMetrics = firing, missing
	return r
}

// afterRestart is what is reported at first: whom no evaluator was asked about.
func afterRestart(of verdicts) verdicts {
	out := verdicts{}
	for name, r := range of {
		if reached(&r, v1alpha1.PhaseSelected) && r.Reason != v1alpha1.ReasonNamespaceEnforced {
			r = rowOf(name, v1alpha1.PhaseSelected, evaluation.ReasonUnproven, r.ObservedGeneration, 0)
		}
		out[name] = r
	}
	return out
}

// What is at the top, and how the summary counts it.
func TestStatusOfProvenRules(t *testing.T) {
	firing := func(n int32) *int32 { return &n }
	for name, c := range map[string]struct {
		rows    []v1alpha1.ClusterStatus
		summary v1alpha1.RuleSummary
		ready   string
		stalled string
	}{
		"evaluated": {
			rows:    []v1alpha1.ClusterStatus{evaluated("a", 0, 1, 0), evaluated("b", 2, 1, 0)},
			summary: v1alpha1.RuleSummary{Desired: 2, Applied: 2, Selected: 2, Evaluating: 2, Firing: firing(2), Ready: "2/2"},
			ready:   "True/AllApplied",
		},
		"as far as can be known": {
			rows:    []v1alpha1.ClusterStatus{rowOf("a", v1alpha1.PhaseApplied, "NoEvaluator", 1, 0), rowOf("b", v1alpha1.PhaseApplied, "EvaluatorsUnknown", 1, 0), selected("c", "Predicted", 1, 0), selected("d", "Confirmed", 1, 0)},
			summary: v1alpha1.RuleSummary{Desired: 4, Applied: 4, Selected: 2, Ready: "4/4"},
			ready:   "True/AllApplied",
		},
		"of an older generation": {
			rows:    []v1alpha1.ClusterStatus{evaluated("a", 1, 0, 0)},
			summary: v1alpha1.RuleSummary{Desired: 1, Applied: 1, Selected: 1, Evaluating: 1, Firing: firing(1), Ready: "0/1"},
			ready:   "False/Progressing",
		},
		"loading": {
			rows:    []v1alpha1.ClusterStatus{selected("a", "Loading", 1, 0), evaluated("b", 0, 1, 0)},
			summary: v1alpha1.RuleSummary{Desired: 2, Applied: 2, Selected: 2, Evaluating: 1, Firing: firing(0), Ready: "1/2"},
			ready:   "False/Loading",
		},
		"not loaded": {
			rows:    []v1alpha1.ClusterStatus{selected("a", "NotLoaded", 1, 0)},
			summary: v1alpha1.RuleSummary{Desired: 1, Applied: 1, Selected: 1, Failing: 1, Firing: firing(0), Ready: "0/1"},
			ready:   "False/NotLoaded", stalled: "True/NotLoaded",
		},
		"fails": {
			rows:    []v1alpha1.ClusterStatus{selected("a", "EvaluationFailed", 1, 0)},
			summary: v1alpha1.RuleSummary{Desired: 1, Applied: 1, Selected: 1, Failing: 1, Firing: firing(0), Ready: "0/1"},
			ready:   "False/EvaluationFailed",
		},
		"evaluator is down": {
			rows:    []v1alpha1.ClusterStatus{selected("a", "EvaluatorUnreachable", 1, 0)},
			summary: v1alpha1.RuleSummary{Desired: 1, Applied: 1, Selected: 1, Failing: 1, Ready: "0/1"},
			ready:   "False/EvaluatorUnreachable",
		},
		"not selected": {
			rows:    []v1alpha1.ClusterStatus{rowOf("a", v1alpha1.PhaseApplied, "NotSelected", 1, 0), selected("b", "NamespaceEnforced", 1, 0)},
			summary: v1alpha1.RuleSummary{Desired: 2, Applied: 2, Selected: 1, Failing: 2, Ready: "0/2"},
			ready:   "False/Progressing", stalled: "True/NotSelected",
		},
		"never asked": {
			rows:    []v1alpha1.ClusterStatus{selected("a", evaluation.ReasonUnproven, 1, 0)},
			summary: v1alpha1.RuleSummary{Desired: 1, Applied: 1, Selected: 1, Firing: firing(0), Ready: "0/1"},
			ready:   "False/Loading",
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := Input{Rule: ruletest.Rule(), Now: at(100), Verdicts: verdicts{}}
			for _, r := range c.rows {
				in.Clusters = append(in.Clusters, spokes(string(r.Name))...)
				in.Verdicts[string(r.Name)] = r
			}
			got, _ := Status(in)
			again(t, name, in, got)
			if !equalSummary(*got.Summary, c.summary) || shortly(got, v1alpha1.ConditionReady) != c.ready || shortly(got, v1alpha1.ConditionStalled) != cmp.Or(c.stalled, "none") {
				t.Errorf("%s: %s %s %s", name, summaryOf(*got.Summary), shortly(got, v1alpha1.ConditionReady), shortly(got, v1alpha1.ConditionStalled))
			}
			for _, r := range got.Clusters {
				if r.Reason == evaluation.ReasonUnproven {
					t.Errorf("%s: the status has %+v", name, r)
				}
			}
		})
	}
}

func summaryOf(s v1alpha1.RuleSummary) string {
	firing := "-"
	if s.Firing != nil {
		firing = fmt.Sprint(*s.Firing)
	}
	s.Firing = nil
	return fmt.Sprintf("%+v firing %s", s, firing)
}

func equalSummary(a, b v1alpha1.RuleSummary) bool { return summaryOf(a) == summaryOf(b) }

func shortly(s v1alpha1.RuleStatus, kind string) string {
	c := meta.FindStatusCondition(s.Conditions, kind)
	if c == nil {
		return "none"
	}
	return string(c.Status) + "/" + c.Reason
}

// What stands after a restart is about the same generation, and about a rule that was selected.
func TestUnproven(t *testing.T) {
	now := selected("a", evaluation.ReasonUnproven, 2, 0)
	now.Rule = "shop/now"
	for name, c := range map[string]struct {
		before v1alpha1.ClusterStatus
		want   v1alpha1.ClusterStatus
	}{
		"evaluated":       {evaluated("a", 3, 2, 10, "x"), evaluated("a", 3, 2, 10, "x")},
		"not loaded":      {selected("a", "NotLoaded", 2, 10), selected("a", "NotLoaded", 2, 10)},
		"predicted":       {selected("a", "Predicted", 2, 10), selected("a", "Predicted", 2, 10)},
		"an older one":    {evaluated("a", 3, 1, 10), selected("a", "Loading", 2, 100)},
		"not selected":    {rowOf("a", v1alpha1.PhaseApplied, "NotSelected", 2, 10), selected("a", "Loading", 2, 100)},
		"pending":         {pending("a", "Conflict", 2, 10), selected("a", "Loading", 2, 100)},
		"loading already": {selected("a", "Loading", 2, 10), selected("a", "Loading", 2, 10)},
	} {
		t.Run(name, func(t *testing.T) {
			in := Input{Rule: ruletest.Rule(func(r *v1alpha1.AlertRule) { r.Generation = 2 }), Now: at(100), Clusters: spokes("a"), Verdicts: verdicts{"a": now}}
			ruleOf(in.Rule).Status = v1alpha1.RuleStatus{ObservedGeneration: 2, Clusters: rows{c.before}}
			got, _ := Status(in)
			r := got.Clusters[0]
			if ruletest.Where(r) != ruletest.Where(c.want) || r.Firing != c.want.Firing || !slices.Equal(r.MissingMetrics, c.want.MissingMetrics) ||
				!r.LastTransitionTime.Equal(&c.want.LastTransitionTime) || r.ObservedGeneration != 2 || r.Rule != "shop/now" {
				t.Errorf("%s: %+v", name, r)
			}
		})
	}
}

func TestMetricsPresent(t *testing.T) {
	for name, c := range map[string]struct {
		rows []v1alpha1.ClusterStatus
		off  bool
		want string
		told string
	}{
		"there":          {rows: rows{evaluated("a", 0, 1, 0)}, want: "none"},
		"missing":        {rows: rows{evaluated("a", 0, 1, 0, `x{a="b"}`, "y"), evaluated("b", 0, 1, 0)}, want: "False/Missing", told: `no series in a: x{a="b"}, y. Without them, the alert`},
		"in many":        {rows: rows{evaluated("a", 0, 1, 0, "x"), evaluated("b", 0, 1, 0, "x"), evaluated("c", 0, 1, 0, "x"), evaluated("d", 0, 1, 0, "x"), evaluated("e", 0, 1, 0, "x")}, want: "False/Missing", told: "a: x; b: x; c: x; and in 2 more spokes"},
		"off":            {rows: rows{evaluated("a", 0, 1, 0, "x")}, off: true, want: "none"},
		"none is asked":  {rows: rows{selected("a", "Predicted", 1, 0), rowOf("b", v1alpha1.PhaseApplied, "NoEvaluator", 1, 0)}, want: "none"},
		"one can't be":   {rows: rows{selected("a", "EvaluatorUnreachable", 1, 0)}, want: "none"},
		"while it fails": {rows: rows{selected("a", "EvaluationFailed", 1, 0)}, want: "none"},
	} {
		t.Run(name, func(t *testing.T) {
			in := Input{Rule: ruletest.Rule(), Now: at(100), Verdicts: verdicts{}, Metrics: !c.off}
			// It goes where there is no reason for it any more.
			meta.SetStatusCondition(&ruleOf(in.Rule).Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionMetricsPresent, Status: metav1.ConditionFalse, Reason: "Former"})
			for _, r := range c.rows {
				in.Clusters = append(in.Clusters, spokes(string(r.Name))...)
				in.Verdicts[string(r.Name)] = r
			}
			got, _ := Status(in)
			again(t, name, in, got)
			is := meta.FindStatusCondition(got.Conditions, v1alpha1.ConditionMetricsPresent)
			if shortly(got, v1alpha1.ConditionMetricsPresent) != c.want || is != nil && !strings.Contains(is.Message, c.told) {
				t.Errorf("%s: %+v", name, is)
			}
		})
	}
}

func TestFiringAbove100(t *testing.T) {
	s := sequence(t, 0)
	s.in.Clusters, s.in.Metrics = many(300), true
	s.report(0, 300, evaluated("", 0, 1, 0))
	check := func(what string, listed int, firing int32, metrics string) v1alpha1.RuleStatus {
		t.Helper()
		got, last := Status(s.in)
		checkStatus(t, got)
		again(t, what, s.in, got)
		restarted := s.in
		restarted.Last, restarted.Starting = nil, true
		for _, v := range []verdicts{{}, afterRestart(s.in.Verdicts)} {
			restarted.Verdicts = v
			again(t, what+", after a restart", restarted, got)
		}
		if len(got.Clusters) != listed || got.Summary.Firing == nil || *got.Summary.Firing != firing || got.Summary.Evaluating != 300 || got.Summary.Ready != "300/300" || shortly(got, v1alpha1.ConditionMetricsPresent) != metrics {
			t.Errorf("%s: %d listed, %s, metrics %s", what, len(got.Clusters), summaryOf(*got.Summary), shortly(got, v1alpha1.ConditionMetricsPresent))
		}
		clusters := map[string]bool{}
		for _, h := range last {
			r := h.Value()
			clusters[r.Cluster] = true
			if r.State != (v1alpha1.ClusterGroup{Phase: v1alpha1.PhaseEvaluating, ObservedGeneration: 1}) {
				t.Errorf("%s: a row is %+v", what, r)
			}
		}
		if len(last) != 300 || len(clusters) != 300 || clusters[""] {
			t.Errorf("%s: there are %d rows of %d spokes", what, len(last), len(clusters))
		}
		ruleOf(s.in.Rule).Status, s.in.Last = got, last
		return got
	}
	const there, missing = "none", "False/Missing"
	quiet := check("quiet", 0, 0, there)
	s.report(7, 9, evaluated("", 2, 1, 0))
	few := check("a few", 2, 4, there)
	if !onlyFiring(&quiet, &few) {
		t.Error("two that fire are more than that")
	}
	s.report(20, 30, evaluated("", 0, 1, 0, "x"))
	lacking := check("metrics are missing", 12, 4, missing)
	if onlyFiring(&few, &lacking) {
		t.Error("missing metrics are held back")
	}
	s.report(0, 20, evaluated("", 1, 1, 0))
	s.report(30, 300, evaluated("", 1, 1, 0))
	storm := check("a storm", 100, 290, missing)
	if slices.ContainsFunc(storm.Clusters, func(r v1alpha1.ClusterStatus) bool { return r.Firing == 0 }) {
		t.Error("what does not fire is listed first")
	}
	s.report(0, 20, evaluated("", 0, 1, 0))
	s.report(30, 300, evaluated("", 0, 1, 0))
	check("over", 10, 0, missing)
	s.report(0, 300, evaluated("", 0, 1, 0))
	check("quiet again", 0, 0, there)
}

// How much of another row's message is shown does not depend on what fires.
func TestFiringLeavesMessages(t *testing.T) {
	s := sequence(t, 0)
	s.in.Clusters = many(200)
	s.report(0, 200, evaluated("", 0, 1, 0))
	lags := rowOf("", v1alpha1.PhaseApplied, "NotSelected", 1, 0)
	lags.Message = ruletest.Long("why", 300)
	s.report(0, 3, lags)
	before, last := Status(s.in)
	ruleOf(s.in.Rule).Status, s.in.Last = before, last
	s.report(50, 120, evaluated("", 1, 1, 0))
	after, _ := Status(s.in)
	if len(before.Clusters) != 3 || len(after.Clusters) != 73 || !onlyFiring(&before, &after) {
		t.Errorf("%d and %d rows, only firing: %v", len(before.Clusters), len(after.Clusters), onlyFiring(&before, &after))
	}
}

func TestOnlyFiring(t *testing.T) {
	base := v1alpha1.RuleStatus{
		ObservedGeneration: 1, Summary: &v1alpha1.RuleSummary{Desired: 2, Evaluating: 2, Firing: new(int32(1)), Ready: "2/2"},
		Conditions: []metav1.Condition{condition(v1alpha1.ConditionReady, true, "AllApplied", "")}, Clusters: rows{evaluated("a", 1, 1, 5), evaluated("b", 0, 1, 5)},
	}
	for name, c := range map[string]struct {
		change func(*v1alpha1.RuleStatus)
		want   bool
	}{
		"nothing":       {func(*v1alpha1.RuleStatus) {}, true},
		"counts":        {func(s *v1alpha1.RuleStatus) { s.Summary.Firing = new(int32(5)); s.Clusters[1].Firing = 4 }, true},
		"known or not":  {func(s *v1alpha1.RuleStatus) { s.Summary.Firing = nil }, true},
		"a row":         {func(s *v1alpha1.RuleStatus) { s.Clusters = s.Clusters[:1] }, false},
		"a phase":       {func(s *v1alpha1.RuleStatus) { s.Clusters[0].Phase = v1alpha1.PhaseSelected }, false},
		"a condition":   {func(s *v1alpha1.RuleStatus) { s.Conditions[0].Status = metav1.ConditionFalse }, false},
		"a message":     {func(s *v1alpha1.RuleStatus) { s.Clusters[0].Message = "x" }, false},
		"a metric":      {func(s *v1alpha1.RuleStatus) { s.Clusters[0].MissingMetrics = []string{"x"} }, false},
		"the summary":   {func(s *v1alpha1.RuleStatus) { s.Summary.Evaluating = 1; s.Clusters[1].Firing = 4 }, false},
		"no summary":    {func(s *v1alpha1.RuleStatus) { s.Summary = nil }, false},
		"a generation":  {func(s *v1alpha1.RuleStatus) { s.ObservedGeneration = 2 }, false},
		"row that goes": {func(s *v1alpha1.RuleStatus) { s.Summary.Desired, s.Clusters = 200, nil }, false},
	} {
		t.Run(name, func(t *testing.T) {
			other := base.DeepCopy()
			c.change(other)
			was := base.DeepCopy()
			if onlyFiring(was, other) != c.want || onlyFiring(other, was) != c.want {
				t.Errorf("%s: want %v", name, c.want)
			}
		})
	}
}

// As TestStatusIsStable, with rules that are asked about: a restart after which nothing was
// reported yet, or no evaluator was asked yet, writes nothing.
func TestProvenStatusIsStable(t *testing.T) {
	t.Parallel()
	rnd := ruletest.Random()
	for _, of := range []struct{ size, runs int }{{3, 15}, {140, 2}, {300, 1}} {
		for run := range of.runs {
			in := Input{Rule: ruletest.Rule(), Now: at(1), Metrics: true, Clusters: many(of.size)}
			tops := map[string]v1alpha1.Phase{}
			for i := range in.Clusters {
				tops[in.Clusters[i].Name] = ruletest.Pick(rnd, []v1alpha1.Phase{v1alpha1.PhaseApplied, v1alpha1.PhaseSelected, v1alpha1.PhaseEvaluating, v1alpha1.PhaseEvaluating})
			}
			in.Verdicts = verdicts{}
			trouble := ruletest.Pick(rnd, []int{1, 30, 1000}) // one in so many rows lags
			for step := range 5 {
				in.Now = at(int64(step + 2))
				ruleOf(in.Rule).Generation += int64(rnd.IntN(2))
				provenVerdicts(rnd, &in, tops, trouble)
				got, last := Status(in)
				checkStatus(t, got)
				what := fmt.Sprintf("%d spokes, run %d, step %d", of.size, run, step)
				again(t, what, in, got)
				restart := in
				restart.Verdicts, restart.Last, restart.Starting = verdicts{}, nil, true
				again(t, what+", after a restart", restart, got)
				restart.Verdicts = afterRestart(in.Verdicts)
				again(t, what+", with evaluators not asked", restart, got)
				for name, r := range in.Verdicts {
					if rnd.IntN(2) == 0 {
						restart.Verdicts[name] = r
					}
				}
				again(t, what+", with half of them asked", restart, got)
				ruleOf(in.Rule).Status, in.Last = got, last
				if len(last) != of.size || len(Rows(&got)) != of.size {
					t.Fatalf("%s: there are %d rows, and %d in the status", what, len(last), len(Rows(&got)))
				}
			}
		}
	}
}

// provenVerdicts has all spokes report something else.
func provenVerdicts(rnd *rand.Rand, in *Input, tops map[string]v1alpha1.Phase, trouble int) {
	generation := ruleOf(in.Rule).Generation
	for i := range in.Clusters {
		name := in.Clusters[i].Name
		top := map[v1alpha1.Phase]v1alpha1.ClusterStatus{
			v1alpha1.PhaseApplied:    rowOf(name, v1alpha1.PhaseApplied, v1alpha1.ReasonNoEvaluator, generation, 0),
			v1alpha1.PhaseSelected:   selected(name, ruletest.Pick(rnd, []string{v1alpha1.ReasonPredicted, v1alpha1.ReasonConfirmed}), generation, 0),
			v1alpha1.PhaseEvaluating: evaluated(name, int32(max(0, rnd.IntN(8)-5)), generation, 0),
		}[tops[name]]
		if top.Phase == v1alpha1.PhaseEvaluating && rnd.IntN(20) == 0 {
			top.MissingMetrics = []string{"x"}
		}
		if rnd.IntN(trouble) == 0 {
			lags := []v1alpha1.ClusterStatus{pending(name, "Conflict", generation, 0), rowOf(name, v1alpha1.PhaseApplied, "NotSelected", generation, 0), pending(name, "NamespaceMissing", generation, 0)}
			if top.Phase == v1alpha1.PhaseEvaluating {
				lags = append(lags, selected(name, "Loading", generation, 0), selected(name, "NotLoaded", generation, 0), selected(name, "EvaluationFailed", generation, 0), selected(name, "EvaluatorUnreachable", generation, 0))
			}
			top = ruletest.Pick(rnd, lags)
		}
		in.Verdicts[name] = top
	}
}
