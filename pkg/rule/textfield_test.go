package rule

import (
	"math/rand/v2"
	"net/url"
	"strings"
	"testing"
	"text/template/parse"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/template"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// expander is Prometheus' own for a label's or an annotation's text, after the text that Prometheus puts before it.
func expander(t *testing.T, text string) *template.Expander {
	t.Helper()
	const before = "{{$labels := .Labels}}{{$externalLabels := .ExternalLabels}}{{$externalURL := .ExternalURL}}{{$value := .Value}}"
	data := template.AlertTemplateData(map[string]string{"job": "j"}, nil, "", promql.Sample{F: 7})
	return template.NewTemplateExpander(t.Context(), before+text, "text", data, model.Time(0), nil, &url.URL{}, nil)
}

// prometheusText is what Prometheus makes of a label's or an annotation's text.
func prometheusText(t *testing.T, text string) (string, error) {
	t.Helper()
	return expander(t, text).Expand()
}

// passText takes a text through both stages.
func passText(t *testing.T, text string, w Workload) string {
	t.Helper()
	template := newTemplate(func(t *v1alpha1.AlertRuleTemplate) {
		t.Spec.Annotations = map[string]v1alpha1.LabelText{"text": v1alpha1.LabelText(text)}
	})
	r, err := Generate(template, w, "generated")
	if err != nil {
		t.Fatalf("generating of %q: %v", text, err)
	}
	if bad := Validate(r, ValidateOptions{GeneratedNamespace: "generated"}); bad != nil {
		t.Fatalf("validating of %q, from %q: %v", r.Spec.Annotations["text"], text, bad)
	}
	p, err := Render(r, w.Cluster, options)
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
	rnd := random()
	var literals []string
	for s := range literalTexts {
		literals = append(literals, s)
	}
	literal := func(r *rand.Rand) (string, string) {
		s := literals[r.IntN(len(literals))]
		return s, literalTexts[s]
	}
	for range 200 {
		w := newWorkload(func(w *Workload) {
			w.Annotations = map[string]string{"a": nasty(rnd), "b": nasty(rnd)}
			w.Cluster.Labels = map[string]string{"c": nasty(rnd), "d": nasty(rnd)}
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
		got, err := prometheusText(t, rendered)
		if err != nil || got != want.String() {
			t.Fatalf("template   %q\nvalues     %q %q\nrendered   %q\nPrometheus %q, %v\nwant       %q",
				text.String(), w.Annotations, w.Cluster.Labels, rendered, got, err, want.String())
		}
	}
}

func TestPlaceholderInsideAnAction(t *testing.T) {
	for _, text := range []string{
		`{{ $(cluster.name) }}`,
		`{{ "$(cluster.name)" }}`,
		"{{ `$(cluster.name)` }}",
		`{{/* $(cluster.name) */}}`,
		`{{- /* }} $(cluster.name) */ -}}`,
		`{{ "}}" }}{{ "\"}}$(cluster.name)" }}`,
		`{{ '}' }}{{ '\'' "$(cluster.name)" }}`,
		`{{ $(cluster.name)`,
		`{{{ $(cluster.name)`,
		`$(cluster.name){{ $(cluster.name) }}`,
		"{{ `\n}}$(cluster.name)` }}",
	} {
		t.Run(text, func(t *testing.T) {
			for name, st := range map[string]stage{"generate": generateStage(deployment{}), "render": renderStage("", nil)} {
				if got, f := st.text(text); f == nil || !strings.Contains(f.message, "is inside {{ … }}") {
					t.Errorf("%s: text(%q) = %q, %v", name, text, got, f)
				}
			}
		})
	}
	for _, text := range []string{
		`{{ $value }}$(cluster.name){{ $value }}`, `{$(cluster.name)}`, `}}$(cluster.name)`, "{{ `}}` }}$(cluster.name)",
		`{{/* ' */}}$(cluster.name)`, `{{ "\"}}" }}$(cluster.name)`, `{{ '"' }}$(cluster.name)`, `{{- $value -}} $(cluster.name)`,
	} {
		t.Run(text, func(t *testing.T) {
			if _, f := renderStage("", nil).text(text); f != nil {
				t.Errorf("text(%q): %v", text, f)
			}
		})
	}
}

// inAction has to agree with text/template: a word at the end of a text is text, or it
// is not.
func TestInActionAgreesWithGoTemplates(t *testing.T) {
	t.Parallel()
	rnd := random()
	tokens := []string{
		"{{", "}}", "{{", "}}", "{{-", "-}}", "{{- ", " -}}", "{", "}", " ", "\n", `"`, `"`, "`", "`", "'", `\`, `"x"`, "`x`", "'x'", "{{/*", "*/}}", "{{- /*", "*/ -}}", "/*", "*/", ".", "1", "x",
	}
	agreed := map[bool]int{}
	for range 3000 {
		var text strings.Builder
		for range 1 + rnd.IntN(7) {
			text.WriteString(tokens[rnd.IntN(len(tokens))])
		}
		tree := parse.New("text")
		tree.Mode = parse.SkipFuncCheck
		for _, end := range []string{"", "}}", "`}}", `"}}`, "'}}", "*/}}"} { // what an open action may need to be whole
			_, err := tree.Parse(text.String()+"MARK"+end, "", "", map[string]*parse.Tree{})
			if err != nil {
				continue
			}
			inText := false
			for _, node := range tree.Root.Nodes {
				if n, ok := node.(*parse.TextNode); ok {
					inText = inText || strings.Contains(string(n.Text), "MARK")
				}
			}
			if inAction(text.String()) == inText {
				t.Fatalf("inAction(%q) = %v, and in %q the word is text: %v", text.String(), !inText, text.String()+"MARK"+end, inText)
			}
			agreed[inText]++
			break
		}
	}
	if agreed[true] < 100 || agreed[false] < 100 {
		t.Errorf("too few texts were templates: %v", agreed)
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
		template := newTemplate(func(t *v1alpha1.AlertRuleTemplate) { t.Spec.AlertSpec = alert })
		if ValidateTemplate(template, ValidateOptions{}) != nil || strings.Contains(text, "-") || strings.Count(text, "$(") > 2 ||
			len(text)+len(literalBrace)*maxValue > maxText {
			t.Skip() // of trim markers and other placeholders, the outcome is not known here
		}
		a, b = strings.ToValidUTF8(cut(a, maxValue), "\uFFFD"), strings.ToValidUTF8(cut(b, maxValue), "\uFFFD")
		mark := newWorkload(func(w *Workload) {
			w.Annotations, w.Cluster.Labels = map[string]string{"a": "MARK-A"}, map[string]string{"b": "MARK-B"}
		})
		want, err := prometheusText(t, passText(t, text, mark))
		if err != nil || !strings.Contains(want, "MARK-AMARK-B|") {
			t.Skip() // the template does not run, or what precedes the placeholders escapes them
		}
		want = strings.Replace(want, "MARK-AMARK-B|", cut(a, maxValue)+cut(b, maxValue)+"|", 1)
		inserted := newWorkload(func(w *Workload) {
			w.Annotations, w.Cluster.Labels = map[string]string{"a": a}, map[string]string{"b": b}
		})
		if got, err := prometheusText(t, passText(t, text, inserted)); err != nil || got != want {
			t.Errorf("text %q, a %q, b %q: Prometheus says %q, %v; want %q", text, a, b, got, err, want)
		}
	})
}
