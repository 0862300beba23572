package compat

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/internal/ruletest"
)

func TestEvaluatorRelease(t *testing.T) {
	for version, want := range map[string]string{
		"2.53.1": "2.53", "v3.14.0": "3.14", "2.30": "2.30", "v3.0.0-rc.1": "3.0", "v3.5.0-distroless": "3.5",
		"": "", "main": "", "v2.53.1-dev": "", "2": "", "v0.39.2": "", "1.8.2": "", "v2.99999": "", "sha256:1.2": "", "2.30x": "",
	} {
		t.Run(version, func(t *testing.T) {
			e := &rule.Evaluator{Version: version}
			got, known := releaseOf(e)
			if known != (want != "") || known && got.String() != want {
				t.Errorf("%q: got %v, %v", version, got, known)
			}
		})
	}
	if _, err := Parse("latest", ""); err == nil {
		t.Error("latest is taken for a release")
	}
	if e, err := Parse("", ""); e != nil || err != nil {
		t.Errorf("nothing: %v, %v", e, err)
	}
	if e, err := Parse("", " a, b,"); err != nil || !slices.Equal(e.Features, []string{"a", "b"}) {
		t.Errorf("features alone: %v, %v", e, err)
	}
}

func TestEvaluators(t *testing.T) {
	query := func(expr string) v1alpha1.AlertSpec { return v1alpha1.AlertSpec{Alert: "A", Expr: expr} }
	note := func(text v1alpha1.LabelText) v1alpha1.AlertSpec {
		return v1alpha1.AlertSpec{Alert: "A", Expr: "up", Annotations: ruletest.Texts{"a": text}}
	}
	const functions = "promql-experimental-functions"
	for _, c := range []struct {
		alert         v1alpha1.AlertSpec
		takes, breaks string // releases, and features after a space
		field, expect string
	}{
		{query("acos(up)"), "2.31", "2.30", "spec.expr", `1:1: Prometheus 2.30 of the spoke does not support function "acos"; 2.31 or later is required` + "\nacos(up)\n^"},
		{query("up + (up atan2 up)"), "2.31", "2.30", "spec.expr", `1:7: Prometheus 2.30 of the spoke does not support operator "atan2"; 2.31 or later is required`},
		{query("group(up)"), "2.20", "2.19", "spec.expr", `aggregation "group"; 2.20 or later is required`},
		{query("last_over_time(up[5m])"), "2.26", "2.25", "spec.expr", "2.26"},
		{query("present_over_time(up[5m])"), "2.29", "2.28", "spec.expr", "2.29"},
		{query("day_of_year()"), "2.36", "", "", ""},
		{query("histogram_fraction(0, 1, up)"), "2.40", "2.39", "spec.expr", "2.40"},
		{query("histogram_stddev(up)"), "2.47", "2.46", "spec.expr", "2.47"},
		{query("histogram_avg(up)"), "2.51", "2.50", "spec.expr", "2.51"},
		{query("up @ 1"), "2.33", "2.32", "spec.expr", `modifier "@"`},
		{query("up @ start()"), "2.25 promql-at-modifier", "2.25", "spec.expr", `supports modifier "@" only with --enable-feature=promql-at-modifier`},
		{query("max_over_time(up[5m:1m] @ end())"), "2.33", "2.24 promql-at-modifier", "spec.expr", `2.25 or later with --enable-feature=promql-at-modifier is required`},
		{query("up offset -5m"), "2.33", "2.32", "spec.expr", "negative offsets"},
		{query("rate(up[5m] offset -5m)"), "2.26 promql-negative-offset", "2.26", "spec.expr", "negative offsets"},
		{query("up offset 5m"), "2.0", "", "", ""},
		{query(`{"a.b"}`), "3.0", "2.54", "spec.expr", `1:2: Prometheus 2.54 of the spoke does not support quoted names, as in {"a.b"}; 2.55 or later with --enable-feature=utf8-names is required`},
		{query(`up{"a.b"="c"}`), "2.55 utf8-names", "2.55", "spec.expr", "1:4: "},
		{query(`sum by (a, "b.c") (up)`), "3.14", "2.53", "spec.expr", "1:12: "},
		{query(`up{a="b.c", d=~'x'} and on (e) label_replace(up, "a", "b", "c", "d")`), "2.0", "", "", ""},
		{query("up > 1_000"), "2.54", "2.53", "spec.expr", "underscores in numbers"},
		{query("time() - up > 10m"), "2.54", "2.53", "spec.expr", "durations in place of numbers"},
		{query("rate(up[300])"), "2.54", "2.53", "spec.expr", "1:9: "},
		{query("limitk(1, up)"), "2.54 " + functions, "2.54", "spec.expr", `supports aggregation "limitk" only with --enable-feature=promql-experimental-functions`},
		{query("sort_by_label(up, 'a')"), "2.49 x," + functions, "3.14", "spec.expr", functions},
		{query("info(up)"), "2.55 " + functions, "2.54 " + functions, "spec.expr", "with --enable-feature=" + functions},
		{query("first_over_time(up[5m])"), "3.14", "3.13", "spec.expr", functions},
		{query("first_over_time(up[5m])"), "3.7 " + functions, "3.6 " + functions, "spec.expr", "3.7"},
		{query("ts_of_max_over_time(up[5m])"), "3.5 " + functions, "3.4 " + functions, "spec.expr", "3.5"},
		{query("increase(up[5m] anchored)"), "3.7 promql-extended-range-selectors", "3.14", "spec.expr", "anchored"},
		{query("up + fill(0) up"), "3.10 promql-binop-fill-modifiers", "3.9 promql-binop-fill-modifiers", "spec.expr", "fill"},
		{query("rate(up[5m*2])"), "3.14", "3.13", "spec.expr", "arithmetic with durations"},
		{query("rate(up[5m*2])"), "3.4 promql-duration-expr", "3.3 promql-duration-expr", "spec.expr", "arithmetic with durations"},
		{query("rate(up[step()+1m])"), "3.6 promql-duration-expr", "3.5 promql-duration-expr", "spec.expr", `duration "step()"`},
		{query("up >/ 1"), "3.11", "3.10", "spec.expr", `operator ">/"`},
		{v1alpha1.AlertSpec{Alert: "A", Expr: "up", KeepFiringFor: "1m"}, "2.42", "2.41", "spec.keepFiringFor", "keep_firing_for; 2.42 or later is required"},
		{note("{{ $value | toTime }}"), "2.38", "2.37", "spec.annotations[a]", `template function "toTime"; 2.38 or later is required`},
		{note("{{ $externalURL }}"), "2.28", "2.27", "spec.annotations[a]", `template variable "$externalURL"`},
		{note("{{ if $labels.now }}{{ end }}"), "2.5", "", "", ""},
		{note("{{ now }}"), "3.6", "3.5", "spec.annotations[a]", "3.6"},
		{note("{{ (stripDomain (urlQueryEscape $labels.a)) }}"), "3.8", "3.7", "spec.annotations[a]", "urlQueryEscape"},
	} {
		t.Run(c.alert.Expr, func(t *testing.T) {
			check := func(spec string) *rule.Invalid {
				version, features, _ := strings.Cut(spec, " ")
				e := rule.Evaluator{Version: version, Features: strings.Split(features, ","), Chosen: true}
				return CheckChosen(c.alert, rule.Cluster{Name: "eu-1", Evaluators: []rule.Evaluator{{Version: "main", Chosen: true}, e}})
			}
			if c.takes != "" {
				if bad := check(c.takes); bad != nil {
					t.Errorf("%s: %s: %v", c.alert.Expr, c.takes, bad)
				}
			}
			if c.breaks == "" {
				return
			}
			bad := check(c.breaks)
			if bad == nil || bad.Reason != v1alpha1.ReasonUnsupported || bad.Field != c.field || !strings.Contains(bad.Message, c.expect) {
				t.Errorf("%s %s: %s: got %+v\nwant %s: %s", c.alert.Expr, c.alert.Annotations, c.breaks, bad, c.field, c.expect)
			}
		})
	}
}

// A Prometheus of which nothing is known is not held against anything.
func TestUnknownEvaluators(t *testing.T) {
	alert := v1alpha1.AlertSpec{Alert: "A", Expr: `{"a.b"} @ 1`, KeepFiringFor: "1m"}
	for _, version := range []string{"", "main", "v0.39.2"} {
		t.Run(version, func(t *testing.T) {
			if bad := CheckChosen(alert, rule.Cluster{Evaluators: []rule.Evaluator{{Version: version, Chosen: true}}}); bad != nil {
				t.Errorf("%q: %v", version, bad)
			}
		})
	}
}

// Functions that came with Prometheus 2.0 or before. What a later version of the
// library brings belongs into functionCame, with its release.
var functionsOfOld = strings.Fields(`abs absent avg_over_time ceil changes clamp_max clamp_min count_over_time day_of_month
	day_of_week day_of_year days_in_month delta deriv exp floor histogram_quantile hour idelta increase irate label_join label_replace ln
	log10 log2 max_over_time min_over_time minute month predict_linear quantile_over_time rate resets round scalar sort
	sort_desc sqrt stddev_over_time stdvar_over_time sum_over_time time timestamp vector year`)

func TestFunctionsAreKnown(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(parser.Functions)) {
		c, later := functionCame[name]
		if later == slices.Contains(functionsOfOld, name) {
			t.Errorf("%s: since which release does Prometheus have it?", name)
		}
		if needsFlag := c.flag != "" && c.stable == (release{}); later && needsFlag != parser.Functions[name].Experimental {
			t.Errorf("%s: experimental here: %v, in the library: %v", name, needsFlag, parser.Functions[name].Experimental)
		}
	}
	for name := range functionCame {
		if parser.Functions[name] == nil {
			t.Errorf("%s is no function", name)
		}
	}
}
