package gotemplate

import (
	"strings"
	"testing"

	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/internal/ruletest"
)

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
		if len(text) > rule.MaxText {
			t.Skip()
		}
		defer ruletest.Watch()()
		start := ruletest.CPUTime(t)
		err := checkGoTemplate(text, NewBudget())
		if took := ruletest.CPUTime(t) - start; took > ruletest.FuzzLimit {
			t.Errorf("it takes %v", took)
		}
		if err != nil {
			if len(err.Error()) > rule.MaxMessage || !strings.Contains(text, "_") && strings.Contains(err.Error(), stepFunc) {
				t.Errorf("%d bytes: %v", len(err.Error()), err)
			}
			return
		}
		compareInstrumented(t, text)
	})
}
