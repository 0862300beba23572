package evaluation_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/delivery"
	"github.com/rulefleet/rulefleet/pkg/rule/evaluation"
	"github.com/rulefleet/rulefleet/pkg/rule/internal/ruletest"
)

// chosenAt is the time in the tests of choices.
var chosenAt = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// seen returns a Prometheus of a spoke, by namespace/name, that takes all PrometheusRules.
func seen(name string, edit ...func(*v1alpha1.Evaluator)) v1alpha1.Evaluator {
	namespace, name, _ := strings.Cut(name, "/")
	e := v1alpha1.Evaluator{
		Kind: rule.KindPrometheus, Namespace: namespace, Name: name,
		RuleSelector: &metav1.LabelSelector{}, RuleNamespaceSelector: &metav1.LabelSelector{},
	}
	for _, fn := range edit {
		fn(&e)
	}
	return e
}

func wantsRelease(value string) func(*v1alpha1.Evaluator) {
	return func(e *v1alpha1.Evaluator) {
		e.RuleSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"release": value}}
	}
}

func isIn(cluster string) func(*v1alpha1.Evaluator) {
	return func(e *v1alpha1.Evaluator) { e.ClusterLabel = cluster }
}

func takesNothing(e *v1alpha1.Evaluator) { e.RuleSelector = nil }

func ownNamespace(e *v1alpha1.Evaluator) { e.RuleNamespaceSelector = nil }

func chosenOne(e *v1alpha1.Evaluator) { e.Chosen = true }

// goneFor marks what was chosen, and has been gone for some time.
func goneFor(d time.Duration) func(*v1alpha1.Evaluator) {
	return func(e *v1alpha1.Evaluator) {
		e.MissingTime, e.Chosen = metav1.NewTime(chosenAt.Add(-d)), d < evaluation.MissingGrace
	}
}

func refTo(names ...string) []v1alpha1.EvaluatorReference {
	var out []v1alpha1.EvaluatorReference
	for _, name := range names {
		namespace, name, _ := strings.Cut(name, "/")
		out = append(out, v1alpha1.EvaluatorReference{Kind: rule.KindPrometheus, Namespace: v1alpha1.NamespaceName(namespace), Name: name})
	}
	return out
}

// choiceOf says a choice: what is chosen, with a mark where it is gone, and what was chosen and is gone.
func choiceOf(list []v1alpha1.Evaluator) string {
	var words []string
	for i := range list {
		e := &list[i]
		word := e.Namespace + "/" + e.Name
		switch {
		case e.Chosen && !e.MissingTime.IsZero():
			words = append(words, word+" (gone)")
		case e.Chosen:
			words = append(words, word)
		case !e.MissingTime.IsZero():
			words = append(words, "not "+word)
		}
	}
	slices.Sort(words)
	return strings.Join(words, ", ")
}

// pushedFor returns what is in a spoke when an evaluator is the one that is chosen.
func pushedFor(t *testing.T, namespaces []string, evaluators ...v1alpha1.Evaluator) func() []evaluation.Held {
	t.Helper()
	c := rule.Cluster{Name: "eu-1"}
	for i := range evaluators {
		e := rule.EvaluatorOf(&evaluators[i])
		e.Chosen = true
		c.Evaluators = append(c.Evaluators, e)
	}
	var out []evaluation.Held
	for _, ns := range namespaces {
		o, err := delivery.Render(ruletest.Rule(func(r *v1alpha1.AlertRule) { r.Namespace = ns }), c, options)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, evaluation.Held{Rule: o, Namespace: evaluation.Namespace{Name: ns}})
	}
	return func() []evaluation.Held { return out }
}

func TestChooseEvaluators(t *testing.T) {
	t.Parallel()
	type list = []v1alpha1.Evaluator
	kps := seen("monitoring/k8s", wantsRelease("kps"), isIn("prod"))
	all := seen("monitoring/all")
	tenant := seen("team/own")
	copied := seen("team/copy", wantsRelease("kps"), isIn("prod"))
	here := []string{"shop", "team"}
	for name, c := range map[string]struct {
		in   evaluation.Choice
		want string
	}{
		"none":                       {evaluation.Choice{}, ""},
		"one":                        {evaluation.Choice{Seen: list{kps}}, "monitoring/k8s"},
		"one, and there may be more": {evaluation.Choice{Seen: list{kps}, More: true}, ""},
		"one takes rules":            {evaluation.Choice{Seen: list{kps, seen("team/x", takesNothing)}}, "monitoring/k8s"},
		"none takes rules":           {evaluation.Choice{Seen: list{seen("team/x", takesNothing)}}, ""},
		"two from the start":         {evaluation.Choice{Seen: list{kps, tenant}}, ""},
		"one after none":             {evaluation.Choice{Seen: list{kps}, Open: true}, "monitoring/k8s"},
		"one of two goes":            {evaluation.Choice{Seen: list{tenant}, Open: true}, "team/own"},

		"named":                      {evaluation.Choice{Seen: list{kps, tenant}, Refs: refTo("team/own")}, "team/own"},
		"both are named":             {evaluation.Choice{Seen: list{kps, tenant}, Refs: refTo("team/own", "monitoring/k8s")}, "monitoring/k8s, team/own"},
		"named, and takes none":      {evaluation.Choice{Seen: list{kps, seen("team/x", takesNothing)}, Refs: refTo("team/x")}, "team/x"},
		"named against the record":   {evaluation.Choice{Seen: list{kps, tenant}, Record: list{seen("monitoring/k8s", chosenOne)}, Refs: refTo("team/own")}, "team/own"},
		"one of two named is there":  {evaluation.Choice{Seen: list{kps}, Refs: refTo("monitoring/k8s", "team/own")}, "monitoring/k8s"},
		"named one has just gone":    {evaluation.Choice{Seen: list{tenant}, Record: list{seen("monitoring/k8s", chosenOne)}, Refs: refTo("monitoring/k8s")}, "monitoring/k8s (gone)"},
		"named one is gone for long": {evaluation.Choice{Seen: list{kps}, Record: list{seen("monitoring/k8s", chosenOne), seen("team/own", goneFor(evaluation.MissingGrace))}, Refs: refTo("team/own", "monitoring/k8s")}, "monitoring/k8s"},
		"a slip forgets nothing":     {evaluation.Choice{Seen: list{kps, tenant}, Record: list{seen("monitoring/k8s", chosenOne)}, Refs: refTo("monitoring/k9s")}, "monitoring/k8s"},
		"no longer named":            {evaluation.Choice{Seen: list{kps, tenant}, Record: list{seen("team/own", chosenOne)}}, "team/own"},

		"another appears":              {evaluation.Choice{Seen: list{kps, tenant}, Record: list{seen("monitoring/k8s", chosenOne)}}, "monitoring/k8s"},
		"many more":                    {evaluation.Choice{Seen: list{kps, tenant, copied}, More: true, Record: list{seen("monitoring/k8s", chosenOne)}}, "monitoring/k8s"},
		"it takes no rules any more":   {evaluation.Choice{Seen: list{seen("monitoring/k8s", takesNothing), tenant}, Record: list{seen("monitoring/k8s", chosenOne)}}, "monitoring/k8s"},
		"two were chosen":              {evaluation.Choice{Seen: list{kps, tenant, copied}, Record: list{seen("monitoring/k8s", chosenOne), seen("team/own", chosenOne)}}, "monitoring/k8s, team/own"},
		"one of two chosen is gone":    {evaluation.Choice{Seen: list{kps}, Record: list{seen("monitoring/k8s", chosenOne), seen("team/own", chosenOne)}}, "monitoring/k8s, team/own (gone)"},
		"one of two is gone for long":  {evaluation.Choice{Seen: list{kps, copied}, Record: list{seen("monitoring/k8s", chosenOne), seen("team/own", goneFor(evaluation.MissingGrace))}}, "monitoring/k8s"},
		"listed, and was not chosen":   {evaluation.Choice{Seen: list{kps, tenant}, Record: list{tenant}, Open: true}, ""},
		"it has just gone":             {evaluation.Choice{Seen: list{tenant}, Record: list{seen("monitoring/k8s", chosenOne)}}, "monitoring/k8s (gone)"},
		"it is gone for 4 min":         {evaluation.Choice{Seen: list{tenant}, Record: list{seen("monitoring/k8s", goneFor(4*time.Minute))}}, "monitoring/k8s (gone)"},
		"it is back":                   {evaluation.Choice{Seen: list{tenant, kps}, Record: list{seen("monitoring/k8s", goneFor(4*time.Minute))}}, "monitoring/k8s"},
		"it is gone for 5 min":         {evaluation.Choice{Seen: list{tenant}, Record: list{seen("monitoring/k8s", goneFor(evaluation.MissingGrace))}}, "team/own"},
		"and several are left":         {evaluation.Choice{Seen: list{tenant, copied}, Record: list{seen("monitoring/k8s", goneFor(evaluation.MissingGrace))}}, "not monitoring/k8s"},
		"and none is left":             {evaluation.Choice{Record: list{seen("monitoring/k8s", goneFor(evaluation.MissingGrace))}}, "not monitoring/k8s"},
		"it is back after an hour":     {evaluation.Choice{Seen: list{tenant, copied, kps}, Record: list{seen("monitoring/k8s", goneFor(time.Hour))}}, "monitoring/k8s"},
		"and one of several goes":      {evaluation.Choice{Seen: list{tenant}, Record: list{seen("monitoring/k8s", goneFor(time.Hour))}}, "team/own"},
		"gone by a clock ahead":        {evaluation.Choice{Seen: list{tenant}, Record: list{seen("monitoring/k8s", chosenOne, func(e *v1alpha1.Evaluator) { e.MissingTime = metav1.NewTime(chosenAt.Add(time.Hour)) })}}, "monitoring/k8s (gone)"},
		"its record does not help out": {evaluation.Choice{Seen: list{kps, tenant}, Record: list{seen("old/k8s", goneFor(time.Hour))}, Pushed: pushedFor(t, here, kps)}, "not old/k8s"},

		"lost: the one that selects":          {evaluation.Choice{Seen: list{kps, seen("team/x", wantsRelease("x"))}, Pushed: pushedFor(t, here, kps)}, "monitoring/k8s"},
		"lost: another takes all":             {evaluation.Choice{Seen: list{kps, tenant}, Pushed: pushedFor(t, here, kps)}, "monitoring/k8s"},
		"lost: another takes its namespace":   {evaluation.Choice{Seen: list{kps, seen("team/own", ownNamespace)}, Pushed: pushedFor(t, here, kps)}, "monitoring/k8s"},
		"lost: another cluster label":         {evaluation.Choice{Seen: list{all, seen("team/x", isIn("x"))}, Pushed: pushedFor(t, here, all)}, "monitoring/all"},
		"lost: another is the same":           {evaluation.Choice{Seen: list{kps, copied}, Pushed: pushedFor(t, here, kps)}, ""},
		"lost: both take all":                 {evaluation.Choice{Seen: list{all, tenant}, Pushed: pushedFor(t, here, all)}, ""},
		"lost: none selects":                  {evaluation.Choice{Seen: list{seen("a/a", wantsRelease("a")), seen("b/b", wantsRelease("b"))}, Pushed: pushedFor(t, here, kps)}, ""},
		"lost: it has another label since":    {evaluation.Choice{Seen: list{seen("monitoring/k8s", wantsRelease("kps"), isIn("new")), seen("team/x", wantsRelease("x"))}, Pushed: pushedFor(t, here, kps)}, "monitoring/k8s"},
		"lost: nothing is pushed":             {evaluation.Choice{Seen: list{kps, tenant}, Pushed: pushedFor(t, nil)}, ""},
		"not lost: none was chosen":           {evaluation.Choice{Seen: list{kps, tenant}, Open: true, Pushed: pushedFor(t, here, kps)}, ""},
		"lost: what is pushed can't be read":  {evaluation.Choice{Seen: list{kps, tenant}}, ""},
		"lost: with labels that a person set": {evaluation.Choice{Seen: list{kps, seen("team/x", wantsRelease("x"))}, Cluster: &rule.Cluster{Name: "eu-1", RuleLabels: map[string]string{"role": "alerts"}}, Pushed: pushedFor(t, here, kps)}, "monitoring/k8s"},
	} {
		t.Run(name, func(t *testing.T) {
			in := c.in
			in.Now, in.Grace, in.ClusterLabel = chosenAt, evaluation.MissingGrace, options.ClusterLabel
			if in.Cluster == nil {
				in.Cluster = &rule.Cluster{Name: "eu-1"}
			}
			got := evaluation.Choose(&in)
			if choiceOf(got) != c.want {
				t.Errorf("chosen are %q, want %q", choiceOf(got), c.want)
			}
			// What was decided is decided again, in this process and after a restart.
			in.Record, in.Open = got, true
			if again := evaluation.Choose(&in); choiceOf(again) != choiceOf(got) || !evaluation.SameChoice(again, got) {
				t.Errorf("then %q are chosen, after %q", choiceOf(again), choiceOf(got))
			}
		})
	}
}

// The record of one that is gone is what it was when it was last seen.
func TestGoneEvaluatorIsKept(t *testing.T) {
	t.Parallel()
	in := evaluation.Choice{Seen: []v1alpha1.Evaluator{seen("team/own")}, Record: []v1alpha1.Evaluator{seen("monitoring/k8s", wantsRelease("kps"), isIn("prod"), chosenOne)}, Now: chosenAt, Grace: evaluation.MissingGrace}
	got := evaluation.Choose(&in)
	e := got[len(got)-1]
	if e.RuleSelector.MatchLabels["release"] != "kps" || e.ClusterLabel != "prod" || !e.MissingTime.Equal(new(metav1.NewTime(chosenAt))) {
		t.Errorf("got %+v", e)
	}
	in.Record, in.Now = got, chosenAt.Add(time.Minute)
	if again := evaluation.Choose(&in); !again[len(again)-1].MissingTime.Equal(&e.MissingTime) {
		t.Errorf("it is gone since %v, and then since %v", e.MissingTime, again[len(again)-1].MissingTime)
	}
	if in.Record[0].Chosen || in.Seen[0].Chosen {
		t.Error("what is passed is changed")
	}
}

// While nobody is chosen, a rule keeps its labels, its namespace and its mark, and a new one gets none.
func TestWhatIsThereStays(t *testing.T) {
	t.Parallel()
	admin := ruletest.Rule(func(r *v1alpha1.AlertRule) { r.Namespace = options.AdminNamespace })
	cluster := func(evaluators ...v1alpha1.Evaluator) rule.Cluster {
		c := rule.Cluster{Name: "eu-1"}
		for i := range evaluators {
			c.Evaluators = append(c.Evaluators, rule.EvaluatorOf(&evaluators[i]))
		}
		return c
	}
	kps := seen("prom/k8s", wantsRelease("kps"), isIn("prod"))
	chosen := kps
	chosen.Chosen = true
	there, err := delivery.Render(admin, cluster(chosen), options)
	if err != nil {
		t.Fatal(err)
	}
	if there.Namespace != "prom" || there.Labels["release"] != "kps" || markOf(there) != "prod" {
		t.Fatalf("got %+v", there)
	}
	tenant := seen("team/own", isIn("mine"))
	slip := cluster(kps)
	slip.EvaluatorRefs = refTo("prom/k9s")
	evaluation.ApplyRefs(slip.Evaluators, slip.EvaluatorRefs)
	partly := cluster(tenant)
	partly.EvaluatorRefs = refTo("team/own", "prom/k8s")
	evaluation.ApplyRefs(partly.Evaluators, partly.EvaluatorRefs)
	for name, c := range map[string]struct {
		cluster rule.Cluster
		stays   bool
	}{
		"several":            {cluster(kps, tenant), true},
		"all others changed": {cluster(seen("prom/k8s", wantsRelease("new"), isIn("new")), tenant), true},
		"gone for long":      {cluster(seen("prom/k8s", wantsRelease("kps"), goneFor(time.Hour))), true},
		"just gone":          {cluster(seen("prom/k8s", wantsRelease("kps"), isIn("prod"), goneFor(time.Minute)), tenant), true},
		"a slip":             {slip, true},
		"one named is gone":  {partly, true},
		"none":               {cluster(), false},
		"none takes rules":   {cluster(seen("prom/k8s", takesNothing)), false},
		"another is chosen":  {cluster(kps, seen("team/own", chosenOne)), false},
	} {
		t.Run(name, func(t *testing.T) {
			keep := func(claimed ...*monitoringv1.PrometheusRule) *monitoringv1.PrometheusRule {
				o, err := delivery.Render(admin, c.cluster, options)
				if err != nil {
					t.Fatal(err)
				}
				delivery.KeepNamespace(o, admin, claimed, c.cluster, options)
				for _, p := range claimed {
					if key(p) == key(o) {
						delivery.KeepLabels(o, p, c.cluster, ruletest.HubID)
						delivery.KeepMark(o, p, c.cluster, options)
					}
				}
				return o
			}
			o := keep(there)
			same := key(o) == key(there) && delivery.Digest(o) == delivery.Digest(there)
			if same != c.stays {
				t.Errorf("it is kept: %v; %s, %v, %v", same, key(o), o.Labels, o.Spec.Groups[0].Rules[0].Labels)
			}
			if name == "just gone" {
				return // it still is chosen, for new rules as well
			}
			if c.stays && len(rule.ExtraLabels(keep())) > 0 && name != "one named is gone" {
				t.Errorf("a new rule gets %v", keep().Labels)
			}
			// A copy that somebody made moves nothing, and neither does what is another hub's, or is being deleted.
			younger, foreign, ending := there.DeepCopy(), there.DeepCopy(), there.DeepCopy()
			younger.Namespace, younger.CreationTimestamp = "team", metav1.NewTime(chosenAt)
			foreign.Namespace, foreign.Labels[v1alpha1.HubLabel] = "aaa", "another"
			ending.Namespace, ending.DeletionTimestamp = "bbb", new(metav1.NewTime(chosenAt))
			if o := keep(younger, foreign, ending, there); c.stays && o.Namespace != there.Namespace {
				t.Errorf("it is to move to %s", o.Namespace)
			}
		})
	}
}

// The message names what there is, and the command that settles it.
func TestAmbiguity(t *testing.T) {
	t.Parallel()
	c := rule.Cluster{Name: "eu-1"}
	for _, name := range []string{"a/a", "b/b", "c/c", "d/d", "e/e"} {
		c.Evaluators = append(c.Evaluators, rule.EvaluatorOf(new(seen(name))))
	}
	for _, part := range []string{
		"Prometheus a/a, Prometheus b/b, Prometheus c/c, 2 more",
		`kubectl patch spokecluster eu-1 --type merge -p '{"spec":{"evaluatorRefs":[{"kind":"Prometheus","namespace":"a","name":"a"}]}}'`,
	} {
		if message := evaluation.Ambiguity(c); !strings.Contains(message, part) || len(message) > 512 {
			t.Errorf("%q does not say %s", message, part)
		}
	}
	long := rule.Cluster{Name: strings.Repeat("e", 63)}
	for name, end := range map[string]string{
		strings.Repeat("n", 63):  `"name":"` + strings.Repeat("n", 63) + `"}]}}'`,
		strings.Repeat("n", 250): "in spec.evaluatorRefs: kubectl edit spoke " + long.Name,
	} {
		long.Evaluators = []rule.Evaluator{rule.EvaluatorOf(new(seen("a/" + name))), rule.EvaluatorOf(new(seen("b/" + name)))}
		if message := evaluation.Ambiguity(long); !strings.HasSuffix(message, end) || len(message) > 512 {
			t.Errorf("%q does not end with %s", message, end)
		}
	}
	c.Evaluators[4].Chosen = true
	if message := evaluation.Ambiguity(c); message != "" {
		t.Errorf("one is chosen, and it says %q", message)
	}
}

func markOf(o *monitoringv1.PrometheusRule) string {
	mark, _ := evaluation.MarkOf(o, "cluster")
	return mark
}
