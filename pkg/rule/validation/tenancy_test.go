package validation

import (
	"slices"
	"strings"
	"testing"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/internal/ruletest"
)

func TestValidateTenants(t *testing.T) {
	const spec, expr = v1alpha1.ReasonInvalidSpec, v1alpha1.ReasonInvalidExpr
	type edit = func(*v1alpha1.AlertRule)
	note := func(text string) edit {
		return func(r *v1alpha1.AlertRule) { r.Spec.Annotations = ruletest.Texts{"a": v1alpha1.LabelText(text)} }
	}
	query := func(e string) edit { return func(r *v1alpha1.AlertRule) { r.Spec.Expr = e } }
	over := func(o v1alpha1.Override) edit {
		return func(r *v1alpha1.AlertRule) {
			o.ClusterSelection = ruletest.EveryCluster()
			r.Spec.Overrides = []v1alpha1.Override{o}
		}
	}
	for name, c := range map[string]struct {
		edit                  edit
		reason, field, expect string
	}{
		"a short interval":        {func(r *v1alpha1.AlertRule) { r.Spec.Interval = "4s999ms" }, spec, "spec.interval", "4s999ms is too short for an AlertRule outside of namespace rulefleet-system; use at least 5s"},
		"a protected label":       {func(r *v1alpha1.AlertRule) { r.Spec.Labels = ruletest.Texts{"team": "shop"} }, spec, "spec.labels[team]", "label team is protected"},
		"in an override":          {over(v1alpha1.Override{Labels: ruletest.Texts{"tier": "1"}}), spec, "spec.overrides[0].labels[tier]", "label tier is protected"},
		"a query":                 {note(`{{ with query "up" }}{{ . | first | value }}{{ end }}`), spec, "spec.annotations[a]", "the function query is not available"},
		"a query in a label":      {func(r *v1alpha1.AlertRule) { r.Spec.Labels = ruletest.Texts{"a": `{{ range query "up" }}x{{ end }}`} }, spec, "spec.labels[a]", "the function query is not available"},
		"a query as an argument":  {note(`{{ printf "%v" (query "up") }}`), spec, "spec.annotations[a]", "the function query is not available"},
		"a query in a with block": {note(`{{ with $labels.a }}{{ range $q := query "up" }}x{{ end }}{{ end }}`), spec, "spec.annotations[a]", "the function query is not available"},
		"a query in an else":      {note(`{{ if false }}{{ else }}{{ $q := "up" | query }}{{ end }}`), spec, "spec.annotations[a]", "the function query is not available"},
		"a query in an override":  {over(v1alpha1.Override{Annotations: ruletest.Texts{"a": `{{ (query "up" | first).Value }}`}}), spec, "spec.overrides[0].annotations[a]", "the function query is not available"},
		"another namespace":       {query(`up == 0 and b{namespace="payments"}`), expr, "spec.expr", `1:13: the matcher namespace="payments" is not allowed: a rule of namespace shop can only read series with namespace="shop"`},
		"in an override's expr":   {over(v1alpha1.Override{Expr: `b{namespace=~"pay.*"}`}), expr, "spec.overrides[0].expr", `the matcher namespace=~"pay.*" is not allowed`},
		"the operator's place":    {func(r *v1alpha1.AlertRule) { r.Spec.RuleNamespaceFrom = v1alpha1.InOperatorNamespace }, v1alpha1.ReasonNamespaceNotAllowed, "spec.ruleNamespaceFrom", "not to rulefleet-system; remove spec.ruleNamespaceFrom"},
		"info":                    {query(`sum(info(up)) > 0`), expr, "spec.expr", "1:5: the function info reads the series of all namespaces"},
	} {
		t.Run(name, func(t *testing.T) {
			strict := strict
			strict.Evaluator = &rule.Evaluator{Version: "3.14", Features: []string{"promql-experimental-functions"}} // with info
			r := ruletest.Rule(c.edit)
			bad := Rule(r, strict)
			if bad == nil || bad.Reason != c.reason || bad.Field != c.field || !strings.Contains(bad.Message, c.expect) {
				t.Errorf("refused with %+v", bad)
			}
			r.Namespace = tenancy.AdminNamespace
			if bad := Rule(r, strict); bad != nil {
				t.Errorf("in the operator's namespace: %v", bad)
			}
			r = ruletest.Rule(c.edit, ruletest.GeneratedRule)
			if bad := Rule(r, strict); bad != nil {
				t.Errorf("generated: %v", bad)
			}
		})
	}
	for name, edit := range map[string]edit{
		"the shortest interval":   func(r *v1alpha1.AlertRule) { r.Spec.Interval = "5s" },
		"no interval":             func(r *v1alpha1.AlertRule) { r.Spec.Interval = "" },
		"its own namespace":       query(`up{namespace="shop"} == 0 or up{namespace!="payments"}`),
		"what a spoke determines": query(`up{namespace="$(cluster.labels.ns)"}`),
		"the word":                note(`query: {{ "query" }} {{ $labels.query }}`),
	} {
		t.Run(name, func(t *testing.T) {
			if bad := Rule(ruletest.Rule(edit), strict); bad != nil {
				t.Error(bad)
			}
		})
	}
}

// A label that was set before it was protected does not keep its AlertRule from being delivered without it.
func TestStoredProtectedLabels(t *testing.T) {
	r := ruletest.Rule(func(r *v1alpha1.AlertRule) {
		r.UID, r.Generation = "rule", 1
		r.Spec.Labels = ruletest.Texts{"team": "payments"}
		r.Spec.Overrides = []v1alpha1.Override{{ClusterSelection: ruletest.EveryCluster(), Labels: ruletest.Texts{"tier": "1"}}}
	})
	v := New(strict)
	if bad := v.Validate(r); bad != nil {
		t.Errorf("refused with %+v", bad)
	}
	for _, field := range []string{"spec.labels[team]", "spec.overrides[0].labels[tier]"} {
		if !slices.ContainsFunc(v.Warnings(r), func(w string) bool { return strings.HasPrefix(w, field+" is protected, and is removed from the alert") }) {
			t.Errorf("no warning of %s: %q", field, v.Warnings(r))
		}
	}
	if bad := Rule(r, strict); bad == nil || bad.Field != "spec.labels[team]" {
		t.Errorf("a new one is refused with %+v", bad)
	}
}

// Labels that the author does not decide are warned of where they are not refused.
func TestWarningsOfForcedLabels(t *testing.T) {
	labels := func(r *v1alpha1.AlertRule) {
		r.Spec.For, r.Spec.Severity, r.Spec.Labels = "1m", "warning", ruletest.Texts{"namespace": "payments", "team": "payments"}
	}
	own := ruletest.Rule(labels)
	own.Spec.Labels = ruletest.Texts{"namespace": "shop"}
	template := ruletest.Template(func(t *v1alpha1.AlertRuleTemplate) {
		t.Spec.For, t.Spec.Severity, t.Spec.Labels = "1m", "warning", ruletest.Texts{"team": "x"}
	})
	const (
		forced    = "spec.labels[namespace] is overwritten with the namespace of the PrometheusRule in the spokes"
		protected = "spec.labels[team] is protected, and is removed from the alert"
	)
	for name, c := range map[string]struct {
		got, want []string
	}{
		"a tenant's":   {Warnings(ruletest.Rule(labels), strict), []string{forced, protected}},
		"its own":      {Warnings(own, strict), nil},
		"generated":    {Warnings(ruletest.Rule(labels, ruletest.GeneratedRule), strict), []string{forced, protected}},
		"the operator": {Warnings(ruletest.Rule(labels, func(r *v1alpha1.AlertRule) { r.Namespace = strict.AdminNamespace }), strict), nil},
		"a template":   {TemplateWarnings(template, strict), []string{protected}},
	} {
		t.Run(name, func(t *testing.T) {
			if !slices.EqualFunc(c.got, c.want, strings.HasPrefix) {
				t.Errorf("warned of %q", c.got)
			}
		})
	}
}

func TestValidateProtectedLabels(t *testing.T) {
	if err := ProtectedLabels([]string{"team", "_x1"}, "cluster"); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"", "a-b", "1a", "__name__", "namespace", "cluster", "severity", "deployment", "alertname"} {
		if err := ProtectedLabels([]string{"team", name}, "cluster"); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%q: %v", name, err)
		}
	}
}
