package validation

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule/internal/ruletest"
)

var tenancy = Options{AdminNamespace: "rulefleet-system", GeneratedNamespace: "rulefleet-generated"}

func TestValidateAccepts(t *testing.T) {
	for name, edit := range map[string]func(*v1alpha1.AlertRule){
		"the least": func(*v1alpha1.AlertRule) {},
		"everything": func(r *v1alpha1.AlertRule) {
			r.Namespace = tenancy.AdminNamespace // a tenant may not query in a text
			r.Spec.Expr = `sum by (job) (rate(x{c=~"$(cluster.name)|$(cluster.labels.region).*"}[5m])) > 1`
			r.Spec.For, r.Spec.Severity = "1h30m", "Sev_1.a-b"
			r.Spec.Labels = ruletest.Texts{"team": "shop", "_x": `{{ $labels.job | toUpper }}`, "cluster": "$(cluster.name)"}
			r.Spec.Annotations = ruletest.Texts{
				"summary": `{{ with query "up" }}{{ . | first | value | humanizePercentage }}{{ end }} $$(literal) $externalURL`,
				"__x":     "{{ $externalLabels.cluster }}{{ $externalURL }}{{/* why */}}{{ with .Value }}{{ . }}{{ end }}",
			}
		},
		"a scalar": func(r *v1alpha1.AlertRule) {
			r.Spec.Expr = "time()"
		},
		"severity as a label":           func(r *v1alpha1.AlertRule) { r.Spec.Labels = ruletest.Texts{"severity": "critical"} },
		"for zero":                      func(r *v1alpha1.AlertRule) { r.Spec.For = "0" },
		"a literal of the escape alone": func(r *v1alpha1.AlertRule) { r.Spec.Expr = `up{a="$$(x)"}` },
		"names": func(r *v1alpha1.AlertRule) {
			r.Spec.Placement = v1alpha1.ClusterSelection{Names: []v1alpha1.ClusterName{"eu-1"}}
		},
		"its own namespace": func(r *v1alpha1.AlertRule) { r.Spec.RuleNamespace = "shop" },
		"admin, anywhere":   func(r *v1alpha1.AlertRule) { r.Namespace, r.Spec.RuleNamespace = tenancy.AdminNamespace, "kube-system" },
		"generated":         ruletest.GeneratedRule,
		"about a workload of that name": func(r *v1alpha1.AlertRule) {
			r.Spec.WorkloadRef = &v1alpha1.WorkloadReference{Cluster: "eu-1", Kind: v1alpha1.DeploymentKind, Namespace: "shop", Name: "web"}
		},
		"disabled": func(r *v1alpha1.AlertRule) { r.Spec.State = v1alpha1.Disabled },
	} {
		t.Run(name, func(t *testing.T) {
			if bad := Rule(ruletest.Rule(edit), tenancy); bad != nil {
				t.Errorf("%s: %v", name, bad)
			}
		})
	}
}

// TestValidateGenerated writes into the namespace of generated AlertRules what no
// template makes.
func TestValidateGenerated(t *testing.T) {
	for field, edit := range map[string]func(*v1alpha1.AlertRule){
		"spec.workloadRef":   func(r *v1alpha1.AlertRule) { r.Spec.WorkloadRef = nil },
		"spec.placement":     func(r *v1alpha1.AlertRule) { r.Spec.Placement.Names[0] = "us-1" },
		"spec.ruleNamespace": func(r *v1alpha1.AlertRule) { r.Spec.RuleNamespace = "default" },
	} {
		t.Run(field, func(t *testing.T) {
			r := ruletest.Rule(ruletest.GeneratedRule)
			edit(r)
			if bad := Rule(r, tenancy); bad == nil || bad.Field != field || bad.Reason != v1alpha1.ReasonNamespaceNotAllowed {
				t.Errorf("%s: %v", field, bad)
			}
		})
	}
}

func TestValidateRefuses(t *testing.T) {
	const spec, expr, tenant = v1alpha1.ReasonInvalidSpec, v1alpha1.ReasonInvalidExpr, v1alpha1.ReasonNamespaceNotAllowed
	label := func(name, text string) func(*v1alpha1.AlertRule) {
		return func(r *v1alpha1.AlertRule) { r.Spec.Labels = ruletest.Texts{name: v1alpha1.LabelText(text)} }
	}
	note := func(name, text string) func(*v1alpha1.AlertRule) {
		return func(r *v1alpha1.AlertRule) { r.Spec.Annotations = ruletest.Texts{name: v1alpha1.LabelText(text)} }
	}
	query := func(e string) func(*v1alpha1.AlertRule) { return func(r *v1alpha1.AlertRule) { r.Spec.Expr = e } }
	for name, c := range map[string]struct {
		edit                  func(*v1alpha1.AlertRule)
		reason, field, expect string
	}{
		"generated, excluded": {func(r *v1alpha1.AlertRule) {
			ruletest.GeneratedRule(r)
			r.Spec.Placement.Exclude = &v1alpha1.ClusterExclusion{Names: []v1alpha1.ClusterName{"us-1"}}
		}, tenant, "spec.placement", "must name only"},
		"no alert":             {func(r *v1alpha1.AlertRule) { r.Spec.Alert = "" }, spec, "spec.alert", "a name is required"},
		"a long alert":         {func(r *v1alpha1.AlertRule) { r.Spec.Alert = ruletest.Long("ü", 254) }, spec, "spec.alert", "at most 253"},
		"placeholder in alert": {func(r *v1alpha1.AlertRule) { r.Spec.Alert = "Down_$(cluster.name)" }, spec, "spec.alert", "must not contain placeholders"},
		"bytes in alert":       {func(r *v1alpha1.AlertRule) { r.Spec.Alert = "a\xff" }, spec, "spec.alert", "UTF-8"},

		"no expression":                {query(""), expr, "spec.expr", "an expression is required"},
		"a long expression":            {query("up" + ruletest.Long(" ", 16384)), expr, "spec.expr", "longer than 16384"},
		"no PromQL":                    {query("up == 1 and\n\tsum(up"), expr, "spec.expr", "2:8: unclosed left parenthesis\n\tsum(up\n\t      ^"},
		"where it ends":                {query("up =="), expr, "spec.expr", "1:6: unexpected end of input\nup ==\n     ^"},
		"position after a placeholder": {query(`up{a="$(cluster.name)", b="c"} oops`), expr, "spec.expr", `1:32: unexpected identifier "oops"`},
		"an unknown function":          {query("nope(up)"), expr, "spec.expr", `1:1: unknown function with name "nope"`},
		"an experimental function":     {query("sort_by_label(up)"), expr, "spec.expr", "1:1: "},
		"a string":                     {query(`"text"`), expr, "spec.expr", "the expression returns a string"},
		"a range":                      {query(`up[5m]`), expr, "spec.expr", "the expression returns a range vector"},
		"a broken regex":               {query(`up{a=~"("}`), expr, "spec.expr", "error parsing regexp"},
		"unknown in expression":        {query(`up{a="$(x)"}`), expr, "spec.expr", "1:7: unknown placeholder $(x)"},
		"outside of a string":          {query("up > $(cluster.name)"), expr, "spec.expr", "1:6: a placeholder is only allowed in a string literal"},
		"deployment in expression":     {query(`up{a="$(deployment.name)"}`), expr, "spec.expr", "is only available in an AlertRuleTemplate"},

		"for":      {func(r *v1alpha1.AlertRule) { r.Spec.For = "5 minutes" }, spec, "spec.for", "not a Prometheus duration"},
		"long for": {func(r *v1alpha1.AlertRule) { r.Spec.For = "999999999999y" }, spec, "spec.for", "out of range"},
		"severity": {func(r *v1alpha1.AlertRule) { r.Spec.Severity = "{{x}}" }, spec, "spec.severity", "invalid severity; use letters and digits"},
		"severity twice": {func(r *v1alpha1.AlertRule) {
			r.Spec.Severity, r.Spec.Labels = "critical", ruletest.Texts{"severity": "warning"}
		},
			spec, "spec.severity", "set either severity or labels.severity"},

		"label's name":          {label("a-b", "x"), spec, "spec.labels[a-b]", "invalid name; use letters"},
		"label's name, empty":   {label("", "x"), spec, "spec.labels[]", "invalid name; use letters"},
		"label's name, UTF-8":   {label("ü", "x"), spec, "spec.labels[ü]", "invalid name; use letters"},
		"reserved label":        {label("__name__", "x"), spec, "spec.labels[__name__]", "reserved for Prometheus"},
		"alertname":             {label("alertname", "x"), spec, "spec.labels[alertname]", "set spec.alert instead"},
		"label's template":      {label("a", "{{ nope }}"), spec, "spec.labels[a]", `line 1: function "nope" not defined`},
		"label's placeholder":   {label("a", "$(nope)"), spec, "spec.labels[a]", "unknown placeholder $(nope)"},
		"a long label":          {label("a", ruletest.Long("ü", 8193)), spec, "spec.labels[a]", "longer than 8192"},
		"bytes in a label":      {label("a", "\xff"), spec, "spec.labels[a]", "UTF-8"},
		"annotation's name":     {note("1a", "x"), spec, "spec.annotations[1a]", "invalid name; use letters"},
		"annotation's template": {note("a", "ok\n{{ if }}"), spec, "spec.annotations[a]", "line 2: missing value for if"},
		"unclosed template":     {note("a", "{{ $value"), spec, "spec.annotations[a]", "unclosed action"},
		"definition":            {note("a", `{{ define "x" }}{{ query "up" }}{{ end }}`), spec, "spec.annotations[a]", "define, template and block cannot be used"},
		"endless loop":          {note("a", "{{ range 1000000000 }}{{ end }}"), spec, "spec.annotations[a]", "range can only be used"},
		"unknown variable":      {note("a", "{{ $valeu }}"), spec, "spec.annotations[a]", "undefined variable"},
		"deployment":            {note("a", "$(deployment.name)"), spec, "spec.annotations[a]", "is only available in an AlertRuleTemplate"},
		"inside an action":      {note("a", "{{ $(cluster.name) }}"), spec, "spec.annotations[a]", "is inside {{ … }}"},
		"unclosed placeholder":  {note("a", "see $(cluster.name"), spec, "spec.annotations[a]", "not closed"},
		"too many labels": {func(r *v1alpha1.AlertRule) {
			r.Spec.Labels = ruletest.Texts{}
			for i := range 65 {
				r.Spec.Labels[fmt.Sprintf("l%d", i)] = "x"
			}
		}, spec, "spec.labels", "65 entries; at most 64 are allowed"},

		"no placement": {func(r *v1alpha1.AlertRule) { r.Spec.Placement = v1alpha1.ClusterSelection{} }, spec, "spec.placement", "selects every cluster"},
		"a name": {func(r *v1alpha1.AlertRule) { r.Spec.Placement.Names = []v1alpha1.ClusterName{"eu-1", "EU"} },
			spec, "spec.placement.names[1]", `"EU" is not a valid cluster name`},
		"selector": {func(r *v1alpha1.AlertRule) { r.Spec.Placement.Selector = ruletest.BadSelector }, spec, "spec.placement.selector", "not a valid label selector operator"},

		"another namespace": {func(r *v1alpha1.AlertRule) { r.Spec.RuleNamespace = "kube-system" },
			tenant, "spec.ruleNamespace", "can only write to namespace shop of the spokes, not to kube-system; remove spec.ruleNamespace, or ask an administrator of the hub to create it in namespace"},
		"another's workload": {func(r *v1alpha1.AlertRule) {
			r.Spec.WorkloadRef = &v1alpha1.WorkloadReference{Cluster: "eu-1", Kind: v1alpha1.DeploymentKind, Namespace: "other", Name: "web"}
		},
			tenant, "spec.workloadRef.namespace", "not to other"},
		"the admin's namespace in a spoke": {func(r *v1alpha1.AlertRule) { r.Spec.RuleNamespace = "rulefleet-system" }, tenant, "spec.ruleNamespace", ""},
	} {
		t.Run(name, func(t *testing.T) {
			bad := Rule(ruletest.Rule(c.edit), tenancy)
			switch {
			case bad == nil:
				t.Errorf("%s: it is accepted", name)
			case bad.Reason != c.reason || bad.Field != c.field || !strings.Contains(bad.Message, c.expect):
				t.Errorf("%s: got %s, %v\nwant %s, %s: %s", name, bad.Reason, bad, c.reason, c.field, c.expect)
			}
		})
	}
	// With nothing configured, nobody is an admin by an empty name.
	r := ruletest.Rule(func(r *v1alpha1.AlertRule) { r.Namespace, r.Spec.RuleNamespace = "", "kube-system" })
	if bad := Rule(r, Options{}); bad == nil || bad.Reason != tenant {
		t.Errorf("without namespaces: %v", bad)
	}
}

func TestValidateTemplate(t *testing.T) {
	full := ruletest.Template(func(t *v1alpha1.AlertRuleTemplate) {
		t.Spec.Expr = `up{d=~"$(deployment.name)-.*", n='$(deployment.namespace)', t="$(deployment.labels.team)", c="$(cluster.name)"}`
		t.Spec.Annotations = ruletest.Texts{"summary": "$(deployment.annotations.example.com/Link) of {{ $labels.pod }}"}
		t.Spec.Placement = &v1alpha1.ClusterSelection{Selector: &metav1.LabelSelector{}}
		t.Spec.Namespaces = &v1alpha1.NamespaceSelection{Selector: ruletest.ProdSelector}
		t.Spec.Workloads = &v1alpha1.WorkloadSelection{Selector: ruletest.ProdSelector}
	})
	if bad := Template(full, tenancy); bad != nil {
		t.Error(bad)
	}
	for name, c := range map[string]struct {
		edit          func(*v1alpha1.AlertRuleTemplate)
		field, expect string
	}{
		"name":        {func(t *v1alpha1.AlertRuleTemplate) { t.Name = ruletest.Long("t", 64) }, "metadata.name", "at most 63"},
		"expression":  {func(t *v1alpha1.AlertRuleTemplate) { t.Spec.Expr = "up{" }, "spec.expr", "1:4: unexpected end of input inside braces"},
		"placeholder": {func(t *v1alpha1.AlertRuleTemplate) { t.Spec.Expr = `up{a="$(pod.name)"}` }, "spec.expr", "unknown placeholder $(pod.name)"},
		"clusters":    {func(t *v1alpha1.AlertRuleTemplate) { t.Spec.Placement = &v1alpha1.ClusterSelection{} }, "spec.placement", "selects every cluster"},
		"namespaces": {func(t *v1alpha1.AlertRuleTemplate) {
			t.Spec.Namespaces = &v1alpha1.NamespaceSelection{Selector: ruletest.BadSelector}
		},
			"spec.namespaces.selector", "not valid"},
		"workloads": {func(t *v1alpha1.AlertRuleTemplate) {
			t.Spec.Workloads = &v1alpha1.WorkloadSelection{Selector: ruletest.BadSelector}
		}, "spec.workloads.selector", "not valid"},
		"labels, with those that are added": {func(t *v1alpha1.AlertRuleTemplate) {
			t.Spec.Labels = ruletest.Texts{}
			for i := range 63 {
				t.Spec.Labels[fmt.Sprintf("l%d", i)] = "x"
			}
		}, "spec.labels", "63 entries; at most 62 are allowed"},
	} {
		t.Run(name, func(t *testing.T) {
			if bad := Template(ruletest.Template(c.edit), tenancy); bad == nil || bad.Field != c.field || !strings.Contains(bad.Message, c.expect) {
				t.Errorf("%s: got %v; want %s: %s", name, bad, c.field, c.expect)
			}
		})
	}
}
