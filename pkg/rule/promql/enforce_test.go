package promql

import (
	"slices"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

func TestEnforceNamespace(t *testing.T) {
	for expr, want := range map[string]string{
		`up == 0`:                                           `up{namespace="shop"} == 0`,
		`up{namespace="shop",a="b"}`:                        `up{a="b",namespace="shop"}`,
		`up{namespace=~".*"}`:                               `up{namespace="shop",namespace=~".*"}`,
		`up{namespace!=""}`:                                 `up{namespace!="",namespace="shop"}`,
		`{"a.b"}`:                                           `{"a.b",namespace="shop"}`,
		`sum by (x) (rate(a[5m] offset 1m))`:                `sum by (x) (rate(a{namespace="shop"}[5m] offset 1m))`,
		`topk(scalar(secret), up)`:                          `topk(scalar(secret{namespace="shop"}), up{namespace="shop"})`,
		`quantile(scalar(secret), vector(1))`:               `quantile(scalar(secret{namespace="shop"}), vector(1))`,
		`max_over_time(a[1h:1m] @ end())`:                   `max_over_time(a{namespace="shop"}[1h:1m] @ end())`,
		`a unless on () absent(b) or (c and d)`:             `a{namespace="shop"} unless on () absent(b{namespace="shop"}) or (c{namespace="shop"} and d{namespace="shop"})`,
		`label_replace(a, "namespace", "payments", "", "")`: `label_replace(a{namespace="shop"}, "namespace", "payments", "", "")`,
		"-a # {b}\n > bool -1":                              `-a{namespace="shop"} > bool -1`,
		`predict_linear(a[5m], scalar(b))`:                  `predict_linear(a{namespace="shop"}[5m], scalar(b{namespace="shop"}))`,
		`time() > bool 1`:                                   `time() > bool 1`,
	} {
		t.Run(expr, func(t *testing.T) {
			got, f := enforceNamespace(expr, "shop")
			if f != nil {
				t.Fatal(f)
			}
			if Canonical(got) != Canonical(want) {
				t.Errorf("it is %s, want %s", got, want)
			}
			if again, f := enforceNamespace(got, "shop"); f != nil || again != got {
				t.Errorf("enforced again, it is %s, %v", again, f)
			}
		})
	}
}

// FuzzEnforceNamespace: whatever an expression is, each selector of the result has the matcher.
func FuzzEnforceNamespace(f *testing.F) {
	for _, expr := range []string{
		`up`, `{"a.b", namespace=~"x|shop"}`, `topk(scalar(a), b)`, `a[5m:] @ start()`, `absent_over_time(a{b="c"}[1m])`, "a # b\n",
		`count_values("x", a)`, `info(a, {b="c"})`, `a anchored`, `a[5m] smoothed`, `limitk(1, a) or on() group_left() b`, `a{namespace="x\"y"}`, "a[step()]",
	} {
		f.Add(expr)
	}
	f.Fuzz(func(t *testing.T, expr string) {
		if len(expr) > 4096 {
			t.Skip()
		}
		got, bad := enforceNamespace(expr, "shop")
		if bad != nil {
			return
		}
		tree, err := Any.ParseExpr(got)
		if err != nil {
			t.Fatalf("%s becomes %s: %v", expr, got, err)
		}
		for _, selector := range parser.ExtractSelectors(tree) {
			if !slices.ContainsFunc(selector, func(m *labels.Matcher) bool {
				return m.Name == "namespace" && m.Type == labels.MatchEqual && m.Value == "shop"
			}) {
				t.Errorf("%s becomes %s, with the selector %v", expr, got, selector)
			}
		}
	})
}
