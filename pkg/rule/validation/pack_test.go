package validation

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/internal/ruletest"
)

// patched returns an edit that adds a patch.
func patched(name string, edit func(*v1alpha1.RulePatch)) func(*v1alpha1.RulePack) {
	return func(p *v1alpha1.RulePack) {
		patch := v1alpha1.RulePatch{ClusterSelection: ruletest.EveryCluster(), Rule: name}
		edit(&patch)
		p.Spec.Patches = append(p.Spec.Patches, patch)
	}
}

// Each error names the field and, for a rule, its name and that of its group.
func TestPackRefuses(t *testing.T) {
	alert := func(p *v1alpha1.RulePack) *monitoringv1.Rule { return &p.Spec.Groups[0].Rules[1] }
	const path, named = "spec.groups[0].rules[1]", "rule ErrorsHigh of group requests: "
	for name, tc := range map[string]struct {
		edit    func(*v1alpha1.RulePack)
		field   string
		message string // its beginning
	}{
		"no group":         {func(p *v1alpha1.RulePack) { p.Spec.Groups = nil }, "spec.groups", "at least one group"},
		"no name":          {func(p *v1alpha1.RulePack) { p.Spec.Groups[1].Name = "" }, "spec.groups[1].name", "a name is required"},
		"a name twice":     {func(p *v1alpha1.RulePack) { p.Spec.Groups[1].Name = "requests" }, "spec.groups[1].name", `duplicate value "requests"`},
		"a long name":      {func(p *v1alpha1.RulePack) { p.Spec.Groups[1].Name = ruletest.Long("x", 254) }, "spec.groups[1].name", "longer than 253 bytes"},
		"interval":         {func(p *v1alpha1.RulePack) { p.Spec.Groups[0].Interval = new(monitoringv1.Duration("soon")) }, "spec.groups[0].interval", "not a Prometheus duration"},
		"query_offset":     {func(p *v1alpha1.RulePack) { p.Spec.Groups[0].QueryOffset = new(monitoringv1.Duration("x")) }, "spec.groups[0].query_offset", "not a Prometheus duration"},
		"limit":            {func(p *v1alpha1.RulePack) { p.Spec.Groups[0].Limit = new(-1) }, "spec.groups[0].limit", "must not be negative"},
		"strategy":         {func(p *v1alpha1.RulePack) { p.Spec.Groups[0].PartialResponseStrategy = "hope" }, "spec.groups[0].partial_response_strategy", `"hope" is not valid`},
		"labels":           {func(p *v1alpha1.RulePack) { p.Spec.Groups[0].Labels = map[string]string{"__x": ""} }, "spec.groups[0].labels[__x]", "names that begin with __"},
		"a group's text":   {func(p *v1alpha1.RulePack) { p.Spec.Groups[0].Labels = map[string]string{"x": "{{ nothing }}"} }, "spec.groups[0].labels[x]", "not a valid Prometheus template"},
		"both kinds":       {func(p *v1alpha1.RulePack) { alert(p).Record = "x" }, path, named + "alert and record are both set"},
		"neither kind":     {func(p *v1alpha1.RulePack) { alert(p).Alert = "" }, path, "rule without a name of group requests: alert or record is required"},
		"no expression":    {func(p *v1alpha1.RulePack) { alert(p).Expr = intstr.FromString("") }, path + ".expr", named + "an expression is required"},
		"an expression":    {func(p *v1alpha1.RulePack) { alert(p).Expr = intstr.FromString("up ==\n  == 0") }, path + ".expr", named + "2:3: "},
		"for":              {func(p *v1alpha1.RulePack) { alert(p).For = new(monitoringv1.Duration("x")) }, path + ".for", named + "not a Prometheus duration"},
		"keep_firing_for":  {func(p *v1alpha1.RulePack) { alert(p).KeepFiringFor = new(monitoringv1.NonEmptyDuration("x")) }, path + ".keep_firing_for", named + "not a Prometheus duration"},
		"a label":          {func(p *v1alpha1.RulePack) { alert(p).Labels = map[string]string{"a-b": ""} }, path + ".labels[a-b]", named + "invalid name"},
		"a text":           {func(p *v1alpha1.RulePack) { alert(p).Annotations["summary"] = "{{ nothing }}" }, path + ".annotations[summary]", named + "not a valid Prometheus template"},
		"a series":         {func(p *v1alpha1.RulePack) { p.Spec.Groups[1].Rules[0].Record = "a-b" }, "spec.groups[1].rules[0].record", `rule a-b of group time: "a-b" is not a valid name of a metric`},
		"for of a series":  {func(p *v1alpha1.RulePack) { p.Spec.Groups[1].Rules[0].For = new(monitoringv1.Duration("1m")) }, "spec.groups[1].rules[0]", "rule one of group time: a recording rule cannot have for"},
		"no placement":     {func(p *v1alpha1.RulePack) { p.Spec.Placement = v1alpha1.ClusterSelection{} }, "spec.placement", "no cluster is selected"},
		"state":            {func(p *v1alpha1.RulePack) { p.Spec.State = "On" }, "spec.state", `"On" is not valid`},
		"namespace":        {func(p *v1alpha1.RulePack) { p.Spec.RuleNamespace = "A" }, "spec.ruleNamespace", `"A" is not a valid namespace name`},
		"an empty patch":   {patched("Watchdog", func(*v1alpha1.RulePatch) {}), "spec.patches[0]", "a patch must change something"},
		"a nameless patch": {patched("", func(p *v1alpha1.RulePatch) { p.For = "1m" }), "spec.patches[0].rule", "the name of a rule is required"},
		"a patch for none": {patched("Watchdog", func(p *v1alpha1.RulePatch) { p.For, p.ClusterSelection = "1m", v1alpha1.ClusterSelection{} }), "spec.patches[0]", "no cluster is selected"},
		"a patch's text":   {patched("Watchdog", func(p *v1alpha1.RulePatch) { p.Expr = "up ==" }), "spec.patches[0].expr", "1:6: "},
		"a patch with for of a series": {
			patched("one", func(p *v1alpha1.RulePatch) { p.For = "1m" }), "spec.patches[0]", "rule one of group time is a recording rule",
		},
		"a patch for too many": {
			func(p *v1alpha1.RulePack) {
				r := monitoringv1.Rule{Alert: "X", Expr: intstr.FromString("vector(0)")}
				p.Spec.Groups = []monitoringv1.RuleGroup{{Name: "g", Rules: slices.Repeat([]monitoringv1.Rule{r}, 500)}}
				patched("X", func(p *v1alpha1.RulePatch) { p.Expr = ruletest.Long("(", 3000) + "1" + ruletest.Long(")", 3000) })(p)
			}, "spec.patches[0].expr", "the expressions of the rules and patches take too long to parse",
		},
		"a tenant's namespace": {
			func(p *v1alpha1.RulePack) { p.Namespace, p.Spec.RuleNamespace = "shop", "other" }, "spec.ruleNamespace", "a RulePack in namespace shop can only write to namespace shop",
		},
		"among the generated": {func(p *v1alpha1.RulePack) { p.Namespace = tenancy.GeneratedNamespace }, "metadata.namespace", "must be another one"},
		"too many rules": {
			func(p *v1alpha1.RulePack) { p.Spec.Groups[0].Rules = make([]monitoringv1.Rule, rule.MaxPackRules+1) }, "spec.groups", "the groups have 503 rules",
		},
		"too large": {
			func(p *v1alpha1.RulePack) { alert(p).Annotations["x"] = ruletest.Long("x", rule.MaxPack) }, "spec", "the spec has 5",
		},
	} {
		t.Run(name, func(t *testing.T) {
			bad := Pack(ruletest.Pack(t, tc.edit), tenancy)
			if bad == nil || bad.Field != tc.field || !strings.HasPrefix(bad.Message, tc.message) {
				t.Errorf("%s: %v, want %s: %s", name, bad, tc.field, tc.message)
			}
		})
	}
}

func TestPackAccepts(t *testing.T) {
	for name, edit := range map[string]func(*v1alpha1.RulePack){
		"everything":           func(*v1alpha1.RulePack) {},
		"a tenant's":           func(p *v1alpha1.RulePack) { p.Namespace = "shop" },
		"no placeholder":       func(p *v1alpha1.RulePack) { p.Spec.Groups[0].Rules[1].Annotations["x"] = "$(anything)" },
		"a brace in a label":   func(p *v1alpha1.RulePack) { p.Spec.Groups[1].Rules[0].Labels = map[string]string{"x": "{{ nothing }}"} },
		"a patch that is late": patched("Gone", func(p *v1alpha1.RulePatch) { p.Disabled = new(true) }),
		"500 rules": func(p *v1alpha1.RulePack) {
			p.Spec.Groups = []monitoringv1.RuleGroup{{Name: "g"}}
			for i := range rule.MaxPackRules {
				p.Spec.Groups[0].Rules = append(p.Spec.Groups[0].Rules, monitoringv1.Rule{
					Alert: fmt.Sprintf("A%d", i), Labels: map[string]string{"severity": "warning"},
					Expr:        intstr.FromString(`100 * sum by (namespace, pod) (rate(container_cpu_cfs_throttled_periods_total{container!=""}[5m])) / sum by (namespace, pod) (rate(container_cpu_cfs_periods_total[5m])) > (25 / 100)`),
					Annotations: map[string]string{"summary": `{{ $value | humanizePercentage }} throttling of CPU in namespace {{ $labels.namespace }} for pod {{ $labels.pod }}.`},
				})
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			begun := time.Now()
			if bad := Pack(ruletest.Pack(t, edit), tenancy); bad != nil {
				t.Error(bad)
			}
			t.Logf("%v", time.Since(begun))
		})
	}
}

// What only tenants must not do, they must not do in a RulePack either.
func TestPackOfATenantRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		edit  func(*v1alpha1.RulePack)
		field string
	}{
		"interval":          {func(p *v1alpha1.RulePack) { p.Spec.Groups[0].Interval = new(monitoringv1.Duration("1s")) }, "spec.groups[0].interval"},
		"labels of a group": {func(p *v1alpha1.RulePack) { p.Spec.Groups[0].Labels = map[string]string{"team": "a"} }, "spec.groups[0].labels[team]"},
		"labels of an alert": {
			func(p *v1alpha1.RulePack) { p.Spec.Groups[0].Rules[1].Labels["team"] = "a" }, "spec.groups[0].rules[1].labels[team]",
		},
		"query in a group": {
			func(p *v1alpha1.RulePack) { p.Spec.Groups[0].Labels = map[string]string{"x": `{{ query "up" }}`} }, "spec.groups[0].labels[x]",
		},
		"labels of a patch": {patched("Watchdog", func(p *v1alpha1.RulePatch) { p.Labels = ruletest.Texts{"team": "a"} }), "spec.patches[0].labels[team]"},
		"query": {
			func(p *v1alpha1.RulePack) { p.Spec.Groups[0].Rules[1].Annotations["x"] = `{{ query "up" }}` }, "spec.groups[0].rules[1].annotations[x]",
		},
		"another namespace": {
			func(p *v1alpha1.RulePack) {
				p.Spec.Groups[0].Rules[0].Expr = intstr.FromString(`up{namespace="other"}`)
			}, "spec.groups[0].rules[0].expr",
		},
	} {
		t.Run(name, func(t *testing.T) {
			pack := ruletest.Pack(t, func(p *v1alpha1.RulePack) { p.Spec.Groups[0].Labels = nil }, tc.edit, func(p *v1alpha1.RulePack) { p.Namespace = "shop" })
			if bad := Pack(pack, strict); bad == nil || bad.Field != tc.field {
				t.Errorf("%s: %v", name, bad)
			}
			pack.Namespace = strict.AdminNamespace
			if bad := Pack(pack, strict); bad != nil {
				t.Errorf("%s, of an administrator: %v", name, bad)
			}
		})
	}
}

func TestPackWarnings(t *testing.T) {
	pack := ruletest.Pack(t, func(p *v1alpha1.RulePack) { p.Spec.Groups[1].Rules[1].Labels = map[string]string{"cluster": "x"} },
		patched("Watchdog", func(p *v1alpha1.RulePatch) { p.Group, p.For = "time", "1m" }),
		patched("Watchdog", func(p *v1alpha1.RulePatch) { p.Group, p.For = "requests", "1m" }))
	want := []string{
		"spec.groups[1].rules[1].labels[cluster] is overwritten with " + clusterLabelValue + "; remove it, or use another label",
		"spec.patches[1] matches no rule (rule Watchdog of group requests); correct it, or remove it",
	}
	if got := PackWarnings(pack, strict); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("the warnings are %q", got)
	}
	pack.Namespace, pack.Spec.Groups[0].Rules[0].Labels = "shop", map[string]string{"team": "a", "namespace": "b"}
	stored := "spec.groups[0].rules[0].labels[team] is protected, and is removed from the alert; remove it here, or from the chart value tenants.protectedLabels"
	if got := strings.Join(PackWarnings(pack, strict), "\n"); !strings.Contains(got, stored) || !strings.Contains(got, "spec.groups[0].rules[0].labels[namespace] is overwritten") {
		t.Errorf("of a tenant, the warnings are %q", got)
	}
}
