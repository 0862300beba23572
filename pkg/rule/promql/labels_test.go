package promql

import (
	"strings"
	"testing"
)

func TestResultLabels(t *testing.T) {
	for expr, c := range map[string]struct{ has, lacks string }{
		`up`:                              {"a __name__", ""},
		`up{a="", b="x", c!=""}`:          {"b c d", "a"},
		`1 > bool 0`:                      {"", "a"},
		`time()`:                          {"", "a"},
		`vector(1)`:                       {"", "a"},
		`up > 1`:                          {"a", ""},
		`1 < -(up)`:                       {"a", ""},
		`sum(up)`:                         {"", "a"},
		`sum by (a) (up)`:                 {"a", "b"},
		`sum without (a) (up)`:            {"b", "a __name__"},
		`sum by (a, b) (up{a=""})`:        {"b", "a"},
		`topk by (a) (1, up)`:             {"a b", ""},
		`count_values("v", up)`:           {"v", "a"},
		`count_values by (a) ("v", up)`:   {"v a", "b"},
		`up and sum(up)`:                  {"a", ""},
		`sum(up) and up`:                  {"", "a"},
		`sum(up) or up`:                   {"a", ""},
		`sum by (a) (up) unless up`:       {"a", "b"},
		`up / on (a) up`:                  {"a", "b"},
		`up == on (a) up`:                 {"a", "b"},
		`up / ignoring (a) up`:            {"b", "a"},
		`up / up`:                         {"a", ""},
		`up / sum by (a) (up)`:            {"a b", ""},
		`sum by (a) (up) / up`:            {"a", "b"},
		`up * on (a) group_left (b) info`: {"a b c", ""},
		`sum by (a) (up) * on (a) group_left (b) info`:  {"a b", "c"},
		`up{b=""} * on (a) group_left (b) sum(up)`:      {"c", "b"},
		`sum(up) * on () group_right (b) up`:            {"a", "b"},
		`label_replace(sum(up), "a", "x", "b", "(.*)")`: {"a", "b"},
		`label_join(sum(up), "a", ",", "b", "c")`:       {"a", "b"},
		`absent(up{a="x", b=~"y", c=""})`:               {"a", "b c d"},
		`absent_over_time(up{a="x"}[5m])`:               {"a", "b"},
		`absent(sum(up{a="x"}))`:                        {"", "a"},
		`rate(up[5m])`:                                  {"a", ""},
		`max_over_time(sum by (a) (up)[5m:1m])`:         {"a", "b"},
		`histogram_quantile(0.9, sum by (le) (up))`:     {"le", "a"},
		`clamp_max(sum(up), 1)`:                         {"", "a"},
		`hour() > 5`:                                    {"", "a"},
		`info(sum(up))`:                                 {"a", ""},
		`scalar(up) > bool 1`:                           {"", "a"},
		`sum(up) > bool scalar(up)`:                     {"", "a"},
		`up + fill(0) sum by (a) (up)`:                  {"a b", ""},
	} {
		t.Run(expr, func(t *testing.T) {
			tree, err := Any.ParseExpr(expr)
			if err != nil {
				t.Errorf("%s: %v", expr, err)
				return
			}
			for label := range strings.FieldsSeq(c.has) {
				if !MayHaveLabel(tree, label) {
					t.Errorf("%s: it is said to have no %s", expr, label)
				}
			}
			for label := range strings.FieldsSeq(c.lacks) {
				if MayHaveLabel(tree, label) {
					t.Errorf("%s: it is said to have %s", expr, label)
				}
			}
		})
	}
}
