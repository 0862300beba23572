package evaluation

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/builtin"
	"github.com/rulefleet/rulefleet/pkg/rule/internal/ruletest"
)

// Where a rule is, by what one evaluator says of it.
const (
	unproven1  = "Selected/Unproven"
	predicted  = "Selected/Predicted"
	confirmed  = "Selected/Confirmed"
	loading    = "Selected/Loading"
	notLoaded  = "Selected/NotLoaded"
	failing    = "Selected/EvaluationFailed"
	notThere   = "Selected/EvaluatorUnreachable"
	evaluating = "Evaluating/"
	rejected   = "Applied/Rejected"
)

// opinion is what is known of a rule and an evaluator.
type opinion struct {
	outcome Outcome
	late    bool
	binding string // as in bindingFor
}

// bindings of prometheus-operator.
const (
	accepted1 = "accepted"
	refused1  = "refused"
	stale     = "refused, of an older generation"
	others    = "refused, of another evaluator"
)

// alone is where a rule is with one evaluator.
func (o opinion) alone() string {
	if o.binding == refused1 && slices.Contains([]Outcome{NotGranted, Unreachable, Absent, Waiting}, o.outcome) {
		return rejected
	}
	switch o.outcome {
	case NotGranted:
		if o.binding == accepted1 {
			return confirmed
		}
		return predicted
	case Unreachable:
		return notThere
	case Absent:
		if o.late {
			return notLoaded
		}
		return loading
	case Waiting:
		return loading
	case Failed:
		return failing
	case Evaluates:
		return evaluating
	}
	return unproven1
}

func opinions() []opinion {
	var out []opinion
	for outcome := Unasked; outcome <= Evaluates; outcome++ {
		for _, late := range []bool{false, true} {
			for _, binding := range []string{"", accepted1, refused1, stale, others} {
				if !late || outcome == Absent {
					out = append(out, opinion{outcome, late, binding})
				}
			}
		}
	}
	return out
}

// proven returns what Prove makes of opinions, each of an evaluator of its own.
func proven(all bool, of ...opinion) v1alpha1.ClusterStatus {
	o := &monitoringv1.PrometheusRule{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "o", Generation: 3}}
	s := Selection{}
	for i, is := range of {
		e := &rule.Evaluator{Kind: []string{rule.KindPrometheus, rule.KindThanosRuler}[i%2], Namespace: "m", Name: fmt.Sprint("p", i)}
		s.By = append(s.By, e)
		o.Status.Bindings = append(o.Status.Bindings, bindingFor(e, is.binding)...)
	}
	return Prove(o, s, func(e *rule.Evaluator) State {
		var i int
		_, _ = fmt.Sscanf(e.Name, "p%d", &i)
		return State{Outcome: of[i].outcome, Late: of[i].late, Message: "why of " + e.Name, Firing: int32(i + 1), Missing: []string{"m" + e.Name}}
	}, all)
}

func bindingFor(e *rule.Evaluator, which string) []monitoringv1.WorkloadBinding {
	c := monitoringv1.ConfigResourceCondition{Type: monitoringv1.Accepted, Status: monitoringv1.ConditionFalse, ObservedGeneration: 3, Reason: "InvalidConfiguration", Message: "no"}
	b := monitoringv1.WorkloadBinding{Group: "monitoring.coreos.com", Resource: resources[e.Kind], Namespace: e.Namespace, Name: e.Name}
	switch which {
	case "":
		return nil
	case accepted1:
		c.Status = monitoringv1.ConditionTrue
	case stale:
		c.ObservedGeneration = 2
	case others:
		another, kind := b, b
		another.Name, kind.Resource = "another", "prometheusagents"
		another.Conditions = []monitoringv1.ConfigResourceCondition{c}
		kind.Conditions = another.Conditions
		return []monitoringv1.WorkloadBinding{another, kind}
	}
	b.Conditions = []monitoringv1.ConfigResourceCondition{{Type: "Another", Status: monitoringv1.ConditionFalse, ObservedGeneration: 3}, c}
	return []monitoringv1.WorkloadBinding{b}
}

func TestProveByOne(t *testing.T) {
	for _, is := range opinions() {
		for _, all := range []bool{false, true} {
			got := proven(all, is)
			if ruletest.Where(got) != is.alone() {
				t.Errorf("%+v: %s, want %s", is, ruletest.Where(got), is.alone())
			}
			if got.Firing != 1 || !slices.Equal(got.Evaluators, []string{"Prometheus m/p0"}) || !slices.Equal(got.MissingMetrics, []string{"mp0"}) {
				t.Errorf("%+v: %+v", is, got)
			}
			if quiet := is.alone() == evaluating || is.alone() == unproven1; (got.Message == "") != quiet || !quiet && !strings.Contains(got.Message, "Prometheus m/p0") {
				t.Errorf("%+v: the message is %q", is, got.Message)
			}
		}
	}
}

// With several, it is what one of them says: the best, or the worst if all count.
func TestProveBySeveral(t *testing.T) {
	anyOf := []string{rejected, predicted, confirmed, notThere, notLoaded, loading, failing, unproven1, evaluating}
	allOf := []string{unproven1, rejected, failing, notLoaded, notThere, loading, predicted, confirmed, evaluating}
	for _, a := range opinions() {
		for _, b := range opinions() {
			for _, c := range []struct {
				all   bool
				order []string
				of    func(x, y int) int
			}{{false, anyOf, func(x, y int) int { return max(x, y) }}, {true, allOf, func(x, y int) int { return min(x, y) }}} {
				got := proven(c.all, a, b)
				x, y := slices.Index(c.order, a.alone()), slices.Index(c.order, b.alone())
				want := c.order[c.of(x, y)]
				if soft := []string{predicted, confirmed}; slices.Contains(soft, a.alone()) && slices.Contains(soft, b.alone()) {
					want = a.alone() // it does not matter which
				}
				if ruletest.Where(got) != want || got.Firing != 2 || len(got.Evaluators) != 2 {
					t.Fatalf("all %v of %+v and %+v: %+v, want %s", c.all, a, b, got, want)
				}
			}
		}
	}
}

// A rule that is not selected is not proven further, whatever is said of it.
func TestProveUnselected(t *testing.T) {
	e := &rule.Evaluator{Kind: rule.KindPrometheus, Namespace: "m", Name: "p"}
	fires := func(*rule.Evaluator) State { return State{Outcome: Evaluates, Firing: 2} }
	o := &monitoringv1.PrometheusRule{}
	for reason, phase := range map[string]v1alpha1.Phase{
		v1alpha1.ReasonNoEvaluator: v1alpha1.PhaseApplied, v1alpha1.ReasonEvaluatorsUnknown: v1alpha1.PhaseApplied,
		v1alpha1.ReasonNotSelected: v1alpha1.PhaseApplied, v1alpha1.ReasonNamespaceEnforced: v1alpha1.PhaseSelected,
	} {
		t.Run(reason, func(t *testing.T) {
			got := Prove(o, Selection{Reason: reason, Message: "so"}, fires, false)
			if ruletest.Where(got) != string(phase)+"/"+reason || got.Message != "so" || got.Evaluators != nil || got.Firing != 0 {
				t.Errorf("%s: %+v", reason, got)
			}
			// One of two that are named has it, and it fires there.
			got = Prove(o, Selection{Reason: reason, Message: "so", By: []*rule.Evaluator{e}}, fires, true)
			if ruletest.Where(got) != string(phase)+"/"+reason || got.Firing != 2 || len(got.Evaluators) != 1 {
				t.Errorf("%s, by one: %+v", reason, got)
			}
		})
	}
	many := Selection{}
	for range 40 {
		many.By = append(many.By, &rule.Evaluator{Kind: rule.KindThanosRuler, Namespace: ruletest.Long("n", 63), Name: ruletest.Long("é", 300)})
	}
	got := Prove(o, many, fires, false)
	if len(got.Evaluators) != 16 || len(got.Evaluators[0]) > 329 {
		t.Errorf("%d evaluators are listed, the first with %d bytes", len(got.Evaluators), len(got.Evaluators[0]))
	}
}

// asLoaded is what a Prometheus says of a rule: it formats the query, tells durations in seconds,
// and has no empty labels.
func asLoaded(t *testing.T, o *monitoringv1.PrometheusRule, confined string) *Loaded {
	t.Helper()
	r := &o.Spec.Groups[0].Rules[0]
	tree, err := parser.NewParser(parser.Options{
		EnableExperimentalFunctions: true, ExperimentalDurationExpr: true, EnableExtendedRangeSelectors: true, EnableBinopFillModifiers: true,
	}).ParseExpr(r.Expr.String())
	if err != nil {
		t.Fatalf("%s: %v", r.Expr.String(), err)
	}
	// As it comes through JSON.
	duration := func(s string) time.Duration {
		d, err := model.ParseDuration(s)
		if err != nil {
			t.Fatal(err)
		}
		return time.Duration(time.Duration(d).Seconds() * float64(time.Second))
	}
	out := &Loaded{Group: o.Spec.Groups[0].Name, Name: r.Alert, Query: tree.String(), Labels: maps.Clone(r.Labels), Annotations: maps.Clone(r.Annotations)}
	maps.DeleteFunc(out.Labels, func(_, value string) bool { return value == "" })
	if r.For != nil {
		out.For = duration(string(*r.For))
	}
	if r.KeepFiringFor != nil {
		out.KeepFiringFor = duration(string(*r.KeepFiringFor))
	}
	if confined != "" {
		if out.Labels == nil {
			out.Labels = map[string]string{}
		}
		out.Labels[confined], out.Query = o.Namespace, fmt.Sprintf("up{%s=%q} == 0", confined, o.Namespace)
	}
	return out
}

func promRule(expr string, edit func(*monitoringv1.Rule)) *monitoringv1.PrometheusRule {
	r := monitoringv1.Rule{
		Alert: "Down", Expr: intstr.FromString(expr), For: new(monitoringv1.Duration("1m")),
		Labels: map[string]string{"severity": "critical", "empty": ""}, Annotations: map[string]string{"summary": "it is {{ $value }}"},
	}
	edit(&r)
	return &monitoringv1.PrometheusRule{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "o"},
		Spec:       monitoringv1.PrometheusRuleSpec{Groups: []monitoringv1.RuleGroup{{Name: "shop/down", Rules: []monitoringv1.Rule{r}}}},
	}
}

func unedited(*monitoringv1.Rule) {}

// What a Prometheus has loaded is what it was given, however it tells it.
func TestLoadedIsWhatWasGiven(t *testing.T) {
	exprs := []string{
		"up==0", "  up  ==  0 # why", "up == bool 0", `sum by(job,) (rate(x[5m]))>0.10`, "1e3 < up", "0x1F < up", "Inf > up", "-up", "- (up)", "(up)", "((up) + 1)",
		`{__name__="up"}`, `{__name__=~"a|b", job!="x"}`, `up{job='a"b'}`, "up{job=`a\\b`}", `{"utf8.name", "a.b"="c"}`, `up{job="é🚀\n"}`,
		"rate(x[1h30m])", "rate(x[90m])", "x offset -1m", "x @ 1609746000", "x @ start()", "sum_over_time(x[1d:1h] offset 1w) == 0 or vector(1)", "max_over_time(x[5m:])",
		"a and on() b", "a * on (x) group_left (y) b", "a unless ignoring(x) b", "topk(3, x) > 1", "quantile without (a) (0.9, x)", `count_values("v", x)`,
		"a + b - c * d / e % f ^ g", "a atan2 b", "2 ^ 3 ^ up", "-1 ^ up", "histogram_quantile(0.9, sum by (le) (rate(x_bucket[5m])))", "absent(up)", "limitk(3, up)", "rate(x[5m * 2])",
	}
	for _, b := range builtin.Templates(builtin.Options{}) {
		exprs = append(exprs, b.Spec.Expr)
	}
	e := &rule.Evaluator{}
	for _, expr := range exprs {
		t.Run(expr, func(t *testing.T) {
			o := promRule(expr, unedited)
			if Mismatch(o, e, []Loaded{*asLoaded(t, o, "")}) != "" {
				t.Errorf("%s is loaded as %s, and takes for another", expr, asLoaded(t, o, "").Query)
			}
		})
	}
	for ms := range 3_000 {
		d := fmt.Sprintf("%dms", ms*7+1)
		o := promRule("up", func(r *monitoringv1.Rule) {
			r.For, r.KeepFiringFor = new(monitoringv1.Duration(d)), new(monitoringv1.NonEmptyDuration(d))
		})
		if ms%100 == 0 && Mismatch(o, e, []Loaded{*asLoaded(t, o, "")}) != "" {
			t.Fatalf("for: %s is another", d)
		}
		if l := asLoaded(t, o, ""); milliseconds(l.For) != fmt.Sprint(ms*7+1) {
			t.Fatalf("%s is read as %s", d, milliseconds(l.For))
		}
	}
	for a, b := range map[string]string{"60s": "1m", "1h": "60m", "1d": "24h", "0s": "0m", "1m30s": "90s"} {
		t.Run(a, func(t *testing.T) {
			x := promRule("up", func(r *monitoringv1.Rule) { r.For = new(monitoringv1.Duration(a)) })
			y := promRule("up", func(r *monitoringv1.Rule) { r.For = new(monitoringv1.Duration(b)) })
			if contentDigest(&Contents(x)[0], "") != contentDigest(&Contents(y)[0], "") {
				t.Errorf("%s is not %s", a, b)
			}
		})
	}
}

// Whatever is changed, it is another rule than the one that is loaded.
func TestLoadedIsOutdated(t *testing.T) {
	e := &rule.Evaluator{}
	base := promRule("up == 0", unedited)
	loaded := asLoaded(t, base, "")
	if Mismatch(base, e, []Loaded{*loaded}) != "" {
		t.Fatal("it is another at once")
	}
	for name, edit := range map[string]func(*monitoringv1.Rule){
		"alert":           func(r *monitoringv1.Rule) { r.Alert = "Up" },
		"expr":            func(r *monitoringv1.Rule) { r.Expr = intstr.FromString("up == 1") },
		"a matcher":       func(r *monitoringv1.Rule) { r.Expr = intstr.FromString(`up{a="b"} == 0`) },
		"for":             func(r *monitoringv1.Rule) { r.For = new(monitoringv1.Duration("61s")) },
		"no for":          func(r *monitoringv1.Rule) { r.For = nil },
		"a millisecond":   func(r *monitoringv1.Rule) { r.For = new(monitoringv1.Duration("60001ms")) },
		"keep firing for": func(r *monitoringv1.Rule) { r.KeepFiringFor = new(monitoringv1.NonEmptyDuration("1m")) },
		"for, exchanged":  func(r *monitoringv1.Rule) { r.For, r.KeepFiringFor = nil, new(monitoringv1.NonEmptyDuration("1m")) },
		"a label":         func(r *monitoringv1.Rule) { r.Labels["team"] = "a" },
		"a label's value": func(r *monitoringv1.Rule) { r.Labels["severity"] = "warning" },
		"a label's name":  func(r *monitoringv1.Rule) { r.Labels = map[string]string{"severit": "ycritical"} },
		"one label less":  func(r *monitoringv1.Rule) { r.Labels = nil },
		"an annotation":   func(r *monitoringv1.Rule) { r.Annotations["x"] = "y" },
		"its value":       func(r *monitoringv1.Rule) { r.Annotations["summary"] += "." },
		"no annotation":   func(r *monitoringv1.Rule) { r.Annotations = nil },
		"label for annotation": func(r *monitoringv1.Rule) {
			r.Labels, r.Annotations = map[string]string{"severity": "critical", "summary": "it is {{ $value }}"}, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			if o := promRule("up == 0", edit); Mismatch(o, e, []Loaded{*loaded}) == "" {
				t.Errorf("%s: it is the same", name)
			}
		})
	}
	for name, change := range map[string]func(*monitoringv1.PrometheusRule){
		"no group": func(o *monitoringv1.PrometheusRule) { o.Spec.Groups = nil },
		"no rule":  func(o *monitoringv1.PrometheusRule) { o.Spec.Groups[0].Rules = nil },
		"two rules": func(o *monitoringv1.PrometheusRule) {
			o.Spec.Groups[0].Rules = append(o.Spec.Groups[0].Rules, o.Spec.Groups[0].Rules[0])
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := base.DeepCopy()
			change(o)
			if Mismatch(o, e, []Loaded{*loaded}) == "" {
				t.Errorf("%s: it is the same", name)
			}
		})
	}
}

// prometheus-operator rewrites the expression and a label of rules that are confined.
func TestLoadedAndConfined(t *testing.T) {
	e := &rule.Evaluator{EnforcedNamespaceLabel: "namespace"}
	o := promRule("up == 0", func(r *monitoringv1.Rule) { r.Labels["namespace"] = "other" })
	if Confined(e, o) != "namespace" || Mismatch(o, e, []Loaded{*asLoaded(t, o, "namespace")}) != "" {
		t.Error("it is another")
	}
	other := promRule("up == 0", func(r *monitoringv1.Rule) { r.Labels["team"] = "a" })
	if Mismatch(other, e, []Loaded{*asLoaded(t, o, "namespace")}) == "" {
		t.Error("another is the same")
	}
	e.ExcludedFromEnforcement = []string{"shop/o"}
	if Confined(e, o) != "" || Mismatch(o, e, []Loaded{*asLoaded(t, o, "")}) != "" {
		t.Error("excluded, it is another")
	}
	if Mismatch(o, e, []Loaded{*asLoaded(t, o, "namespace")}) == "" {
		t.Error("excluded, it is the same as if it was not")
	}
}

// Random labels and annotations can't be mistaken for each other.
func TestLoadedDigestTellsApart(t *testing.T) {
	rnd := ruletest.Random()
	words := []string{"", "a", "b", `"`, `a"`, "a\x00", "=", ","}
	texts := func(rnd *rand.Rand) map[string]string {
		out := map[string]string{}
		for range rnd.IntN(3) {
			out[ruletest.Pick(rnd, words[1:])] = ruletest.Pick(rnd, words)
		}
		maps.DeleteFunc(out, func(_, value string) bool { return value == "" })
		return out
	}
	seen := map[string]string{}
	for range 500 {
		r := &Loaded{Name: ruletest.Pick(rnd, words), Query: ruletest.Pick(rnd, words), For: time.Duration(rnd.IntN(2)) * time.Second, Labels: texts(rnd), Annotations: texts(rnd)}
		is := fmt.Sprintf("%q", []any{r.Name, r.Query, r.For, r.Labels, r.Annotations})
		digest := loadedDigest(r, "")
		if was, ok := seen[digest]; ok && was != is {
			t.Fatalf("%s and %s are the same", was, is)
		}
		seen[digest] = is
	}
}
