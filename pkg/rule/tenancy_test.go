package rule_test

import (
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/delivery"
	"github.com/rulefleet/rulefleet/pkg/rule/evaluation"
	"github.com/rulefleet/rulefleet/pkg/rule/internal/ruletest"
	"github.com/rulefleet/rulefleet/pkg/rule/promql"
	"github.com/rulefleet/rulefleet/pkg/rule/templating"
	"github.com/rulefleet/rulefleet/pkg/rule/validation"
)

// strictTenancy has all limits of tenants. The other two are the options of a hub with them.
var strictTenancy = rule.Tenancy{ProtectedLabels: []string{"team", "tier"}, MinInterval: 5 * time.Second, EnforceNamespace: true}

var strict = validation.Options{AdminNamespace: tenancy.AdminNamespace, GeneratedNamespace: tenancy.GeneratedNamespace, ClusterLabel: "cluster", Tenancy: strictTenancy}

var strictRender = delivery.Options{
	HubID: ruletest.HubID, AdminNamespace: tenancy.AdminNamespace, GeneratedNamespace: tenancy.GeneratedNamespace, ClusterLabel: "cluster", Tenancy: strictTenancy,
}

// The labels by which somebody is notified are not the tenant's, whatever sets them. An empty one removes the
// label of a series: TestTenantsLabels of pkg/testing/promtool.
func TestRenderForcesLabels(t *testing.T) {
	set := func(r *v1alpha1.AlertRule) {
		r.Spec.Labels = ruletest.Texts{"namespace": "payments", "team": "payments", "own": "x", "cluster": "another"}
	}
	over := func(r *v1alpha1.AlertRule) {
		r.Spec.Overrides = []v1alpha1.Override{{ClusterSelection: ruletest.EveryCluster(), Labels: ruletest.Texts{"namespace": "payments", "team": "payments", "own": "x"}}}
	}
	forced := map[string]string{"namespace": "shop", "team": "", "tier": "", "own": "x", "cluster": "eu.1"}
	for name, c := range map[string]struct {
		edit func(*v1alpha1.AlertRule)
		want map[string]string
	}{
		"no labels":   {func(*v1alpha1.AlertRule) {}, map[string]string{"namespace": "shop", "team": "", "tier": "", "cluster": "eu.1"}},
		"labels":      {set, forced},
		"an override": {over, forced},
		"an override removes them": {func(r *v1alpha1.AlertRule) {
			r.Spec.Overrides = []v1alpha1.Override{{ClusterSelection: ruletest.EveryCluster(), Labels: ruletest.Texts{"namespace": "", "team": ""}}}
		}, map[string]string{"namespace": "shop", "team": "", "tier": "", "cluster": "eu.1"}},
		"a generated rule": {func(r *v1alpha1.AlertRule) {
			ruletest.GeneratedRule(r)
			set(r)
		}, map[string]string{"namespace": "kube-system", "team": "", "tier": "", "own": "x", "cluster": "eu.1"}},
		"the operator's own": {func(r *v1alpha1.AlertRule) {
			r.Namespace = tenancy.AdminNamespace
			set(r)
		}, map[string]string{"namespace": "payments", "team": "payments", "own": "x", "cluster": "eu.1"}},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := delivery.Render(ruletest.Rule(c.edit), eu, strictRender)
			if err != nil {
				t.Fatal(err)
			}
			if got := p.Spec.Groups[0].Rules[0].Labels; !maps.Equal(got, c.want) {
				t.Errorf("the labels are %v, want %v", got, c.want)
			}
			ruletest.Loads(t, p)
		})
	}
}

// Without protected labels, no limit of tenants changes what is pushed for a template's rule.
func TestGeneratedRulesStayAsTheyAre(t *testing.T) {
	w := newWorkload(func(w *templating.Workload) { w.Labels = map[string]string{"team": "shop"} })
	template := ruletest.Template(func(t *v1alpha1.AlertRuleTemplate) {
		t.Spec.Interval, t.Spec.Labels = "1s", ruletest.Texts{"team": "$(deployment.labels.team)"}
		t.Spec.Annotations = ruletest.Texts{"a": `{{ with query "up" }}{{ . | first | value }}{{ end }}`}
		t.Spec.Expr = `sum(up{namespace="monitoring", exported_namespace="$(deployment.namespace)"}) # as it is`
	})
	if bad := validation.Template(template, strict); bad != nil {
		t.Fatal(bad)
	}
	r, err := templating.Rule(template, w, tenancy.GeneratedNamespace)
	if err != nil {
		t.Fatal(err)
	}
	if bad := validation.Rule(r, strict); bad != nil {
		t.Fatal(bad)
	}
	o := strictRender
	o.Tenancy.ProtectedLabels = nil
	p, err := delivery.Render(r, w.Cluster, o)
	if err != nil {
		t.Fatal(err)
	}
	got := p.Spec.Groups[0].Rules[0]
	want := map[string]string{"namespace": "shop", "deployment": "web", "team": "shop", "cluster": "eu-1"}
	if got.Expr.StrVal != r.Spec.Expr || !maps.Equal(got.Labels, want) {
		t.Errorf("it is %+v", got)
	}
}

// What a spoke's labels make of a tenant's expression is restricted as well.
func TestRenderEnforces(t *testing.T) {
	spoke := rule.Cluster{Name: "eu-1", Labels: map[string]string{"ns": "payments"}}
	for name, c := range map[string]struct {
		edit func(*v1alpha1.AlertRule)
		want string
	}{
		"a tenant's": {func(r *v1alpha1.AlertRule) { r.Spec.Expr = `up{c="$(cluster.name)"}` }, `up{c="eu-1",namespace="shop"}`},
		"its override": {func(r *v1alpha1.AlertRule) {
			r.Spec.Overrides = []v1alpha1.Override{{ClusterSelection: ruletest.EveryCluster(), Expr: "b"}}
		}, `b{namespace="shop"}`},
		"the operators": {func(r *v1alpha1.AlertRule) { r.Namespace = tenancy.AdminNamespace }, "up == 0"},
		"generated":     {ruletest.GeneratedRule, "up == 0"},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := delivery.Render(ruletest.Rule(c.edit), spoke, strictRender)
			if err != nil || promql.Canonical(evaluation.Exprs(p)[0]) != promql.Canonical(c.want) {
				t.Errorf("it is %v, %v", p, err)
			}
		})
	}
	_, err := delivery.Render(ruletest.Rule(func(r *v1alpha1.AlertRule) { r.Spec.Expr = `up{namespace="$(cluster.labels.ns)"}` }), spoke, strictRender)
	if bad, ok := errors.AsType[*rule.Invalid](err); !ok || bad.Reason != v1alpha1.ReasonInvalidExpr || !strings.Contains(bad.Message, `the matcher namespace="payments" is not allowed`) {
		t.Errorf("what asks for another namespace: %v", err)
	}
	if got := strictRender.Readable("shop", "up"); got != `up{namespace="shop"}` {
		t.Errorf("a tenant's is %s", got)
	}
	if got := strictRender.Readable("shop", "info(up)"); got != "" {
		t.Errorf("what can't be restricted is %s", got)
	}
	if got := strictRender.Readable(tenancy.AdminNamespace, "info(up)"); got != "info(up)" {
		t.Errorf("the operator's is %s", got)
	}
}
