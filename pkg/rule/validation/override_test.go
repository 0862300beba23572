package validation

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule/internal/ruletest"
)

// withOverride adds an override for eu-1, after one that is well.
func withOverride(edit func(*v1alpha1.Override)) func(*v1alpha1.AlertRule) {
	return func(r *v1alpha1.AlertRule) {
		o := v1alpha1.Override{ClusterSelection: ruletest.Clusters("eu-1")}
		edit(&o)
		r.Spec.Overrides = append(r.Spec.Overrides, v1alpha1.Override{ClusterSelection: ruletest.Clusters("us-1"), For: "1m"}, o)
	}
}

func manyTexts(n int) ruletest.Texts {
	out := ruletest.Texts{}
	for i := range n {
		out[fmt.Sprintf("l%d", i)] = "x"
	}
	return out
}

func TestValidateOverrides(t *testing.T) {
	const spec, expr = v1alpha1.ReasonInvalidSpec, v1alpha1.ReasonInvalidExpr
	for name, c := range map[string]struct {
		edit                  func(*v1alpha1.Override)
		reason, field, expect string
	}{
		"all of it": {func(o *v1alpha1.Override) {
			o.ClusterSelection = ruletest.EveryCluster()
			o.State, o.Expr, o.For, o.Severity = v1alpha1.Disabled, `up{c="$(cluster.name)"} == 0`, "0s", "info"
			o.KeepFiringFor, o.Interval = "0s", "1m"
			o.Labels, o.Annotations = ruletest.Texts{"team": "", "b": "$(cluster.labels.b)"}, ruletest.Texts{"summary": "{{ $labels.job }} $(cluster.name)"}
		}, "", "", ""},
		"nobody":          {func(o *v1alpha1.Override) { o.ClusterSelection, o.For = v1alpha1.ClusterSelection{}, "1m" }, spec, "spec.overrides[1]", "list names, or set a label selector"},
		"nothing":         {func(*v1alpha1.Override) {}, spec, "spec.overrides[1]", "must change something"},
		"name":            {func(o *v1alpha1.Override) { o.Names[0], o.For = "EU", "1m" }, spec, "spec.overrides[1].names[0]", "not a valid cluster name"},
		"selector":        {func(o *v1alpha1.Override) { o.Selector, o.For = ruletest.BadSelector, "1m" }, spec, "spec.overrides[1].selector", "not valid"},
		"state":           {func(o *v1alpha1.Override) { o.State = "Off" }, spec, "spec.overrides[1].state", `"Off" is not valid; use Enabled or Disabled`},
		"expr":            {func(o *v1alpha1.Override) { o.Expr = "up ==" }, expr, "spec.overrides[1].expr", "1:6: unexpected end of input\nup ==\n     ^"},
		"expr, long":      {func(o *v1alpha1.Override) { o.Expr = "up" + ruletest.Long(" ", 16384) }, expr, "spec.overrides[1].expr", "longer than 16384"},
		"expr's value":    {func(o *v1alpha1.Override) { o.Expr = `up{a="$(deployment.name)"}` }, expr, "spec.overrides[1].expr", "is only available in an AlertRuleTemplate"},
		"excludes nobody": {func(o *v1alpha1.Override) { o.Exclude, o.For = &v1alpha1.ClusterExclusion{}, "1m" }, spec, "spec.overrides[1].exclude", "no cluster is excluded"},
		"excluded name": {func(o *v1alpha1.Override) {
			o.Exclude, o.For = &v1alpha1.ClusterExclusion{Names: []v1alpha1.ClusterName{"eu-2", "EU"}}, "1m"
		}, spec, "spec.overrides[1].exclude.names[1]", "not a valid cluster name"},
		"excluded labels": {func(o *v1alpha1.Override) {
			o.Exclude, o.For = &v1alpha1.ClusterExclusion{Selector: ruletest.BadSelector}, "1m"
		}, spec, "spec.overrides[1].exclude.selector", "not valid"},
		"keepFiringFor":    {func(o *v1alpha1.Override) { o.KeepFiringFor = "5" }, spec, "spec.overrides[1].keepFiringFor", "not a Prometheus duration"},
		"interval":         {func(o *v1alpha1.Override) { o.Interval = "0s" }, spec, "spec.overrides[1].interval", "must not be zero"},
		"for":              {func(o *v1alpha1.Override) { o.For = "5 minutes" }, spec, "spec.overrides[1].for", "not a Prometheus duration"},
		"severity":         {func(o *v1alpha1.Override) { o.Severity = "-" }, spec, "spec.overrides[1].severity", "invalid severity; use letters and digits"},
		"severity twice":   {func(o *v1alpha1.Override) { o.Severity, o.Labels = "info", ruletest.Texts{"severity": "x"} }, spec, "spec.overrides[1].severity", "set either severity or labels.severity"},
		"severity's label": {func(o *v1alpha1.Override) { o.Labels = ruletest.Texts{"severity": "x"} }, "", "", ""},
		"label's name":     {func(o *v1alpha1.Override) { o.Labels = ruletest.Texts{"a-b": "x"} }, spec, "spec.overrides[1].labels[a-b]", "invalid name; use letters"},
		"reserved":         {func(o *v1alpha1.Override) { o.Labels = ruletest.Texts{"__name__": "x"} }, spec, "spec.overrides[1].labels[__name__]", "reserved for Prometheus"},
		"alertname":        {func(o *v1alpha1.Override) { o.Labels = ruletest.Texts{"alertname": ""} }, spec, "spec.overrides[1].labels[alertname]", "set spec.alert"},
		"label's template": {func(o *v1alpha1.Override) { o.Labels = ruletest.Texts{"team": "{{ nope }}"} }, spec, "spec.overrides[1].labels[team]", `function "nope" not defined`},
		"annotation":       {func(o *v1alpha1.Override) { o.Annotations = ruletest.Texts{"a": "{{ .Nope }}"} }, spec, "spec.overrides[1].annotations[a]", "can't evaluate field Nope"},
		"placeholder":      {func(o *v1alpha1.Override) { o.Annotations = ruletest.Texts{"a": "$(nope)"} }, spec, "spec.overrides[1].annotations[a]", "unknown placeholder"},
		"too many labels":  {func(o *v1alpha1.Override) { o.Labels = manyTexts(64) }, spec, "spec.overrides[1].labels", "has 65 entries together with the alert's own"},
		"many labels":      {func(o *v1alpha1.Override) { o.Labels = manyTexts(64); o.Labels["base"] = ""; delete(o.Labels, "l1") }, "", "", ""},
		"too many notes":   {func(o *v1alpha1.Override) { o.Annotations = manyTexts(64) }, spec, "spec.overrides[1].annotations", "has 65 entries together with the alert's own"},
	} {
		t.Run(name, func(t *testing.T) {
			bad := Rule(ruletest.Rule(func(r *v1alpha1.AlertRule) {
				r.Spec.Severity, r.Spec.Labels, r.Spec.Annotations = "critical", ruletest.Texts{"base": "x"}, ruletest.Texts{"base": "x"}
				withOverride(c.edit)(r)
			}), tenancy)
			switch {
			case c.reason == "" && bad == nil:
			case bad == nil:
				t.Errorf("%s: it is accepted", name)
			case bad.Reason != c.reason || bad.Field != c.field || !strings.Contains(bad.Message, c.expect):
				t.Errorf("%s: got %s, %v\nwant %s, %s: %s", name, bad.Reason, bad, c.reason, c.field, c.expect)
			}
		})
	}
	many := ruletest.Rule(func(r *v1alpha1.AlertRule) {
		for range 65 {
			r.Spec.Overrides = append(r.Spec.Overrides, v1alpha1.Override{ClusterSelection: ruletest.Clusters("a"), For: "1m"})
		}
	})
	if bad := Rule(many, tenancy); bad == nil || bad.Field != "spec.overrides" {
		t.Errorf("65 overrides: %v", bad)
	}
}

func TestValidateBounds(t *testing.T) {
	for name, c := range map[string]struct {
		edit          func(*v1alpha1.AlertRule)
		field, expect string
	}{
		"keepFiringFor":       {func(r *v1alpha1.AlertRule) { r.Spec.KeepFiringFor = "5" }, "spec.keepFiringFor", "not a Prometheus duration"},
		"keepFiringFor, huge": {func(r *v1alpha1.AlertRule) { r.Spec.KeepFiringFor = "300y" }, "spec.keepFiringFor", "up to 292y"},
		"keepFiringFor, well": {func(r *v1alpha1.AlertRule) { r.Spec.KeepFiringFor = "0" }, "", ""},
		"for, long":           {func(r *v1alpha1.AlertRule) { r.Spec.For = v1alpha1.Duration(ruletest.Long("1", 33) + "s") }, "spec.for", "longer than 32"},
		"interval":            {func(r *v1alpha1.AlertRule) { r.Spec.Interval = "1h1" }, "spec.interval", "not a Prometheus duration"},
		"interval, zero":      {func(r *v1alpha1.AlertRule) { r.Spec.Interval = "0s" }, "spec.interval", "must not be zero"},
		"interval, none":      {func(r *v1alpha1.AlertRule) { r.Spec.Interval = "0" }, "spec.interval", "must not be zero"},
		"interval, well":      {func(r *v1alpha1.AlertRule) { r.Spec.Interval = "1ms" }, "", ""},
		"interval, negative":  {func(r *v1alpha1.AlertRule) { r.Spec.Interval = "-1m" }, "spec.interval", "not a Prometheus duration"},
		"state":               {func(r *v1alpha1.AlertRule) { r.Spec.State = "enabled" }, "spec.state", "is not valid; use Enabled or Disabled"},
		"names twice":         {func(r *v1alpha1.AlertRule) { r.Spec.Placement = ruletest.Clusters("a", "b", "a") }, "spec.placement.names[2]", "duplicate value"},
		"names": {func(r *v1alpha1.AlertRule) {
			r.Spec.Placement = ruletest.Clusters(make([]v1alpha1.ClusterName, 1001)...)
		},
			"spec.placement.names", "at most 1000 are allowed"},
		"ruleNamespace": {func(r *v1alpha1.AlertRule) { r.Spec.RuleNamespace = "a.b" }, "spec.ruleNamespace", "not a valid namespace name"},
		"workload's cluster": {func(r *v1alpha1.AlertRule) { r.Spec.WorkloadRef = &v1alpha1.WorkloadReference{} },
			"spec.workloadRef.cluster", "not a valid cluster name"},
		"workload's kind": {func(r *v1alpha1.AlertRule) {
			ruletest.GeneratedRule(r)
			r.Spec.WorkloadRef.Kind = "Pod"
		}, "spec.workloadRef.kind", `unsupported kind "Pod"; use Deployment`},
		"workload's namespace": {func(r *v1alpha1.AlertRule) {
			ruletest.GeneratedRule(r)
			r.Spec.WorkloadRef.Namespace = "A"
		}, "spec.workloadRef.namespace", "not a valid namespace name"},
		"workload's name": {func(r *v1alpha1.AlertRule) {
			ruletest.GeneratedRule(r)
			r.Spec.WorkloadRef.Name = ""
		}, "spec.workloadRef.name", "1 to 253"},
		"label's long name": {func(r *v1alpha1.AlertRule) { r.Spec.Labels = ruletest.Texts{ruletest.Long("a", 1025): "x"} }, "spec.labels[" + ruletest.Long("a", 80) + "…]", "longer than 1024"},
		"size": {func(r *v1alpha1.AlertRule) {
			r.Spec.Annotations = ruletest.Texts{}
			for i := range 33 {
				r.Spec.Annotations[fmt.Sprintf("a%d", i)] = v1alpha1.LabelText(ruletest.Long("x", 8192))
			}
		}, "spec", "270439 bytes in total; at most 262144 are allowed"},
		"a costly expression": {func(r *v1alpha1.AlertRule) { r.Spec.Expr = `up{a=~"` + ruletest.Long(".{999}", 99) + `"}` }, "spec.expr", "regular expressions are too large"},
		"many parts":          {func(r *v1alpha1.AlertRule) { r.Spec.Expr = ruletest.Long("-", 16000) + "a" }, "spec.expr", "the expression has more than 7071 tokens"},
	} {
		t.Run(name, func(t *testing.T) {
			bad := Rule(ruletest.Rule(c.edit), tenancy)
			if c.field == "" && bad == nil {
				return
			}
			if bad == nil || bad.Field != c.field || !strings.Contains(bad.Message, c.expect) {
				t.Errorf("%s: got %v\nwant %s: %s", name, bad, c.field, c.expect)
			}
		})
	}
	for name, c := range map[string]struct {
		edit          func(*v1alpha1.AlertRuleTemplate)
		field, expect string
	}{
		"state":       {func(t *v1alpha1.AlertRuleTemplate) { t.Spec.State = "x" }, "spec.state", "is not valid; use Enabled or Disabled"},
		"allow":       {func(t *v1alpha1.AlertRuleTemplate) { t.Spec.Allow = []v1alpha1.Adjustment{"for", "expr"} }, "spec.allow[1]", `unknown value "expr"`},
		"allow twice": {func(t *v1alpha1.AlertRuleTemplate) { t.Spec.Allow = []v1alpha1.Adjustment{"for", "for"} }, "spec.allow[1]", "duplicate value"},
		"namespaces": {func(t *v1alpha1.AlertRuleTemplate) {
			t.Spec.Namespaces = &v1alpha1.NamespaceSelection{Names: []v1alpha1.NamespaceName{"a", "B"}}
		},
			"spec.namespaces.names[1]", "not a valid namespace name"},
		"exclude": {func(t *v1alpha1.AlertRuleTemplate) {
			t.Spec.Namespaces = &v1alpha1.NamespaceSelection{Exclude: []v1alpha1.NamespaceName{"a", "a"}}
		},
			"spec.namespaces.exclude[1]", "duplicate value"},
	} {
		t.Run(name, func(t *testing.T) {
			if bad := Template(ruletest.Template(c.edit), tenancy); bad == nil || bad.Field != c.field || !strings.Contains(bad.Message, c.expect) {
				t.Errorf("%s: got %v\nwant %s: %s", name, bad, c.field, c.expect)
			}
		})
	}
}
