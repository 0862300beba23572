package evaluate

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/evaluator"
	"github.com/rulefleet/rulefleet/pkg/metrics"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/evaluation"
	"github.com/rulefleet/rulefleet/pkg/spoke"
	"github.com/rulefleet/rulefleet/pkg/spoke/kubeconfig"
)

// discovered are spokes of which only the evaluators are known.
type discovered map[string]spoke.Evaluators

func (d discovered) Spoke(string) *spoke.Spoke               { return nil }
func (d discovered) Away(string) bool                        { return true }
func (d discovered) Evaluators(name string) spoke.Evaluators { return d[name] }
func (d discovered) Changed(string)                          {}
func said(firing, pending int32) evaluation.State {
	return evaluation.State{Firing: firing, Pending: pending}
}
func ruleSaid(name string, is evaluation.State) *ruleState {
	return &ruleState{State: is, key: rule.AlertRuleKey("shop", name)}
}
func prometheusNamed(name string) v1alpha1.Evaluator {
	return v1alpha1.Evaluator{Kind: rule.KindPrometheus, Namespace: "monitoring", Name: name, Chosen: true, RuleSelector: &metav1.LabelSelector{}}
}
func evaluatorSays(rules map[types.UID]*ruleState) *evaluatorState {
	return &evaluatorState{outcome: evaluation.Evaluates, rules: rules}
}

// Alerts returns what the chosen evaluators of existing spokes said last; of several, the most.
func TestAlerts(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	named := &v1alpha1.SpokeCluster{ObjectMeta: metav1.ObjectMeta{Name: "b"}}
	named.Spec.EvaluatorRefs = []v1alpha1.EvaluatorReference{{Kind: rule.KindPrometheus, Namespace: "monitoring", Name: "one"}}
	restarted := &v1alpha1.SpokeCluster{ObjectMeta: metav1.ObjectMeta{Name: "c"}}
	restarted.Status.Evaluators = []v1alpha1.Evaluator{prometheusNamed("one")}
	hub := fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		&v1alpha1.SpokeCluster{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, &v1alpha1.SpokeCluster{ObjectMeta: metav1.ObjectMeta{Name: "refused"}}, named, restarted).Build()
	both := spoke.Evaluators{List: []v1alpha1.Evaluator{prometheusNamed("one"), prometheusNamed("two")}, Known: true}
	p := NewPoller(Options{Hub: hub, Spokes: discovered{"a": both, "b": both, "gone": both, "refused": both}})
	for _, name := range []string{"a", "b", "c", "gone"} {
		s := p.state(name)
		s.evaluators["Prometheus monitoring/one"] = evaluatorSays(map[types.UID]*ruleState{
			"1": ruleSaid("down", said(2, 3)), "2": ruleSaid("quiet", said(0, 0)), "3": ruleSaid("at-first", said(0, 1)),
		})
		s.evaluators["Prometheus monitoring/two"] = evaluatorSays(map[types.UID]*ruleState{
			"1": ruleSaid("down", said(5, 1)), "4": ruleSaid("slow", said(1, 0)),
		})
	}
	p.state("a").evaluators["Prometheus monitoring/two"].outcome = evaluation.Unreachable // what it said last stands
	refused := p.state("refused")
	refused.evaluators["Prometheus monitoring/one"] = evaluatorSays(map[types.UID]*ruleState{"1": ruleSaid("down", said(2, 3))})
	refused.evaluators["Prometheus monitoring/one"].outcome = evaluation.NotGranted
	got := p.Alerts()
	want := []metrics.Alert{
		{Cluster: "a", Kind: "AlertRule", Namespace: "shop", Name: "at-first", Pending: 1},
		{Cluster: "a", Kind: "AlertRule", Namespace: "shop", Name: "down", Firing: 5, Pending: 3},
		{Cluster: "a", Kind: "AlertRule", Namespace: "shop", Name: "slow", Firing: 1},
		{Cluster: "b", Kind: "AlertRule", Namespace: "shop", Name: "at-first", Pending: 1},
		{Cluster: "b", Kind: "AlertRule", Namespace: "shop", Name: "down", Firing: 2, Pending: 3},
		{Cluster: "c", Kind: "AlertRule", Namespace: "shop", Name: "at-first", Pending: 1},
		{Cluster: "c", Kind: "AlertRule", Namespace: "shop", Name: "down", Firing: 2, Pending: 3},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v, want\n%+v", got, want)
	}
	if known := sets.KeySet(p.spokes); known.Len() != 5 {
		t.Errorf("a scrape makes something known of %v", known)
	}
}

// Polls are counted by their result, except those that the operator canceled.
func TestPollsAreCounted(t *testing.T) {
	count := func(outcome string) float64 {
		return testutil.ToFloat64(metrics.EvaluatorPolls.WithLabelValues(outcome))
	}
	for _, tc := range []struct {
		err     error
		outcome string
	}{
		{nil, pollAnswered},
		{&kubeconfig.RefusedError{Message: "no"}, pollRefused},
		{fmt.Errorf("asking: %w", &evaluator.Error{Kind: evaluator.Forbidden}), pollRefused},
		{&evaluator.Error{Kind: evaluator.Unavailable}, pollFailed},
		{&strangerError{}, pollFailed},
		{context.DeadlineExceeded, pollFailed},
		{fmt.Errorf("asking: %w", context.Canceled), ""},
	} {
		t.Run(tc.outcome, func(t *testing.T) {
			before := map[string]float64{}
			for _, outcome := range []string{pollAnswered, pollRefused, pollFailed} {
				before[outcome] = count(outcome)
			}
			if got := counted(func() answer { return answer{err: tc.err} }); !errors.Is(got.err, tc.err) {
				t.Errorf("%v became %v", tc.err, got.err)
			}
			for outcome, was := range before {
				want := was
				if outcome == tc.outcome {
					want++
				}
				if got := count(outcome); got != want {
					t.Errorf("after %v, %s is %v, want %v", tc.err, outcome, got, want)
				}
			}
		})
	}
}
