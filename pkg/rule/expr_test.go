package rule_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule/delivery"
	"github.com/rulefleet/rulefleet/pkg/rule/internal/ruletest"
	"github.com/rulefleet/rulefleet/pkg/rule/promql"
	"github.com/rulefleet/rulefleet/pkg/rule/templating"
	"github.com/rulefleet/rulefleet/pkg/rule/validation"
)

// matcher parses a selector with one matcher, as Prometheus does.
func matcher(expr string) (*labels.Matcher, error) {
	tree, err := promql.Stable.ParseExpr(expr)
	if err != nil {
		return nil, err
	}
	selector, ok := tree.(*parser.VectorSelector)
	if !ok || len(selector.LabelMatchers) != 2 { // the other is the metric's name
		return nil, fmt.Errorf("%s is no selector with one matcher", expr)
	}
	for _, m := range selector.LabelMatchers {
		if m.Name == "l" {
			return m, nil
		}
	}
	return nil, fmt.Errorf("%s has no matcher on l", expr)
}

// passExpr takes an expression through both stages.
func passExpr(expr string, w templating.Workload) (string, error) {
	template := ruletest.Template(func(t *v1alpha1.AlertRuleTemplate) { t.Spec.Expr = expr })
	r, err := templating.Rule(template, w, "generated")
	if err != nil {
		return "", err
	}
	if bad := validation.Rule(r, validation.Options{GeneratedNamespace: "generated"}); bad != nil {
		return "", fmt.Errorf("validating of %s: %w", r.Spec.Expr, bad)
	}
	p, err := delivery.Render(r, w.Cluster, options)
	if err != nil {
		return "", fmt.Errorf("rendering of %s: %w", r.Spec.Expr, err)
	}
	return p.Spec.Groups[0].Rules[0].Expr.StrVal, nil
}

func TestValuesStayLiteralInPromQL(t *testing.T) {
	t.Parallel()
	rnd := ruletest.Random()
	quotes := []string{`"`, `'`, "`"}
	literals := []string{"", "a", "x ", "é"}
	for range 120 {
		w := newWorkload(func(w *templating.Workload) {
			w.Annotations, w.Cluster.Labels = map[string]string{"a": ruletest.Nasty(rnd)}, map[string]string{"b": ruletest.Nasty(rnd)}
		})
		quote, before, after := quotes[rnd.IntN(3)], literals[rnd.IntN(4)], literals[rnd.IntN(4)]
		value := before + w.Annotations["a"] + w.Cluster.Labels["b"] + after
		literal := quote + before + "$(deployment.annotations.a)$(cluster.labels.b)" + after + quote
		for _, op := range []string{"=", "!=", "=~", "!~"} {
			expr, err := passExpr("m{l"+op+literal+"}", w)
			if err != nil {
				t.Fatalf("l%s%s with %q: %v", op, literal, value, err)
			}
			m, err := matcher(expr)
			if err != nil {
				t.Fatalf("l%s%s with %q: %v", op, literal, value, err)
			}
			want := value
			if strings.HasSuffix(op, "~") {
				want = before + regexp.QuoteMeta(w.Annotations["a"]+w.Cluster.Labels["b"]) + after
				if m.Matches(value) != (op == "=~") || m.Matches(value+"x") == (op == "=~") {
					t.Fatalf("%s does not match %q alone", expr, value)
				}
			}
			if m.Type.String() != op || m.Value != want {
				t.Fatalf("%s means %s, want l%s%q", expr, m, op, want)
			}
		}
	}
}

func FuzzExpr(f *testing.F) {
	for _, s := range ruletest.Shards {
		f.Add(s, s)
	}
	f.Add("", ruletest.Long("\U000e0001", 300))
	f.Add("$", "(cluster.name)")
	f.Add(`\`, `"}`)
	f.Fuzz(func(t *testing.T, a, b string) {
		w := newWorkload(func(w *templating.Workload) {
			w.Annotations, w.Cluster.Labels = map[string]string{"a": a}, map[string]string{"b": b}
		})
		short := max(len(a), len(b)) < 300
		a, b = strings.ToValidUTF8(a, "\uFFFD"), strings.ToValidUTF8(b, "\uFFFD")
		for _, quote := range []string{`"`, `'`, "`"} {
			literal := quote + "<$(deployment.annotations.a)$(cluster.labels.b)>" + quote
			for op, want := range map[string]string{"=": "<" + a + b + ">", "=~": "<" + regexp.QuoteMeta(a+b) + ">"} {
				expr, err := passExpr("m{l"+op+literal+"}", w)
				if err != nil {
					if short {
						t.Errorf("a %q, b %q: %v", a, b, err)
					}
					continue // too long: refused, and told
				}
				m, err := matcher(expr)
				if err != nil || m.Value != want {
					t.Errorf("a %q, b %q: %s means %v, %v", a, b, expr, m, err)
					continue
				}
				value := "<" + a + b + ">"
				if !m.Matches(value) || m.Matches(value+"x") || m.Matches("x"+value) || m.Matches("") {
					t.Errorf("a %q, b %q: %s does not match %q alone", a, b, expr, value)
				}
			}
		}
	})
}
