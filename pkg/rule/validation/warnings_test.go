package validation

import (
	"slices"
	"strings"
	"testing"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule/builtin"
	"github.com/rulefleet/rulefleet/pkg/rule/internal/ruletest"
	"github.com/rulefleet/rulefleet/pkg/rule/rollup"
)

// quiet returns a rule that nothing is to be said about.
func quiet(edit func(*v1alpha1.AlertRule)) *v1alpha1.AlertRule {
	return ruletest.Rule(func(r *v1alpha1.AlertRule) {
		r.Spec.For, r.Spec.Severity = "5m", "warning"
		edit(r)
	})
}

func TestWarnings(t *testing.T) {
	o := tenancy
	o.ClusterLabel = "cluster"
	note := func(expr string, text v1alpha1.LabelText) func(*v1alpha1.AlertRule) {
		return func(r *v1alpha1.AlertRule) { r.Spec.Expr, r.Spec.Annotations = expr, ruletest.Texts{"a": text} }
	}
	over := func(os ...v1alpha1.Override) func(*v1alpha1.AlertRule) {
		return func(r *v1alpha1.AlertRule) { r.Spec.Overrides = os }
	}
	const dropped = `spec.annotations[a] uses the label "pod", which the result of the expression does not have; keep it in the result, for example with by (pod), or remove it from the text`
	for name, c := range map[string]struct {
		edit func(*v1alpha1.AlertRule)
		want []string // prefixes
	}{
		"nothing": {func(*v1alpha1.AlertRule) {}, nil},
		"for":     {func(r *v1alpha1.AlertRule) { r.Spec.For = "" }, []string{"spec.for is not set"}},
		"for 0":   {func(r *v1alpha1.AlertRule) { r.Spec.For = "0s" }, nil},
		"for, overridden everywhere": {func(r *v1alpha1.AlertRule) {
			r.Spec.For = ""
			over(v1alpha1.Override{ClusterSelection: ruletest.EveryCluster(), For: "1m"})(r)
		}, nil},
		"for, overridden somewhere": {func(r *v1alpha1.AlertRule) {
			r.Spec.For = ""
			over(v1alpha1.Override{ClusterSelection: ruletest.Clusters("a"), For: "1m"})(r)
		}, []string{"spec.for is not set"}},
		"severity":            {func(r *v1alpha1.AlertRule) { r.Spec.Severity = "" }, []string{"spec.severity is not set"}},
		"severity as a label": {func(r *v1alpha1.AlertRule) { r.Spec.Severity, r.Spec.Labels = "", ruletest.Texts{"severity": "x"} }, nil},
		"no metric":           {func(r *v1alpha1.AlertRule) { r.Spec.Expr = `up + on (a) {a="b"}` }, []string{`spec.expr has the selector {a="b"} without a metric name`}},
		"a metric by matcher": {func(r *v1alpha1.AlertRule) { r.Spec.Expr = `{__name__=~"a|b"}` }, nil},
		"not a metric":        {func(r *v1alpha1.AlertRule) { r.Spec.Expr = `{__name__!="a", b="c"}` }, []string{"spec.expr has the selector {"}},
		"a quoted metric":     {func(r *v1alpha1.AlertRule) { r.Spec.Expr = `{"a.b"}` }, nil},

		"kept":              {note("sum by (pod) (up)", "{{ $labels.pod }}"), nil},
		"dropped":           {note("sum(up)", "{{ $labels.pod }}"), []string{dropped}},
		"dropped, by field": {note("sum(up)", "{{ .Labels.pod | toUpper }}"), []string{dropped}},
		"dropped, by root":  {note("sum(up)", `{{ with 1 }}{{ printf "%s" ($.Labels.pod) }}{{ end }}`), []string{dropped}},
		"dropped, in if":    {note("sum(up)", `{{ if 1 }}{{ else }}{{ (print $labels.pod) }}{{ end }}`), []string{dropped}},
		"another dot": {func(r *v1alpha1.AlertRule) {
			r.Namespace = tenancy.AdminNamespace
			note("sum(up)", `{{ range query "up" }}{{ .Labels.pod }}{{ end }}`)(r)
		}, nil},
		"another $labels":  {note("sum(up)", `{{ $labels := args 1 }}{{ $labels.pod }}`), nil},
		"dropped, by with": {note("sum(up)", `{{ with $l := .Labels }}{{ $l.pod }}{{ .pod }}{{ end }}`), []string{dropped}},
		"external":         {note("sum(up)", `{{ $externalLabels.pod }}{{ with .ExternalLabels }}{{ .pod }}{{ end }}`), nil},
		"in a label": {func(r *v1alpha1.AlertRule) {
			r.Spec.Expr, r.Spec.Labels = "sum(up)", ruletest.Texts{"a": "{{ $labels.pod }}"}
		},
			[]string{`spec.labels[a] uses the label "pod"`}},
		"the alert's own label is not there": {func(r *v1alpha1.AlertRule) {
			note("sum(up)", "{{ $labels.pod }}")(r)
			r.Spec.Labels = ruletest.Texts{"pod": "x"}
		}, []string{dropped}},
		"in an override": {over(v1alpha1.Override{ClusterSelection: ruletest.Clusters("a"), Expr: "sum(up)", Annotations: ruletest.Texts{"a": "{{ $labels.pod }}"}}),
			[]string{`spec.overrides[0].annotations[a] uses the label "pod"`}},
		"in an override, for the base": {func(r *v1alpha1.AlertRule) {
			r.Spec.Expr = "sum(up)"
			over(v1alpha1.Override{ClusterSelection: ruletest.Clusters("a"), Annotations: ruletest.Texts{"a": "{{ $labels.pod }}"}})(r)
		}, []string{`spec.overrides[0].annotations[a] uses the label "pod"`}},
		"an override's metric": {over(v1alpha1.Override{ClusterSelection: ruletest.Clusters("a"), Expr: `{a="b"}`}), []string{"spec.overrides[0].expr has the selector {"}},

		"not placed there": {func(r *v1alpha1.AlertRule) {
			r.Spec.Placement = ruletest.Clusters("a", "b")
			over(v1alpha1.Override{ClusterSelection: ruletest.Clusters("b", "c", "d"), For: "1m"})(r)
		}, []string{"spec.overrides[0].names has clusters that spec.placement does not select (c, d); remove them, or add them to spec.placement.names"}},
		"shadowed": {over(
			v1alpha1.Override{ClusterSelection: ruletest.Clusters("a"), For: "1m"},
			v1alpha1.Override{ClusterSelection: ruletest.EveryCluster(), For: "2m", Labels: ruletest.Texts{"x": ""}},
			v1alpha1.Override{ClusterSelection: ruletest.Clusters("b"), For: "3m", Labels: ruletest.Texts{"x": "", "y": ""}},
			v1alpha1.Override{ClusterSelection: ruletest.EveryCluster(), Labels: ruletest.Texts{"x": ""}}),
			[]string{
				"spec.overrides[2].for never has an effect, because spec.overrides[1] sets it",
				"spec.overrides[2].labels[x] never has an effect, because spec.overrides[1]",
				"spec.overrides[3].labels[x] never has an effect, because spec.overrides[1]",
			}},
		"the cluster's label": {func(r *v1alpha1.AlertRule) {
			r.Spec.Labels = ruletest.Texts{"cluster": "x"}
			over(v1alpha1.Override{ClusterSelection: ruletest.Clusters("a"), Labels: ruletest.Texts{"cluster": "y"}})(r)
		}, []string{"spec.labels[cluster] is overwritten with the cluster's name", "spec.overrides[0].labels[cluster] is overwritten"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := quiet(c.edit)
			if bad := Rule(r, o); bad != nil {
				t.Errorf("%s: %v", name, bad)
			}
			got := Warnings(r, o)
			if !slices.EqualFunc(got, c.want, strings.HasPrefix) {
				t.Errorf("%s: got %q\nwant %q", name, got, c.want)
			}
		})
	}
}

func TestTemplateWarnings(t *testing.T) {
	template := ruletest.Template(func(t *v1alpha1.AlertRuleTemplate) {
		t.Spec.Labels = ruletest.Texts{"namespace": "x", "deployment": "y", "cluster": "z", "team": "a"}
		t.Spec.Annotations = ruletest.Texts{"a": "$(workload.name) {{ $labels.pod }}"}
		t.Spec.Expr = `sum(up{n="$(workload.namespace)"})`
	})
	want := []string{
		`spec.annotations[a] uses the label "pod"`, "spec.for is not set",
		"spec.labels[deployment] is overwritten with the name of the Deployment", "spec.labels[namespace] is overwritten", "spec.severity is not set",
	}
	if got := TemplateWarnings(template, tenancy); !slices.EqualFunc(got, want, strings.HasPrefix) {
		t.Errorf("got %q", got)
	}
	o := tenancy
	o.ClusterLabel = "cluster"
	if got := TemplateWarnings(template, o); len(got) != 6 {
		t.Errorf("got %q", got)
	}
	for _, builtIn := range builtin.Templates(builtin.Options{}) {
		if got := TemplateWarnings(builtIn, o); len(got) > 0 {
			t.Errorf("%s: %q", builtIn.Name, got)
		}
	}
}

func TestManyWarnings(t *testing.T) {
	r := ruletest.Rule(func(r *v1alpha1.AlertRule) {
		r.Spec.Expr = "sum(up)"
		r.Spec.Annotations = ruletest.Texts{}
		for i := range 40 {
			r.Spec.Annotations[ruletest.Long("a", i+1)] = v1alpha1.LabelText("{{ $labels." + ruletest.Long("l", 200+i) + " }}")
		}
	})
	got := Warnings(r, tenancy)
	if len(got) != maxWarnings || !slices.IsSorted(got) {
		t.Errorf("%d warnings: %q", len(got), got)
	}
	for range 5 {
		if again := Warnings(r, tenancy); !slices.Equal(got, again) {
			t.Errorf("they change: %q", again)
		}
	}
	message := rollup.AcceptedMessage(got)
	if len(message) > maxAcceptedMessage || !strings.HasPrefix(message, "the spec is valid; warning: spec.") {
		t.Errorf("%d bytes: %s", len(message), message)
	}
	if message := rollup.AcceptedMessage(nil); message != "the spec is valid" {
		t.Error(message)
	}
}
