package rule

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// eu is a spoke with names that mean something to PromQL.
var eu = Cluster{Name: "eu.1", Labels: map[string]string{
	"region": "eu", "quotes": `"'` + "`", "dollar": "$1", "empty": "", "bad": "a\ufffdb", "line": "a\nb", "slash": `\d`,
}}

func TestExprAtRenderTime(t *testing.T) {
	for in, want := range map[string]string{
		`up == 0`:                                      `up == 0`,
		`up{a="$x", b='$'} # $`:                        `up{a="$x", b='$'} # $`,
		`up{c="$(cluster.name)"}`:                      `up{c="eu.1"}`,
		`up{c=~"$(cluster.name)"}`:                     `up{c=~"eu\\.1"}`,
		`up{c!~'$(cluster.name)|x.*'}`:                 `up{c!~'eu\\.1|x.*'}`,
		"up{c=~`$(cluster.name)`}":                     "up{c=~`eu\\.1`}",
		`up{c!="$(cluster.name)", d=~"a.b"}`:           `up{c!="eu.1", d=~"a.b"}`,
		`up{c="\u0061\"$(cluster.name)\\"}`:            `up{c="\u0061\"eu.1\\"}`,
		`up{c="$$(cluster.name)"}`:                     `up{c="$(cluster.name)"}`,
		`up{c="$$$(cluster.name)"}`:                    `up{c="$eu.1"}`,
		`up{c="$(cluster.labels.quotes)"}`:             `up{c="\"'` + "`" + `"}`,
		`up{c='$(cluster.labels.quotes)'}`:             `up{c='"\'` + "`" + `'}`,
		"up{c=`\\$(cluster.labels.quotes)`}":           `up{c="\\\"'` + "`" + `"}`,
		"up{c=`\n$(cluster.labels.line)`}":             `up{c="\na\nb"}`,
		`up{c="$(cluster.labels.bad)"}`:                `up{c="a\ufffdb"}`,
		"up{c=`$(cluster.labels.bad)`}":                `up{c="a\ufffdb"}`,
		`up{c="$(cluster.labels.empty)"}`:              `up{c=""}`,
		`up{c=~"($(cluster.name))?"}`:                  `up{c=~"(eu\\.1)?"}`,
		`up{c=~"$(cluster.name)?"}`:                    `up{c=~"(?:eu\\.1)?"}`,
		`up{c=~"$(cluster.labels.empty)*"}`:            `up{c=~"(?:)*"}`,
		`up{c=~"a{2}$(cluster.name){2}"}`:              `up{c=~"a{2}(?:eu\\.1){2}"}`,
		"up{c=~ # why\n'$(cluster.name)'}":             "up{c=~ # why\n'eu\\\\.1'}",
		`count_values("$(cluster.labels.region)", up)`: `count_values("eu", up)`,
		`label_replace(up, "a", "$1-$(cluster.labels.dollar)", "b", "(.*)$(cluster.name)")`:                             `label_replace(up, "a", "$1-$$1", "b", "(.*)eu\\.1")`,
		`label_replace(up{a=~"x,y"}, "$(cluster.name)", ("$(cluster.name)"), "$(cluster.name)", (("$(cluster.name)")))`: `label_replace(up{a=~"x,y"}, "eu.1", ("eu.1"), "eu.1", (("eu\\.1")))`,
		`label_replace(sum by (a, b) (up), "a", "b", label_join(up, "$(cluster.name)", ",", "x"), "$(cluster.name)")`:   `label_replace(sum by (a, b) (up), "a", "b", label_join(up, "eu.1", ",", "x"), "eu\\.1")`,
		`up{c="$(cluster.name)"}[5m:1m] offset 1h`:                                                                      `up{c="eu.1"}[5m:1m] offset 1h`,
	} {
		t.Run(in, func(t *testing.T) {
			got, f := renderStage(eu.Name, eu.Labels).expr(in)
			if f != nil || got != want {
				t.Errorf("expr(%s)\n got %s, %v\nwant %s", in, got, f, want)
			}
		})
	}
}

func TestExprAtGenerateTime(t *testing.T) {
	d := deployment{Cluster: "eu-1", Namespace: "shop", Name: "web", Annotations: map[string]string{
		"dollar": "$", "open": "(cluster.name)", "all": "$(cluster.name)", "back": "`",
	}}
	for in, want := range map[string]string{
		`up{a="$(deployment.name)", b=~"$(cluster.name)"}`:                       `up{a="web", b=~"$(cluster.name)"}`,
		`up{a="$$(deployment.name)"}`:                                            `up{a="$$(deployment.name)"}`,
		`up{a="$(deployment.annotations.all)"}`:                                  `up{a="$$(cluster.name)"}`,
		`up{a="$(deployment.annotations.dollar)$(deployment.annotations.open)"}`: `up{a="$$(cluster.name)"}`,
		`up{a="$(deployment.annotations.dollar)(cluster.name)"}`:                 `up{a="$$(cluster.name)"}`,
		`up{a="$(deployment.annotations.dollar)$(cluster.name)"}`:                `up{a="$$$(cluster.name)"}`,
		`up{a="$(deployment.annotations.dollar)$$(cluster.name)"}`:               `up{a="$$$$(cluster.name)"}`,
		`up{a=~"$(deployment.annotations.dollar)(x)"}`:                           `up{a=~"\\$$(x)"}`,
		"up{a=`$(deployment.annotations.back)$(cluster.name)\\`}":                "up{a=\"`$(cluster.name)\\\\\"}",
	} {
		t.Run(in, func(t *testing.T) {
			got, f := generateStage(d).expr(in)
			if f != nil || got != want {
				t.Errorf("expr(%s)\n got %s, %v\nwant %s", in, got, f, want)
			}
		})
	}
}

func TestExprRefuses(t *testing.T) {
	const misplacedMessage = "a placeholder is only allowed in a string literal"
	for in, want := range map[string]string{
		`up{a="x"} > $(cluster.name)`:                          "1:13: " + misplacedMessage,
		"up ==\n  $$(cluster.name)":                            "2:3: " + misplacedMessage,
		`up{a=$(cluster.name)}`:                                "1:6: " + misplacedMessage,
		`up[$(cluster.name)]`:                                  "1:4: " + misplacedMessage,
		"up # of $(cluster.name)\n":                            "1:9: " + misplacedMessage,
		`sum(up{a="$(x)"})`:                                    "1:11: unknown placeholder $(x)",
		`up{a="é", b="x$(x)"}`:                                 "1:16: unknown placeholder $(x)",
		`up{a="$(cluster.labels.none)"}`:                       `1:7: SpokeCluster eu.1 has no label "none"`,
		`up{a="$(cluster.name)}`:                               "1:6: unterminated quoted string",
		`up{a="\$(cluster.name)"}`:                             "1:6: unknown escape sequence",
		`up{a=~"[$(cluster.name)]"}`:                           "1:9: a placeholder is not allowed in a character class",
		`up{a=~"[^$(cluster.name)-z]"}`:                        "1:10: ",
		`up{a=~"\\$(cluster.name)"}`:                           "1:10: the regular expression is not valid when a plain value replaces the placeholder",
		`up{a=~"(?$(cluster.name))"}`:                          "the regular expression is not valid",
		`up{a=~"(?P<$(cluster.name)>x)"}`:                      "the regular expression is not valid",
		`up{a=~"\\Q$(cluster.name)\\E"}`:                       `can't be used together with \Q`,
		`up{a=~"b{$(cluster.name)}"}`:                          "the regular expression is not valid",
		`up{a=~"b{1,$(cluster.name)0}"}`:                       "the regular expression is not valid",
		"up{a=~`\\p{$(cluster.name)}`}":                        "the regular expression is not valid",
		`label_replace(up, "a", "", "b", "[$(cluster.name)]")`: "character class",
	} {
		t.Run(in, func(t *testing.T) {
			_, f := renderStage(eu.Name, eu.Labels).expr(in)
			if f == nil {
				t.Errorf("expr(%s): no error", in)
				return
			}
			if got := invalidExpr(in, f).Message; !strings.Contains(got, want) {
				t.Errorf("expr(%s)\n got %s\nwant %s", in, got, want)
			}
		})
	}
	// Alternatives share prefixes and become classes when they are parsed; that is
	// nothing to refuse.
	for _, in := range []string{`up{a=~"$(cluster.name)|b|[^c]|$(cluster.labels.region)"}`, `up{a=~"(?i)$(cluster.name)x|$(cluster.name)y"}`} {
		if _, f := renderStage(eu.Name, eu.Labels).expr(in); f != nil {
			t.Errorf("expr(%s): %v", in, f)
		}
	}
}

// matcher parses a selector with one matcher, as Prometheus does.
func matcher(expr string) (*labels.Matcher, error) {
	tree, err := promQL.ParseExpr(expr)
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
func passExpr(expr string, w Workload) (string, error) {
	template := newTemplate(func(t *v1alpha1.AlertRuleTemplate) { t.Spec.Expr = expr })
	r, err := Generate(template, w, "generated")
	if err != nil {
		return "", err
	}
	if bad := Validate(r, ValidateOptions{GeneratedNamespace: "generated"}); bad != nil {
		return "", fmt.Errorf("validating of %s: %w", r.Spec.Expr, bad)
	}
	p, err := Render(r, w.Cluster, options)
	if err != nil {
		return "", fmt.Errorf("rendering of %s: %w", r.Spec.Expr, err)
	}
	return p.Spec.Groups[0].Rules[0].Expr.StrVal, nil
}

func TestValuesStayLiteralInPromQL(t *testing.T) {
	t.Parallel()
	rnd := random()
	quotes := []string{`"`, `'`, "`"}
	literals := []string{"", "a", "x ", "é"}
	for range 120 {
		w := newWorkload(func(w *Workload) {
			w.Annotations, w.Cluster.Labels = map[string]string{"a": nasty(rnd)}, map[string]string{"b": nasty(rnd)}
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
	for _, s := range shards {
		f.Add(s, s)
	}
	f.Add("", long("\U000e0001", 300))
	f.Add("$", "(cluster.name)")
	f.Add(`\`, `"}`)
	f.Fuzz(func(t *testing.T, a, b string) {
		w := newWorkload(func(w *Workload) {
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
