package spoke

import (
	"slices"
	"strings"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	monitoringfake "github.com/prometheus-operator/prometheus-operator/pkg/client/versioned/fake"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/evaluation"
	"github.com/rulefleet/rulefleet/pkg/testing/openshift"
)

// openShift returns the objects that evaluate rules on OpenShift.
func openShift() []runtime.Object {
	var out []runtime.Object
	for _, o := range openshift.Evaluators() {
		out = append(out, o)
	}
	return out
}

// On OpenShift, there are several evaluators from the start. None is chosen before a person names one, as
// docs/how-to/choose-prometheus.md describes. That one stays chosen afterwards, whatever is created later.
func TestOpenShift(t *testing.T) {
	ruler := v1alpha1.EvaluatorReference{Kind: monitoringv1.ThanosRulerKind, Namespace: openshift.User, Name: openshift.UserWorkload}
	s := &session{rules: monitoringfake.NewSimpleClientset(openShift()...), cluster: holding()}
	var record []v1alpha1.Evaluator
	choose := func(refs ...v1alpha1.EvaluatorReference) (rule.Cluster, []string) {
		t.Helper()
		seen, err := s.evaluators(t.Context(), &Options{}, refs)
		if err != nil {
			t.Fatal(err)
		}
		c := rule.Cluster{Name: "eu-1", EvaluatorRefs: refs}
		record = evaluation.Choose(&evaluation.Choice{
			Seen: seen.List, Refs: refs, Record: record, Open: len(record) > 0, Pushed: func() []evaluation.Held { return nil }, Cluster: &c, Now: time.Now(), Grace: evaluation.MissingGrace,
		})
		var chosen []string
		for i := range record {
			e := rule.EvaluatorOf(&record[i])
			c.Evaluators = append(c.Evaluators, e)
			if e.Chosen {
				chosen = append(chosen, e.String())
			}
		}
		return c, chosen
	}
	c, chosen := choose()
	message := evaluation.Ambiguity(c)
	for _, want := range []string{
		"Prometheus openshift-monitoring/k8s", "Prometheus openshift-user-workload-monitoring/user-workload", "ThanosRuler openshift-user-workload-monitoring/user-workload",
		"kubectl patch spokecluster eu-1",
	} {
		if len(chosen) > 0 || !strings.Contains(message, want) {
			t.Errorf("at first, %v is chosen, and the message lacks %q: %s", chosen, want, message)
		}
	}
	if _, again := choose(); len(again) > 0 {
		t.Errorf("later, %v is chosen", again)
	}
	for what, refs := range map[string][]v1alpha1.EvaluatorReference{"named": {ruler}, "named no longer": nil} {
		if what == "named no longer" {
			choose(ruler)
		}
		if c, chosen = choose(refs...); !slices.Equal(chosen, []string{"ThanosRuler openshift-user-workload-monitoring/user-workload"}) {
			t.Errorf("%s: %v is chosen", what, chosen)
		}
	}
	if problem := evaluation.LabelProblem(c); problem != "" {
		t.Errorf("rules get no labels: %s", problem)
	}
	for i := range record {
		if record[i].Chosen && (record[i].Service != "" || !strings.Contains(record[i].Message, "spec.evaluatorRefs[].url")) {
			t.Errorf("it can be queried: %+v", record[i])
		}
	}
	for name, tc := range map[string]struct {
		namespace evaluation.Namespace
		labels    map[string]string
		selected  bool
	}{
		"a project":                     {evaluation.Namespace{Name: "shop"}, nil, true},
		"a namespace of the platform":   {evaluation.Namespace{Name: "openshift-ingress", Labels: map[string]string{openshift.PlatformLabel: "true"}}, nil, false},
		"the ruler's own namespace":     {evaluation.Namespace{Name: openshift.User, Labels: map[string]string{openshift.PlatformLabel: "true"}}, nil, false},
		"a project without monitoring":  {evaluation.Namespace{Name: "test", Labels: map[string]string{openshift.UserLabel: "false"}}, nil, false},
		"a rule for the leaf":           {evaluation.Namespace{Name: "shop"}, map[string]string{openshift.ScopeLabel: openshift.LeafScope}, false},
		"a rule with another such name": {evaluation.Namespace{Name: "shop"}, map[string]string{openshift.ScopeLabel: "other"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			o := ruleOf("hub", "web")
			o.Namespace, o.Labels = tc.namespace.Name, tc.labels
			got := evaluation.Select(o, tc.namespace, c)
			if (got.Reason == "") != tc.selected || (tc.selected && len(got.By) != 1) {
				t.Fatalf("got %+v", got)
			}
			if !tc.selected {
				return
			}
			row := evaluation.Prove(o, got, func(*rule.Evaluator) evaluation.State { return evaluation.State{Outcome: evaluation.NotGranted} }, false)
			if row.Phase != v1alpha1.PhaseSelected || row.Reason != v1alpha1.ReasonPredicted {
				t.Errorf("its row is %+v", row)
			}
		})
	}
	// A tenant's Prometheus changes nothing.
	more := append(openShift(), aPrometheus("tenant", func(p *monitoringv1.Prometheus) { p.Namespace = "shop" }))
	s.rules = monitoringfake.NewSimpleClientset(more...)
	if _, chosen = choose(); !slices.Equal(chosen, []string{"ThanosRuler openshift-user-workload-monitoring/user-workload"}) {
		t.Errorf("beside a tenant's, %v is chosen", chosen)
	}
}
