package rule_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/delivery"
	"github.com/rulefleet/rulefleet/pkg/rule/internal/ruletest"
	"github.com/rulefleet/rulefleet/pkg/rule/promql"
	"github.com/rulefleet/rulefleet/pkg/rule/validation"
)

// What a spoke gets differs from the RulePack in the added labels alone.
func TestRenderPack(t *testing.T) {
	pack := ruletest.Pack(t)
	if bad := validation.Pack(pack, tenancy); bad != nil {
		t.Fatal(bad)
	}
	got, err := delivery.Render(pack, rule.Cluster{Name: "eu-1"}, options)
	if err != nil {
		t.Fatal(err)
	}
	want := pack.DeepCopy().Spec.Groups
	for i := range want {
		for j := range want[i].Rules {
			if r := &want[i].Rules[j]; r.Alert != "" {
				r.Labels = rule.WithKeys(r.Labels, map[string]string{"cluster": "eu-1"}, []string{"cluster"})
			}
		}
	}
	if !reflect.DeepEqual(got.Spec.Groups, want) {
		t.Errorf("it is %+v, want %+v", got.Spec.Groups, want)
	}
	if key, ok := rule.StandsFor(got, ruletest.HubID); !ok || key != rule.KeyOf(pack) {
		t.Errorf("it stands for %v, %v", key, ok)
	}
	for i := range got.Spec.Groups { // the parser of Prometheus does not know this field of Thanos
		got.Spec.Groups[i].PartialResponseStrategy = ""
	}
	ruletest.Loads(t, got)
}

// An AlertRule and a RulePack of one name have nothing in common in the spokes.
func TestKindsDoNotMeet(t *testing.T) {
	pack := ruletest.Pack(t)
	alert := ruletest.Rule(func(r *v1alpha1.AlertRule) { r.Namespace, r.Name = pack.Namespace, pack.Name })
	ofPack, err := delivery.Render(pack, rule.Cluster{Name: "eu-1"}, options)
	if err != nil {
		t.Fatal(err)
	}
	ofAlert, err := delivery.Render(alert, rule.Cluster{Name: "eu-1"}, options)
	if err != nil {
		t.Fatal(err)
	}
	if ofPack.Name == ofAlert.Name || ofPack.Namespace != ofAlert.Namespace {
		t.Errorf("the names are %s and %s", ofPack.Name, ofAlert.Name)
	}
	for _, label := range []string{v1alpha1.AlertRuleHashLabel, v1alpha1.RulePackHashLabel} {
		if _, has := ofPack.Labels[label]; has != (label == v1alpha1.RulePackHashLabel) {
			t.Errorf("of the pack, %s: %v", label, has)
		}
		if _, has := ofAlert.Labels[label]; has != (label == v1alpha1.AlertRuleHashLabel) {
			t.Errorf("of the alert, %s: %v", label, has)
		}
	}
	// Annotations of the other kind don't change whose it is, and are removed.
	forged := ofPack.DeepCopy()
	forged.Annotations[v1alpha1.AlertRuleAnnotation] = alert.Namespace + "/" + alert.Name
	if key, stands := rule.StandsFor(forged, ruletest.HubID); stands {
		t.Errorf("it stands for %v", key)
	}
	plan := delivery.Decide(ofPack, forged, nil, ruletest.HubID, "")
	if plan.Action != delivery.Update || !reflect.DeepEqual(plan.Object.Annotations, ofPack.Annotations) {
		t.Errorf("the plan is %+v", plan)
	}
}

func patch(name string, edit func(*v1alpha1.RulePatch)) v1alpha1.RulePatch {
	p := v1alpha1.RulePatch{ClusterSelection: ruletest.Clusters("eu-1"), Rule: name}
	edit(&p)
	return p
}

func TestPatches(t *testing.T) {
	for name, tc := range map[string]struct {
		patches []v1alpha1.RulePatch
		want    func(groups []monitoringv1.RuleGroup) []monitoringv1.RuleGroup
	}{
		"the threshold of one of two": {
			[]v1alpha1.RulePatch{patch("ErrorsHigh", func(p *v1alpha1.RulePatch) {
				p.MatchLabels, p.Expr, p.For = ruletest.Texts{"severity": "warning"}, "job:errors:rate5m > 3", "30m"
			})},
			func(g []monitoringv1.RuleGroup) []monitoringv1.RuleGroup {
				g[0].Rules[2].Expr, g[0].Rules[2].For = intstr.FromString("job:errors:rate5m > 3"), new(monitoringv1.Duration("30m"))
				return g
			},
		},
		"both of them": {
			[]v1alpha1.RulePatch{patch("ErrorsHigh", func(p *v1alpha1.RulePatch) {
				p.KeepFiringFor, p.Severity, p.Labels, p.Annotations = "1m", "info", ruletest.Texts{"team": "a"}, ruletest.Texts{"summary": ""}
			})},
			func(g []monitoringv1.RuleGroup) []monitoringv1.RuleGroup {
				for i := 1; i < 3; i++ {
					g[0].Rules[i].KeepFiringFor, g[0].Rules[i].Annotations = new(monitoringv1.NonEmptyDuration("1m")), nil
					g[0].Rules[i].Labels["severity"], g[0].Rules[i].Labels["team"] = "info", "a"
				}
				return g
			},
		},
		"of a group": {
			[]v1alpha1.RulePatch{
				patch("Watchdog", func(p *v1alpha1.RulePatch) { p.Group, p.For = "requests", "1h" }),
				patch("Watchdog", func(p *v1alpha1.RulePatch) { p.Group, p.For = "time", "2h" }),
			},
			func(g []monitoringv1.RuleGroup) []monitoringv1.RuleGroup {
				g[1].Rules[1].For = new(monitoringv1.Duration("2h"))
				return g
			},
		},
		"disabled": {
			[]v1alpha1.RulePatch{patch("ErrorsHigh", func(p *v1alpha1.RulePatch) { p.Disabled = new(true) })},
			func(g []monitoringv1.RuleGroup) []monitoringv1.RuleGroup {
				g[0].Rules = g[0].Rules[:1]
				return g
			},
		},
		"a whole group disabled": {
			[]v1alpha1.RulePatch{
				patch("Watchdog", func(p *v1alpha1.RulePatch) { p.Disabled = new(true) }),
				patch("one", func(p *v1alpha1.RulePatch) { p.Disabled = new(true) }),
			},
			func(g []monitoringv1.RuleGroup) []monitoringv1.RuleGroup { return g[:1] },
		},
		"the first one counts": {
			[]v1alpha1.RulePatch{
				patch("Watchdog", func(p *v1alpha1.RulePatch) { p.Disabled, p.For = new(false), "1h" }),
				patch("Watchdog", func(p *v1alpha1.RulePatch) { p.Disabled, p.For, p.Severity = new(true), "2h", "info" }),
			},
			func(g []monitoringv1.RuleGroup) []monitoringv1.RuleGroup {
				g[1].Rules[1].For, g[1].Rules[1].Labels = new(monitoringv1.Duration("1h")), map[string]string{"severity": "info"}
				return g
			},
		},
		"a recording rule": {
			[]v1alpha1.RulePatch{patch("one", func(p *v1alpha1.RulePatch) { p.Expr, p.Severity = "2", "none" })},
			func(g []monitoringv1.RuleGroup) []monitoringv1.RuleGroup {
				g[1].Rules[0].Expr, g[1].Rules[0].Labels = intstr.FromString("2"), map[string]string{"severity": "none"}
				return g
			},
		},
		"none of the name": {
			[]v1alpha1.RulePatch{patch("Nothing", func(p *v1alpha1.RulePatch) { p.For = "1h" })},
			func(g []monitoringv1.RuleGroup) []monitoringv1.RuleGroup { return g },
		},
	} {
		t.Run(name, func(t *testing.T) {
			pack := ruletest.Pack(t, func(p *v1alpha1.RulePack) { p.Spec.Patches = tc.patches })
			if bad := validation.Pack(pack, tenancy); bad != nil {
				t.Fatal(bad)
			}
			plain := options
			plain.ClusterLabel = ""
			for _, cluster := range []string{"eu-1", "us-1"} {
				got, err := delivery.Render(pack, rule.Cluster{Name: cluster}, plain)
				if err != nil {
					t.Fatal(err)
				}
				want := ruletest.Pack(t).Spec.Groups
				if cluster == "eu-1" {
					want = tc.want(want)
				}
				if !reflect.DeepEqual(got.Spec.Groups, want) {
					t.Errorf("in %s it is %+v, want %+v", cluster, got.Spec.Groups, want)
				}
			}
		})
	}
}

// The rules of a tenant's RulePack read and write series of their own namespace only.
func TestPackOfATenant(t *testing.T) {
	pack := ruletest.Pack(t, func(p *v1alpha1.RulePack) {
		p.Namespace = "shop"
		for _, label := range []string{"namespace", "cluster", "team"} {
			p.Spec.Groups[0].Rules[0].Labels[label] = "other"
		}
		p.Spec.Groups[1].Labels = map[string]string{"namespace": "other", "cluster": "other", "team": "other"}
		p.Spec.Groups[1].Interval, p.Spec.Groups[1].QueryOffset = new(monitoringv1.Duration("")), new(monitoringv1.Duration(""))
	})
	o := options
	o.Tenancy = rule.Tenancy{ProtectedLabels: []string{"team"}, EnforceNamespace: true}
	got, err := delivery.Render(pack, rule.Cluster{Name: "eu-1"}, o)
	if err != nil {
		t.Fatal(err)
	}
	if g := got.Spec.Groups[1]; g.Interval != nil || g.QueryOffset != nil {
		t.Errorf("empty durations are written: %+v", g)
	}
	for _, g := range got.Spec.Groups {
		for _, r := range g.Rules {
			_, protected := r.Labels["team"]
			cluster, marked := r.Labels["cluster"]
			if r.Record != "" && (!marked || cluster != "") || r.Alert != "" && cluster != "eu-1" {
				t.Errorf("%s%s has the labels %v", r.Alert, r.Record, r.Labels)
			}
			if r.Labels["namespace"] != "shop" || !protected || r.Labels["team"] != "" {
				t.Errorf("%s%s has the labels %v", r.Alert, r.Record, r.Labels)
			}
			if expr := r.Expr.String(); strings.Contains(expr, "errors") && !strings.Contains(expr, `namespace="shop"`) {
				t.Errorf("%s%s reads %s", r.Alert, r.Record, expr)
			}
		}
	}
	if _, f := promql.Parse(got.Spec.Groups[0].Rules[0].Expr.String(), promql.Any); f != nil {
		t.Error(f)
	}
}

// What a spoke's Prometheus does not know is not sent to it.
func TestPackForOldReleases(t *testing.T) {
	for name, tc := range map[string]struct {
		kind, version, field string
	}{
		"no limit":             {rule.KindPrometheus, "v2.30.0", "spec.groups[0].limit"},
		"no labels":            {rule.KindPrometheus, "v2.53.0", "spec.groups[0].labels"},
		"no query_offset":      {rule.KindPrometheus, "v2.52.0", "spec.groups[0].query_offset"},
		"all":                  {rule.KindPrometheus, "v3.1.0", ""},
		"unknown":              {rule.KindPrometheus, "", ""},
		"Thanos without both":  {rule.KindThanosRuler, "v0.37.0", "spec.groups[0].query_offset"},
		"Thanos, much too old": {rule.KindThanosRuler, "v0.23.0", "spec.groups[0].limit"},
		"Thanos with all":      {rule.KindThanosRuler, "v0.39.1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := rule.Cluster{Name: "eu-1", Evaluators: []rule.Evaluator{{Kind: tc.kind, Namespace: "monitoring", Name: "k8s", Version: tc.version, Chosen: true}}}
			_, err := delivery.Render(ruletest.Pack(t), c, options)
			field := ""
			if bad, ok := err.(*rule.Invalid); ok { //nolint:errorlint // it is returned as it is
				field = bad.Field
				if bad.Reason != v1alpha1.ReasonUnsupported {
					t.Errorf("the reason is %s", bad.Reason)
				}
			}
			if field != tc.field {
				t.Errorf("it is about %q: %v", field, err)
			}
		})
	}
	old := rule.Cluster{Name: "eu-1", Evaluators: []rule.Evaluator{{Kind: rule.KindPrometheus, Name: "k8s", Version: "v2.41.0", Chosen: true}}}
	pack := ruletest.Pack(t, func(p *v1alpha1.RulePack) { p.Spec.Groups[0].QueryOffset, p.Spec.Groups[0].Labels = nil, nil })
	if _, err := delivery.Render(pack, old, options); err == nil || !strings.Contains(err.Error(), "spec.groups[0].rules[1].keep_firing_for: rule ErrorsHigh of group requests: ") {
		t.Errorf("the error is %v", err)
	}
}

// A PrometheusRule has a bound in YAML, too, which is longer than JSON if it has many short texts.
func TestPackIsBounded(t *testing.T) {
	pack := func(rules, length int) *v1alpha1.RulePack {
		return ruletest.Pack(t, func(p *v1alpha1.RulePack) {
			p.Spec.Groups = []monitoringv1.RuleGroup{{Name: "g"}}
			for i := range rules {
				p.Spec.Groups[0].Rules = append(p.Spec.Groups[0].Rules, monitoringv1.Rule{
					Alert: fmt.Sprintf("A%d", i), Expr: intstr.FromString("up"), Annotations: map[string]string{"text": strings.Repeat("x\n", length)},
				})
			}
		})
	}
	for name, tc := range map[string]struct {
		rules, length int
		fits          bool
	}{"short": {500, 40, true}, "long": {500, 120, false}} {
		t.Run(name, func(t *testing.T) {
			_, err := delivery.Render(pack(tc.rules, tc.length), rule.Cluster{Name: "eu-1"}, options)
			if (err == nil) != tc.fits {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}
