package placeholder

import (
	"strings"
	"testing"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/internal/ruletest"
	"github.com/rulefleet/rulefleet/pkg/rule/parameter"
	"github.com/rulefleet/rulefleet/pkg/rule/promql"
)

var values = parameter.Defaults([]v1alpha1.Parameter{
	{Name: "x", Type: v1alpha1.NumberParameter, Default: "5"},
	{Name: "minus", Type: v1alpha1.NumberParameter, Default: "-5"},
	{Name: "w", Type: v1alpha1.DurationParameter, Default: "90m"},
	{Name: "q", Type: v1alpha1.QuantityParameter, Default: "500m"},
})

func TestParametersInExpressions(t *testing.T) {
	st := ForWorkload(Workload{Kind: v1alpha1.StatefulSetKind, Namespace: "shop", Name: "db"}, values)
	for in, want := range map[string]string{
		`up > $(params.x)`:                                   `up > 5`,
		`up>$(params.x)`:                                     `up>5`,
		`up - $(params.minus)^2`:                             `up - (-5)^2`,
		`up-$(params.minus)`:                                 `up-(-5)`,
		`topk($(params.x),up)`:                               `topk(5,up)`,
		`rate(a[$(params.w)]) > bool $(params.q)`:            `rate(a[1h30m]) > bool 0.5`,
		`max_over_time(up[ $(params.w):1m ])`:                `max_over_time(up[ 1h30m:1m ])`,
		`max_over_time(up[1h:$(params.w)])`:                  `max_over_time(up[1h:1h30m])`,
		`up offset $(params.w)`:                              `up offset 1h30m`,
		`up offset -$(params.w)`:                             `up offset -1h30m`,
		`up offset 5m - $(params.w)`:                         `up offset 5m - 5400`,
		`time() - a > $(params.w)`:                           `time() - a > 5400`,
		`up offset ($(params.w) + 1m)`:                       `up offset (1h30m + 1m)`,
		`up{a="$(params.q)", b='$(params.w)'} > $(params.x)`: `up{a="0.5", b='90m'} > 5`,
		`up{a=~"$(params.q)"}`:                               `up{a=~"0\\.5"}`,
		"up{a=`\\`} > $(params.x) # \"\n+ $(params.x)":       "up{a=`\\`} > 5 # \"\n+ 5",
		`up{a="\"$$(params.x)"} > $(params.x)`:               `up{a="\"$$(params.x)"} > 5`,
		`up{a="$(workload.name)", k="$(workload.kind)"}`:     `up{a="db", k="StatefulSet"}`,
		`up{a="$(cluster.name)"} > $(params.x)`:              `up{a="$(cluster.name)"} > 5`,
	} {
		t.Run(in, func(t *testing.T) {
			got, f := st.expr(in)
			if f != nil || got != want {
				t.Errorf("expr(%s)\n got %s, %v\nwant %s", in, got, f, want)
			}
			rendered, f := ForCluster("eu", nil).expr(got)
			if f != nil {
				t.Fatal(f)
			}
			if _, f := promql.Parse(rendered, promql.Any); f != nil {
				t.Errorf("%s: %v", rendered, f)
			}
		})
	}
}

func TestParametersThatAreRefused(t *testing.T) {
	const joined, only = "is joined to the text beside it", "a placeholder is only allowed in a string literal"
	for in, want := range map[string]string{
		`up > foo$(params.x)`:         "1:9: $(params.x) is joined",
		`up > $(params.x)m`:           joined,
		`up > 1$(params.x)`:           joined,
		`up > $(params.x)0`:           joined,
		`up > $(params.x).5`:          joined,
		`up > 0.$(params.x)`:          joined,
		`up > 1e$(params.x)`:          joined,
		`up > 1e-$(params.x)`:         joined,
		`up > 0x$(params.x)`:          joined,
		`up > $(params.x)e5`:          joined,
		`up > $(params.x)$(params.x)`: joined,
		`up > 1_$(params.x)`:          joined,
		`up[$(params.w)5m]`:           joined,
		`abs$(params.minus)`:          joined,
		`vector $(params.minus)`:      "1:8: $(params.minus) stands after a name",
		`up @ $(params.x)`:            "stands after @",
		`up @ -$(params.x)`:           "stands after @",
		`up[$(params.x)]`:             "1:4: $(params.x) is used as a duration, but is not of type duration",
		`up[5m:$(params.q)]`:          "is used as a duration",
		`up offset $(params.x)`:       "is used as a duration",
		`up offset -$(params.x)`:      "is used as a duration",
		`up offset (5m+$(params.x))`:  "is used as a duration",
		`up > $(params.y)`:            "1:6: $(params.y) is not defined; use one of minus, q, w, x, or add the parameter",
		`up{a="$(params.y)"}`:         "is not defined; use one of",
		`up > $(params.x`:             "1:6: placeholder $(params.x is not closed",
		`up > $(params.x y)`:          "1:6: placeholder $(params.x y) has an invalid key",
		`up > $(params.)`:             "has an invalid key",
		`up # $(params.x)`:            "1:6: " + only,
		`up > $$(params.x)`:           only,
		`up > $(workload.name)`:       "1:6: " + only,
		`up > $(param.x)`:             only,
		`up{$(params.x)="a"}`:         only,
		`up{a="$(deployment.name)"}`:  "$(deployment.name) is only available in a template whose spec.workloads.kinds is [Deployment]; write $(workload.name) instead",
		`up{a="$(deployment.kind)"}`:  "unknown placeholder",
	} {
		t.Run(in, func(t *testing.T) {
			got, f := ForWorkload(Workload{Kind: v1alpha1.StatefulSetKind}, values).expr(in)
			if f == nil {
				t.Fatalf("expr(%s) = %s", in, got)
			}
			if got := rule.InvalidExpr(in, f).Message; !strings.Contains(got, want) {
				t.Errorf("expr(%s)\n got %s\nwant %s", in, got, want)
			}
		})
	}
	for _, in := range []string{`up > $(params.x)`, `up{a="$(params.x)"}`} {
		if _, f := ForCluster("eu", nil).expr(in); f == nil || !strings.Contains(f.Message, "only available in an AlertRuleTemplate") {
			t.Errorf("%s in an AlertRule: %v", in, f)
		}
		if _, f := ForWorkload(Workload{}, nil).expr(in); f == nil || !strings.Contains(f.Message, "add the parameter to spec.parameters") {
			t.Errorf("%s without parameters: %v", in, f)
		}
	}
}

func TestParametersInTexts(t *testing.T) {
	got, f := ForWorkload(Workload{Kind: v1alpha1.CronJobKind, Name: "job"}, values).text("$(workload.kind) $(workload.name): $(params.q) in $(params.w), $(params.minus)")
	if f != nil || got != "CronJob job: 500m in 90m, -5" {
		t.Errorf("got %q, %v", got, f)
	}
}

// The shape of an expression has its length, and its tokens everywhere else.
func TestShape(t *testing.T) {
	rnd := ruletest.Random()
	shards := append([]string{"$(params.x)", "$(params.w)", "up", "[", "]", ">", `"`, "'", "`", "\\", "#", "\n"}, ruletest.Shards...)
	replaced := 0
	for range 20_000 {
		var b strings.Builder
		for range rnd.IntN(8) {
			b.WriteString(ruletest.Pick(rnd, shards))
		}
		in := b.String()
		shape := Shape(in)
		if len(shape) != len(in) {
			t.Fatalf("Shape(%q) = %q", in, shape)
		}
		if shape != in {
			replaced++
		}
	}
	if replaced == 0 {
		t.Error("nothing was replaced")
	}
}
