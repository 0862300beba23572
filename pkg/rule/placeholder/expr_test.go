package placeholder

import (
	"strings"
	"testing"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
)

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
			got, f := ForCluster(eu.Name, eu.Labels).expr(in)
			if f != nil || got != want {
				t.Errorf("expr(%s)\n got %s, %v\nwant %s", in, got, f, want)
			}
		})
	}
}

func TestExprAtGenerateTime(t *testing.T) {
	d := Workload{Kind: v1alpha1.DeploymentKind, Cluster: "eu-1", Namespace: "shop", Name: "web", Annotations: map[string]string{
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
			got, f := ForWorkload(d, nil).expr(in)
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
		`up{a=~"\\$(cluster.name)"}`:                           "1:10: the regular expression is not valid after the placeholder is replaced, for example by x: ",
		`up{a=~"(?$(cluster.name))"}`:                          "the regular expression is not valid",
		`up{a=~"(?P<$(cluster.name)>x)"}`:                      "the regular expression is not valid",
		`up{a=~"\\Q$(cluster.name)\\E"}`:                       `can't be used together with \Q`,
		`up{a=~"b{$(cluster.name)}"}`:                          "the regular expression is not valid",
		`up{a=~"b{1,$(cluster.name)0}"}`:                       "the regular expression is not valid",
		"up{a=~`\\p{$(cluster.name)}`}":                        "the regular expression is not valid",
		`label_replace(up, "a", "", "b", "[$(cluster.name)]")`: "character class",
	} {
		t.Run(in, func(t *testing.T) {
			_, f := ForCluster(eu.Name, eu.Labels).expr(in)
			if f == nil {
				t.Errorf("expr(%s): no error", in)
				return
			}
			if got := rule.InvalidExpr(in, f).Message; !strings.Contains(got, want) {
				t.Errorf("expr(%s)\n got %s\nwant %s", in, got, want)
			}
		})
	}
	// Alternatives share prefixes and become classes when they are parsed; that is
	// nothing to refuse.
	for _, in := range []string{`up{a=~"$(cluster.name)|b|[^c]|$(cluster.labels.region)"}`, `up{a=~"(?i)$(cluster.name)x|$(cluster.name)y"}`} {
		if _, f := ForCluster(eu.Name, eu.Labels).expr(in); f != nil {
			t.Errorf("expr(%s): %v", in, f)
		}
	}
}
