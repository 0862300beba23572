package rule_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/delivery"
	"github.com/rulefleet/rulefleet/pkg/rule/internal/ruletest"
	"github.com/rulefleet/rulefleet/pkg/rule/validation"
)

func TestRender(t *testing.T) {
	longName := strings.Repeat("long-name.", 25) + "end" // 253 characters
	spoke := rule.Cluster{Name: "eu-1", Labels: map[string]string{"region": "eu", "nasty": "\"'`\\\n{{ .Labels }} $(cluster.name) 🚀"}}
	for name, c := range map[string]struct {
		rule    *v1alpha1.AlertRule
		cluster rule.Cluster
		options delivery.Options
	}{
		"minimal": {ruletest.Rule(), spoke, delivery.Options{HubID: ruletest.HubID}},
		"full": {ruletest.Rule(func(r *v1alpha1.AlertRule) {
			r.Spec.Expr = `up{cluster="$(cluster.name)", region=~"$(cluster.labels.region).*"} == 0`
			r.Spec.For, r.Spec.Severity, r.Spec.RuleNamespace = "5m", "critical", "observability"
			r.Spec.Labels = map[string]v1alpha1.LabelText{"team": "shop", "region": "$(cluster.labels.region)", "cluster": "a-lie"}
			r.Spec.Annotations = map[string]v1alpha1.LabelText{"summary": "{{ $labels.pod }} in $(cluster.name) is down, costs $$(x)"}
		}), spoke, options},
		"overridden": {ruletest.Rule(func(r *v1alpha1.AlertRule) {
			r.Spec.Severity, r.Spec.For, r.Spec.KeepFiringFor, r.Spec.Interval = "warning", "5m", "10m", "1m30s"
			r.Spec.Annotations = map[string]v1alpha1.LabelText{"summary": "down", "runbook": "x"}
			r.Spec.Overrides = []v1alpha1.Override{{
				ClusterSelection: v1alpha1.ClusterSelection{Names: []v1alpha1.ClusterName{"eu-1"}},
				Expr:             `up{cluster="$(cluster.name)"} < 1`, Severity: "critical",
				Labels:      map[string]v1alpha1.LabelText{"region": "$(cluster.labels.region)"},
				Annotations: map[string]v1alpha1.LabelText{"runbook": ""},
			}}
		}), spoke, options},
		"nasty": {ruletest.Rule(func(r *v1alpha1.AlertRule) {
			r.Spec.Expr = "a{a=\"$(cluster.labels.nasty)\"} or b{b='$(cluster.labels.nasty)'} or c{c=~`$(cluster.labels.nasty)`}"
			r.Spec.Labels = map[string]v1alpha1.LabelText{"nasty": "$(cluster.labels.nasty)"}
			r.Spec.Annotations = map[string]v1alpha1.LabelText{"nasty": "{$(cluster.labels.nasty){{ $value }}", "own": "\"'`\\\n{{ \"🚀\" }}"}
		}), spoke, options},
		"long-names": {ruletest.Rule(func(r *v1alpha1.AlertRule) {
			r.Namespace, r.Name = strings.Repeat("n", 63), longName
			r.Spec.Labels = map[string]v1alpha1.LabelText{"name": "$(cluster.name)"}
		}), rule.Cluster{Name: longName}, options},
	} {
		t.Run(name, func(t *testing.T) {
			if bad := validation.Rule(c.rule, validation.Options{AdminNamespace: c.rule.Namespace}); bad != nil {
				t.Errorf("%s: the test's rule is not valid: %v", name, bad)
			}
			p, err := delivery.Render(c.rule, c.cluster, c.options)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				return
			}
			ruletest.Loads(t, p)
			checkName(t, name, p.Name)
			ruletest.Golden(t, "render/"+name, p)
			if key, ok := rule.ParseRuleKey(p); !ok || key.Namespace != c.rule.Namespace || key.Name != c.rule.Name {
				t.Errorf("%s: the annotation tells of %v, %v", name, key, ok)
			}
			if !rule.Owned(p, ruletest.HubID) || rule.Owned(p, "hub-2") || rule.Owned(p, "") {
				t.Errorf("%s: whose is it?", name)
			}
		})
	}
}

// What placeholders make of short texts has a bound too.
func TestRenderBoundsTheObject(t *testing.T) {
	r := ruletest.Rule(func(r *v1alpha1.AlertRule) {
		r.Spec.Annotations = ruletest.Texts{}
		for i := range 9 {
			r.Spec.Annotations[fmt.Sprintf("a%d", i)] = v1alpha1.LabelText(ruletest.Long("$(cluster.labels.x)", 60))
		}
	})
	if bad := validation.Rule(r, tenancy); bad != nil {
		t.Fatal(bad)
	}
	_, err := delivery.Render(r, rule.Cluster{Name: "eu-1", Labels: map[string]string{"x": ruletest.Long("v", 1000)}}, options)
	if err == nil || !strings.Contains(err.Error(), "bytes after its placeholders are replaced; at most 262144 are allowed") {
		t.Errorf("got %v", err)
	}
}
