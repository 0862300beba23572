package templating

import (
	"maps"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/internal/ruletest"
	"github.com/rulefleet/rulefleet/pkg/rule/validation"
)

func in(env string) v1alpha1.ClusterSelection {
	return v1alpha1.ClusterSelection{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"env": env}}}
}

// tuned is a template with parameters and overrides.
func tuned(edit ...func(*v1alpha1.AlertRuleTemplate)) *v1alpha1.AlertRuleTemplate {
	return ruletest.Template(append([]func(*v1alpha1.AlertRuleTemplate){func(t *v1alpha1.AlertRuleTemplate) {
		t.Spec.Expr = `rate(errors{namespace="$(workload.namespace)"}[$(params.window)]) > $(params.threshold)`
		t.Spec.Labels, t.Spec.For, t.Spec.Severity = ruletest.Texts{"team": "shop"}, "5m", "critical"
		t.Spec.Annotations = ruletest.Texts{"summary": "More than $(params.threshold) errors in $(params.window)."}
		t.Spec.Allow = []v1alpha1.Adjustment{v1alpha1.AdjustParams}
		t.Spec.Parameters = []v1alpha1.Parameter{
			{Name: "threshold", Type: v1alpha1.NumberParameter, Default: "5", Minimum: "-10", Maximum: "10"},
			{Name: "window", Type: v1alpha1.DurationParameter, Default: "5m"},
		}
		t.Spec.Overrides = []v1alpha1.TemplateOverride{
			{ClusterSelection: in("off"), State: v1alpha1.Disabled},
			{ClusterSelection: in("dev"), Severity: "warning", Labels: ruletest.Texts{"team": ""}, Parameters: map[string]v1alpha1.ParameterValue{"threshold": "7"}},
			{ClusterSelection: ruletest.Clusters("eu-1"), For: "1h", Severity: "info", Parameters: map[string]v1alpha1.ParameterValue{"threshold": "8", "window": "10m"}},
		}
	}}, edit...)...)
}

func TestParametersAndOverrides(t *testing.T) {
	const key = v1alpha1.AdjustmentPrefix + "params"
	for name, c := range map[string]struct {
		cluster, env string
		params       string
		expr, note   string // "" as in the template
		severity     v1alpha1.Severity
		wait         v1alpha1.Duration
		team         bool
		ignored      string
	}{
		"defaults":  {cluster: "us", expr: "[5m]) > 5", severity: "critical", wait: "5m", team: true},
		"a label":   {cluster: "us", env: "dev", expr: "[5m]) > 7", severity: "warning", wait: "5m"},
		"the name":  {cluster: "eu-1", expr: "[10m]) > 8", severity: "info", wait: "1h", team: true},
		"both":      {cluster: "eu-1", env: "dev", expr: "[10m]) > 7", severity: "warning", wait: "1h"},
		"workload":  {cluster: "eu-1", env: "dev", params: "threshold=-2.50", expr: "[10m]) > (-2.5)", note: "More than -2.50 errors in 10m.", severity: "warning", wait: "1h"},
		"both set":  {cluster: "us", params: " threshold = 2 , window=90s", expr: "[1m30s]) > 2", note: "More than 2 errors in 90s.", severity: "critical", wait: "5m", team: true},
		"addressed": {cluster: "us", params: "down/threshold=2,threshold=3,stuck/threshold=4", expr: "[5m]) > 2", severity: "critical", wait: "5m", team: true},
		"out of bounds": {cluster: "us", params: "threshold=11,window=1m", expr: "[1m]) > 5", severity: "critical", wait: "5m", team: true,
			ignored: "rulefleet.io/params: parameter threshold: 11 is larger than the maximum; use at most 10"},
		"of another type": {cluster: "us", params: "threshold=5m", expr: "[5m]) > 5", severity: "critical", wait: "5m", team: true,
			ignored: `rulefleet.io/params: parameter threshold: "5m" is not a number; use a form such as 0.99 or -5`},
		"not a value": {cluster: "us", params: "threshold,=5,window=", expr: "[5m]) > 5", severity: "critical", wait: "5m", team: true,
			ignored: `rulefleet.io/params: "threshold" is not a value of a parameter; write it as name=value; rulefleet.io/params: no template has a parameter ""; correct the name; rulefleet.io/params: "window=" is not a value of a parameter; write it as name=value`},
		"an expression": {cluster: "us", params: "threshold=0 or vector(1)", expr: "[5m]) > 5", severity: "critical", wait: "5m", team: true,
			ignored: `rulefleet.io/params: parameter threshold: "0 or vector(1)" is not a number; use a form such as 0.99 or -5`},
		"twice": {cluster: "us", params: "threshold=2,threshold=3", expr: "[5m]) > 2", severity: "critical", wait: "5m", team: true,
			ignored: "rulefleet.io/params: parameter threshold is set twice; remove one of the values"},
		"of another template": {cluster: "us", params: "latency=2", expr: "[5m]) > 5", severity: "critical", wait: "5m", team: true},
		"of none": {cluster: "us", params: "treshold=2", expr: "[5m]) > 5", severity: "critical", wait: "5m", team: true,
			ignored: `rulefleet.io/params: no template has a parameter "treshold"; correct the name`},
		"not of this one": {cluster: "us", params: "down/latency=2", expr: "[5m]) > 5", severity: "critical", wait: "5m", team: true,
			ignored: `rulefleet.io/params: template down has no parameter "latency"; correct the name`},
		"of no template": {cluster: "us", params: "dwn/threshold=2", expr: "[5m]) > 5", severity: "critical", wait: "5m", team: true,
			ignored: `rulefleet.io/params: template "dwn" does not exist; correct the name (on the hub: kubectl get alertruletemplates)`},
	} {
		t.Run(name, func(t *testing.T) {
			w := annotated()
			w.Parameters, w.Cluster.Name, w.Cluster.Labels = []string{"threshold", "window", "latency"}, c.cluster, map[string]string{"env": c.env}
			if c.params != "" {
				w.Annotations[key] = c.params
			}
			template := tuned()
			if bad := validation.Template(template, validation.Options{}); bad != nil {
				t.Fatal(bad)
			}
			before := template.DeepCopy()
			r, err := Rule(template, w, "generated")
			if err != nil {
				t.Fatal(err)
			}
			want := `rate(errors{namespace="shop"}` + c.expr
			_, team := r.Spec.Labels["team"]
			if r.Spec.Expr != want || r.Spec.Severity != c.severity || r.Spec.For != c.wait || team != c.team {
				t.Errorf("got %+v", r.Spec.AlertSpec)
			}
			if c.note != "" && string(r.Spec.Annotations["summary"]) != c.note {
				t.Errorf("got %q", r.Spec.Annotations["summary"])
			}
			if got := r.Annotations[v1alpha1.IgnoredAnnotation]; got != c.ignored {
				t.Errorf("told %q", got)
			}
			if bad := validation.Rule(r, validation.Options{GeneratedNamespace: "generated"}); bad != nil {
				t.Error(bad)
			}
			if !maps.Equal(template.Spec.Labels, before.Spec.Labels) {
				t.Errorf("the template was changed: %v", template.Spec.Labels)
			}
		})
	}
}

// Parameters are reported as not allowed only by the templates that have them.
func TestParametersThatAreNotAllowed(t *testing.T) {
	w := annotated(v1alpha1.AdjustmentPrefix+"params", "threshold=2,window=1m")
	r, err := Rule(tuned(func(t *v1alpha1.AlertRuleTemplate) { t.Spec.Allow = nil }), w, "generated")
	if err != nil || r.Annotations[v1alpha1.IgnoredAnnotation] != "rulefleet.io/params: template down does not allow it; remove the annotation, or extend spec.allow of the template" || !strings.HasSuffix(r.Spec.Expr, "[10m]) > 8") {
		t.Errorf("got %+v, %v", r, err)
	}
	w.Parameters = []string{"threshold", "window"}
	if r, err := Rule(ruletest.Template(), w, "generated"); err != nil || r.Annotations[v1alpha1.IgnoredAnnotation] != "" {
		t.Errorf("got %+v, %v", r, err)
	}
}

// An error in an override names the override.
func TestErrorsInOverrides(t *testing.T) {
	template := tuned(func(t *v1alpha1.AlertRuleTemplate) {
		t.Spec.Overrides[1].Annotations = ruletest.Texts{"summary": "$(workload.labels.team)"}
	})
	w := newWorkload(func(w *Workload) { w.Cluster.Labels = map[string]string{"env": "dev"} })
	if _, err := Rule(template, w, "generated"); err == nil || !strings.HasPrefix(err.Error(), `spec.overrides[1].annotations[summary]: Deployment shop/web in cluster eu-1 has no label "team"`) {
		t.Errorf("got %v", err)
	}
}

func TestStateByCluster(t *testing.T) {
	disabled := func(t *v1alpha1.AlertRuleTemplate) { t.Spec.State = v1alpha1.Disabled }
	enabledIn := func(env string) func(*v1alpha1.AlertRuleTemplate) {
		return func(t *v1alpha1.AlertRuleTemplate) {
			t.Spec.Overrides = []v1alpha1.TemplateOverride{{ClusterSelection: in(env), State: v1alpha1.Enabled}}
		}
	}
	placed := func(s v1alpha1.ClusterSelection) func(*v1alpha1.AlertRuleTemplate) {
		return func(t *v1alpha1.AlertRuleTemplate) { t.Spec.Placement = &s }
	}
	byName := func(t *v1alpha1.AlertRuleTemplate) { t.Spec.Overrides[0].ClusterSelection = ruletest.Clusters("eu-1") }
	none := func(t *v1alpha1.AlertRuleTemplate) { t.Spec.Overrides = nil }
	for name, c := range map[string]struct {
		template         *v1alpha1.AlertRuleTemplate
		env              string
		matches, byLabel bool
	}{
		"enabled":                         {tuned(), "prod", true, true},
		"disabled by a label":             {tuned(), "off", false, true},
		"disabled by name":                {tuned(byName), "prod", false, false},
		"disabled":                        {tuned(disabled), "prod", false, false},
		"disabled, and an override, too":  {tuned(disabled), "off", false, false},
		"enabled by a label":              {tuned(disabled, enabledIn("prod")), "prod", true, true},
		"not enabled by another label":    {tuned(disabled, enabledIn("prod")), "dev", false, true},
		"overrides without a state":       {tuned(none), "off", true, false},
		"placed by a label":               {tuned(none, placed(in("prod"))), "prod", true, true},
		"not placed by a label":           {tuned(none, placed(in("prod"))), "dev", false, true},
		"placed by name":                  {tuned(none, placed(ruletest.Clusters("eu-1"))), "prod", true, false},
		"placed by name, off by a label":  {tuned(placed(ruletest.Clusters("eu-1"))), "off", false, true},
		"placed elsewhere, off by labels": {tuned(placed(ruletest.Clusters("us"))), "off", false, false},
		"placed by a label, but disabled": {tuned(none, disabled, placed(in("prod"))), "prod", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorkload(func(w *Workload) { w.Cluster.Labels = map[string]string{"env": c.env} })
			if got, err := Matches(c.template, w); got != c.matches || err != nil {
				t.Errorf("it matches: %v, %v", got, err)
			}
			if c.matches && !rule.MaybeGenerates(c.template) {
				t.Error("it matches, though it is disabled everywhere")
			}
			if got := ByLabels(c.template, "eu-1"); got != c.byLabel {
				t.Errorf("by labels: %v", got)
			}
		})
	}
}

// A template writes its rules into the namespace of the workload unless it says otherwise.
func TestRuleNamespace(t *testing.T) {
	for from, want := range map[v1alpha1.TemplateRuleNamespace]v1alpha1.TemplateRuleNamespace{
		"": "", v1alpha1.InWorkloadNamespace: "", v1alpha1.InOperatorNamespace: v1alpha1.InOperatorNamespace,
	} {
		t.Run(string(from), func(t *testing.T) {
			r, err := Rule(tuned(func(t *v1alpha1.AlertRuleTemplate) { t.Spec.RuleNamespace = from }), newWorkload(), "generated")
			if err != nil || r.Spec.RuleNamespaceFrom != want || r.Spec.RuleNamespace != "" {
				t.Errorf("got %+v, %v", r.Spec, err)
			}
			if bad := validation.Rule(r, validation.Options{AdminNamespace: "rulefleet-system", GeneratedNamespace: "generated"}); bad != nil {
				t.Error(bad)
			}
		})
	}
}

func TestMaybeGenerates(t *testing.T) {
	enabled := func(t *v1alpha1.AlertRuleTemplate) { t.Spec.Overrides[0].State = v1alpha1.Enabled }
	disabled := func(t *v1alpha1.AlertRuleTemplate) { t.Spec.State = v1alpha1.Disabled }
	if !rule.MaybeGenerates(tuned()) || !rule.MaybeGenerates(tuned(disabled, enabled)) || rule.MaybeGenerates(tuned(disabled)) {
		t.Error("a template generates if it or an override is enabled")
	}
}

func TestKnow(t *testing.T) {
	w := newWorkload()
	w.Know(tuned(), ruletest.Template(func(t *v1alpha1.AlertRuleTemplate) { t.Name = "stuck" }))
	if strings.Join(w.Templates, " ") != "down stuck" || strings.Join(w.Parameters, " ") != "threshold window" {
		t.Errorf("got %v, %v", w.Templates, w.Parameters)
	}
}
