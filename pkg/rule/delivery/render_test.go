package delivery

import (
	"errors"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"sigs.k8s.io/yaml"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/internal/ruletest"
)

func TestRenderErrors(t *testing.T) {
	for name, c := range map[string]struct {
		edit        func(*v1alpha1.AlertRule)
		field, want string
	}{
		"a label that the spoke lacks": {
			func(r *v1alpha1.AlertRule) {
				r.Spec.Labels = map[string]v1alpha1.LabelText{"a": "$(cluster.labels.none)"}
			},
			"spec.labels[a]", `SpokeCluster eu.1 has no label "none"`,
		},
		"an expression that the spoke's data break": {
			func(r *v1alpha1.AlertRule) { r.Spec.Expr = `{region="$(cluster.labels.empty)"}` },
			"spec.expr", "after its placeholders are replaced with the values of SpokeCluster eu.1: 1:1: vector selector must contain at least one non-empty matcher",
		},
		"a deployment's name": {
			func(r *v1alpha1.AlertRule) { r.Spec.Expr = `up{a="$(deployment.name)"}` },
			"spec.expr", "is only available in an AlertRuleTemplate",
		},
		"a broken expression": {
			func(r *v1alpha1.AlertRule) { r.Spec.Expr = `up{a="$(cluster.name)"} ==` },
			"spec.expr", "after its placeholders are replaced with the values of SpokeCluster eu.1: 1:16: unexpected end of input",
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := Render(ruletest.Rule(c.edit), eu, options)
			var bad *rule.Invalid
			if !errors.As(err, &bad) || bad.Field != c.field || !strings.Contains(bad.Message, c.want) || p != nil {
				t.Errorf("%s: got %v, %v; want %s: %s", name, p, err, c.field, c.want)
			}
		})
	}
}

func TestTargetNamespace(t *testing.T) {
	ref := &v1alpha1.WorkloadReference{Cluster: "eu-1", Kind: v1alpha1.DeploymentKind, Namespace: "workload", Name: "web"}
	for name, c := range map[string]struct {
		namespace string
		named     v1alpha1.NamespaceName
		ref       *v1alpha1.WorkloadReference
		want      string
	}{
		"its own":                        {"shop", "", nil, "shop"},
		"the workload's":                 {"shop", "", ref, "workload"},
		"as named":                       {"shop", "named", ref, "named"},
		"admin's default":                {options.AdminNamespace, "", nil, "monitoring"},
		"admin's, about a workload":      {options.AdminNamespace, "", ref, "workload"},
		"admin's, as named":              {options.AdminNamespace, "named", nil, "named"},
		"generated":                      {"rulefleet-generated", "", ref, "workload"},
		"generated, without a workload?": {"rulefleet-generated", "", nil, "rulefleet-generated"},
	} {
		t.Run(name, func(t *testing.T) {
			r := ruletest.Rule(func(r *v1alpha1.AlertRule) {
				r.Namespace, r.Spec.RuleNamespace, r.Spec.WorkloadRef = c.namespace, c.named, c.ref
			})
			if got := TargetNamespace(r, rule.Cluster{}, options); got != c.want {
				t.Errorf("%s: got %s, want %s", name, got, c.want)
			}
		})
	}
}

func TestDigest(t *testing.T) {
	render := func(edit ...func(*v1alpha1.AlertRule)) *monitoringv1.PrometheusRule {
		p, err := Render(ruletest.Rule(edit...), eu, options)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	base := render()
	// What an API server makes of it: other people's metadata, empty for nil.
	data, err := yaml.Marshal(base)
	if err != nil {
		t.Fatal(err)
	}
	read := &monitoringv1.PrometheusRule{}
	if err := yaml.Unmarshal(data, read); err != nil {
		t.Fatal(err)
	}
	read.UID, read.ResourceVersion, read.Generation = "u", "7", 3
	read.Labels["team"], read.Annotations["note"] = "x", "y"
	read.Spec.Groups[0].Rules[0].Annotations = map[string]string{}
	if Digest(read) != Digest(base) {
		t.Error("the digest depends on what is not this hub's")
	}
	if d := AnswerDigest(base, read); d != Digest(base)+"/"+Digest(base) || len(d) > 64 {
		t.Errorf("the answer's digest is %s", d)
	}
	for name, edit := range map[string]func(*monitoringv1.PrometheusRule){
		"expr": func(p *monitoringv1.PrometheusRule) { p.Spec.Groups[0].Rules[0].Expr.StrVal = "up" },
		"for": func(p *monitoringv1.PrometheusRule) {
			d := monitoringv1.Duration("1m")
			p.Spec.Groups[0].Rules[0].For = &d
		},
		"label": func(p *monitoringv1.PrometheusRule) { p.Spec.Groups[0].Rules[0].Labels["a"] = "b" },
		"group": func(p *monitoringv1.PrometheusRule) {
			p.Spec.Groups = append(p.Spec.Groups, monitoringv1.RuleGroup{Name: "x"})
		},
		"managed-by": func(p *monitoringv1.PrometheusRule) { p.Labels[v1alpha1.ManagedByLabel] = "x" },
		"hub":        func(p *monitoringv1.PrometheusRule) { delete(p.Labels, v1alpha1.HubLabel) },
		"hash":       func(p *monitoringv1.PrometheusRule) { p.Labels[v1alpha1.AlertRuleHashLabel] = "" },
		"annotation": func(p *monitoringv1.PrometheusRule) { p.Annotations = nil },
	} {
		t.Run(name, func(t *testing.T) {
			p := base.DeepCopy()
			edit(p)
			if Digest(p) == Digest(base) {
				t.Errorf("the digest does not depend on %s", name)
			}
		})
	}
}

func TestSmallObject(t *testing.T) {
	if bad := checkObjectSize(&v1alpha1.AlertRule{}, &monitoringv1.PrometheusRule{}); bad != nil {
		t.Error(bad)
	}
}
