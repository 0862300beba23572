package parameter

import (
	"strings"
	"testing"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

const (
	num      = v1alpha1.NumberParameter
	dur      = v1alpha1.DurationParameter
	quant    = v1alpha1.QuantityParameter
	huge     = "is too large"
	noNumber = "is not a number; use a form such as 0.99"
)

func TestValues(t *testing.T) {
	for in, want := range map[struct {
		kind v1alpha1.ParameterType
		text string
	}]struct{ number, quoted, duration string }{
		{num, "5"}:        {"5", "5", ""},
		{num, "0.30"}:     {"0.3", "0.30", ""},
		{num, "-5"}:       {"(-5)", "-5", ""},
		{num, "+1e3"}:     {"1000", "+1e3", ""},
		{num, "-0"}:       {"0", "-0", ""},
		{num, "0e999"}:    {"0", "0e999", ""},
		{num, "9e18"}:     {"9000000000000000000", "9e18", ""},
		{num, "1e-18"}:    {"0.000000000000000001", "1e-18", ""},
		{quant, "500m"}:   {"0.5", "0.5", ""},
		{quant, "100m"}:   {"0.1", "0.1", ""},
		{quant, "2Gi"}:    {"2147483648", "2147483648", ""},
		{quant, "-1k"}:    {"(-1000)", "-1000", ""},
		{quant, "1e3"}:    {"1000", "1000", ""},
		{quant, "1E"}:     {"1000000000000000000", "1000000000000000000", ""},
		{dur, "5m"}:       {"300", "5m", "5m"},
		{dur, "90m"}:      {"5400", "90m", "1h30m"},
		{dur, "1500ms"}:   {"1.5", "1500ms", "1s500ms"},
		{dur, "1y2w3d4h"}: {"33019200", "1y2w3d4h", "382d4h"},
	} {
		t.Run(string(in.kind)+" "+in.text, func(t *testing.T) {
			v, err := Parse(in.kind, in.text)
			if err != nil {
				t.Fatal(err)
			}
			if v.Number() != want.number || v.Quoted() != want.quoted || v.Text() != in.text || v.IsDuration() && v.Duration() != want.duration {
				t.Errorf("got %q, %q, %q, %q", v.Number(), v.Quoted(), v.Text(), v.Duration())
			}
		})
	}
}

func TestWrongValues(t *testing.T) {
	for in, want := range map[struct {
		kind v1alpha1.ParameterType
		text string
	}]string{
		{num, "NaN"}: noNumber, {num, "Inf"}: noNumber, {num, "+Inf"}: noNumber, {num, "0x10"}: noNumber, {num, "1_000"}: noNumber,
		{num, ""}: noNumber, {num, "."}: noNumber, {num, "1 or up"}: noNumber, {num, "5m"}: noNumber, {num, "1e"}: noNumber, {num, "5\n"}: noNumber,
		{num, "1e999"}: huge, {num, "-1e400"}: huge, {num, "1e19"}: huge, {num, "1e-400"}: "is too small", {num, "1e9999"}: noNumber,
		{num, strings.Repeat("1", 33)}: "longer than 32 characters",
		{dur, "5"}:                     "is not a Prometheus duration; use a form such as 30s", {dur, "-5m"}: "is not a Prometheus duration", {dur, "300y"}: "accepts up to 292y",
		{dur, "0s"}: "is zero; use a longer duration", {dur, "0"}: "is zero",
		{quant, "5x"}: "is not a quantity; use a form such as 500m or 2Gi", {quant, "1e999999"}: "is not a quantity", {quant, "10E"}: huge, {quant, "9e99"}: huge,
		{"text", "x"}: `unknown type "text"; use number, duration or quantity`,
	} {
		t.Run(string(in.kind)+" "+in.text, func(t *testing.T) {
			if v, err := Parse(in.kind, in.text); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %+v, %v", v, err)
			}
		})
	}
}

func TestCheck(t *testing.T) {
	p := func(edit func(*v1alpha1.Parameter)) []v1alpha1.Parameter {
		good := v1alpha1.Parameter{Name: "threshold", Type: num, Default: "5", Minimum: "1", Maximum: "10"}
		edit(&good)
		return []v1alpha1.Parameter{{Name: "window", Type: dur, Default: "5m"}, good}
	}
	for name, c := range map[string]struct {
		parameters  []v1alpha1.Parameter
		field, want string
	}{
		"valid":            {p(func(*v1alpha1.Parameter) {}), "", ""},
		"at a bound":       {p(func(p *v1alpha1.Parameter) { p.Default = "1.0" }), "", ""},
		"without bounds":   {p(func(p *v1alpha1.Parameter) { p.Minimum, p.Maximum = "", "" }), "", ""},
		"no name":          {p(func(p *v1alpha1.Parameter) { p.Name = "" }), "spec.parameters[1].name", "is not a valid name; use at most 63 letters"},
		"name":             {p(func(p *v1alpha1.Parameter) { p.Name = "a.b" }), "spec.parameters[1].name", "is not a valid name"},
		"twice":            {p(func(p *v1alpha1.Parameter) { p.Name = "window" }), "spec.parameters[1].name", `duplicate value "window"; use another name`},
		"type":             {p(func(p *v1alpha1.Parameter) { p.Type = "string" }), "spec.parameters[1].type", "use number, duration or quantity"},
		"no default":       {p(func(p *v1alpha1.Parameter) { p.Default = "" }), "spec.parameters[1].default", "a default is required"},
		"default's type":   {p(func(p *v1alpha1.Parameter) { p.Default = "5m" }), "spec.parameters[1].default", noNumber},
		"default, small":   {p(func(p *v1alpha1.Parameter) { p.Default = "0.5" }), "spec.parameters[1].default", "0.5 is smaller than the minimum; use at least 1"},
		"default, large":   {p(func(p *v1alpha1.Parameter) { p.Default = "11" }), "spec.parameters[1].default", "11 is larger than the maximum; use at most 10"},
		"minimum's type":   {p(func(p *v1alpha1.Parameter) { p.Minimum = "1s" }), "spec.parameters[1].minimum", noNumber},
		"maximum's type":   {p(func(p *v1alpha1.Parameter) { p.Maximum = "x" }), "spec.parameters[1].maximum", noNumber},
		"bounds":           {p(func(p *v1alpha1.Parameter) { p.Minimum = "11" }), "spec.parameters[1].minimum", "the minimum 11 is larger than the maximum 10; correct one of them"},
		"many":             {make([]v1alpha1.Parameter, 17), "spec.parameters", "at most 16 are allowed"},
		"units of bounds":  {p(func(p *v1alpha1.Parameter) { p.Type, p.Default, p.Minimum, p.Maximum = quant, "1Gi", "900M", "2Gi" }), "", ""},
		"units, too small": {p(func(p *v1alpha1.Parameter) { p.Type, p.Default, p.Minimum, p.Maximum = dur, "30s", "1m", "2h" }), "spec.parameters[1].default", "use at least 1m"},
	} {
		t.Run(name, func(t *testing.T) {
			bad := Check(c.parameters)
			if (bad == nil) != (c.field == "") || bad != nil && (bad.Field != c.field || !strings.Contains(bad.Message, c.want)) {
				t.Errorf("got %v", bad)
			}
		})
	}
}

// The extremes of a parameter are its bounds, and without bounds, values of both signs.
func TestExtremes(t *testing.T) {
	got := Extremes([]v1alpha1.Parameter{
		{Name: "bounded", Type: num, Default: "5", Minimum: "2", Maximum: "7"},
		{Name: "free", Type: num, Default: "5"},
		{Name: "below", Type: num, Default: "-5", Maximum: "-3"},
		{Name: "above", Type: num, Default: "5", Minimum: "3"},
		{Name: "window", Type: dur, Default: "5m", Minimum: "1m"},
	})
	for i, want := range []map[string]string{
		{"bounded": "2", "free": "(-1)", "below": "(-5)", "above": "3", "window": "60"},
		{"bounded": "7", "free": "1", "below": "(-3)", "above": "5", "window": "300"},
	} {
		for name, number := range want {
			if got[i][name].Number() != number {
				t.Errorf("%d: %s is %s", i, name, got[i][name].Number())
			}
		}
	}
}
