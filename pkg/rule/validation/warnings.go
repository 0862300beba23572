package validation

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/clip"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/compat"
	"github.com/rulefleet/rulefleet/pkg/rule/delivery"
	"github.com/rulefleet/rulefleet/pkg/rule/gotemplate"
	"github.com/rulefleet/rulefleet/pkg/rule/parameter"
	"github.com/rulefleet/rulefleet/pkg/rule/placeholder"
	"github.com/rulefleet/rulefleet/pkg/rule/promql"
)

const (
	// maxWarnings limits the number of warnings for an object.
	maxWarnings = 20
	// maxWarning limits each of them, in bytes.
	maxWarning = 300
	// maxWalks limits the number of searches for a label in expressions.
	maxWalks = 1000
)

// clusterLabelValue describes the value of --cluster-label.
const clusterLabelValue = "the cluster's name (the external label of the spoke's Prometheus or, without one, the spoke's name)"

// Warnings returns warnings about valid but suspicious input in an AlertRule: one sentence each, which
// begins with the field and says what to change, sorted, at most 20.
func Warnings(r *v1alpha1.AlertRule, o Options) []string {
	w := &warnings{stage: placeholder.Sample(), evaluator: o.Evaluator}
	w.alert(r.Spec.AlertSpec, r.Spec.Overrides)
	w.overrides(r.Spec.AlertSpec, &r.Spec.Placement, r.Spec.Overrides)
	w.everyLabels(r.Spec.AlertSpec, r.Spec.Overrides, func(path string, labels map[string]v1alpha1.LabelText) {
		if o.ClusterLabel != "" {
			w.overwritten(path, labels, o.ClusterLabel, clusterLabelValue)
		}
		w.forced(path, labels, r, o)
	})
	return w.sorted()
}

// TemplateWarnings is Warnings for an AlertRuleTemplate.
func TemplateWarnings(t *v1alpha1.AlertRuleTemplate, o Options) []string {
	w := &warnings{stage: placeholder.SampleTemplate(rule.KindsOf(t), parameter.Defaults(t.Spec.Parameters)), evaluator: o.Evaluator}
	overrides := slices.Collect(rule.TemplateOverrides(t))
	w.alert(t.Spec.AlertSpec, overrides)
	w.overrides(t.Spec.AlertSpec, t.Spec.Placement, overrides)
	values := map[string]string{o.ClusterLabel: clusterLabelValue, rule.NamespaceLabel: "the namespace of the workload"}
	for _, kind := range rule.KindsOf(t) {
		values[rule.WorkloadLabel(kind)] = fmt.Sprintf("the name of the %s", kind)
	}
	delete(values, "")
	w.everyLabels(t.Spec.AlertSpec, overrides, func(path string, labels map[string]v1alpha1.LabelText) {
		for label, value := range values {
			w.overwritten(path, labels, label, value)
		}
		w.protected(path, labels, o)
	})
	w.placeholders(t, overrides)
	return w.sorted()
}

// warnings collects the results of Warnings.
type warnings struct {
	stage     placeholder.Stage
	evaluator *rule.Evaluator
	walks     int // through expressions
	out       []string
}

// everyLabels calls fn for the labels of an alert and of each override.
func (w *warnings) everyLabels(a v1alpha1.AlertSpec, overrides []v1alpha1.Override, fn func(path string, labels map[string]v1alpha1.LabelText)) {
	fn("spec", a.Labels)
	for i := range overrides {
		fn(fmt.Sprintf("spec.overrides[%d]", i), overrides[i].Labels)
	}
}

// placeholders adds warnings about placeholders with a former name, and about parameters that no text uses.
func (w *warnings) placeholders(t *v1alpha1.AlertRuleTemplate, overrides []v1alpha1.Override) {
	used := map[string]bool{}
	text := func(field, text string) {
		if written, now, found := placeholder.Former(text); found {
			w.add(field, "uses %s, which was renamed; write %s", clip.Excerpt(written), clip.Excerpt(now))
		}
		for _, name := range placeholder.Parameters(text) {
			used[name] = true
		}
	}
	texts := func(path, expr string, labels, annotations map[string]v1alpha1.LabelText) {
		text(path+".expr", expr)
		for field, m := range map[string]map[string]v1alpha1.LabelText{path + ".labels": labels, path + ".annotations": annotations} {
			for key, value := range m {
				text(rule.Keyed(field, key), string(value))
			}
		}
	}
	texts("spec", t.Spec.Expr, t.Spec.Labels, t.Spec.Annotations)
	for i, o := range overrides {
		texts(fmt.Sprintf("spec.overrides[%d]", i), o.Expr, o.Labels, o.Annotations)
	}
	for i, p := range t.Spec.Parameters {
		if !used[p.Name] {
			w.add(fmt.Sprintf("spec.parameters[%d]", i), "is not used by any text of the template; use it as $(params.%s), or remove it", p.Name)
		}
	}
}

func (w *warnings) add(field, format string, args ...any) {
	w.out = append(w.out, clip.Marked(field+" "+fmt.Sprintf(format, args...), maxWarning))
}

func (w *warnings) sorted() []string {
	slices.Sort(w.out)
	w.out = slices.Compact(w.out)
	return w.out[:min(len(w.out), maxWarnings)]
}

// forced adds warnings about labels that a rule outside of the admin namespace does not decide.
func (w *warnings) forced(path string, texts map[string]v1alpha1.LabelText, s rule.Source, o Options) {
	if s.GetNamespace() == o.AdminNamespace {
		return
	}
	namespace := delivery.LabelNamespace(s, rule.Cluster{}, delivery.Options{AdminNamespace: o.AdminNamespace})
	if string(texts[rule.NamespaceLabel]) != namespace {
		w.overwritten(path, texts, rule.NamespaceLabel, "the namespace of the PrometheusRule in the spokes")
	}
	w.protected(path, texts, o)
}

// protected adds warnings about labels that are removed from alerts outside of the admin namespace.
func (w *warnings) protected(path string, texts map[string]v1alpha1.LabelText, o Options) {
	for _, label := range o.Tenancy.ProtectedLabels {
		if _, set := texts[label]; set {
			w.add(rule.Keyed(path+".labels", label), "is protected, and is removed from the alert; remove it here, or from the chart value tenants.protectedLabels")
		}
	}
}

// Alert adds warnings about an alert and its texts.
func (w *warnings) alert(a v1alpha1.AlertSpec, overrides []v1alpha1.Override) {
	if a.For == "" && !everywhere(overrides, func(o v1alpha1.Override) bool { return o.For != "" }) {
		w.add("spec.for", "is not set, so the alert fires at the first evaluation that returns a result; set it, for example to 5m, or to 0s if this is intended")
	}
	if a.Severity == "" && a.Labels[rule.SeverityLabel] == "" && !everywhere(overrides, givesSeverity) {
		w.add("spec.severity", "is not set, so routes can't tell how urgent the alert is; set it, for example to warning")
	}
	w.expr("spec", a, nil)
}

// everywhere reports whether an override for every spoke satisfies does.
func everywhere(overrides []v1alpha1.Override, does func(v1alpha1.Override) bool) bool {
	return slices.ContainsFunc(overrides, func(o v1alpha1.Override) bool { return picksAll(o) && does(o) })
}

func givesSeverity(o v1alpha1.Override) bool {
	return o.Severity != "" || o.Labels[rule.SeverityLabel] != ""
}

// picksAll reports whether an override has the selector {}, and excludes no cluster.
func picksAll(o v1alpha1.Override) bool {
	return rule.MatchesAll(o.Selector) && o.Exclude == nil
}

// expr adds warnings about an expression, and about texts that use labels which it does not have. The
// texts of an override without an expression are checked with the base's expression.
func (w *warnings) expr(path string, a v1alpha1.AlertSpec, base *v1alpha1.AlertSpec) {
	part := v1alpha1.AlertSpec{Expr: a.Expr, Labels: a.Labels, Annotations: a.Annotations}
	if part.Expr == "" && base != nil {
		part.Expr = base.Expr
	}
	expanded, bad := w.stage.Alert(part)
	if bad != nil {
		return
	}
	tree, f := promql.ParseAlert(expanded.Expr, compat.Parser(w.evaluator))
	if f != nil {
		return
	}
	if a.Expr != "" {
		if selector := namelessSelector(tree); selector != nil {
			w.add(path+".expr", "has the selector %s without a metric name, which selects series of all metrics; write the metric name before the {", clip.Excerpt(selector.String()))
		}
	}
	w.droppedLabels(path+".labels", expanded.Labels, tree)
	w.droppedLabels(path+".annotations", expanded.Annotations, tree)
}

// namelessSelector returns a selector that matches series of any metric, or nil.
func namelessSelector(tree parser.Expr) *parser.VectorSelector {
	var nameless *parser.VectorSelector
	parser.Inspect(tree, func(node parser.Node, _ []parser.Node) error {
		s, ok := node.(*parser.VectorSelector)
		if !ok || nameless != nil || s.BypassEmptyMatcherCheck || s.Name != "" {
			return nil
		}
		named := slices.ContainsFunc(s.LabelMatchers, func(m *labels.Matcher) bool {
			return m.Name == model.MetricNameLabel && (m.Type == labels.MatchEqual || m.Type == labels.MatchRegexp)
		})
		if !named {
			nameless = s
		}
		return nil
	})
	return nameless
}

// droppedLabels adds warnings about labels that are always empty in a text. A label that the alert's
// series does not have is empty even if the alert's own labels have it.
func (w *warnings) droppedLabels(field string, texts map[string]v1alpha1.LabelText, tree parser.Expr) {
	for _, key := range slices.Sorted(maps.Keys(texts)) {
		text := string(texts[key])
		if !strings.Contains(text, "{{") {
			continue
		}
		for _, label := range gotemplate.Labels(text) {
			w.walks++
			if w.walks <= maxWalks && !promql.MayHaveLabel(tree, label) {
				w.add(rule.Keyed(field, key), "uses the label %q, which the result of the expression does not have; keep it in the result, for example with by (%[1]s), or remove it from the text", clip.Excerpt(label))
			}
		}
	}
}

func (w *warnings) overwritten(path string, texts map[string]v1alpha1.LabelText, label, with string) {
	if _, set := texts[label]; set {
		w.add(rule.Keyed(path+".labels", label), "is overwritten with %s; remove it, or use another label", with)
	}
}

// overrides adds warnings about each override alone, and about those that have no effect. A nil placement selects every
// cluster.
func (w *warnings) overrides(base v1alpha1.AlertSpec, placement *v1alpha1.ClusterSelection, overrides []v1alpha1.Override) {
	for i, o := range overrides {
		path := fmt.Sprintf("spec.overrides[%d]", i)
		w.override(path, base, placement, o)
		w.shadowed(path, o, overrides[:i])
	}
}

func (w *warnings) override(path string, base v1alpha1.AlertSpec, placement *v1alpha1.ClusterSelection, o v1alpha1.Override) {
	if placement != nil && placement.Selector == nil {
		var strange []string
		for _, name := range o.Names {
			if !slices.Contains(placement.Names, name) {
				strange = append(strange, string(name))
			}
		}
		if len(strange) > 0 {
			w.add(path+".names", "has clusters that spec.placement does not select (%s); remove them, or add them to spec.placement.names", strings.Join(strange, ", "))
		}
	}
	part := v1alpha1.AlertSpec{Expr: o.Expr, Labels: o.Labels, Annotations: o.Annotations}
	w.expr(path, part, &base)
}

// shadowed adds warnings about fields that an earlier override sets for every spoke.
func (w *warnings) shadowed(path string, o v1alpha1.Override, earlier []v1alpha1.Override) {
	fields := setBy(o)
	for i, first := range earlier {
		if !picksAll(first) {
			continue
		}
		for field := range setBy(first) {
			if fields[field] {
				delete(fields, field)
				w.add(path+"."+field, "never has an effect, because spec.overrides[%d] sets it for every cluster; move this override before that one", i)
			}
		}
	}
}

// setBy returns the fields that an override sets, with each text separately.
func setBy(o v1alpha1.Override) map[string]bool {
	fields := map[string]bool{
		"state": o.State != "", "expr": o.Expr != "", "for": o.For != "", "keepFiringFor": o.KeepFiringFor != "",
		"interval": o.Interval != "", "severity": o.Severity != "",
	}
	for key := range o.Labels {
		fields[rule.Keyed("labels", key)] = true
	}
	for key := range o.Annotations {
		fields[rule.Keyed("annotations", key)] = true
	}
	maps.DeleteFunc(fields, func(_ string, set bool) bool { return !set })
	return fields
}
