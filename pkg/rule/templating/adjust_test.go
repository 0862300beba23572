package templating

import (
	"reflect"
	"strings"
	"testing"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/internal/ruletest"
	"github.com/rulefleet/rulefleet/pkg/rule/validation"
)

func annotated(annotations ...string) Workload {
	return newWorkload(func(w *Workload) {
		w.Templates, w.Annotations = []string{"down", "stuck"}, map[string]string{}
		for i := 0; i < len(annotations); i += 2 {
			w.Annotations[annotations[i]] = annotations[i+1]
		}
	})
}

var allAdjustments = []v1alpha1.Adjustment{
	v1alpha1.AdjustAlerts, v1alpha1.AdjustDisable, v1alpha1.AdjustSeverity, v1alpha1.AdjustFor, v1alpha1.AdjustLabels,
}

func TestAdjust(t *testing.T) {
	const prefix = v1alpha1.AdjustmentPrefix
	type alert = *v1alpha1.AlertSpec
	template := ruletest.Template(func(t *v1alpha1.AlertRuleTemplate) {
		t.Spec.For, t.Spec.Severity, t.Spec.Labels, t.Spec.Allow = "5m", "warning", ruletest.Texts{"team": "platform"}, allAdjustments
	})
	for name, c := range map[string]struct {
		annotations []string
		want        func(a alert)
		ignored     []string // what the message says, in order; none for no message
	}{
		"others' annotations": {annotations: []string{"example.com/for", "x", "rulefleet", "y"}},
		"too long":            {annotations: []string{prefix + "disable", strings.Repeat("a,", 4097)}, ignored: []string{prefix + "disable: longer than 8192 bytes; shorten it"}},
		"severity":            {annotations: []string{prefix + "severity", "page"}, want: func(a alert) { a.Severity = "page" }},
		"for":                 {annotations: []string{prefix + "for", "1h30m"}, want: func(a alert) { a.For = "1h30m" }},
		"labels": {
			annotations: []string{prefix + "labels", " owner = shop , tier=1,,quote={{ $value }} $(cluster.name)"},
			want: func(a alert) {
				a.Labels["owner"], a.Labels["tier"] = "shop", "1"
				a.Labels["quote"] = `{{"{{ $value }} $$(cluster.name)"}}`
			},
		},
		"all alerts enabled": {annotations: []string{prefix + "alerts", "enabled"}},
		"another disabled":   {annotations: []string{prefix + "disable", "stuck"}},

		"a mistake costs itself alone": {
			annotations: []string{prefix + "for", "soon", prefix + "severity", "page", prefix + "labels", "tier=1,oops"},
			want:        func(a alert) { a.Severity, a.Labels["tier"] = "page", "1" },
			ignored:     []string{`rulefleet.io/for: "soon" is not a Prometheus duration`, `rulefleet.io/labels: "oops" is not a label; write it as name=value`},
		},
		"a severity that is none": {annotations: []string{prefix + "severity", "very high"}, ignored: []string{`"very high" is not a valid severity`}},
		"a for that is too long":  {annotations: []string{prefix + "for", strings.Repeat("0", 40) + "1m"}, ignored: []string{"is not a Prometheus duration"}},
		"alerts that are neither": {annotations: []string{prefix + "alerts", "off"}, ignored: []string{`"off" is not valid; use disabled or enabled`}},
		"a template that is none": {annotations: []string{prefix + "disable", "stuck,stcuk"}, ignored: []string{`template "stcuk" does not exist`}},
		"an unknown annotation":   {annotations: []string{prefix + "severty", "page"}, ignored: []string{"rulefleet.io/severty: unknown annotation"}},
		"labels that are reserved": {
			annotations: []string{prefix + "labels", "alertname=x,namespace=x,deployment=x,severity=x,__x=x,a-b=x,a="},
			ignored: []string{`"alertname" is reserved`, `"namespace" is reserved`, `"deployment" is reserved`,
				"set the severity with the annotation rulefleet.io/severity instead", `"__x" is reserved`, `invalid label name "a-b"`, `"a=" is not a label; write it as name=value`},
		},
		"a label of the template": {
			annotations: []string{prefix + "labels", "team=shop,tier=1"},
			want:        func(a alert) { a.Labels["tier"] = "1" },
			ignored:     []string{`rulefleet.io/labels: label "team" is set by template down; remove it from the annotation, or from the template`},
		},
		"a label that is too long": {annotations: []string{prefix + "labels", "a=" + ruletest.Long("x", 1025)}, ignored: []string{`"a" is longer than 1024 bytes`}},
		"too many labels": {
			annotations: []string{prefix + "labels", manyLabels(61)},
			want: func(a alert) {
				for pair := range strings.SplitSeq(manyLabels(60), ",") {
					a.Labels[strings.TrimSuffix(pair, "=x")] = "x"
				}
			},
			ignored: []string{`label "l60" is not added, because an alert has at most 64 labels`},
		},
		"too many mistakes": {annotations: []string{prefix + "labels", ruletest.Long("-=x,", 2000)}, ignored: []string{strings.Repeat(`rulefleet.io/labels: invalid label name "-"; use letters, digits and _, not beginning with a digit; `, 8), "…"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := annotated(c.annotations...)
			if ok, err := Matches(template, w); !ok || err != nil {
				t.Errorf("%s: matches: %v, %v", name, ok, err)
			}
			r, err := Rule(template, w, "generated")
			plain, _ := Rule(template, newWorkload(), "generated")
			if err != nil {
				t.Fatal(name, err)
			}
			if c.want != nil {
				c.want(&plain.Spec.AlertSpec)
			}
			if !reflect.DeepEqual(r.Spec, plain.Spec) {
				t.Errorf("%s: made %+v\nwant %+v", name, r.Spec, plain.Spec)
			}
			told := r.Annotations[v1alpha1.IgnoredAnnotation]
			rest := told
			for _, want := range c.ignored {
				_, after, found := strings.Cut(rest, want)
				if !found {
					t.Errorf("%s: %q is not told in %q", name, want, told)
				}
				rest = after
			}
			if (len(c.ignored) == 0) != (told == "") || len(told) > rule.MaxMessage {
				t.Errorf("%s: told %q", name, told)
			}
			if bad := validation.Rule(r, validation.Options{GeneratedNamespace: "generated"}); bad != nil {
				t.Errorf("%s: what was made is not valid: %v", name, bad)
			}
		})
	}
}

func manyLabels(n int) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString("l" + string(rune('0'+i/10)) + string(rune('0'+i%10)) + "=x")
	}
	return b.String()
}

// What is not valid with the Deployment's adjustments is made without them, and says so.
func TestUnadjusted(t *testing.T) {
	const prefix = v1alpha1.AdjustmentPrefix
	w := annotated(prefix+"for", "1m", prefix+"severity", "page", prefix+"labels", "a=b", prefix+"disable", "stuck,nowhere", "example.com/x", "y")
	template := ruletest.Template(func(t *v1alpha1.AlertRuleTemplate) { t.Spec.Allow = allAdjustments })
	r, err := Rule(template, w.Unadjusted(rule.NewInvalid("spec.labels", "too much")), "generated")
	if err != nil {
		t.Fatal(err)
	}
	plain, _ := Rule(template, newWorkload(), "generated")
	if !reflect.DeepEqual(r.Spec, plain.Spec) {
		t.Errorf("made %+v", r.Spec)
	}
	const not = "ignored, together with the other annotations that change the alert, because the AlertRule is not valid with them: spec.labels: too much"
	want := `rulefleet.io/disable: template "nowhere" does not exist; correct the name (on the hub: kubectl get alertruletemplates); rulefleet.io/for: ` + not + "; rulefleet.io/labels: " + not + "; rulefleet.io/severity: " + not
	if got := r.Annotations[v1alpha1.IgnoredAnnotation]; got != want {
		t.Errorf("told %q", got)
	}
	if ok, _ := Matches(ruletest.Template(func(t *v1alpha1.AlertRuleTemplate) { t.Name = "stuck" }), w.Unadjusted(nil)); ok {
		t.Error("it can't be turned off any more")
	}
}

// Values of braces fit into as many labels as an annotation may name.
func TestBracesFit(t *testing.T) {
	for name, value := range map[string]string{"open": ruletest.Long("{", 1024), "apart": ruletest.Long("{a", 512), "pairs": ruletest.Long("{{ ", 341), "both": ruletest.Long("{{}}", 256)} {
		t.Run(name, func(t *testing.T) {
			w := newWorkload(func(w *Workload) {
				w.Annotations = map[string]string{v1alpha1.AdjustmentPrefix + "labels": "a=" + value + ",b=" + value + ",c=" + value, "x": value}
			})
			template := ruletest.Template(func(t *v1alpha1.AlertRuleTemplate) {
				t.Spec.Annotations, t.Spec.Allow = ruletest.Texts{"x": "$(deployment.annotations.x)"}, allAdjustments
			})
			r, err := Rule(template, w, "generated")
			if err != nil {
				t.Fatal(name, err)
			}
			if bad := validation.Rule(r, validation.Options{GeneratedNamespace: "generated"}); bad != nil {
				t.Errorf("%s: %v", name, bad)
			}
			if got, err := ruletest.PrometheusText(t, string(r.Spec.Labels["a"])); err != nil || got != strings.TrimSpace(value) {
				t.Errorf("%s: it comes out as %q, %v", name, got, err)
			}
		})
	}
}

// An annotation turns a template off, where the template allows it.
func TestAdjustOff(t *testing.T) {
	const prefix = v1alpha1.AdjustmentPrefix
	for name, c := range map[string]struct {
		annotations []string
		allow       []v1alpha1.Adjustment
		off         bool
		ignored     string
	}{
		"all alerts":                {[]string{prefix + "alerts", "disabled"}, nil, true, ""},
		"this one":                  {[]string{prefix + "disable", "stuck, down"}, nil, true, ""},
		"another one":               {[]string{prefix + "disable", "stuck"}, nil, false, ""},
		"allowed":                   {[]string{prefix + "alerts", "disabled"}, []v1alpha1.Adjustment{v1alpha1.AdjustAlerts}, true, ""},
		"all alerts, not allowed":   {[]string{prefix + "alerts", "disabled"}, []v1alpha1.Adjustment{v1alpha1.AdjustDisable}, false, "rulefleet.io/alerts: template down does not allow it; remove the annotation, or extend spec.allow of the template"},
		"this one, not allowed":     {[]string{prefix + "disable", "down"}, []v1alpha1.Adjustment{}, false, "rulefleet.io/disable: template down does not allow it; remove the annotation, or extend spec.allow of the template"},
		"a severity, not allowed":   {[]string{prefix + "severity", "info"}, []v1alpha1.Adjustment{v1alpha1.AdjustFor}, false, "rulefleet.io/severity: template down does not allow it; remove the annotation, or extend spec.allow of the template"},
		"a severity, by default":    {[]string{prefix + "severity", "info"}, nil, false, "rulefleet.io/severity: template down does not allow it; remove the annotation, or extend spec.allow of the template"},
		"labels, by default":        {[]string{prefix + "labels", "a=b"}, nil, false, "rulefleet.io/labels: template down does not allow it; remove the annotation, or extend spec.allow of the template"},
		"for, by default":           {[]string{prefix + "for", "1m"}, nil, false, ""},
		"something else is allowed": {[]string{prefix + "for", "1m"}, []v1alpha1.Adjustment{v1alpha1.AdjustFor}, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			template := ruletest.Template(func(t *v1alpha1.AlertRuleTemplate) { t.Spec.Allow = c.allow })
			w := annotated(c.annotations...)
			if ok, err := Matches(template, w); ok == c.off || err != nil {
				t.Errorf("%s: matches: %v, %v", name, ok, err)
			}
			r, err := Rule(template, w, "generated")
			if err != nil || r.Annotations[v1alpha1.IgnoredAnnotation] != c.ignored || r.Spec.Severity != "" {
				t.Errorf("%s: made %+v, %v", name, r, err)
			}
		})
	}
	w := annotated(prefix+"disable", "nowhere")
	w.Templates = nil
	if r, err := Rule(ruletest.Template(), w, "generated"); err != nil || len(r.Annotations) > 0 {
		t.Errorf("without the names of the templates: %v, %v", r.Annotations, err)
	}
}
