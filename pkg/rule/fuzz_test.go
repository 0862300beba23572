package rule

import (
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// fuzzLimit is how long one input may keep the processor, with the race detector on a
// slow machine. Without it, it is hundredths of that.
const fuzzLimit = 2 * time.Second

// watch ends the process when an input takes for ever, until it is called off: the
// fuzzer alone would wait, and call it a pass.
func watch() (off func() bool) {
	return time.AfterFunc(15*fuzzLimit, func() { panic("this input takes for ever") }).Stop
}

// FuzzValidate writes into every field of a rule. Whatever it is, the answer comes
// soon and is short; and what is accepted is what Prometheus accepts.
func FuzzValidate(f *testing.F) {
	f.Add("A", "up", "5m", "x", "{{ $value }}", "warning", "eu-1", "a", uint8(0))
	f.Add("A", `sum by (a) (up{c=~"$(cluster.name).*"}) > 1_0`, "0", "$(cluster.labels.a)", "{{ $labels.b }}", "", "EU", "__a", uint8(1))
	f.Add("", `{"a.b"} @ 1 offset -5m`, "1y2w", "{{ range 1000000000 }}{{ end }}", "{{ now }}", "-", "", "severity", uint8(2))
	f.Add("$(", long("-", 900)+"a", "999999999999y", "{{", "}}", "{{", "a.b", "alertname", uint8(3))
	f.Add("A", `up{a=~"`+long(".{999}", 9)+`"}`, "1m1", "$$(x)", "{{ query \"sum(\" }}", "info", "a", "cluster", uint8(255))
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
			o.Evaluator = &Evaluator{Version: "2.41"}
		case 2:
			o.Evaluator = &Evaluator{Version: "3.14", Features: []string{"promql-experimental-functions", "promql-binop-fill-modifiers", "promql-extended-range-selectors"}}
		}
		defer watch()()
		start := cpuTime(t)
		bad := Validate(r, o)
		warnings := Warnings(r, o)
		if took := cpuTime(t) - start; took > fuzzLimit {
			t.Errorf("it takes %v", took)
		}
		checkWarnings(t, warnings, r, o)
		if bad != nil {
			if len(bad.Message) > maxMessage || !utf8.ValidString(bad.Error()) || bad.Field == "" || bad.Reason == "" {
				t.Errorf("%s %s: %d bytes: %q", bad.Reason, bad.Field, len(bad.Message), bad.Message)
			}
			return
		}
		p, err := Render(r, Cluster{Name: "eu-1", Labels: map[string]string{"a": "b{{"}}, options)
		if err != nil {
			if !strings.Contains(err.Error(), "has no label") {
				t.Errorf("what is valid can't be rendered: %v", err)
			}
			return
		}
		rendered := p.Spec.Groups[0].Rules[0]
		if _, err := anyPromQL.ParseExpr(rendered.Expr.StrVal); err != nil {
			t.Errorf("%s: %v", rendered.Expr.StrVal, err)
		}
		for _, m := range []map[string]string{rendered.Labels, rendered.Annotations} {
			for key, text := range m {
				if err := expander(t, text).ParseTest(); err != nil {
					t.Errorf("%s: %q: %v", key, text, err)
				}
			}
		}
	})
}

func fuzzRule(alert, expr, duration, label, note, severity, cluster, key string, bits uint8) *v1alpha1.AlertRule {
	return newRule(func(r *v1alpha1.AlertRule) {
		r.Spec.AlertSpec = v1alpha1.AlertSpec{
			Alert: alert, Expr: expr, For: v1alpha1.Duration(duration), Severity: v1alpha1.Severity(severity),
			Labels: texts{key: v1alpha1.LabelText(label)}, Annotations: texts{key: v1alpha1.LabelText(note)},
		}
		if bits&4 != 0 {
			r.Spec.KeepFiringFor, r.Spec.Interval = v1alpha1.Duration(duration), v1alpha1.Duration(duration)
		}
		if bits&8 != 0 {
			r.Spec.Placement = clusters(v1alpha1.ClusterName(cluster))
		}
		if bits&16 != 0 {
			r.Spec.Expr = "sum(up)"
			r.Spec.Overrides = []v1alpha1.Override{
				{ClusterSelection: everyCluster(), Labels: texts{key: ""}, State: v1alpha1.State(label)},
				{ClusterSelection: clusters(v1alpha1.ClusterName(cluster)), Expr: expr, Annotations: texts{key: v1alpha1.LabelText(note)}},
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

func checkWarnings(t *testing.T, warnings []string, r *v1alpha1.AlertRule, o ValidateOptions) {
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

// FuzzGoTemplate: a text renders the same with instruments, and whatever it is, it is
// checked soon.
func FuzzGoTemplate(f *testing.F) {
	if !raceDetector { // with it, they are slow, and TestGoTemplatesAreBounded has them
		for _, text := range monsters() {
			f.Add(text)
		}
	}
	for _, text := range []string{
		"{{ $value }}", "{{- /* c */ -}} {", `{{ define "x" }}{{ . }}{{ end }}{{ template "x" 1 }}`, "{{ range $i, $v := query `up` }}{{ else }}{{ end }}",
		"{{ with $x := 1 }}{{ $x = 2 }}{{ end }}", "{{ (index $labels `a`).b }}", "{{ and 1 nil | or 2 }}", "{{ .Labels.a.b | printf `%s` }}", "{{ $ }}",
		"{{ block `b` $ }}{{ break }}{{ end }}", "{{ not }}", "{{ (args nil).arg0 }}", "{{ print (args nil).arg0 nil }}", "{{ (toTime 1).UTC.Location }}", "{{ $value.Foo }}",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > maxText {
			t.Skip()
		}
		defer watch()()
		start := cpuTime(t)
		err := checkGoTemplate(text, newBudget())
		if took := cpuTime(t) - start; took > fuzzLimit {
			t.Errorf("it takes %v", took)
		}
		if err != nil {
			if len(err.Error()) > maxMessage || !strings.Contains(text, "_") && strings.Contains(err.Error(), stepFunc) {
				t.Errorf("%d bytes: %v", len(err.Error()), err)
			}
			return
		}
		compareInstrumented(t, text)
	})
}

// FuzzParsing: whatever is written in a spoke as PromQL, what is done with it takes no longer than it should.
func FuzzParsing(f *testing.F) {
	for _, text := range []string{
		"up == 0", "sum by (a) (rate(b[5m])) / c", long("(", 9000), long("-", 3000) + "1", "a" + long("+b", 3000), "a" + long(" or b", 2000),
		`a{b=~"(?i)` + long(`[B-\\x{1e900}]`, 900) + `"}`, `a{b=~"` + long(".{999}", 900) + `"}`, `label_replace(a, "b", "$1", "c", "` + long("[^d]", 900) + `")`,
		"a" + long("[1m:]", 900), "a" + long(" @ 1", 900), "a" + long(" offset -1m", 900), long("\xff", 900), `{"` + long(`\x00`, 900) + `"}`, "a # " + long("b", 900), "{{",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 2*maxExpr {
			t.Skip() // the same, and slower to try
		}
		defer watch()()
		start := cpuTime(t)
		cost := ParsingCost(text)
		selectors := slices.Concat(SelectorNeeds(text)...)
		for _, need := range SelectorNeeds(text) {
			if len(need) > maxNeeds {
				t.Errorf("one of %d selectors is needed", len(need))
			}
		}
		for _, s := range selectors[:min(len(selectors), 10)] {
			_ = MetricName(s)
		}
		_ = canonical(text)
		if took := cpuTime(t) - start; took > fuzzLimit {
			t.Errorf("it takes %v, and costs %d", took, cost)
		}
	})
}
