package delivery

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/evaluation"
	"github.com/rulefleet/rulefleet/pkg/rule/gotemplate"
	"github.com/rulefleet/rulefleet/pkg/rule/internal/ruletest"
)

// chooseAll has all evaluators chosen that take any rule, unless some are named.
func chooseAll(c rule.Cluster) {
	for i := range c.Evaluators {
		c.Evaluators[i].Chosen = c.Evaluators[i].RuleSelector != nil
	}
	evaluation.ApplyRefs(c.Evaluators, c.EvaluatorRefs)
}

func byNames(s evaluation.Selection) []string {
	var out []string
	for _, e := range s.By {
		out = append(out, e.Name)
	}
	return out
}

// A label that was put on for an evaluator's sake goes with its need, and another comes.
func TestLabelsFollowTheSelector(t *testing.T) {
	wanting := func(labels map[string]string) *monitoringv1.PrometheusRule {
		e := rule.Evaluator{Kind: rule.KindPrometheus, Namespace: "m", Name: "p", Chosen: true, RuleSelector: &metav1.LabelSelector{MatchLabels: labels}}
		o, err := Render(ruletest.Rule(), rule.Cluster{Name: "eu-1", Evaluators: []rule.Evaluator{e}}, options)
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	there := wanting(map[string]string{"release": "kps", "role": "alerts"})
	there.Labels["theirs"] = "too"
	for name, c := range map[string]struct{ needs, want map[string]string }{
		"another value": {map[string]string{"release": "other", "role": "alerts"}, map[string]string{"release": "other", "role": "alerts", "theirs": "too"}},
		"one less":      {map[string]string{"role": "alerts"}, map[string]string{"role": "alerts", "theirs": "too"}},
		"none":          {nil, map[string]string{"theirs": "too"}},
	} {
		t.Run(name, func(t *testing.T) {
			desired := wanting(c.needs)
			plan := Decide(desired, there, nil, ruletest.HubID, "")
			if plan.Action != Update {
				t.Errorf("%s: %s", name, plan.Action)
				return
			}
			got := maps.Clone(plan.Object.Labels)
			maps.DeleteFunc(got, func(key, _ string) bool { return slices.Contains(rule.OwnLabels, key) })
			if !maps.Equal(got, c.want) || !rule.Owned(plan.Object, ruletest.HubID) {
				t.Errorf("%s: %v", name, plan.Object.Labels)
			}
			if again := Decide(desired, plan.Object, nil, ruletest.HubID, ""); again.Action != Keep {
				t.Errorf("%s: then %s", name, again.Action)
			}
		})
	}
}

// Another Prometheus that asks for something else takes no rule from the one that has it, and
// what nobody asks for any more goes.
func TestLabelsStayWhereThereIsNoAnswer(t *testing.T) {
	t.Parallel()
	wanting := func(labels ...string) rule.Cluster {
		c := rule.Cluster{Name: "eu-1"}
		for i, value := range labels {
			c.Evaluators = append(c.Evaluators, rule.Evaluator{
				Kind: rule.KindPrometheus, Namespace: "m", Name: fmt.Sprint("p", i), RuleNamespaceSelector: &metav1.LabelSelector{},
				RuleSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"release": value}},
			})
		}
		chooseAll(c)
		return c
	}
	render := func(c rule.Cluster) *monitoringv1.PrometheusRule {
		o, err := Render(ruletest.Rule(), c, options)
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	there := render(wanting("kps"))
	foreign := there.DeepCopy()
	foreign.Labels[v1alpha1.HubLabel] = "another"
	byHand := there.DeepCopy()
	delete(byHand.Annotations, v1alpha1.RuleLabelsAnnotation)
	given := wanting("a", "b")
	given.RuleLabels = map[string]string{"release": "b"}
	slip := wanting("kps")
	slip.EvaluatorRefs = []v1alpha1.EvaluatorReference{{Kind: rule.KindPrometheus, Namespace: "m", Name: "nobody"}}
	chooseAll(slip)
	wider := wanting("kps")
	wider.Evaluators[0].RuleSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: "release", Operator: metav1.LabelSelectorOpIn, Values: []string{"edge", "kps"}},
	}}
	for name, c := range map[string]struct {
		there *monitoringv1.PrometheusRule
		c     rule.Cluster
		want  string
	}{
		"one answer":       {there, wanting("other"), "other"},
		"none any more":    {there, wanting("kps", "tenant"), "kps"},
		"nobody wants it":  {there, wanting("a", "b"), ""},
		"a person says so": {there, given, "b"},
		"a slip in refs":   {there, slip, "kps"},
		"a wider selector": {there, wider, "kps"},
		"not put by us":    {byHand, wanting("kps", "tenant"), ""},
		"not ours":         {foreign, wanting("kps", "tenant"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			o := render(c.c)
			KeepLabels(o, c.there, c.c, ruletest.HubID)
			if got := o.Labels["release"]; got != c.want || slices.Contains(rule.ExtraLabels(o), "release") != (c.want != "") {
				t.Errorf("%s: %q, listed are %v", name, got, rule.ExtraLabels(o))
			}
		})
	}
	// Nothing is written, and the one that has the rule still selects it.
	c := wanting("kps", "tenant")
	o := render(c)
	KeepLabels(o, there, c, ruletest.HubID)
	if plan := Decide(o, there, nil, ruletest.HubID, ""); plan.Action != Keep {
		t.Errorf("it is to %s", plan.Action)
	}
	if s := evaluation.Select(there, evaluation.Namespace{Name: there.Namespace}, c); len(s.By) != 1 || s.Reason != "" {
		t.Errorf("selected by %v: %s", byNames(s), s.Message)
	}
}

func TestClusterLabelOfEvaluators(t *testing.T) {
	of := func(labels ...string) rule.Cluster {
		c := rule.Cluster{Name: "eu-1"}
		for i, label := range labels {
			c.Evaluators = append(c.Evaluators, rule.Evaluator{Kind: rule.KindPrometheus, Namespace: "m", Name: fmt.Sprint(i), RuleSelector: &metav1.LabelSelector{}, ClusterLabel: label})
		}
		chooseAll(c)
		return c
	}
	notChosen := of("prod", "test")
	evaluation.ApplyRefs(notChosen.Evaluators, []v1alpha1.EvaluatorReference{{Kind: rule.KindPrometheus, Namespace: "m", Name: "1"}})
	for name, c := range map[string]struct {
		cluster rule.Cluster
		want    string
	}{
		"none":        {of(), "eu-1"},
		"no label":    {of(""), "eu-1"},
		"one":         {of("prod"), "prod"},
		"the same":    {of("prod", "prod"), "prod"},
		"two differ":  {of("prod", "test"), "eu-1"},
		"one has one": {of("prod", ""), "prod"},
		"last has":    {of("", "prod"), "prod"},
		"by name":     {notChosen, "test"},
		"a template":  {of("{{ x }}"), gotemplate.Literal("{{ x }}")},
	} {
		t.Run(name, func(t *testing.T) {
			o, err := Render(ruletest.Rule(), c.cluster, options)
			if err != nil {
				t.Fatal(err)
			}
			ruletest.Loads(t, o)
			if got := o.Spec.Groups[0].Rules[0].Labels["cluster"]; got != c.want {
				t.Errorf("%s: got %q, want %q", name, got, c.want)
			}
			if got := ruleLabels(&v1alpha1.AlertRule{}, v1alpha1.AlertSpec{}, c.cluster, Options{}); got != nil {
				t.Errorf("%s: off, there is %v", name, got)
			}
		})
	}
}

func TestNamespaceOfAdminRules(t *testing.T) {
	in := func(namespaces ...string) rule.Cluster {
		c := rule.Cluster{Name: "eu-1"}
		for i, ns := range namespaces {
			c.Evaluators = append(c.Evaluators, rule.Evaluator{Kind: rule.KindPrometheus, Namespace: ns, Name: fmt.Sprint(i), Chosen: ns != "unchosen"})
		}
		return c
	}
	admin := ruletest.Rule(func(r *v1alpha1.AlertRule) { r.Namespace = options.AdminNamespace })
	operators := ruletest.Rule(ruletest.GeneratedRule, func(r *v1alpha1.AlertRule) { r.Spec.RuleNamespaceFrom = v1alpha1.InOperatorNamespace })
	for name, c := range map[string]struct {
		cluster rule.Cluster
		rule    *v1alpha1.AlertRule
		want    string
	}{
		"none":                    {in(), admin, "monitoring"},
		"one":                     {in("prom"), admin, "prom"},
		"two of one":              {in("prom", "prom"), admin, "prom"},
		"two":                     {in("prom", "other"), admin, "monitoring"},
		"three":                   {in("prom", "other", "prom"), admin, "monitoring"},
		"one that is not":         {in("unchosen", "prom"), admin, "prom"},
		"said":                    {in("prom"), ruletest.Rule(func(r *v1alpha1.AlertRule) { r.Namespace, r.Spec.RuleNamespace = options.AdminNamespace, "here" }), "here"},
		"no admin's":              {in("prom"), ruletest.Rule(), "shop"},
		"a template's":            {in("prom"), ruletest.Rule(ruletest.GeneratedRule), "kube-system"},
		"of the operator":         {in("prom"), operators, "prom"},
		"of the operator, one of": {in("prom", "other"), operators, "monitoring"},
		"a workload's rule": {in("prom"), ruletest.Rule(func(r *v1alpha1.AlertRule) {
			r.Namespace, r.Spec.WorkloadRef = options.AdminNamespace, &v1alpha1.WorkloadReference{Namespace: "web"}
		}), "web"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := TargetNamespace(c.rule, c.cluster, options); got != c.want {
				t.Errorf("%s: got %s, want %s", name, got, c.want)
			}
		})
	}
}

// The alert of a workload has the workload's namespace as its label, wherever its PrometheusRule is. While the choice of the
// Prometheus is open, the PrometheusRule stays where it is.
func TestOperatorNamespace(t *testing.T) {
	r := ruletest.Rule(ruletest.GeneratedRule, func(r *v1alpha1.AlertRule) { r.Spec.RuleNamespaceFrom = v1alpha1.InOperatorNamespace })
	p, err := Render(r, rule.Cluster{Name: "eu-1"}, options)
	if err != nil {
		t.Fatal(err)
	}
	if got := p.Spec.Groups[0].Rules[0].Labels[rule.NamespaceLabel]; p.Namespace != "monitoring" || got != "kube-system" {
		t.Errorf("it is in namespace %s, with label namespace=%s", p.Namespace, got)
	}
	existing := p.DeepCopy()
	existing.Namespace = "prom"
	open := []v1alpha1.EvaluatorReference{{Kind: rule.KindPrometheus, Namespace: "prom", Name: "k8s"}}
	for name, c := range map[string]struct {
		refs []v1alpha1.EvaluatorReference
		want string
	}{"open": {open, "prom"}, "none": {nil, "monitoring"}} {
		t.Run(name, func(t *testing.T) {
			desired := p.DeepCopy()
			KeepNamespace(desired, r, []*monitoringv1.PrometheusRule{existing}, rule.Cluster{Name: "eu-1", EvaluatorRefs: c.refs}, options)
			if desired.Namespace != c.want {
				t.Errorf("it moves to %s", desired.Namespace)
			}
		})
	}
}
