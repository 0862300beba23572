package rule_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/clip"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/delivery"
	"github.com/rulefleet/rulefleet/pkg/rule/gotemplate"
	"github.com/rulefleet/rulefleet/pkg/rule/internal/ruletest"
	"github.com/rulefleet/rulefleet/pkg/rule/templating"
	"github.com/rulefleet/rulefleet/pkg/rule/validation"
)

// passText takes a text through both stages.
func passText(t *testing.T, text string, w templating.Workload) string {
	t.Helper()
	template := ruletest.Template(func(t *v1alpha1.AlertRuleTemplate) {
		t.Spec.Annotations = map[string]v1alpha1.LabelText{"text": v1alpha1.LabelText(text)}
	})
	r, err := templating.Rule(template, w, "generated")
	if err != nil {
		t.Fatalf("generating of %q: %v", text, err)
	}
	if bad := validation.Rule(r, validation.Options{GeneratedNamespace: "generated"}); bad != nil {
		t.Fatalf("validating of %q, from %q: %v", r.Spec.Annotations["text"], text, bad)
	}
	p, err := delivery.Render(r, w.Cluster, options)
	if err != nil {
		t.Fatalf("rendering of %q, from %q: %v", r.Spec.Annotations["text"], text, err)
	}
	return p.Spec.Groups[0].Rules[0].Annotations["text"]
}

// literalTexts are pieces of a template, and what a reader sees of them in the end.
var literalTexts = map[string]string{
	"":                   "",
	"a b ":               "a b ",
	"{":                  "{",
	"}}":                 "}}",
	"(":                  "(",
	"$":                  "$",
	"$$":                 "$$",
	"$$(":                "$(",
	"$$(cluster.name)":   "$(cluster.name)",
	"(cluster.name)":     "(cluster.name)",
	"{{ $value }}":       "7",
	"{{/* ' */}}":        "",
	"{{ \"}} $$(\" }}":   "}} $(",
	"{{ `}}` }}{":        "}}{",
	"{{ $labels.job }}{": "j{",
}

// What a value says is what comes out of Prometheus, whatever it says, whatever
// stands around it, and whichever stage it was inserted at.
func TestValuesStayLiteralInTexts(t *testing.T) {
	t.Parallel()
	rnd := ruletest.Random()
	var literals []string
	for s := range literalTexts {
		literals = append(literals, s)
	}
	literal := func(r *rand.Rand) (string, string) {
		s := literals[r.IntN(len(literals))]
		return s, literalTexts[s]
	}
	for range 200 {
		w := newWorkload(func(w *templating.Workload) {
			w.Annotations = map[string]string{"a": ruletest.Nasty(rnd), "b": ruletest.Nasty(rnd)}
			w.Cluster.Labels = map[string]string{"c": ruletest.Nasty(rnd), "d": ruletest.Nasty(rnd)}
		})
		places := []struct{ name, value string }{
			{"$(deployment.annotations.a)", w.Annotations["a"]}, {"$(deployment.annotations.b)", w.Annotations["b"]},
			{"$(cluster.labels.c)", w.Cluster.Labels["c"]}, {"$(cluster.labels.d)", w.Cluster.Labels["d"]},
		}
		var text, want strings.Builder
		for range 1 + rnd.IntN(4) {
			before, means := literal(rnd)
			if strings.Trim(before, "$") == "" {
				before += before // each pair of dollars before a ( is one
			}
			p := places[rnd.IntN(len(places))]
			text.WriteString(before + p.name)
			want.WriteString(means + p.value)
		}
		after, means := literal(rnd)
		text.WriteString("|" + after)
		want.WriteString("|" + means)

		rendered := passText(t, text.String(), w)
		got, err := ruletest.PrometheusText(t, rendered)
		if err != nil || got != want.String() {
			t.Fatalf("template   %q\nvalues     %q %q\nrendered   %q\nPrometheus %q, %v\nwant       %q",
				text.String(), w.Annotations, w.Cluster.Labels, rendered, got, err, want.String())
		}
	}
}

func FuzzExpand(f *testing.F) {
	for text := range literalTexts {
		f.Add(text, "", "", "")
		f.Add(text, "{", "{", text)
	}
	f.Add("x", "$", "(cluster.name)", "y")
	f.Add("{{ $value }}", `"}}{{.}}`, "\\", "{{/*")
	f.Add("a{", "", "", "{ b }}")
	f.Add("$", "$(", "$$(", ")")
	f.Fuzz(func(t *testing.T, before, a, b, after string) {
		text := before + "$(deployment.annotations.a)$(cluster.labels.b)|" + after
		alert := v1alpha1.AlertSpec{Alert: "A", Expr: "up", Annotations: map[string]v1alpha1.LabelText{"text": v1alpha1.LabelText(text)}}
		template := ruletest.Template(func(t *v1alpha1.AlertRuleTemplate) { t.Spec.AlertSpec = alert })
		if validation.Template(template, validation.Options{}) != nil || strings.Contains(text, "-") || strings.Count(text, "$(") > 2 ||
			len(text)+len(gotemplate.LiteralBrace)*rule.MaxValue > rule.MaxText {
			t.Skip() // of trim markers and other placeholders, the outcome is not known here
		}
		a, b = strings.ToValidUTF8(clip.Bytes(a, rule.MaxValue), "\uFFFD"), strings.ToValidUTF8(clip.Bytes(b, rule.MaxValue), "\uFFFD")
		mark := newWorkload(func(w *templating.Workload) {
			w.Annotations, w.Cluster.Labels = map[string]string{"a": "MARK-A"}, map[string]string{"b": "MARK-B"}
		})
		want, err := ruletest.PrometheusText(t, passText(t, text, mark))
		if err != nil || !strings.Contains(want, "MARK-AMARK-B|") {
			t.Skip() // the template does not run, or what precedes the placeholders escapes them
		}
		want = strings.Replace(want, "MARK-AMARK-B|", clip.Bytes(a, rule.MaxValue)+clip.Bytes(b, rule.MaxValue)+"|", 1)
		inserted := newWorkload(func(w *templating.Workload) {
			w.Annotations, w.Cluster.Labels = map[string]string{"a": a}, map[string]string{"b": b}
		})
		if got, err := ruletest.PrometheusText(t, passText(t, text, inserted)); err != nil || got != want {
			t.Errorf("text %q, a %q, b %q: Prometheus says %q, %v; want %q", text, a, b, got, err, want)
		}
	})
}
