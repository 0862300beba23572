package gotemplate

import (
	"regexp"
	"strings"
	"testing"

	"github.com/rulefleet/rulefleet/pkg/rule/internal/ruletest"
)

func TestGoTemplatesThatRender(t *testing.T) {
	for _, text := range []string{
		"plain { text } {{/* a comment */}}{ {{ \"{{\" }} }",
		`{{ $value }} {{ $labels.pod }} {{ .Labels.pod }} {{ $externalLabels.cluster }} {{ $externalURL }} {{ .ExternalURL }}`,
		`{{ $value | humanize }} {{ humanize1024 .Value }} {{ $value | humanizeDuration }} {{ $value | humanizePercentage }} {{ $value | humanizeTimestamp }}`,
		`{{ printf "%.2f of %s" $value $labels.pod }} {{ printf "%-10s|%5d" "x" 3 }} {{ print 1 2 }} {{ println "a" }}`,
		`{{ with query "up{job='x'}" }}{{ . | first | value }}{{ else }}none{{ end }}`,
		`{{ range query (printf "sum by (pod) (up{pod=\"%s\"})" $labels.pod) }}{{ .Labels.pod }} {{ .Value }} {{ label "pod" . }} {{ strvalue . }}{{ end }}`,
		`{{ query "up" | first | label "instance" }}`,
		`{{ range $i, $s := query "up" | sortByLabel "pod" }}{{ $i }}{{ $s.Value }}{{ else }}nothing{{ end }}`,
		`{{ if gt $value 0.5 }}high{{ else if and (eq $labels.a "b") $labels.c }}b{{ else }}low{{ end }}`,
		`{{ parseDuration $labels.window }} {{ parseDuration "1h" | humanizeDuration }}`,
		`{{ ($value | toTime).Year }} {{ (now | toTime).Format "2006-01-02" }} {{ toDuration 3 }}`,
		`{{ reReplaceAll "(.*):\\d+" "$1" $labels.instance }} {{ if match "^a.*" $labels.pod }}a{{ end }}`,
		`{{ $labels.pod | toUpper | toLower | title }} {{ stripPort "a:1" }} {{ stripDomain $labels.instance }} {{ urlQueryEscape "a b" }}`,
		`{{ graphLink "up" }} {{ tableLink "up" }} {{ externalURL }} {{ pathPrefix }} {{ safeHtml "<" }} {{ html "<" | js }} {{ urlquery "a" 1 }}`,
		`{{ define "x" }}[{{ .pod }}]{{ end }}{{ template "x" $labels }}{{ block "y" $value }}{{ . }}{{ end }}`,
		`{{ $n := 0 }}{{ range 3 }}{{ $n = len (print $n .) }}{{ end }}{{ $n }}`,
		`{{ range $k, $v := $labels }}{{ if eq $k "x" }}{{ break }}{{ end }}{{ continue }}{{ end }}`,
		`{{ with $x := args 1 "b" }}{{ $x.arg0 }}{{ $x.arg2 }}{{ index $x "arg1" }}{{ end }}`,
		`{{ slice "abc" 1 2 }} {{ len "é" }} {{ not true }} {{ or "" "x" }} {{ 'a' }} {{ 0x1F }} {{ true }} {{ (index (args 1) "arg0") }}`,
		`{{- $labels.a -}} x {{- /* c */ -}} `,
		`{{ $value.Count }} {{ $value.Sum | humanize }}`, // of a native histogram
		`{{ first (query "up") }}`,
		`{{ if $labels.a }}{{ $labels.a | parseDuration | humanizeDuration }}{{ end }}`,
	} {
		t.Run(text, func(t *testing.T) {
			if err := checkGoTemplate(text, NewBudget()); err != nil {
				t.Errorf("%s: %v", text, err)
			}
		})
	}
}

func TestGoTemplatesThatDoNot(t *testing.T) {
	for text, want := range map[string]string{
		"a\n{{ $labels.pod.name }}":                             `line 2: {{ $labels.pod.name }}: can't evaluate field name in type string`,
		`{{ .Lables.pod }}`:                                     `line 1: {{ .Lables.pod }}: can't evaluate field Lables in type`,
		`x {{ if eq $labels.a "x" }}{{ .Foo }}{{ end }}`:        `line 1: {{ .Foo }}: can't evaluate field Foo`,
		`{{ with $labels.a }}{{ .Labels.b }}{{ end }}`:          `{{ .Labels.b }}: can't evaluate field Labels in type string`,
		`{{ $value.Foo }}`:                                      `{{ $value.Foo }}: can't evaluate field Foo in type float64`,
		`{{ $labels.a 1 }}`:                                     `not a method but has arguments`,
		`{{ nope }}`:                                            `line 1: function "nope" not defined`,
		`{{ _pass 1 }}`:                                         `function "_pass" not defined`,
		"\n\n{{ $lables.a }}":                                   `line 3: undefined variable "$lables"`,
		`{{ template "nope" . }}`:                               `template "nope" not defined`,
		`{{ if eq $labels.a "x" }}{{ template "nope" }}{{end}}`: `template "nope" not defined`,
		`{{ "x" | humanize }}`:                                  `error calling humanize`,
		`{{ query "sum(up" }}`:                                  `the query sum(up: unclosed left parenthesis`,
		`{{ reReplaceAll "(" "" "x" }}`:                         `missing closing )`,
		`{{ toUpper 1 }}`:                                       `expected string`,
		`{{ if }}`:                                              `line 1: missing value for if`,
		`{{ $value`:                                             `unclosed action`,
		`{{ 1 | parseDuration }}`:                               `parseDuration`,
	} {
		t.Run(text, func(t *testing.T) {
			err := checkGoTemplate(text, NewBudget())
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s:\n got %v\nwant %s", text, err, want)
			}
			if err != nil && (strings.Contains(err.Error(), stepFunc) || strings.Contains(err.Error(), mainTemplate)) && !strings.Contains(text, "_pass") {
				t.Errorf("%s: the message tells of the instruments: %v", text, err)
			}
		})
	}
}

// monsters are texts that Prometheus would render for ever, or into what no memory
// holds.
func monsters() map[string]string {
	doubled := `{{ $a := "0123456789abcdef" }}` + ruletest.Long(`{{ $a = printf "%s%s" $a $a }}`, 40)
	nested := `{{ $a := args 1 }}` + ruletest.Long(`{{ $a = args $a $a }}`, 40)
	times := func(what string) string {
		return `{{ $a := "x" }}{{ $b := "y" }}{{ range 1000000000 }}` + what + `{{ end }}`
	}
	return map[string]string{
		"endless loop":         `{{ range 1000000000 }}{{ end }}`,
		"nested loops":         `{{ range 30000 }}{{ range 30000 }}x{{ end }}{{ end }}`,
		"loop of text":         times(ruletest.Long("x", 8000)),
		"loop of prints":       `{{ $a := "` + ruletest.Long("x", 8000) + `" }}{{ range 15000 }}{{ $a }}{{ end }}`,
		"loop of else":         `{{ range 1000000000 }}{{ if false }}{{ else }}{{ end }}{{ end }}`,
		"continue":             times(`{{ continue }}`),
		"doubled":              doubled,
		"doubled by print":     strings.ReplaceAll(doubled, `printf "%s%s"`, "print"),
		"doubled by println":   strings.ReplaceAll(doubled, `printf "%s%s"`, "println"),
		"nested maps":          nested + "{{ $a }}",
		"nested maps, deep":    times(`{{ $a = args $a }}`),
		"nested maps, printed": times(`{{ $a = args $a $a }}{{ print $a }}`),
		"width":                `{{ printf "%1000000d" 1 }}`,
		"many widths":          `{{ printf "` + ruletest.Long("%99999d", 1000) + `" 1 }}`,
		"loop of widths":       times(`{{ printf "%100000d" 1 }}`),
		"precision":            times(`{{ printf "%.99999f" 1.0 }}`),
		"width by argument":    times(`{{ printf "%*d" 900000 1 }}`),
		"arguments repeated":   `{{ $a := "` + ruletest.Long("x", 4000) + `" }}{{ printf "` + ruletest.Long("%[1]s", 800) + `" $a }}`,
		"html":                 times(`{{ $a = html (print $a "'") }}`),
		"js":                   times(`{{ $a = js (print $a "'<>") }}`),
		"urlquery":             times(`{{ $a = urlquery $a " " }}`),
		"urlQueryEscape":       times(`{{ $a = urlQueryEscape (print $a " ") }}`),
		"graphLink":            times(`{{ $a = graphLink $a }}`),
		"tableLink":            times(`{{ $a = tableLink $a }}`),
		"toUpper":              times(`{{ $a = toUpper (print $a "ß") }}`),
		"title":                times(`{{ $a = title (print $a "a b") }}`),
		"replaced":             times(`{{ $a = reReplaceAll "" "xxxx$0" $a }}`),
		"replaced by much":     `{{ $a := "` + ruletest.Long("x", 4000) + `" }}{{ reReplaceAll "" $a $a }}`,
		"replaced, groups":     `{{ $a := "` + ruletest.Long("x", 3000) + `" }}{{ reReplaceAll "(.*)" "` + ruletest.Long("$1", 2000) + `" $a }}`,
		"large pattern":        times(`{{ match "(((a{30}){30}){30}){2}" "aaaa" }}`),
		"larger pattern":       `{{ match "` + ruletest.Long("a{1000}", 800) + `" "aaaa" }}`,
		"slow pattern":         times(`{{ match "(x*)*(x*)*(x*)*(y|x)*$" "` + ruletest.Long("x", 3000) + `" }}`),
		"unicode classes":      times(`{{ match "[` + ruletest.Long(`\\pL\\PN`, 400) + `]" "x" }}`),
		"folded classes":       times(`{{ match "(?i)` + ruletest.Long(`[^a]`, 800) + `" "x" }}`),
		"recursion":            `{{ define "x" }}{{ template "x" . }}{{ end }}{{ template "x" . }}`,
		"doubled recursion":    `{{ define "x" }}{{ template "x" . }}{{ template "x" . }}{{ end }}{{ template "x" . }}`,
		"recursion of itself":  `{{ template "__alert_text" . }}`,
		"fan":                  `{{ define "a" }}` + ruletest.Long("x", 5000) + `{{ end }}{{ define "b" }}` + ruletest.Long(`{{ template "a" }}`, 100) + `{{ end }}` + ruletest.Long(`{{ template "b" }}`, 100),
		"comparisons":          `{{ $a := "` + ruletest.Long("x", 4000) + `" }}{{ $b := print $a }}{{ range 6000 }}{{ if eq $a $b }}{{ end }}{{ end }}`,
		"queries":              times(`{{ query "sum(up) + sum(up)" }}`),
		"time's format":        times(`{{ $b = (toTime 1).Format (print $b "January") }}`),
		"appended bytes":       `{{ $t := toTime 1 }}{{ $b := $t.MarshalText }}{{ range 1000000000 }}{{ $b = $t.AppendFormat $b "` + ruletest.Long("January", 500) + `" }}{{ end }}`,
		"many parts":           ruletest.Long(`{{.}}`, 3000),
		"deep":                 `{{ ` + ruletest.Long("(", 500) + `1` + ruletest.Long(")", 500) + ` }}`,
		"very deep":            `{{ ` + ruletest.Long("(", 4000) + `1` + ruletest.Long(")", 4000) + ` }}`,
		"deep ifs":             ruletest.Long(`{{if 1}}`, 400) + ruletest.Long(`{{end}}`, 400),
		"many declarations":    ruletest.Long(`{{$x:=1}}`, 1000) + times(`{{ $a }}`),
		"nested query":         `{{ query "` + ruletest.Long("(", 4000) + `" }}`,
	}
}

// TestInstrumentedRendersTheSame compares with the text as it was written.
func TestInstrumentedRendersTheSame(t *testing.T) {
	t.Parallel()
	rnd := ruletest.Random()
	parts := []string{
		"{", "}", "{ x", "a\nb", "{{/* c */}}", `{{ "{" }}`, "{{ $labels.a }}", "{{- $value -}}", " ", `{{ print 1 "x" nil }}`, "{{ .Labels }}",
		`{{ $x := 1 }}{{ $x }}`, `{{ range $i, $v := args 1 2 }}{{ $i }}={{ $v }},{{ else }}none{{ end }}`, `{{ range 3 }}{{ if eq . 1 }}{{ continue }}{{ end }}{{ . }}{{ end }}`,
		`{{ with $labels.b }}{{ . }}{{ else with $labels.a }}{{ . | toUpper }}{{ else }}z{{ end }}`, `{{ if and 1 (or 0 "") }}a{{ else if 1 }}b{{ end }}`,
		`{{ (query "up" | first).Value | humanize }}`, `{{ with $v := $value }}{{ $v }}{{ end }}`, "{{ (toTime 1).Year }}", `{{ $m := args }}{{ $m.x }}{{ index $m "y" }}`, `{{ printf "%v %T %q" $value $value "x" }}`,
		`{{ block "b" . }}{{ .Value }}{{ end }}`, `{{ range query "up" }}{{ .Labels.a }}{{ .Value }}{{ end }}`, `{{ html "<{{" }}`, "{{ 1.5e3 }}{{ 'x' }}{{ `raw` }}",
		`{{ len $labels }}{{ not 1 }}{{ $.Value }}`, `{{ index $labels "a" | print "x" }}`,
	}
	rendered := 0
	for range 200 {
		var text strings.Builder
		for range 1 + rnd.IntN(5) {
			text.WriteString(parts[rnd.IntN(len(parts))])
		}
		rendered += compareInstrumented(t, text.String())
	}
	if rendered < 100 {
		t.Errorf("only %d texts were rendered", rendered)
	}
}

// compareInstrumented renders a text with instruments and without.
func compareInstrumented(t *testing.T, text string) int {
	t.Helper()
	parsed, err := parseGoTemplate(text)
	if err != nil {
		return 0
	}
	instrumented, err := parsed.instrument()
	if err != nil {
		return 0
	}
	s := trial{labels: map[string]string{"a": "1m{"}, found: true}
	got, err := s.render(parsed, instrumented, NewBudget())
	if err != nil {
		if strings.Contains(err.Error(), "error parsing template") {
			if s.expander(goTemplatePreamble+text, nil).ParseTest() == nil {
				t.Errorf("%q does not parse any more: %v\n%s", text, err, instrumented)
			}
		}
		return 0
	}
	plainly := func() (string, error) { return s.expander(goTemplatePreamble+text, s.query(NewBudget())).Expand() }
	want, err := plainly()
	if again, errAgain := plainly(); errAgain == nil && withoutAddresses(again) != withoutAddresses(want) {
		return 0 // it has no rendering that stays the same, such as the time
	}
	if err != nil || withoutAddresses(got) != withoutAddresses(want) {
		t.Fatalf("%q renders %q\nwith instruments, %q without: %v\n%s", text, got, want, err, instrumented)
	}
	return 1
}

// withoutAddresses takes out where samples lie in memory, which printing a query's result
// shows: that differs from one rendering to the next.
func withoutAddresses(s string) string { return addresses.ReplaceAllString(s, "0x") }

var addresses = regexp.MustCompile(`0x[0-9a-f]{6,}`)

func TestTextsTogetherHaveABudget(t *testing.T) {
	b := NewBudget()
	b.totalSteps = 1200
	bad := Check("spec.annotations", ruletest.Texts{"a": `{{ range 500 }}{{ end }}`, "b": `{{ range 500 }}{{ end }}`, "c": `{{ range 500 }}{{ end }}`}, b)
	if bad == nil || bad.Field != "spec.annotations[c]" || !strings.Contains(bad.Message, "together") {
		t.Errorf("got %v", bad)
	}
}

// TestRememberedTextsAreTheSame validates twice: what is remembered changes no answer.
func TestRememberedTextsAreTheSame(t *testing.T) {
	for _, text := range []string{`{{ $labels.remembered }}`, `{{ .Remembered }}`, `{{ range 99999 }}remembered{{ end }}`} {
		t.Run(text, func(t *testing.T) {
			first, second := NewBudget(), NewBudget()
			one, other := rememberedGoTemplate(text, first), rememberedGoTemplate(text, second)
			if (one == nil) != (other == nil) || one != nil && one.Error() != other.Error() {
				t.Errorf("%s: %v, and then %v", text, one, other)
			}
			if first.totalSteps != second.totalSteps || first.totalBytes != second.totalBytes {
				t.Errorf("%s: it takes %+v, and then %+v", text, first, second)
			}
			little := NewBudget()
			little.totalSteps = 3
			if err := rememberedGoTemplate(text, little); err == nil || !strings.Contains(err.Error(), "together") {
				t.Errorf("%s, with little left: %v", text, err)
			}
		})
	}
}
