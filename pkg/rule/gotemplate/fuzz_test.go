package gotemplate

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	prom "github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/template"

	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/internal/ruletest"
)

// FuzzGoTemplate: whatever a text is, it is checked soon, and what is accepted renders soon, into no more
// than its cost.
func FuzzGoTemplate(f *testing.F) {
	if !raceDetector { // with it, they are slow, and TestGoTemplatesAreBounded has them
		for _, text := range monsters() {
			f.Add(text)
		}
	}
	for _, text := range append(parts,
		"{{ $value }}", "{{- /* c */ -}} {", "{{\n", `{{ define "x" }}{{ . }}{{ end }}{{ template "x" 1 }}`, "{{ range $i, $v := query `up` }}{{ else }}{{ end }}",
		"{{ with $x := 1 }}{{ $x = 2 }}{{ end }}", "{{ (index $labels `a`).b }}", "{{ and 1 nil | or 2 }}", "{{ .Labels.a.b | printf `%s` }}", "{{ $ }}",
		"{{ block `b` $ }}{{ break }}{{ end }}", "{{ not }}", "{{ (args nil).arg0 }}", "{{ print (args nil).arg0 nil }}", "{{ (toTime 1).UTC.Location }}", "{{ $value.Foo }}",
	) {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > rule.MaxText {
			t.Skip()
		}
		defer ruletest.Watch()()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		start := ruletest.CPUTime(t)
		err := checkGoTemplate(text, NewBudget())
		took := ruletest.CPUTime(t) - start
		runtime.ReadMemStats(&after)
		if took > ruletest.FuzzLimit {
			t.Errorf("it takes %v", took)
		}
		if allocated := after.TotalAlloc - before.TotalAlloc; allocated > maxAllocated {
			t.Errorf("it allocates %d MiB", allocated>>20)
		}
		if err != nil {
			if len(err.Error()) > rule.MaxMessage || strings.Contains(err.Error(), mainTemplate) && !strings.Contains(text, mainTemplate) {
				t.Errorf("%d bytes: %v", len(err.Error()), err)
			}
			return
		}
		withinCost(t, text)
	})
}

// maxAllocated is how much checking one text may allocate, in all.
const maxAllocated = uint64(24 << 20)

// withinCost renders a text with the largest data that the analysis assumes. It reports 1 if the text was
// accepted and rendered.
func withinCost(t *testing.T, text string) int {
	t.Helper()
	a, err := analyze(text)
	if err != nil {
		return 0
	}
	rendered := 0
	for _, nasty := range []string{"0", "<", "'", `"`, "\x00", "\xff", "ΐ", "é", "\U000e0001", "%", " ", "1.", "a.", "January", "\\"} {
		all, size := map[string]string{}, 0
		for _, word := range slices.Sorted(maps.Keys(a.words)) {
			size += len(word) + valueSize + 4
			switch {
			case nasty == "0":
				all[word] = nasty
			case size < labelsSize:
				all[word] = strings.Repeat(nasty, valueSize/len(nasty))
			}
		}
		query := func(context.Context, string, time.Time) (prom.Vector, error) {
			return slices.Repeat(prom.Vector{{F: 1e300, Metric: labels.FromMap(all)}}, entries), nil
		}
		smpl := prom.Sample{F: -1.2345678901234567e-300}
		if a.histogram {
			smpl.H = &histogram.FloatHistogram{Count: 1, Sum: 1}
		}
		d := template.AlertTemplateData(all, all, "http://prometheus.example.com", smpl)
		start := ruletest.CPUTime(t)
		out, err := template.NewTemplateExpander(t.Context(), preamble+text, mainTemplate, d, model.TimeFromUnix(1_700_000_000), query, &url.URL{Scheme: "http", Host: "prometheus.example.com"}, nil).Expand()
		if took := ruletest.CPUTime(t) - start; took > ruletest.FuzzLimit {
			t.Errorf("%q: it takes %v with %q", text, took, nasty)
		}
		if len(out) > a.cost {
			t.Fatalf("%q renders %d bytes with %q, more than its cost %d", text, len(out), nasty, a.cost)
		}
		if err == nil {
			rendered = 1
		}
	}
	return rendered
}

// parts of texts, and of pipelines and arguments with a place for another one.
var (
	parts = []string{
		"{", "}", "{ x", "a\nb", "{{/* c */}}", `{{ "{" }}`, "{{ $labels.a }}", "{{- $value -}}", " ", `{{ print 1 "x" nil }}`, "{{ .Labels }}", "{{ . }}",
		`{{ $x := 1 }}{{ $x }}`, `{{ range $i, $v := $labels }}{{ $i }}={{ $v }},{{ else }}none{{ end }}`, `{{ range $labels }}{{ if eq . "x" }}{{ continue }}{{ end }}{{ . }}{{ end }}`,
		`{{ with $labels.b }}{{ . }}{{ else with $labels.a }}{{ . | toUpper }}{{ else }}z{{ end }}`, `{{ if and 1 (or 0 "") }}a{{ else if 1 }}b{{ end }}`,
		`{{ (query "up" | first).Value | humanize }}`, `{{ with $v := $value }}{{ $v }}{{ end }}`, "{{ (toTime 1).Year }}", `{{ $m := args }}{{ $m.x }}{{ index $m "y" }}`, `{{ printf "%v %T %q" $value $value "x" }}`,
		`{{ range query "up" }}{{ .Labels.a }}{{ .Value }}{{ end }}`, `{{ html "<{{" }}`, "{{ 1.5e3 }}{{ 'x' }}{{ `raw` }}", `{{ query "up" }}`, `{{ query "up" | first }}`,
		`{{ len $labels }}{{ not 1 }}{{ $.Value }}`, `{{ index $labels "a" | print "x" }}`, "{{ $value.Sum }}{{ $value }}", `{{ with . }}{{ .Labels.c }}{{ end }}`,
	}
	operands = []string{
		".", "$", "$labels", "$labels.a", "$externalLabels", "$value", "$x", "$y", "$externalURL", `"<'\"\xff"`, `"January 2006 MST .000000000"`, "1", "1e308", "1e308i", "'x'", "nil", "true",
		"(args . $x)", "(args $labels $labels)", "(args 1 2 3)", "(toTime 1)", "(toDuration 3)", `(query "up")`, `(query "up" | first)`, `(index (query "up") 0)`, "now", "(print)", "($y := 1)",
	}
	calls = []string{
		"print # #", "println #", `printf "%v" #`, `printf "%99.99v %#q % #x" # #`, `printf "%#99b %+q %[1]99d" #`, `printf "%d %#v %U" # # #`, `printf "%f%99.99f" # #`, `printf "%T %s%[1]s%[1]s" #`, `printf "x" # #`, `printf "% #x" #`, `printf "%+q" #`,
		"html #", "js #", "urlquery # #", "urlQueryEscape #", "title #", "toUpper #", "toLower #", "graphLink #", "tableLink #", "safeHtml #", "stripPort #", "stripDomain #",
		`reReplaceAll "" "xx$0" #`, `reReplaceAll "(.*)" "$1$1$1" #`, `reReplaceAll "." "é" #`, `match "a*" #`, "args # # #", "and # #", "or # #", `index # "a"`, "slice # 0", "len #", "eq # #", "humanize #", "humanizeTimestamp #", "humanizeDuration #",
		"(toTime 1).Format #", `label "a" #`, "first #", "value #", "not #", "parseDuration #", "toTime #", "(toTime #).UTC", "(#).Labels", "(#).arg0", "(#).a", "call #", `sortByLabel "a" #`,
	}
	statements = []string{
		"{{ @ }}", "{{ $x := @ }}", "{{ $y := @ }}", "{{ $x = @ }}", "{{ $y = @ }}", "{{ if @ }}{{ $x = @ }}{{ end }}&", "{{ with @ }}&{{ else }}&{{ end }}", "{{ with $x := @ }}&&{{ end }}", "{{ if @ }}&{{ else }}&{{ end }}", `{{ range query "up" }}&{{ end }}`, "{{ range $x, $y := $labels }}&{{ end }}",
		"{{ range $x := @ }}&{{ end }}", "{{ @ | print }}", "{{ @ | html | js }}", "{{ $x := @ }}{{ $x }}&", "some text é <",
	}
)

var place = regexp.MustCompile(`[@#&]`)

// TestResultsAreWithinTheirCost renders random texts that try to make their results large.
func TestResultsAreWithinTheirCost(t *testing.T) {
	t.Parallel()
	rnd := ruletest.Random()
	var fill func(s string, depth int) string
	fill = func(s string, depth int) string {
		return place.ReplaceAllStringFunc(s, func(p string) string {
			switch {
			case p == "&" && depth > 4:
				return ""
			case p == "&":
				return fill(ruletest.Pick(rnd, statements), depth+1)
			case depth > 5 || rnd.IntN(3) == 0:
				return ruletest.Pick(rnd, operands)
			case p == "#":
				return "(" + fill(ruletest.Pick(rnd, calls), depth+1) + ")"
			default:
				return fill(ruletest.Pick(rnd, calls), depth+1)
			}
		})
	}
	rendered := 0
	for range 1500 {
		var text strings.Builder
		text.WriteString(`{{ $x := "<" }}{{ $y := $labels }}`)
		for range 1 + rnd.IntN(4) {
			text.WriteString(fill(ruletest.Pick(rnd, statements), 0))
		}
		rendered += withinCost(t, text.String())
	}
	if rendered < 100 {
		t.Errorf("only %d texts were rendered", rendered)
	}
}

// TestSizesAreUpperLimits compares the size of the result of each call with what is printed.
func TestSizesAreUpperLimits(t *testing.T) {
	var names strings.Builder
	for i := range 200 {
		fmt.Fprintf(&names, "{{ $labels.%s%d }}", ruletest.Long("l", 30), i)
	}
	manyLabels := names.String()
	type printed struct{ before, call string }
	all := []printed{}
	for _, call := range []string{"print $labels", "print .", `printf "%99v" $labels`, `printf "%99q" $labels`, `query "up" | first`, `index (query "up") 0`} {
		all = append(all, printed{manyLabels, call})
	}
	for _, call := range calls {
		for _, nasty := range []string{"<", "'", `\"`, `\x00`, `\xff`, "ΐ", "é", `\U000e0001`, " ", "January", "2006", "MST", "ΐ "} {
			all = append(all, printed{`{{ $a := "` + strings.Repeat(nasty, 400) + `" }}`, strings.ReplaceAll(call, "#", "$a")})
		}
		for _, operand := range []string{"$labels", "1e308", "1e308i", "(args 1 2 3 4 5 6 7 8)", "(args 1e308 1e308)", `(query "up")`, `(query "up" | first)`, "(toTime 1)", "(toDuration 1)", "$value", "."} {
			all = append(all, printed{"{{ $labels.a }}", strings.ReplaceAll(call, "#", operand)})
		}
	}
	compared := 0
	for _, p := range all {
		a, err := analyze(p.before + "{{ $r := " + p.call + " }}MARK{{ $r }}")
		if err != nil {
			continue
		}
		for _, sample := range samples {
			out, err := a.expand(sample, NewBudget())
			if err != nil {
				continue
			}
			compared++
			if _, out, _ = strings.Cut(out, "MARK"); len(out) > a.vars["$r"].size {
				t.Errorf("%s with %.60s prints %d bytes, more than %d", p.call, p.before, len(out), a.vars["$r"].size)
			}
		}
	}
	if compared < 500 {
		t.Errorf("only %d results were compared", compared)
	}
}
