package rollup

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

func TestCompare(t *testing.T) {
	t.Parallel()
	base := v1alpha1.RuleStatus{
		ObservedGeneration: 1, Summary: &v1alpha1.RuleSummary{Desired: 2, Selected: 2, Evaluating: 2, Firing: new(int32(1)), Ready: "2/2"},
		Conditions: []metav1.Condition{condition(v1alpha1.ConditionAccepted, true, "Accepted", ""), condition(v1alpha1.ConditionReady, true, "AllApplied", "")},
		Clusters:   rows{evaluated("a", 1, 1, 5), evaluated("b", 0, 1, 5)},
	}
	load := func(s *v1alpha1.RuleStatus, i int) {
		r := &s.Clusters[i]
		r.Phase, r.Reason, r.Message, r.LastTransitionTime = v1alpha1.PhaseSelected, v1alpha1.ReasonLoading, "it is selected", at(9)
		s.Summary.Evaluating--
		s.Summary.Ready = "1/2"
		s.Conditions[1] = condition(v1alpha1.ConditionReady, false, "Loading", "1/2 spokes")
	}
	for name, c := range map[string]struct {
		change      func(*v1alpha1.RuleStatus)
		there, back Change
	}{
		"nothing":               {func(*v1alpha1.RuleStatus) {}, ChangeFiring, ChangeFiring},
		"it fires":              {func(s *v1alpha1.RuleStatus) { s.Clusters[1].Firing = 4 }, ChangeFiring, ChangeFiring},
		"loading":               {func(s *v1alpha1.RuleStatus) { load(s, 0) }, ChangeLost, ChangeFound},
		"loading, it fires":     {func(s *v1alpha1.RuleStatus) { load(s, 0); s.Clusters[0].Firing = 9 }, ChangeLost, ChangeFound},
		"both":                  {func(s *v1alpha1.RuleStatus) { load(s, 0); load(s, 1) }, ChangeLost, ChangeFound},
		"not loaded":            {func(s *v1alpha1.RuleStatus) { load(s, 0); s.Clusters[0].Reason = "NotLoaded" }, ChangeOther, ChangeOther},
		"it fails":              {func(s *v1alpha1.RuleStatus) { load(s, 0); s.Clusters[0].Reason = "EvaluationFailed" }, ChangeOther, ChangeOther},
		"applied":               {func(s *v1alpha1.RuleStatus) { load(s, 0); s.Clusters[0].Phase = v1alpha1.PhaseApplied }, ChangeOther, ChangeOther},
		"of another generation": {func(s *v1alpha1.RuleStatus) { load(s, 0); s.Clusters[0].ObservedGeneration = 2 }, ChangeOther, ChangeOther},
		"loading, and changed":  {func(s *v1alpha1.RuleStatus) { load(s, 0); s.ObservedGeneration = 2 }, ChangeOther, ChangeOther},
		"loading, and a metric": {func(s *v1alpha1.RuleStatus) { load(s, 0); s.Clusters[1].MissingMetrics = []string{"x"} }, ChangeOther, ChangeOther},
		"loading, and a row":    {func(s *v1alpha1.RuleStatus) { load(s, 0); s.Clusters = s.Clusters[:1] }, ChangeOther, ChangeOther},
		"loading, and a condition": {
			func(s *v1alpha1.RuleStatus) { load(s, 0); s.Conditions[0].Status = metav1.ConditionFalse }, ChangeOther, ChangeOther,
		},
		"loading, and no summary": {func(s *v1alpha1.RuleStatus) { load(s, 0); s.Summary = nil }, ChangeOther, ChangeOther},
		"only Ready":              {func(s *v1alpha1.RuleStatus) { s.Conditions[1].Message = "x" }, ChangeOther, ChangeOther},
		"only how many":           {func(s *v1alpha1.RuleStatus) { s.Summary.Evaluating-- }, ChangeOther, ChangeOther},
	} {
		t.Run(name, func(t *testing.T) {
			was, is := base.DeepCopy(), base.DeepCopy()
			c.change(is)
			if there, back := Compare(was, is), Compare(is, was); there != c.there || back != c.back {
				t.Errorf("it is %d, and back %d; want %d and %d", there, back, c.there, c.back)
			}
		})
	}
	one, other := base.DeepCopy(), base.DeepCopy()
	load(one, 0)
	load(other, 1)
	if Compare(one, other) != ChangeLost || Compare(other, one) != ChangeLost {
		t.Error("one is lost while another is found")
	}
	load(other, 0)
	if Compare(other, one) != ChangeFound || Compare(one, other) != ChangeLost {
		t.Error("one is found while another stays lost")
	}
}

// Of many, those that are evaluated are not listed, and those that are loading are.
func TestCompareMany(t *testing.T) {
	t.Parallel()
	s := sequence(t, 0)
	s.in.Clusters = many(200)
	s.report(0, 200, evaluated("", 0, 1, 0))
	before, last := Status(s.in)
	ruleOf(s.in.Rule).Status, s.in.Last = before, last
	s.report(50, 70, rowOf("", v1alpha1.PhaseSelected, v1alpha1.ReasonLoading, 1, 0))
	after, _ := Status(s.in)
	if there, back := Compare(&before, &after), Compare(&after, &before); len(after.Clusters) != 20 || there != ChangeLost || back != ChangeFound {
		t.Errorf("%d rows: it is %d, and back %d", len(after.Clusters), there, back)
	}
}
