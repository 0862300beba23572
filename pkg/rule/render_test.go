package rule

import (
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"sigs.k8s.io/yaml"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// loads checks that Prometheus would load a rule as it stands.
func loads(t *testing.T, p *monitoringv1.PrometheusRule) {
	t.Helper()
	file, err := yaml.Marshal(p.Spec)
	if err != nil {
		t.Fatal(err)
	}
	_, errs := rulefmt.Parse(file, false, model.LegacyValidation, parser.NewParser(parser.Options{}), slog.New(slog.NewTextHandler(io.Discard, nil)))
	for _, err := range errs {
		t.Errorf("Prometheus would not load it: %v\n%s", err, file)
	}
}

func TestRender(t *testing.T) {
	longName := strings.Repeat("long-name.", 25) + "end" // 253 characters
	spoke := Cluster{Name: "eu-1", Labels: map[string]string{"region": "eu", "nasty": "\"'`\\\n{{ .Labels }} $(cluster.name) 🚀"}}
	for name, c := range map[string]struct {
		rule    *v1alpha1.AlertRule
		cluster Cluster
		options RenderOptions
	}{
		"minimal": {newRule(), spoke, RenderOptions{HubID: hubID}},
		"full": {newRule(func(r *v1alpha1.AlertRule) {
			r.Spec.Expr = `up{cluster="$(cluster.name)", region=~"$(cluster.labels.region).*"} == 0`
			r.Spec.For, r.Spec.Severity, r.Spec.RuleNamespace = "5m", "critical", "observability"
			r.Spec.Labels = map[string]v1alpha1.LabelText{"team": "shop", "region": "$(cluster.labels.region)", "cluster": "a-lie"}
			r.Spec.Annotations = map[string]v1alpha1.LabelText{"summary": "{{ $labels.pod }} in $(cluster.name) is down, costs $$(x)"}
		}), spoke, options},
		"overridden": {newRule(func(r *v1alpha1.AlertRule) {
			r.Spec.Severity, r.Spec.For, r.Spec.KeepFiringFor, r.Spec.Interval = "warning", "5m", "10m", "1m30s"
			r.Spec.Annotations = map[string]v1alpha1.LabelText{"summary": "down", "runbook": "x"}
			r.Spec.Overrides = []v1alpha1.Override{{
				ClusterSelection: v1alpha1.ClusterSelection{Names: []v1alpha1.ClusterName{"eu-1"}},
				Expr:             `up{cluster="$(cluster.name)"} < 1`, Severity: "critical",
				Labels:      map[string]v1alpha1.LabelText{"region": "$(cluster.labels.region)"},
				Annotations: map[string]v1alpha1.LabelText{"runbook": ""},
			}}
		}), spoke, options},
		"nasty": {newRule(func(r *v1alpha1.AlertRule) {
			r.Spec.Expr = "a{a=\"$(cluster.labels.nasty)\"} or b{b='$(cluster.labels.nasty)'} or c{c=~`$(cluster.labels.nasty)`}"
			r.Spec.Labels = map[string]v1alpha1.LabelText{"nasty": "$(cluster.labels.nasty)"}
			r.Spec.Annotations = map[string]v1alpha1.LabelText{"nasty": "{$(cluster.labels.nasty){{ $value }}", "own": "\"'`\\\n{{ \"🚀\" }}"}
		}), spoke, options},
		"long-names": {newRule(func(r *v1alpha1.AlertRule) {
			r.Namespace, r.Name = strings.Repeat("n", 63), longName
			r.Spec.Labels = map[string]v1alpha1.LabelText{"name": "$(cluster.name)"}
		}), Cluster{Name: longName}, options},
	} {
		t.Run(name, func(t *testing.T) {
			if bad := Validate(c.rule, ValidateOptions{AdminNamespace: c.rule.Namespace}); bad != nil {
				t.Errorf("%s: the test's rule is not valid: %v", name, bad)
			}
			p, err := Render(c.rule, c.cluster, c.options)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				return
			}
			loads(t, p)
			checkName(t, name, p.Name)
			golden(t, "render/"+name, p)
			if key, ok := ParseRuleKey(p); !ok || key.Namespace != c.rule.Namespace || key.Name != c.rule.Name {
				t.Errorf("%s: the annotation tells of %v, %v", name, key, ok)
			}
			if !Owned(p, hubID) || Owned(p, "hub-2") || Owned(p, "") {
				t.Errorf("%s: whose is it?", name)
			}
		})
	}
}

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
			p, err := Render(newRule(c.edit), eu, options)
			var bad *Invalid
			if !errors.As(err, &bad) || bad.Field != c.field || !strings.Contains(bad.Message, c.want) || p != nil {
				t.Errorf("%s: got %v, %v; want %s: %s", name, p, err, c.field, c.want)
			}
		})
	}
}

func TestTargetNamespace(t *testing.T) {
	ref := &v1alpha1.WorkloadReference{Cluster: "eu-1", Kind: deploymentKind, Namespace: "workload", Name: "web"}
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
			r := newRule(func(r *v1alpha1.AlertRule) {
				r.Namespace, r.Spec.RuleNamespace, r.Spec.WorkloadRef = c.namespace, c.named, c.ref
			})
			if got := TargetNamespace(r, Cluster{}, options); got != c.want {
				t.Errorf("%s: got %s, want %s", name, got, c.want)
			}
		})
	}
}

func TestDigest(t *testing.T) {
	render := func(edit ...func(*v1alpha1.AlertRule)) *monitoringv1.PrometheusRule {
		p, err := Render(newRule(edit...), eu, options)
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
