package status

import (
	"fmt"
	"maps"
	"testing"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/metrics"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/rollup"
)

// Rows and conditions are summed up over all rules.
func TestRules(t *testing.T) {
	r := &Reconciler{}
	if got := r.Rules(); len(got.Rows) > 0 || len(got.Conditions) > 0 {
		t.Errorf("of no rules, %+v", got)
	}
	ok := []metav1.Condition{
		{Type: v1alpha1.ConditionAccepted, Status: "True", Reason: v1alpha1.ReasonAccepted},
		{Type: v1alpha1.ConditionReady, Status: "False", Reason: v1alpha1.ReasonConflict},
		{Type: "Other", Status: "True", Reason: "Other"},
	}
	key := func(name string) rule.Key { return rule.AlertRuleKey("", name) }
	store := func(name string, desired int32, conditions []metav1.Condition, rows ...v1alpha1.ClusterStatus) {
		status := v1alpha1.RuleStatus{Clusters: rows, Conditions: conditions}
		if others := desired - int32(len(rows)); others > 0 {
			status.Groups = []v1alpha1.ClusterGroup{{Phase: v1alpha1.PhaseApplied, Count: others}}
		}
		r.memories.Store(key(name), newKnown("", &status, nil))
	}
	store("a", 3, ok, v1alpha1.ClusterStatus{Name: "eu", Phase: v1alpha1.PhasePending, Reason: v1alpha1.ReasonConflict})
	store("b", 2, ok[:1])
	store("c", 2, nil, v1alpha1.ClusterStatus{Name: "eu", Phase: v1alpha1.PhasePending, Reason: v1alpha1.ReasonConflict},
		v1alpha1.ClusterStatus{Name: "us", Phase: v1alpha1.PhasePending, Reason: v1alpha1.ReasonConflict})
	presumed := rollup.Row{Cluster: "us", State: v1alpha1.ClusterGroup{Phase: v1alpha1.PhaseApplied}, Presumed: true}
	r.memories.Store(key("d"), newKnown("", &v1alpha1.RuleStatus{}, []unique.Handle[rollup.Row]{unique.Make(presumed)}))
	got := r.Rules()
	wantRows := map[metrics.Row]int{
		{Phase: v1alpha1.PhaseApplied}: 5,
		{Cluster: "eu", Phase: v1alpha1.PhasePending, Reason: v1alpha1.ReasonConflict}: 2,
		{Cluster: "us", Phase: v1alpha1.PhasePending, Reason: v1alpha1.ReasonConflict}: 1,
	}
	wantConditions := map[metrics.Condition]int{
		{Type: v1alpha1.ConditionAccepted, Status: "True", Reason: v1alpha1.ReasonAccepted}: 2,
		{Type: v1alpha1.ConditionReady, Status: "False", Reason: v1alpha1.ReasonConflict}:   1,
	}
	if !maps.Equal(got.Rows, wantRows) || !maps.Equal(got.Conditions, wantConditions) {
		t.Errorf("got %+v", got)
	}
}

// BenchmarkRulesOnManySpokes is what a scrape takes with 1,000 AlertRules on each of 1,000 spokes.
func BenchmarkRulesOnManySpokes(b *testing.B) {
	r := &Reconciler{}
	status := v1alpha1.RuleStatus{Summary: &v1alpha1.RuleSummary{Desired: 1000}}
	for i := range 1000 {
		status.Clusters = append(status.Clusters, v1alpha1.ClusterStatus{Name: v1alpha1.ClusterName(fmt.Sprint("s", i)), Phase: v1alpha1.PhaseEvaluating})
	}
	for i := range 1000 {
		r.memories.Store(rule.AlertRuleKey("rulefleet-system", fmt.Sprint(i)), newKnown("", &status, nil))
	}
	for b.Loop() {
		r.Rules()
	}
}

// BenchmarkRules is what a scrape takes with 100,000 AlertRules.
func BenchmarkRules(b *testing.B) {
	r := &Reconciler{}
	status := v1alpha1.RuleStatus{
		Clusters:   []v1alpha1.ClusterStatus{{Name: "eu", Phase: v1alpha1.PhaseEvaluating}},
		Conditions: []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: "True", Reason: v1alpha1.ReasonAllApplied}},
	}
	for i := range 100_000 {
		r.memories.Store(rule.AlertRuleKey("generated", fmt.Sprint(i)), newKnown("", &status, nil))
	}
	for b.Loop() {
		r.Rules()
	}
}
