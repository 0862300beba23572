package promql

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/rulefleet/rulefleet/pkg/rule/internal/ruletest"
)

func TestSelectors(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		expr string
		want []string
	}{
		"a metric":                               {"up == 0", []string{"up"}},
		"matchers are sorted":                    {`up{job="a",instance!~"b.*"}`, []string{`up{instance!~"b.*",job="a"}`}},
		"several, sorted":                        {"b / a > 0", []string{"a", "b"}},
		"each once":                              {"a / (a + a) > 0", []string{"a"}},
		"both sides of and":                      {"a == 0 and on(x) b > 0", []string{"a", "b"}},
		"in aggregations":                        {"sum by (x) (topk(3, a)) > quantile(0.9, b)", []string{"a", "b"}},
		"a range":                                {"rate(a[5m]) > 0", []string{"a"}},
		"a subquery":                             {"max_over_time(rate(a[5m])[1h:1m] offset 1d) > 0", []string{"a"}},
		"offset and @":                           {"a offset 5m - a @ 10 - a @ start() - a offset -1h > 0", []string{"a"}},
		"anchored and smoothed":                  {"rate(a[5m] anchored) > 0 and b smoothed", []string{"a", "b"}},
		"an offset that is computed":             {"a offset (5m + 1m)", []string{"a"}},
		"absent":                                 {"absent(a) and absent_over_time(b[5m])", nil},
		"present_over_time":                      {"present_over_time(a[1h]) * absent(b)", nil},
		"the right of unless":                    {"a unless (b > c)", []string{"a"}},
		"the right of or":                        {"(a or vector(0)) > 1 or b", nil},
		"the left of unless, on the right of or": {"a or (b unless c)", []string{"a", "b"}},
		"what info looks for":                    {`info(a, {__name__="x_info"})`, []string{"a"}},
		"info by itself":                         {"info(a, {})", []string{"a"}},
		"Prometheus' own":                        {`ALERTS{alertname="A"} and ALERTS_FOR_STATE and {__name__="ALERTS"} and a`, []string{"a"}},
		"a name that is matched":                 {`{__name__=~"a|b"}`, []string{`{__name__=~"a|b"}`}},
		"a name in quotes":                       {`{"a.b", x="y"}`, []string{`{__name__="a.b",x="y"}`}},
		"UTF-8 labels":                           {`a{"b.c"="d"}`, []string{`a{"b.c"="d"}`}},
		"no selector":                            {"vector(1)", nil},
		"a number":                               {"1", nil},
		"what does not parse":                    {"sum(", nil},
		"nothing":                                {"", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := slices.Concat(Needs(c.expr)...)
			if !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
			for _, s := range got {
				roundTrips(t, s)
			}
		})
	}
}

func TestNeedsOfResult(t *testing.T) {
	t.Parallel()
	for expr, want := range map[string]bool{
		"1": true,
		"sum by (job) (rate(a[5m])) / on (job) b": true,
		"a or b":                            true,
		"a == bool 1":                       true,
		"topk(3, a)":                        true,
		"a > 1":                             false,
		"sum(a == 0)":                       false,
		"a and b":                           false,
		"a unless b":                        false,
		"absent(a)":                         false,
		"absent_over_time(a[5m])":           false,
		"a offset 1w":                       false,
		"a @ 10":                            false,
		"a @ start()":                       false,
		"max_over_time(rate(a[5m])[1h:1m])": false,
		"count(ALERTS)":                     false,
		`{__name__="ALERTS_FOR_STATE"}`:     false,
		"a or ALERTS":                       false,
		"present_over_time(a[1h])":          false,
		"limitk(0, a)":                      false,
		"limit_ratio(0.1, a)":               false,
		`info(a, {x=~".+"})`:                false,
		"sum(":                              false,
	} {
		if _, got := NeedsOfResult(expr); got != want {
			t.Errorf("%s: %v", expr, got)
		}
	}
}

// roundTrips tells whether a selector is one to the parser, and stays as it is.
func roundTrips(t *testing.T, s string) {
	t.Helper()
	parsed, err := Stable.ParseExpr(s)
	if err != nil {
		t.Errorf("%s: %v", s, err)
		return
	}
	if _, ok := parsed.(*parser.VectorSelector); !ok {
		t.Errorf("%s is a %T", s, parsed)
	}
	if again := Needs(s); !slices.EqualFunc(again, [][]string{{s}}, slices.Equal) {
		t.Errorf("%s becomes %q", s, again)
	}
}

func TestSelectorNeeds(t *testing.T) {
	t.Parallel()
	many := "a0"
	for i := range 100 {
		many = fmt.Sprintf("%s * a%d", many, i)
	}
	for name, c := range map[string]struct {
		expr string
		want [][]string
	}{
		"both":                    {"a and b", [][]string{{"a"}, {"b"}}},
		"one of two":              {"b or a", [][]string{{"a", "b"}}},
		"one of three":            {"a or b or c", [][]string{{"a", "b", "c"}}},
		"one of two, and another": {"max(a or b) > c", [][]string{{"a", "b"}, {"c"}}},
		"two or one":              {"(a / b) or c", [][]string{{"a", "c"}, {"b", "c"}}},
		"the same on both sides":  {"a > 1 or a < 0", [][]string{{"a"}}},
		"a side is never empty":   {"a or vector(0)", nil},
		"a side is there to be":   {"a or absent(b)", nil},
		"too much to tell":        {fmt.Sprintf("(%s) or (%s)", many, many), nil},
		"many of many":            {"a" + ruletest.Long(" or b", 70) + " or " + many, nil},
		"a sum, and an or in it":  {"a + (b or c)", [][]string{{"a"}, {"b", "c"}}},
		"an or of other ors":      {"(a or b) + (c or d)", [][]string{{"a", "b"}, {"c", "d"}}},
		"more than can be told":   {"a0" + manyOrs(70), nil},
		"what does not parse":     {"(", nil},
		"what costs too much":     {ruletest.Long("(", 8000) + "a" + ruletest.Long(")", 8000), nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := Needs(c.expr); !slices.EqualFunc(got, c.want, slices.Equal) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func manyOrs(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, " or a%d", i+1)
	}
	return b.String()
}

func TestMetricName(t *testing.T) {
	t.Parallel()
	for selector, want := range map[string]string{
		"up":                       "up",
		`up{job="a"}`:              "up",
		`{__name__="up",job="a"}`:  "up",
		`{"a.b"}`:                  "a.b",
		`{__name__=~"up"}`:         "",
		`{__name__!="up",job="a"}`: "",
		`{job="a"}`:                "",
		"sum(up)":                  "",
		"up[5m]":                   "",
		"(":                        "",
	} {
		t.Run(selector, func(t *testing.T) {
			if got := MetricName(selector); got != want {
				t.Errorf("%s: got %q, want %q", selector, got, want)
			}
		})
	}
}
