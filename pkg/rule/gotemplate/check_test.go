package gotemplate

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/template"
	"github.com/prometheus/prometheus/util/features"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
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
		`{{ range $k, $v := $labels }}{{ if eq $k "x" }}{{ break }}{{ end }}{{ continue }}{{ end }}`,
		`{{ with $x := args 1 "b" }}{{ $x.arg0 }}{{ $x.arg2 }}{{ index $x "arg1" }}{{ end }}`,
		`{{ slice "abc" 1 2 }} {{ len "é" }} {{ not true }} {{ or "" "x" }} {{ 'a' }} {{ 0x1F }} {{ true }} {{ (index (args 1) "arg0") }}`,
		`{{- $labels.a -}} x {{- /* c */ -}} `,
		`{{ $value.Count }} {{ $value.Sum | humanize }}`, // of a native histogram
		`{{ first (query "up") }}`,
		`{{ (index (query "up") 0).Labels.pod }}`,
		`{{ $format := "%.2f" }}{{ printf $format $value }}`,
		`{{ $x := "a" }}{{ if $labels.b }}{{ $x := $labels }}{{ $x.c }}{{ end }}{{ $x }}`,
		`{{ with toTime $value }}{{ .Year }}{{ .Format "15:04" }}{{ end }}`,
		`{{ slice $labels.a 0 7 }}`,
		`{{ index $labels "a" }} {{ index .ExternalLabels "cluster" | toUpper }}`,
		"VALUE = {{ $value }}\n  LABELS = {{ $labels }}",
		`Node {{ $labels.instance }} has {{ printf "%.2f" $value }}% of {{ $labels.device }}, {{ $value | printf "%.1f" }}`,
		`{{ $value | humanizePercentage }} of {{ with $labels.cluster -}} cluster {{ . }} {{- end }} {{ "43200" | humanizeDuration }}`,
		`{{ printf "kube_pod_info{pod=%q}" $labels.pod | query | first | label "node" }}`,
		`{{ with printf "sum by (node) (rate(x{pod='%s', namespace='%s'}[5m]))" $labels.pod $labels.namespace | query }}{{ range . }}{{ .Labels.node }}: {{ .Value | humanize1024 }}B {{ end }}{{ end }}`,
		`{{ range query (printf "topk(5, x{a=%q})" $labels.a) | sortByLabel "pod" }}{{ with printf "y{pod=%q}" .Labels.pod | query }}{{ . | first | value | printf "%.1f" }}{{ end }}{{ end }}`,
		`{{ if $labels.a }}{{ $labels.a | parseDuration | humanizeDuration }}{{ end }}`,
		`{{ $s := "" }}{{ if gt $value 1.0 }}{{ $s = "s" }}{{ end }}{{ $value }} disk{{ $s }}`,
		`{{ $q := query "up" }}{{ if not $q }}{{ $q = query "down" }}{{ end }}{{ range $q }}{{ .Labels.pod }}{{ end }}`,
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
		"a\n{{ $labels.pod.name }}":                      `line 2: $labels.pod.name: can't evaluate field name in type string`,
		`{{ .Lables.pod }}`:                              `line 1: .Lables.pod: can't evaluate field Lables in type`,
		`x {{ if eq $labels.a "x" }}{{ .Foo }}{{ end }}`: `line 1: .Foo: can't evaluate field Foo`,
		`{{ with $labels.a }}{{ .Labels.b }}{{ end }}`:   `line 1: .Labels.b: can't evaluate field Labels in type string`,
		`{{ $value.Foo }}`:                               `line 1: $value.Foo: can't evaluate field Foo in type float64`,
		`{{ $labels.a 1 }}`:                              `a value cannot have arguments`,
		`{{ nope }}`:                                     `line 1: function "nope" not defined`,
		"{{\n":                                           `line 2: unclosed action started at line 1`,
		`{{ _pass 1 }}`:                                  `function "_pass" not defined`,
		"\n\n{{ $lables.a }}":                            `line 3: undefined variable "$lables"`,
		`{{ template "nope" . }}`:                        `template and block cannot be used`,
		`{{ if eq $labels.a "x" }}{{ template "nope" }}{{end}}`:  `template and block cannot be used`,
		`{{ define "x" }}{{ .pod }}{{ end }}`:                    `line 1: {{.pod}}: define, template and block cannot be used`,
		`{{ block "y" $value }}{{ . }}{{ end }}`:                 `line 1: {{.}}: define, template and block cannot be used`,
		"\n{{ $n := 0 }}{{ range 3 }}{{ $n }}{{ end }}":          `line 2: {{range 3}}{{$n}}{{end}}: range can only be used with the result of query or with labels`,
		`{{ $n := 0 }}{{ range $labels }}{{ $n = 1 }}{{ end }}`:  `line 1: $n = 1: a loop cannot assign a variable again`,
		`{{ if $labels.a }}{{ else }}{{ $labels.a.b }}{{ end }}`: `line 1: $labels.a.b: can't evaluate field b in type string`,
		`{{ with query "up" }}{{ else }}{{ humanize }}{{ end }}`: `line 1: humanize: wrong number of args for humanize: want 1 got 0`,
		`{{ if eq $value 2.0 }}{{ .Labels.a | label }}{{ end }}`: `wrong number of args for label: want 2 got 1`,
		`{{ if eq $value 2.0 }}{{ $labels.a 1 }}{{ end }}`:       `a value cannot have arguments`,
		`{{ if eq $value 2.0 }}{{ match "(" "x" }}{{ end }}`:     `missing closing )`,
		`{{ range query "up" }}{{ .Lables.pod }}{{ end }}`:       `.Lables.pod: can't evaluate field Lables; use Labels`,
		`{{ (query "up").Value }}`:                               `can't evaluate field Value in type queryResult`,
		`{{ slice $labels.a 0 30 }}`:                             `line 1: slice $labels.a 0 30: error calling slice: index out of range: 30`,
		"a\n\n é {{ query `sum(up` }}":                           "line 3: query `sum(up`: error calling query: the query sum(up: unclosed",
		ruletest.Long("(", 3000) + "{{ 1 }}":                     `it has 3001 actions and opening parentheses; at most 2000 are allowed`,
		`{{ printf $labels.a 1 }}`:                               `printf: the format has to be a text in quotes`,
		`{{ printf "%100d" 1 }}`:                                 `printf: a width and a precision have to be numbers of at most 99, in %100`,
		`{{ printf "%*d" 9 1 }}`:                                 `have to be numbers of at most 99, in %*`,
		`{{ match $labels.a "x" }}`:                              `match: the pattern and the replacement have to be texts in quotes`,
		`{{ reReplaceAll "a" $labels.a "x" }}`:                   `reReplaceAll: the pattern and the replacement have to be texts in quotes`,
		`{{ "x" | humanize }}`:                                   `error calling humanize`,
		`{{ query "sum(up" }}`:                                   `the query sum(up: unclosed left parenthesis`,
		`{{ reReplaceAll "(" "" "x" }}`:                          `missing closing )`,
		`{{ toUpper 1 }}`:                                        `expected string`,
		`{{ if }}`:                                               `line 1: missing value for if`,
		`{{ $value`:                                              `unclosed action`,
		`{{ 1 | parseDuration }}`:                                `parseDuration`,
	} {
		t.Run(text, func(t *testing.T) {
			err := checkGoTemplate(text, NewBudget())
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s:\n got %v\nwant %s", text, err, want)
			}
			if err != nil && strings.Contains(err.Error(), mainTemplate) {
				t.Errorf("%s: the message has names that people do not know: %v", text, err)
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

		"doubled by declarations": strings.ReplaceAll(doubled, "$a =", "$a :="),
		"doubled by new names":    redeclared(),
		"doubled by with":         `{{ with "0123456789abcdef" }}` + ruletest.Long(`{{ with print . . }}`, 40) + ruletest.Long(`{{ end }}`, 41),
		"doubled in arguments":    `{{ $a := "x" }}{{ print ` + ruletest.Long(`($a := print $a $a) `, 40) + `}}`,
		"doubled by and":          `{{ $a := "x" }}` + ruletest.Long(`{{ $a := and 1 $a | or 0 | printf "%[1]s%[1]s" }}`, 40),
		"doubled by $":            `{{ $ := "x" }}` + ruletest.Long(`{{ $ := print $ $ }}`, 40),
		"maps declared":           strings.ReplaceAll(nested, "$a =", "$a :="),
		"assigned in parentheses": `{{ $a := "x" }}{{ range query "up" }}{{ print ($a = print $a $a) }}{{ end }}`,
		"loop over an assigned":   `{{ $q := query "up" }}{{ if 1 }}{{ $q = 1000000000 }}{{ end }}{{ range $q }}{{ end }}`,
		"format that is assigned": `{{ $f := "%d" }}{{ if 1 }}{{ $f = print "%9" "00000d" }}{{ end }}{{ printf $f 1 }}`,
		"assigned over labels":    `{{ $a := "x" }}{{ range $labels }}{{ if . }}{{ $a = print $a $a }}{{ end }}{{ end }}`,
		"assigned by range":       `{{ $a := "x" }}{{ range $a = query "up" }}{{ end }}`,
		"nested results":          ruletest.Long(`{{ range query "up" }}`, 5) + `x` + ruletest.Long(`{{ end }}`, 5),
		"empty loops":             ruletest.Long(`{{ range query "up" }}`, 5) + ruletest.Long(`{{ end }}`, 5),
		"empty loops over labels": ruletest.Long(`{{ range $labels }}`, 5) + ruletest.Long(`{{ end }}`, 5),
		"nested labels":           ruletest.Long(`{{ range $labels }}`, 5) + `x` + ruletest.Long(`{{ end }}`, 5),
		"result in a variable":    `{{ $q := query "up" }}` + ruletest.Long(`{{ range $q }}`, 5) + `x` + ruletest.Long(`{{ end }}`, 5),
		"loop over args":          `{{ range args 1 2 3 }}{{ end }}`,
		"loop over a method":      `{{ range (toTime 1).Year }}{{ end }}`,
		"loop over a variable":    `{{ $n := 1000000000 }}{{ range $n }}{{ end }}`,
		"loop over another $":     `{{ $q := query "up" }}{{ if 1 }}{{ $q := 1000000000 }}{{ range $q }}{{ end }}{{ end }}`,
		"loop over a hidden one":  `{{ $n := 1000000000 }}{{ if false }}{{ $n := query "up" }}{{ end }}{{ range $n }}{{ end }}`,
		"format of a hidden one":  `{{ $f := print "%9" "00000d" }}{{ if false }}{{ $f := "%d" }}{{ end }}{{ printf $f 1 }}`,
		"growth of a hidden one":  `{{ $a := "` + ruletest.Long("x", 4000) + `" }}{{ if false }}{{ $a := "x" }}{{ end }}` + ruletest.Long(`{{ $a | js | js | html }}`, 20),
		"js of js":                `{{ "<" ` + ruletest.Long("| js ", 20) + `}}`,
		"html of html":            `{{ "<" ` + ruletest.Long("| html ", 20) + `}}`,
		"title of titles":         `{{ "ΐ" ` + ruletest.Long("| toUpper | title ", 20) + `}}`,
		"format of formats":       `{{ $t := toTime 1 }}{{ "January" ` + ruletest.Long("| $t.Format ", 20) + `}}`,
		"widths of a list":        `{{ printf "` + ruletest.Long("%[1]99d", 1000) + `" $labels }}`,
		"wide verbs":              `{{ printf "` + ruletest.Long("%99.99d", 1000) + `" (args "0123456789" 1 2 3 4 5 6 7 8 9) }}`,
		"width after an index":    `{{ printf "%[1]*[1]d" 900000 }}`,
		"width after flags":       `{{ printf "%+-# 0900000d" 1 }}`,
		"width after a letter":    `{{ printf "%é%900000d%%%900000d" 1 1 }}`,
		"slow matches":            `{{ $a := "` + ruletest.Long("x", 500) + `" }}` + ruletest.Long(`{{ reReplaceAll "`+ruletest.Long(".*.*.*=.*|", 50)+`" "y" $a }}`, 10),
		"slow replacements":       `{{ $a := "` + ruletest.Long("x", 4000) + `" }}{{ reReplaceAll ".*.*=|" "" $a }}`,
		"many slow patterns":      `{{ $a := "` + ruletest.Long("x", 4000) + `" }}` + ruletest.Long(`{{ match "(.|..|...){20}y" $a }}`, 40),
		"groups in a row":         ruletest.Long(`{{ match "`+ruletest.Long("()", 500)+`" "x" }}`, 5),
		"text in loops":           `{{ range query "up" }}{{ range query "up" }}` + ruletest.Long("x", 4000) + `{{ end }}{{ end }}`,
		"prints in loops":         `{{ with "` + ruletest.Long("x", 4000) + `" }}{{ $a := . }}{{ range query "up" }}{{ range query "up" }}{{ $a }}{{ end }}{{ end }}{{ end }}`,
		"many groups":             `{{ match "` + ruletest.Long("(x*)", 1600) + `$" "x" }}`,
		"nested in the parser":    `{{ ` + ruletest.Long("(", 8000),
		"ifs in the parser":       ruletest.Long(`{{if 1}}`, 3000),
		"format of a variable":    `{{ $f := "%d" }}{{ $f := print "%9" "00000d" }}{{ printf $f 1 }}`,
		"format of a pipeline":    `{{ print "%900000d" | printf }}`,
		"pattern of a variable":   `{{ $p := print "(((a{30}){30}){30})" "{2}" }}{{ match $p "a" }}`,
		"large patterns":          ruletest.Long(`{{ match "((a{30}){30}){5}" "x" }}`, 200),
		"pattern in a loop":       `{{ range query "up" }}{{ range query "up" }}{{ match "(a{30}){30}" "x" }}{{ end }}{{ end }}`,
		"replaced in a row":       `{{ "xxxxxxxx" ` + ruletest.Long(`| reReplaceAll "" "xxxxxxxx" `, 20) + `}}`,
		"replaced with groups":    `{{ "xxxxxxxx" ` + ruletest.Long(`| reReplaceAll "(.*)" "$1$1$1$1" `, 20) + `}}`,
		"location":                `{{ printf "%99d" (toTime 0).Local.Location }}`,
		"changed histogram":       `{{ $value.Mul 0.0 }}`,
		"tokens of a query":       `{{ query "a` + ruletest.Long("+a", 3500) + `" }}`,
		"many queries":            ruletest.Long(`{{ query "a`+ruletest.Long("+a", 900)+`" }}`, 8),
		"large arguments":         `{{ $a := "` + ruletest.Long("x", 4000) + `" }}` + ruletest.Long(`{{ eq $a $a }}`, 270),
		"long":                    ruletest.Long("x", maxBytes) + "{{ 1 }}",
		"parentheses and pipes":   `{{ ` + ruletest.Long("(1|", 2000) + `1` + ruletest.Long(")", 2000) + ` }}`,
		"pipes":                   `{{ 1 ` + ruletest.Long("|len", 10_000) + ` }}`,
		"chains":                  `{{ $x := args }}{{ $x` + ruletest.Long(".a", 30_000) + ` }}`,
		"else ifs":                `{{ if 1 }}` + ruletest.Long(`{{ else if 1 }}`, 500) + `{{ end }}`,
		"variables":               ruletest.Long(`{{$a:=1}}`, 2000) + ruletest.Long(`{{$b}}`, 2000),
	}
}

// redeclared doubles a text with variables that have names of their own.
func redeclared() string {
	var text strings.Builder
	text.WriteString(`{{ $a0 := "x" }}`)
	for i := range 40 {
		fmt.Fprintf(&text, "{{ $a%d := print $a%d $a%[2]d }}", i+1, i)
	}
	return text.String()
}

// Every function of Prometheus is known, so that a template is not refused because of a new version.
func TestFunctionsAreThoseOfPrometheus(t *testing.T) {
	all := features.NewRegistry()
	template.RegisterFeatures(all)
	want := all.Get()[features.TemplatingFunctions]
	for _, name := range []string{ // those of text/template itself
		"and", "or", "not", "eq", "ne", "lt", "le", "gt", "ge", "call", "index", "slice", "len", "print", "println", "printf", "html", "js", "urlquery",
	} {
		want[name] = true
	}
	if got, want := slices.Sorted(maps.Keys(functions)), slices.Sorted(maps.Keys(want)); !slices.Equal(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
}

func TestTextsTogetherHaveABudget(t *testing.T) {
	loop := v1alpha1.LabelText(`{{ range query "up" }}{{ .Labels }}{{ end }}`)
	a, err := analyze(string(loop))
	if err != nil {
		t.Fatal(err)
	}
	b := &Budget{left: a.cost * 5 / 2}
	bad := Check("spec.annotations", ruletest.Texts{"a": loop, "b": loop, "c": loop}, b)
	if bad == nil || bad.Field != "spec.annotations[c]" || !strings.Contains(bad.Message, "together") {
		t.Errorf("got %v", bad)
	}
}
