package evaluation_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/delivery"
	"github.com/rulefleet/rulefleet/pkg/rule/evaluation"
	"github.com/rulefleet/rulefleet/pkg/rule/internal/ruletest"
)

// The universe of selectors: keys, the values that they speak of, and one that they don't.
var (
	someKeys   = []string{"a", "b", v1alpha1.HubLabel}
	someValues = []string{"", "x", "y", "z"}
	unnamed    = "w"
)

var operators = []metav1.LabelSelectorOperator{
	metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist,
}

// randomSelector returns nil, an empty one, one that is not valid, or any other.
func randomSelector(rnd *rand.Rand, keys []string) *metav1.LabelSelector {
	s := &metav1.LabelSelector{}
	switch rnd.IntN(12) {
	case 0:
		return nil
	case 1:
		return s
	case 2:
		return ruletest.Pick(rnd, []*metav1.LabelSelector{
			{MatchLabels: map[string]string{"not a key": "x"}},
			{MatchLabels: map[string]string{"a": "not a value!"}},
			{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: metav1.LabelSelectorOpIn}}},
			{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: metav1.LabelSelectorOpExists, Values: []string{"x"}}}},
			{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near", Values: []string{"x"}}}},
		})
	}
	if rnd.IntN(2) == 0 {
		s.MatchLabels = map[string]string{ruletest.Pick(rnd, keys): ruletest.Pick(rnd, someValues)}
	}
	for range rnd.IntN(4) {
		r := metav1.LabelSelectorRequirement{Key: ruletest.Pick(rnd, keys), Operator: ruletest.Pick(rnd, operators)}
		if r.Operator == metav1.LabelSelectorOpIn || r.Operator == metav1.LabelSelectorOpNotIn {
			for range 1 + rnd.IntN(3) {
				r.Values = append(r.Values, ruletest.Pick(rnd, someValues))
			}
		}
		s.MatchExpressions = append(s.MatchExpressions, r)
	}
	return s
}

func randomLabels(rnd *rand.Rand, keys []string) map[string]string {
	out := map[string]string{}
	for _, key := range keys {
		if rnd.IntN(2) == 0 {
			out[key] = ruletest.Pick(rnd, append(someValues, unnamed))
		}
	}
	return out
}

// Takes is what prometheus-operator does: see SelectNamespacesFromCache and Select there.
func takes(e *rule.Evaluator, o *monitoringv1.PrometheusRule, ns evaluation.Namespace) bool {
	matches := func(s *metav1.LabelSelector, has map[string]string) bool {
		selector, err := metav1.LabelSelectorAsSelector(s)
		return err == nil && selector.Matches(labels.Set(has))
	}
	if e.RuleNamespaceSelector == nil && ns.Name != e.Namespace || e.RuleNamespaceSelector != nil && !matches(e.RuleNamespaceSelector, ns.Labels) {
		return false
	}
	return matches(e.RuleSelector, o.Labels)
}

// chooseAll has all evaluators chosen that take any rule, unless some are named.
func chooseAll(c rule.Cluster) []v1alpha1.EvaluatorReference {
	for i := range c.Evaluators {
		c.Evaluators[i].Chosen = c.Evaluators[i].RuleSelector != nil
	}
	return evaluation.ApplyRefs(c.Evaluators, c.EvaluatorRefs)
}

func byNames(s evaluation.Selection) []string {
	var out []string
	for _, e := range s.By {
		out = append(out, e.Name)
	}
	return out
}

func TestSelectAgreesWithKubernetes(t *testing.T) {
	t.Parallel()
	rnd := ruletest.Random()
	seen := map[string]int{}
	for range 800 {
		c := rule.Cluster{Name: "eu-1", RuleLabels: randomLabels(rnd, someKeys[:2])}
		for i := range rnd.IntN(4) {
			c.Evaluators = append(c.Evaluators, rule.Evaluator{
				Kind: rule.KindPrometheus, Namespace: ruletest.Pick(rnd, []string{"shop", "monitoring"}), Name: fmt.Sprint("p", i),
				RuleSelector: randomSelector(rnd, someKeys), RuleNamespaceSelector: randomSelector(rnd, someKeys[:2]),
			})
		}
		if rnd.IntN(3) == 0 {
			for i := range 1 + rnd.IntN(2) {
				c.EvaluatorRefs = append(c.EvaluatorRefs, v1alpha1.EvaluatorReference{Kind: rule.KindPrometheus, Namespace: "shop", Name: fmt.Sprint("p", i)})
			}
		}
		absent := chooseAll(c)
		o := &monitoringv1.PrometheusRule{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "o", Labels: randomLabels(rnd, someKeys)}}
		ns := evaluation.Namespace{Name: "shop", Labels: randomLabels(rnd, someKeys[:2])}

		var want []string
		chosen := 0
		for i := range c.Evaluators {
			e := &c.Evaluators[i]
			named := slices.ContainsFunc(c.EvaluatorRefs, func(r v1alpha1.EvaluatorReference) bool {
				return e.Namespace == string(r.Namespace) && e.Name == r.Name
			})
			if named || len(c.EvaluatorRefs) == 0 && e.RuleSelector != nil {
				chosen++
				if takes(e, o, ns) {
					want = append(want, e.Name)
				}
			}
		}
		reason := ""
		switch {
		case len(c.Evaluators) == 0 && len(c.EvaluatorRefs) == 0:
			reason = v1alpha1.ReasonNoEvaluator
		case len(want) == 0, len(c.EvaluatorRefs) > 0 && (len(want) < chosen || len(absent) > 0):
			reason = v1alpha1.ReasonNotSelected
		}
		got := evaluation.Select(o, ns, c)
		if !slices.Equal(byNames(got), want) || got.Reason != reason || (got.Reason == "") != (got.Message == "") {
			data, _ := json.Marshal(c)
			t.Fatalf("PrometheusRule %v in %v\nin %s\nis selected by %v, %s %q; want %v, %s", o.Labels, ns, data, byNames(got), got.Reason, got.Message, want, reason)
		}
		seen[fmt.Sprintf("%s by %d", got.Reason, len(want))]++
	}
	for _, what := range []string{" by 1", " by 2", "NotSelected by 0", "NotSelected by 1", "NoEvaluator by 0"} {
		if seen[what] < 2 {
			t.Errorf("%q is seen %d times: %v", what, seen[what], seen)
		}
	}
}

// assignments are all label sets of two keys, to try one by one.
func assignments(keys []string) []map[string]string {
	out := []map[string]string{{}}
	for _, key := range keys {
		for _, labels := range out {
			for _, value := range append(slices.Clone(someValues), unnamed, "v") {
				next := maps.Clone(labels)
				next[key] = value
				out = append(out, next)
			}
		}
	}
	return out
}

// minimal returns the label sets, beside those that are given, that every one of the selectors
// takes, and of which none less is enough.
func minimal(selectors []labels.Selector, given map[string]string, all []map[string]string) []map[string]string {
	var fit []map[string]string
	for _, more := range all {
		set := maps.Clone(more)
		maps.Copy(set, given)
		if len(set) < len(more)+len(given) {
			continue // what is given stays
		}
		if !slices.ContainsFunc(selectors, func(s labels.Selector) bool { return !s.Matches(labels.Set(set)) }) {
			fit = append(fit, more)
		}
	}
	within := func(a, b map[string]string) bool {
		return len(a) < len(b) && !slices.ContainsFunc(slices.Collect(maps.Keys(a)), func(key string) bool { v, ok := b[key]; return !ok || v != a[key] })
	}
	return slices.DeleteFunc(fit, func(s map[string]string) bool {
		return slices.ContainsFunc(fit, func(less map[string]string) bool { return within(less, s) })
	})
}

// The labels are what trying all sets of labels finds, if it finds one.
func TestLabelsAreTheOneAnswer(t *testing.T) {
	t.Parallel()
	rnd := ruletest.Random()
	keys := someKeys[:2]
	all := assignments(keys)
	answers := map[int]int{}
	for range 250 {
		c := rule.Cluster{Name: "eu-1"}
		if rnd.IntN(4) == 0 {
			c.RuleLabels = map[string]string{ruletest.Pick(rnd, keys): ruletest.Pick(rnd, someValues)}
		}
		var selectors []labels.Selector
		for range 1 + rnd.IntN(3) {
			e := rule.Evaluator{Kind: rule.KindPrometheus, Namespace: "shop", Name: "p", Chosen: true, RuleSelector: randomSelector(rnd, keys)}
			c.Evaluators = append(c.Evaluators, e)
			if s, err := metav1.LabelSelectorAsSelector(e.RuleSelector); err == nil && e.RuleSelector != nil {
				selectors = append(selectors, beside(s, c.RuleLabels)) // the others take nothing, whatever the labels
			}
		}
		o, err := delivery.Render(ruletest.Rule(), c, options)
		if err != nil {
			t.Fatal(err)
		}
		put := maps.Clone(o.Labels)
		maps.DeleteFunc(put, func(key, _ string) bool { return slices.Contains(rule.OwnLabels, key) })
		for key, value := range c.RuleLabels {
			if put[key] != value {
				t.Fatalf("what a person said is overridden: %v by %v", c.RuleLabels, put)
			}
		}
		if list := o.Annotations[v1alpha1.RuleLabelsAnnotation]; list != strings.Join(slices.Sorted(maps.Keys(put)), ",") {
			t.Fatalf("put on are %v, and listed is %q", put, list)
		}
		maps.DeleteFunc(put, func(key, _ string) bool { _, said := c.RuleLabels[key]; return said })

		want := minimal(selectors, c.RuleLabels, all)
		problem := evaluation.LabelProblem(c)
		told := selectorsSaid(c)
		switch {
		case len(want) == 1:
			if problem != "" || !maps.Equal(put, want[0]) {
				t.Fatalf("%s with %v: got %v, %q; want %v", told, c.RuleLabels, put, problem, want[0])
			}
		case len(put) > 0:
			t.Fatalf("%s with %v: got %v, of %d answers: %v", told, c.RuleLabels, put, len(want), want)
		case problem == "":
			t.Fatalf("%s with %v: there are %d answers, and no word of that", told, c.RuleLabels, len(want))
		}
		answers[min(len(want), 2)]++
	}
	for n := range 3 {
		if answers[n] < 20 {
			t.Errorf("%d answers are seen %d times", n, answers[n])
		}
	}
}

// beside returns a selector without what it says of labels that a person gave: whether they are
// what it wants is for Select to say.
func beside(s labels.Selector, given map[string]string) labels.Selector {
	requirements, _ := s.Requirements()
	return labels.NewSelector().Add(slices.DeleteFunc(slices.Clone(requirements), func(r labels.Requirement) bool {
		_, ok := given[r.Key()]
		return ok
	})...)
}

func selectorsSaid(c rule.Cluster) string {
	var words []string
	for i := range c.Evaluators {
		words = append(words, metav1.FormatLabelSelector(c.Evaluators[i].RuleSelector))
	}
	return strings.Join(words, " and ")
}

// FuzzSelect reads selectors as a spoke sends them.
func FuzzSelect(f *testing.F) {
	for _, seed := range []string{
		`null`, `{}`, `{"matchLabels":{"release":"monitoring"}}`, `{"matchLabels":{"a":""}}`,
		`{"matchExpressions":[{"key":"a","operator":"In","values":["x","y"]},{"key":"a","operator":"NotIn","values":["y"]}]}`,
		`{"matchExpressions":[{"key":"a","operator":"Exists"},{"key":"b","operator":"DoesNotExist"}]}`,
		`{"matchExpressions":[{"key":"rulefleet.io/hub","operator":"Exists"}]}`, `{"matchLabels":{"` + strings.Repeat("a", 300) + `":"x"}}`,
	} {
		f.Add([]byte(seed), []byte(`{}`), "a", "x")
	}
	f.Fuzz(func(t *testing.T, ruleSelector, namespaceSelector []byte, key, value string) {
		e := rule.Evaluator{Kind: rule.KindPrometheus, Namespace: "m", Name: "p"}
		if json.Unmarshal(ruleSelector, &e.RuleSelector) != nil || json.Unmarshal(namespaceSelector, &e.RuleNamespaceSelector) != nil {
			t.Skip()
		}
		c := rule.Cluster{Name: "eu-1", Evaluators: []rule.Evaluator{e}}
		chooseAll(c)
		o, err := delivery.Render(ruletest.Rule(), c, options)
		if err != nil {
			t.Fatal(err)
		}
		ns := evaluation.Namespace{Name: "shop", Labels: map[string]string{key: value}}
		for _, has := range []map[string]string{o.Labels, {key: value}} {
			o.Labels = has
			got := evaluation.Select(o, ns, c)
			if want := c.Evaluators[0].Chosen && takes(&e, o, ns); (len(got.By) == 1) != want || (got.Message == "") != want {
				t.Errorf("got %v %q, want %v", byNames(got), got.Message, want)
			}
		}
		// Where there is one answer, it is one.
		if e.RuleSelector != nil && evaluation.LabelProblem(c) == "" {
			selector, err := metav1.LabelSelectorAsSelector(e.RuleSelector)
			o, _ := delivery.Render(ruletest.Rule(), c, options)
			own := slices.ContainsFunc(rule.OwnLabels, func(key string) bool { return strings.Contains(string(ruleSelector), key) })
			if err == nil && !own && !selector.Matches(labels.Set(o.Labels)) {
				t.Errorf("%v is put on for %s", o.Labels, ruleSelector)
			}
		}
	})
}

// Who selects a rule and why not, in words that a person can act on.
func TestSelectTells(t *testing.T) {
	everything := &metav1.LabelSelector{}
	release := &metav1.LabelSelector{MatchLabels: map[string]string{"release": "kps"}}
	exprs := func(r ...metav1.LabelSelectorRequirement) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchExpressions: r}
	}
	requirement := func(key string, operator metav1.LabelSelectorOperator, values ...string) metav1.LabelSelectorRequirement {
		return metav1.LabelSelectorRequirement{Key: key, Operator: operator, Values: values}
	}
	prometheus := func(name string, rules, namespaces *metav1.LabelSelector) rule.Evaluator {
		return rule.Evaluator{Kind: rule.KindPrometheus, Namespace: "monitoring", Name: name, RuleSelector: rules, RuleNamespaceSelector: namespaces}
	}
	ref := func(name string) v1alpha1.EvaluatorReference {
		return v1alpha1.EvaluatorReference{Kind: rule.KindPrometheus, Namespace: "monitoring", Name: name}
	}
	cases := map[string]struct {
		cluster rule.Cluster
		labels  map[string]string
		ns      map[string]string
		none    bool // is chosen
	}{
		"all well":                    {cluster: rule.Cluster{Evaluators: []rule.Evaluator{prometheus("k", everything, everything)}}},
		"no evaluator":                {},
		"unknown":                     {cluster: rule.Cluster{EvaluatorsUnknown: "may not look; grant it"}},
		"no such":                     {cluster: rule.Cluster{Evaluators: []rule.Evaluator{prometheus("k", everything, everything)}, EvaluatorRefs: []v1alpha1.EvaluatorReference{ref("other")}}},
		"one of two named":            {cluster: rule.Cluster{Evaluators: []rule.Evaluator{prometheus("k", everything, everything)}, EvaluatorRefs: []v1alpha1.EvaluatorReference{ref("k"), ref("other")}}},
		"takes none":                  {cluster: rule.Cluster{Evaluators: []rule.Evaluator{prometheus("k", nil, everything)}}},
		"named one takes none":        {cluster: rule.Cluster{Evaluators: []rule.Evaluator{prometheus("k", nil, everything)}, EvaluatorRefs: []v1alpha1.EvaluatorReference{ref("k")}}},
		"own namespace alone":         {cluster: rule.Cluster{Evaluators: []rule.Evaluator{prometheus("k", everything, nil)}}},
		"namespace label":             {cluster: rule.Cluster{Evaluators: []rule.Evaluator{prometheus("k", everything, exprs(requirement("monitored", metav1.LabelSelectorOpIn, "yes"), requirement("kind", metav1.LabelSelectorOpNotIn, "test")))}}, ns: map[string]string{"kind": "test"}},
		"one namespace label":         {cluster: rule.Cluster{Evaluators: []rule.Evaluator{prometheus("k", everything, &metav1.LabelSelector{MatchLabels: map[string]string{"monitored": "yes", "kind": "prod"}})}}},
		"a namespace label in use":    {cluster: rule.Cluster{Evaluators: []rule.Evaluator{prometheus("k", everything, &metav1.LabelSelector{MatchLabels: map[string]string{"kind": "prod"}})}}, ns: map[string]string{"kind": "test"}},
		"a namespace label of others": {cluster: rule.Cluster{Evaluators: []rule.Evaluator{prometheus("k", everything, &metav1.LabelSelector{MatchLabels: map[string]string{"pod-security.kubernetes.io/enforce": "privileged"}})}}},
		"two values of one label":     {cluster: rule.Cluster{Evaluators: []rule.Evaluator{prometheus("k", everything, exprs(requirement("kind", metav1.LabelSelectorOpIn, "a"), requirement("kind", metav1.LabelSelectorOpIn, "b")))}}},
		"label to come":               {cluster: rule.Cluster{Evaluators: []rule.Evaluator{prometheus("k", release, everything)}}},
		"ruleLabels are wrong":        {cluster: rule.Cluster{RuleLabels: map[string]string{"release": "x"}, Evaluators: []rule.Evaluator{prometheus("k", release, everything)}}, labels: map[string]string{"release": "x"}},
		"somebody's label":            {cluster: rule.Cluster{Evaluators: []rule.Evaluator{prometheus("k", exprs(requirement("off", metav1.LabelSelectorOpDoesNotExist)), everything)}}, labels: map[string]string{"off": "1"}},
		"any of two":                  {cluster: rule.Cluster{Evaluators: []rule.Evaluator{prometheus("k", exprs(requirement("role", metav1.LabelSelectorOpIn, "b", "a")), everything)}}},
		"any value":                   {cluster: rule.Cluster{Evaluators: []rule.Evaluator{prometheus("k", exprs(requirement("role", metav1.LabelSelectorOpExists)), everything)}}},
		"none fits":                   {cluster: rule.Cluster{Evaluators: []rule.Evaluator{prometheus("k", release, everything), prometheus("l", &metav1.LabelSelector{MatchLabels: map[string]string{"release": "l"}}, everything)}}},
		"another one's fault":         {cluster: rule.Cluster{Evaluators: []rule.Evaluator{prometheus("k", release, everything), prometheus("l", exprs(requirement("role", metav1.LabelSelectorOpExists)), everything)}, EvaluatorRefs: []v1alpha1.EvaluatorReference{ref("k"), ref("l")}}},
		"the hub's own":               {cluster: rule.Cluster{Evaluators: []rule.Evaluator{prometheus("k", &metav1.LabelSelector{MatchLabels: map[string]string{v1alpha1.ManagedByLabel: "Helm"}}, everything)}}, labels: map[string]string{v1alpha1.ManagedByLabel: v1alpha1.ManagedByValue}},
		"invalid":                     {cluster: rule.Cluster{Evaluators: []rule.Evaluator{prometheus("k", exprs(requirement("a", "Near", "x")), everything)}}},
		"namespace invalid":           {cluster: rule.Cluster{Evaluators: []rule.Evaluator{prometheus("k", everything, exprs(requirement("a", "Near", "x")))}}},
		"one of two is enough":        {cluster: rule.Cluster{Evaluators: []rule.Evaluator{prometheus("k", release, everything), prometheus("l", everything, everything)}}},
		"both are named":              {cluster: rule.Cluster{Evaluators: []rule.Evaluator{prometheus("k", exprs(requirement("role", metav1.LabelSelectorOpExists)), everything), prometheus("l", everything, everything)}, EvaluatorRefs: []v1alpha1.EvaluatorReference{ref("k"), ref("l")}}},
		"none of two is chosen":       {cluster: rule.Cluster{Evaluators: []rule.Evaluator{prometheus("k", release, everything), prometheus("l", everything, everything)}}, none: true},
		"none, and unknown":           {cluster: rule.Cluster{Evaluators: []rule.Evaluator{prometheus("k", nil, nil)}, EvaluatorsUnknown: "may not look; grant it"}, none: true},
		"gone for long":               {cluster: rule.Cluster{Evaluators: []rule.Evaluator{{Kind: rule.KindPrometheus, Namespace: "monitoring", Name: "k", RuleSelector: everything, Missing: true}}}, none: true},
		"several things at once":      {cluster: rule.Cluster{Evaluators: []rule.Evaluator{prometheus("k", &metav1.LabelSelector{MatchLabels: map[string]string{"release": "kps", "role": "alerts"}}, everything)}}},
	}
	got := map[string]string{}
	for name, c := range cases {
		c.cluster.Name = "eu-1"
		if !c.none {
			chooseAll(c.cluster)
		}
		s := evaluation.Select(&monitoringv1.PrometheusRule{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "o", Labels: c.labels}}, evaluation.Namespace{Name: "shop", Labels: c.ns}, c.cluster)
		got[name] = strings.TrimSpace(fmt.Sprintf("%v %s: %s", byNames(s), s.Reason, s.Message))
		if problem := evaluation.LabelProblem(c.cluster); problem != "" {
			got[name] += "\nThe SpokeCluster says: " + problem
		}
		if message := evaluation.Ambiguity(c.cluster); message != "" {
			got[name] += "\nThe SpokeCluster says: " + message
		}
	}
	ruletest.Golden(t, "select", got)
}

// renderedIn returns an AlertRule, and its PrometheusRule in the namespace shop.
func renderedIn(t *testing.T, expr string, edit ...func(*v1alpha1.AlertRule)) (*v1alpha1.AlertRule, *monitoringv1.PrometheusRule) {
	t.Helper()
	ar := ruletest.Rule(append(edit, func(r *v1alpha1.AlertRule) { r.Spec.Expr = expr })...)
	o, err := delivery.Render(ar, rule.Cluster{Name: "eu-1"}, options)
	if err != nil {
		t.Fatal(err)
	}
	return ar, o
}

func TestNamespaceEnforced(t *testing.T) {
	const in = `up{namespace="shop"} == 0`
	confining := rule.Evaluator{Kind: rule.KindPrometheus, Namespace: "m", Name: "p", EnforcedNamespaceLabel: "namespace"}
	workload := func(ns v1alpha1.NamespaceName) func(*v1alpha1.AlertRule) {
		return func(r *v1alpha1.AlertRule) {
			r.Spec.RuleNamespace = "shop"
			r.Spec.WorkloadRef = &v1alpha1.WorkloadReference{Cluster: "eu-1", Kind: "Deployment", Namespace: ns, Name: "web"}
		}
	}
	for name, c := range map[string]struct {
		expr     string
		edit     func(*v1alpha1.AlertRule)
		excluded []string
		label    string
		anywhere bool
		want     string
	}{
		"about its own":           {expr: in},
		"about any":               {expr: `up == 0`},
		"about another":           {expr: `up{namespace="other"} == 0`, want: `is about "other"`},
		"about another, by regex": {expr: `up{namespace=~"o.*|p"} == 0`, want: `is about "o.*|p"`},
		"by a regex that matches": {expr: `up{namespace=~"sh.*"} == 0`},
		"its own, and another":    {expr: in + ` and up{namespace="other"} == 0`, want: `is about "other"`},
		"not another":             {expr: `up{namespace!="other"} == 0`},
		"another label":           {expr: `up{namespace="other"} == 0`, label: "tenant"},
		"a workload elsewhere":    {expr: in, edit: workload("other"), want: `is about "other"`},
		"of the operator": {expr: in, edit: func(r *v1alpha1.AlertRule) {
			workload("other")(r)
			r.Spec.RuleNamespaceFrom = v1alpha1.InOperatorNamespace
		}, anywhere: true, want: `is about "other", so the rule does not see the series that it is about. Set spec.ruleNamespace of the AlertRuleTemplate to Workload.`},
		"a workload here":           {expr: in, edit: workload("shop")},
		"anywhere":                  {expr: `up == 0`, anywhere: true, want: `restricts the rule`},
		"excluded by name":          {expr: `up{namespace="other"} == 0`, excluded: []string{"shop/OBJECT"}},
		"excluded by namespace":     {expr: `up{namespace="other"} == 0`, excluded: []string{"shop/*"}},
		"another one is excluded":   {expr: `up{namespace="other"} == 0`, excluded: []string{"shop/o", "other/*", "shop/"}, want: `is about "other"`},
		"excluded, though anywhere": {expr: `up == 0`, anywhere: true, excluded: []string{"shop/*"}},
	} {
		t.Run(name, func(t *testing.T) {
			if c.edit == nil {
				c.edit = func(*v1alpha1.AlertRule) {}
			}
			ar, o := renderedIn(t, c.expr, c.edit)
			e := confining
			if c.label != "" {
				e.EnforcedNamespaceLabel = c.label
			}
			for _, x := range c.excluded {
				e.ExcludedFromEnforcement = append(e.ExcludedFromEnforcement, strings.Replace(x, "OBJECT", o.Name, 1))
			}
			s := evaluation.Selection{By: []*rule.Evaluator{&e}}
			s.CheckEnforced(ar, o, c.anywhere)
			if (s.Reason == v1alpha1.ReasonNamespaceEnforced) != (c.want != "") || !strings.Contains(s.Message, c.want) || len(s.By) != 1 {
				t.Errorf("got %s %q", s.Reason, s.Message)
			}
			if c.want != "" {
				for _, part := range []string{"Prometheus m/p", e.EnforcedNamespaceLabel + `="shop"`, "spec.ruleNamespace", "spec.excludedFromEnforcement"} {
					if !strings.Contains(s.Message, part) {
						t.Errorf("no %s in %q", part, s.Message)
					}
				}
			}
			// Another that leaves the rule as it is evaluates it, unless all count.
			free := rule.Evaluator{Kind: rule.KindPrometheus, Namespace: "m", Name: "free"}
			s = evaluation.Selection{By: []*rule.Evaluator{&e, &free}}
			s.CheckEnforced(ar, o, c.anywhere)
			if s.Reason != "" || c.want != "" && !slices.Equal(byNames(s), []string{"free"}) {
				t.Errorf("one of two: %s by %v", s.Reason, byNames(s))
			}
			s = evaluation.Selection{By: []*rule.Evaluator{&free, &e}, All: true}
			s.CheckEnforced(ar, o, c.anywhere)
			if (s.Reason != "") != (c.want != "") {
				t.Errorf("both: %s", s.Reason)
			}
		})
	}
	// What is not selected at all is told first.
	s := evaluation.Selection{Reason: v1alpha1.ReasonNotSelected, Message: "so", By: []*rule.Evaluator{&confining}}
	ar, o := renderedIn(t, `up{namespace="other"} == 0`)
	s.CheckEnforced(ar, o, true)
	if s.Reason != v1alpha1.ReasonNotSelected {
		t.Errorf("got %s", s.Reason)
	}
}
