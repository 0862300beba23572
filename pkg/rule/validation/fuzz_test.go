package validation

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/delivery"
	"github.com/rulefleet/rulefleet/pkg/rule/internal/ruletest"
	"github.com/rulefleet/rulefleet/pkg/rule/promql"
)

// FuzzValidate writes into every field of a rule. Whatever it is, the answer comes
// soon and is short; and what is accepted is what Prometheus accepts.
func FuzzValidate(f *testing.F) {
	f.Add("A", "up", "5m", "x", "{{ $value }}", "warning", "eu-1", "a", uint8(0))
	f.Add("A", `sum by (a) (up{c=~"$(cluster.name).*"}) > 1_0`, "0", "$(cluster.labels.a)", "{{ $labels.b }}", "", "EU", "__a", uint8(1))
	f.Add("", `{"a.b"} @ 1 offset -5m`, "1y2w", "{{ range 1000000000 }}{{ end }}", "{{ now }}", "-", "", "severity", uint8(2))
	f.Add("$(", ruletest.Long("-", 900)+"a", "999999999999y", "{{", "}}", "{{", "a.b", "alertname", uint8(3))
	f.Add("A", `up{a=~"`+ruletest.Long(".{999}", 9)+`"}`, "1m1", "$$(x)", "{{ query \"sum(\" }}", "info", "a", "cluster", uint8(255))
	for _, expr := range []string{`label_replace(up, "a", "$(cluster.name)", "b", "(.*)")`, "sort_by_label(up)", "up[5m] smoothed", "up >/ 1", "1", `"x"`, "up # $("} {
		f.Add("A", expr, "", "x", "y", "", "a", "b", uint8(4))
	}
	f.Fuzz(func(t *testing.T, alert, expr, duration, label, note, severity, cluster, key string, bits uint8) {
		if max(len(expr), len(label), len(note)) > 4096 {
			t.Skip() // the same, and slower to try
		}
		r := fuzzRule(alert, expr, duration, label, note, severity, cluster, key, bits)
		o := tenancy
		o.ClusterLabel = "cluster"
		switch bits % 3 {
		case 1:
			o.Evaluator = &rule.Evaluator{Version: "2.41"}
		case 2:
			o.Evaluator = &rule.Evaluator{Version: "3.14", Features: []string{"promql-experimental-functions", "promql-binop-fill-modifiers", "promql-extended-range-selectors"}}
		}
		defer ruletest.Watch()()
		start := ruletest.CPUTime(t)
		bad := Rule(r, o)
		warnings := Warnings(r, o)
		if took := ruletest.CPUTime(t) - start; took > ruletest.FuzzLimit {
			t.Errorf("it takes %v", took)
		}
		checkWarnings(t, warnings, r, o)
		if bad != nil {
			if len(bad.Message) > rule.MaxMessage || !utf8.ValidString(bad.Error()) || bad.Field == "" || bad.Reason == "" {
				t.Errorf("%s %s: %d bytes: %q", bad.Reason, bad.Field, len(bad.Message), bad.Message)
			}
			return
		}
		p, err := delivery.Render(r, rule.Cluster{Name: "eu-1", Labels: map[string]string{"a": "b{{"}}, options)
		if err != nil {
			if !strings.Contains(err.Error(), "has no label") {
				t.Errorf("what is valid can't be rendered: %v", err)
			}
			return
		}
		rendered := p.Spec.Groups[0].Rules[0]
		if _, err := promql.Any.ParseExpr(rendered.Expr.StrVal); err != nil {
			t.Errorf("%s: %v", rendered.Expr.StrVal, err)
		}
		for _, m := range []map[string]string{rendered.Labels, rendered.Annotations} {
			for key, text := range m {
				if err := ruletest.Expander(t, text).ParseTest(); err != nil {
					t.Errorf("%s: %q: %v", key, text, err)
				}
			}
		}
	})
}

func fuzzRule(alert, expr, duration, label, note, severity, cluster, key string, bits uint8) *v1alpha1.AlertRule {
	return ruletest.Rule(func(r *v1alpha1.AlertRule) {
		r.Spec.AlertSpec = v1alpha1.AlertSpec{
			Alert: alert, Expr: expr, For: v1alpha1.Duration(duration), Severity: v1alpha1.Severity(severity),
			Labels: ruletest.Texts{key: v1alpha1.LabelText(label)}, Annotations: ruletest.Texts{key: v1alpha1.LabelText(note)},
		}
		if bits&4 != 0 {
			r.Spec.KeepFiringFor, r.Spec.Interval = v1alpha1.Duration(duration), v1alpha1.Duration(duration)
		}
		if bits&8 != 0 {
			r.Spec.Placement = ruletest.Clusters(v1alpha1.ClusterName(cluster))
		}
		if bits&16 != 0 {
			r.Spec.Expr = "sum(up)"
			r.Spec.Overrides = []v1alpha1.Override{
				{ClusterSelection: ruletest.EveryCluster(), Labels: ruletest.Texts{key: ""}, State: v1alpha1.State(label)},
				{ClusterSelection: ruletest.Clusters(v1alpha1.ClusterName(cluster)), Expr: expr, Annotations: ruletest.Texts{key: v1alpha1.LabelText(note)}},
			}
			if bits&32 != 0 {
				r.Spec.Overrides[0].State = ""
			}
		}
		if bits&64 != 0 {
			r.Spec.RuleNamespace = v1alpha1.NamespaceName(cluster)
		}
	})
}

func checkWarnings(t *testing.T, warnings []string, r *v1alpha1.AlertRule, o Options) {
	t.Helper()
	if len(warnings) > maxWarnings || !slices.IsSorted(warnings) || !slices.Equal(warnings, Warnings(r, o)) {
		t.Errorf("%d warnings: %q", len(warnings), warnings)
	}
	for _, w := range warnings {
		if len(w) > maxWarning || !utf8.ValidString(w) || !strings.HasPrefix(w, "spec.") {
			t.Errorf("%d bytes: %q", len(w), w)
		}
	}
}
