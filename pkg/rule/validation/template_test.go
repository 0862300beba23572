package validation

import (
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/internal/ruletest"
	"github.com/rulefleet/rulefleet/pkg/rule/placeholder"
	"github.com/rulefleet/rulefleet/pkg/rule/templating"
)

func parameters() []v1alpha1.Parameter {
	return []v1alpha1.Parameter{
		{Name: "threshold", Type: v1alpha1.NumberParameter, Default: "5", Maximum: "100"},
		{Name: "window", Type: v1alpha1.DurationParameter, Default: "5m"},
		{Name: "size", Type: v1alpha1.QuantityParameter, Default: "2Gi", Minimum: "1Mi"},
	}
}

func TestTemplateWithParameters(t *testing.T) {
	override := func(o v1alpha1.TemplateOverride) func(*v1alpha1.AlertRuleTemplate) {
		if o.Names == nil {
			o.ClusterSelection = ruletest.EveryCluster()
		}
		return func(t *v1alpha1.AlertRuleTemplate) {
			t.Spec.Overrides = []v1alpha1.TemplateOverride{{ClusterSelection: ruletest.EveryCluster(), For: "1m"}, o}
		}
	}
	expr := func(expr string) func(*v1alpha1.AlertRuleTemplate) {
		return func(t *v1alpha1.AlertRuleTemplate) { t.Spec.Expr = expr }
	}
	kinds := func(text string, kinds ...v1alpha1.WorkloadKind) func(*v1alpha1.AlertRuleTemplate) {
		return func(t *v1alpha1.AlertRuleTemplate) {
			t.Spec.Labels = ruletest.Texts{"a": v1alpha1.LabelText(text)}
			t.Spec.Workloads = &v1alpha1.WorkloadSelection{Kinds: kinds}
		}
	}
	set := func(name string, value v1alpha1.ParameterValue) v1alpha1.TemplateOverride {
		return v1alpha1.TemplateOverride{Parameters: map[string]v1alpha1.ParameterValue{name: value}}
	}
	many := ruletest.Texts{}
	for range 62 {
		many["a"+ruletest.Long("x", len(many))] = "y"
	}
	for name, c := range map[string]struct {
		edit        func(*v1alpha1.AlertRuleTemplate)
		field, want string
	}{
		"valid":                    {expr(`rate(a[$(params.window)]) > $(params.threshold) and b > $(params.size)`), "", ""},
		"allow":                    {func(t *v1alpha1.AlertRuleTemplate) { t.Spec.Allow = []v1alpha1.Adjustment{"params"} }, "", ""},
		"a wrong parameter":        {func(t *v1alpha1.AlertRuleTemplate) { t.Spec.Parameters[1].Default = "5" }, "spec.parameters[1].default", "is not a Prometheus duration"},
		"an unknown one":           {expr(`up > $(params.treshold)`), "spec.expr", "1:6: $(params.treshold) is not defined; use one of size, threshold, window, or add the parameter to spec.parameters"},
		"an unknown one in a text": {kinds("$(params.x)", "Deployment"), "spec.labels[a]", "$(params.x) is not defined"},
		"in an action":             {kinds("{{ $(params.size) }}", "Deployment"), "spec.labels[a]", "is inside {{ … }}"},
		"in the name":              {func(t *v1alpha1.AlertRuleTemplate) { t.Spec.Alert = "A$(params.size)" }, "spec.alert", "must not contain placeholders"},
		"a fault after it":         {expr("up > $(params.threshold)\n and on(a) ) b"), "spec.expr", "2:13: "},
		"a type error":             {expr("sum by (a) $(params.threshold)"), "spec.expr", "1:12: "},
		"a name before it":         {expr("up > vector $(params.threshold)"), "spec.expr", "1:13: $(params.threshold) stands after a name"},
		"former, for Deployments":  {kinds("$(deployment.name)", "Deployment"), "", ""},
		"former, for others":       {kinds("$(deployment.name)", "Deployment", "StatefulSet"), "spec.labels[a]", "$(deployment.name) is only available in a template whose spec.workloads.kinds is [Deployment]; write $(workload.name) instead"},
		"former, not for any":      {kinds("$(deployment.labels.a)", "DaemonSet"), "spec.labels[a]", "write $(workload.labels.a) instead"},
		"present, for others":      {kinds("$(workload.kind) $(workload.name)", "DaemonSet"), "", ""},
		"where":                    {func(t *v1alpha1.AlertRuleTemplate) { t.Spec.RuleNamespace = "monitoring" }, "spec.ruleNamespace", `"monitoring" is not valid; use Workload or Operator`},
		"override":                 {override(v1alpha1.TemplateOverride{Severity: "info"}), "", ""},
		"override, parameters":     {override(set("window", "10m")), "", ""},
		"override, nothing":        {override(v1alpha1.TemplateOverride{}), "spec.overrides[1]", "an override must change something; set state, expr, for, keepFiringFor, interval, severity, labels, annotations or parameters"},
		"override, no cluster":     {func(t *v1alpha1.AlertRuleTemplate) { t.Spec.Overrides = []v1alpha1.TemplateOverride{{For: "1m"}} }, "spec.overrides[0]", "no cluster is selected"},
		"override, state":          {override(v1alpha1.TemplateOverride{State: "Off"}), "spec.overrides[1].state", "use Enabled or Disabled"},
		"override, for":            {override(v1alpha1.TemplateOverride{For: "5"}), "spec.overrides[1].for", "not a Prometheus duration"},
		"override, unknown":        {override(set("x", "1")), "spec.overrides[1].parameters[x]", "unknown parameter; correct the name, or add it to spec.parameters of the template"},
		"override, bounds":         {override(set("threshold", "101")), "spec.overrides[1].parameters[threshold]", "101 is larger than the maximum; use at most 100"},
		"override, type":           {override(set("size", "1h")), "spec.overrides[1].parameters[size]", "is not a quantity"},
		"override, expr":           {override(v1alpha1.TemplateOverride{Expr: "up > $(params.x)"}), "spec.overrides[1].expr", "1:6: $(params.x) is not defined"},
		"override, place":          {override(v1alpha1.TemplateOverride{Expr: "up[$(params.size)]"}), "spec.overrides[1].expr", "is used as a duration"},
		"override, labels":         {override(v1alpha1.TemplateOverride{Labels: ruletest.Texts{"a": "$(params.x)"}}), "spec.overrides[1].labels[a]", "is not defined"},
		"override, 62 labels":      {override(v1alpha1.TemplateOverride{Labels: many}), "", ""},
		"override, many labels": {func(t *v1alpha1.AlertRuleTemplate) {
			t.Spec.Labels = ruletest.Texts{"b": "1"}
			override(v1alpha1.TemplateOverride{Labels: many})(t)
		}, "spec.overrides[1].labels", "has 63 entries together with the alert's own; at most 62"},
		"many overrides":       {func(t *v1alpha1.AlertRuleTemplate) { t.Spec.Overrides = make([]v1alpha1.TemplateOverride, 65) }, "spec.overrides", "at most 64"},
		"override, many bytes": {override(v1alpha1.TemplateOverride{Expr: ruletest.Long("x", rule.MaxObject)}), "spec", "at most 262144 are allowed"},
		"override, former, in vain": {func(t *v1alpha1.AlertRuleTemplate) {
			kinds("x", "CronJob")(t)
			override(v1alpha1.TemplateOverride{Expr: `up{a="$(deployment.name)"}`})(t)
		}, "spec.overrides[1].expr", "write $(workload.name) instead"},
		"a sign that does not parse": {expr("up + fill($(params.threshold)) down"), "spec.expr", ""},
	} {
		t.Run(name, func(t *testing.T) {
			template := ruletest.Template(func(t *v1alpha1.AlertRuleTemplate) { t.Spec.Parameters = parameters() }, c.edit)
			bad := Template(template, tenancy)
			if (bad == nil) != (c.field == "") || bad != nil && (bad.Field != c.field || !strings.Contains(bad.Message, c.want)) {
				t.Errorf("got %v\nwant %s: %s", bad, c.field, c.want)
			}
		})
	}
}

// An expression that parses only with some of the values is refused: fill takes no negative number.
func TestAllValuesParse(t *testing.T) {
	o := tenancy
	o.Evaluator = &rule.Evaluator{Version: "3.14", Features: []string{"promql-binop-fill-modifiers"}}
	template := ruletest.Template(func(t *v1alpha1.AlertRuleTemplate) {
		t.Spec.Parameters, t.Spec.Expr = parameters(), "up + fill($(params.threshold)) down"
	})
	if bad := Template(template, o); bad == nil || !strings.HasPrefix(bad.Message, "with the smallest or the largest values of the parameters: ") {
		t.Errorf("got %v", bad)
	}
	template.Spec.Parameters[0].Minimum = "0"
	if bad := Template(template, o); bad != nil {
		t.Error(bad)
	}
}

func TestWarningsOfTemplatesWithParameters(t *testing.T) {
	template := ruletest.Template(func(t *v1alpha1.AlertRuleTemplate) {
		t.Spec.Parameters, t.Spec.For, t.Spec.Severity = parameters(), "1m", "info"
		t.Spec.Expr = `up{a="$(deployment.labels.a)"} > $(params.threshold)`
		t.Spec.Placement = &v1alpha1.ClusterSelection{Names: []v1alpha1.ClusterName{"eu-1"}}
		t.Spec.Overrides = []v1alpha1.TemplateOverride{
			{ClusterSelection: ruletest.EveryCluster(), For: "2m", Annotations: ruletest.Texts{"a": "$(deployment.name) $(params.size)"}},
			{ClusterSelection: ruletest.Clusters("eu-2"), For: "3m", Labels: ruletest.Texts{"deployment": "x"}},
		}
	})
	want := []string{
		"spec.expr uses $(deployment.labels.a), which was renamed; write $(workload.labels.a)",
		"spec.overrides[0].annotations[a] uses $(deployment.name), which was renamed; write $(workload.name)",
		"spec.overrides[1].for never has an effect",
		"spec.overrides[1].labels[deployment] is overwritten with the name of the Deployment",
		"spec.overrides[1].names has clusters that spec.placement does not select",
		"spec.parameters[1] is not used by any text of the template; use it as $(params.window), or remove it",
	}
	if got := TemplateWarnings(template, tenancy); !slices.EqualFunc(got, want, strings.HasPrefix) {
		t.Errorf("got %q", got)
	}
}

// FuzzParameters lets a workload set parameters of a template. Whatever it writes, an accepted template generates an
// AlertRule that is valid, and that differs from the template's only in numbers and durations.
func FuzzParameters(f *testing.F) {
	for _, expr := range []string{
		`up > $(params.threshold)`, `rate(a[$(params.window)]) > $(params.size)`, `up offset -$(params.window) - $(params.threshold)^2`,
		`vector $(params.threshold)`, "up{a=`\\`} > $(params.threshold) # \"\n", `up{a="\"$(params.size)"} > 1$(params.threshold)`,
		`topk($(params.threshold), up[$(params.window):])`, `up @ $(params.threshold)`, `up > bool $(params.window)`, `a + fill($(params.threshold)) b`,
	} {
		for _, value := range []string{"threshold=-5", "threshold=1e3,window=90m,size=-1.5Gi", "threshold=1 or vector(1)", "down/threshold=0x10,size=1e99", "window=0s,threshold=NaN", "threshold=.5.,window=1y2w"} {
			f.Add(expr, value)
		}
	}
	f.Fuzz(func(t *testing.T, expr, value string) {
		if max(len(expr), len(value)) > 4096 {
			t.Skip()
		}
		template := ruletest.Template(func(t *v1alpha1.AlertRuleTemplate) {
			t.Spec.Expr, t.Spec.Parameters, t.Spec.Allow = expr, parameters(), []v1alpha1.Adjustment{v1alpha1.AdjustParams}
		})
		if Template(template, tenancy) != nil {
			return
		}
		w := templating.Workload{Kind: v1alpha1.DeploymentKind, Cluster: rule.Cluster{Name: "eu-1"}, Namespace: "shop", Name: "web"}
		plain, err := templating.Rule(template, w, "generated")
		if err != nil {
			return // a label of the workload is missing
		}
		w.Annotations = map[string]string{v1alpha1.AdjustmentPrefix + "params": value}
		adjusted, err := templating.Rule(template, w, "generated")
		if err != nil {
			t.Fatal(err)
		}
		if bad := Rule(adjusted, Options{GeneratedNamespace: "generated"}); bad != nil {
			t.Errorf("%s with %s: %v", expr, value, bad)
		}
		exact := !strings.Contains(placeholder.Shape(expr), "$(params.") // no parameter in a string literal
		if got, want := skeleton(t, adjusted.Spec.Expr, exact), skeleton(t, plain.Spec.Expr, exact); !slices.Equal(got, want) {
			t.Errorf("%s with %s: %q", expr, value, adjusted.Spec.Expr)
		}
	})
}

// skeleton returns the tokens of an expression without the values of numbers and durations and, unless exact, of string
// literals.
func skeleton(t *testing.T, expr string, exact bool) []string {
	t.Helper()
	var out []string
	lexer := parser.Lex(expr)
	for {
		var item parser.Item
		lexer.NextItem(&item)
		switch item.Typ {
		case parser.ERROR:
			t.Fatalf("%s: %s", expr, item.Val)
		case parser.EOF:
			return out
		case parser.NUMBER, parser.DURATION:
			out = append(out, "N")
		case parser.STRING:
			if !exact {
				item.Val = "S"
			}
			out = append(out, item.Val)
		default:
			out = append(out, item.Val)
		}
		if n := len(out); n >= 4 && slices.Equal(out[n-4:], []string{"(", "-", "N", ")"}) {
			out = append(out[:n-4], "N")
		}
	}
}
