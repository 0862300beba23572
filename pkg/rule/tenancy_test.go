package rule

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// strictTenancy has all limits of tenants. The other two are the options of a hub with them.
var strictTenancy = Tenancy{ProtectedLabels: []string{"team", "tier"}, MinInterval: 5 * time.Second, EnforceNamespace: true}

var strict = ValidateOptions{AdminNamespace: tenancy.AdminNamespace, GeneratedNamespace: tenancy.GeneratedNamespace, ClusterLabel: "cluster", Tenancy: strictTenancy}

var strictRender = RenderOptions{
	HubID: hubID, AdminNamespace: tenancy.AdminNamespace, GeneratedNamespace: tenancy.GeneratedNamespace, ClusterLabel: "cluster", Tenancy: strictTenancy,
}

// The labels by which somebody is notified are not the tenant's, whatever sets them. An empty one removes the
// label of a series: TestTenantsLabels of pkg/testing/promtool.
func TestRenderForcesLabels(t *testing.T) {
	set := func(r *v1alpha1.AlertRule) {
		r.Spec.Labels = texts{"namespace": "payments", "team": "payments", "own": "x", "cluster": "another"}
	}
	over := func(r *v1alpha1.AlertRule) {
		r.Spec.Overrides = []v1alpha1.Override{{ClusterSelection: everyCluster(), Labels: texts{"namespace": "payments", "team": "payments", "own": "x"}}}
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
			r.Spec.Overrides = []v1alpha1.Override{{ClusterSelection: everyCluster(), Labels: texts{"namespace": "", "team": ""}}}
		}, map[string]string{"namespace": "shop", "team": "", "tier": "", "cluster": "eu.1"}},
		"a generated rule": {func(r *v1alpha1.AlertRule) {
			generatedRule(r)
			set(r)
		}, map[string]string{"namespace": "kube-system", "team": "", "tier": "", "own": "x", "cluster": "eu.1"}},
		"the operator's own": {func(r *v1alpha1.AlertRule) {
			r.Namespace = tenancy.AdminNamespace
			set(r)
		}, map[string]string{"namespace": "payments", "team": "payments", "own": "x", "cluster": "eu.1"}},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := Render(newRule(c.edit), eu, strictRender)
			if err != nil {
				t.Fatal(err)
			}
			if got := p.Spec.Groups[0].Rules[0].Labels; !maps.Equal(got, c.want) {
				t.Errorf("the labels are %v, want %v", got, c.want)
			}
			loads(t, p)
		})
	}
}

// Without protected labels, no limit of tenants changes what is pushed for a template's rule.
func TestGeneratedRulesStayAsTheyAre(t *testing.T) {
	w := newWorkload(func(w *Workload) { w.Labels = map[string]string{"team": "shop"} })
	template := newTemplate(func(t *v1alpha1.AlertRuleTemplate) {
		t.Spec.Interval, t.Spec.Labels = "1s", texts{"team": "$(deployment.labels.team)"}
		t.Spec.Annotations = texts{"a": `{{ with query "up" }}{{ . | first | value }}{{ end }}`}
		t.Spec.Expr = `sum(up{namespace="monitoring", exported_namespace="$(deployment.namespace)"}) # as it is`
	})
	if bad := ValidateTemplate(template, strict); bad != nil {
		t.Fatal(bad)
	}
	r, err := Generate(template, w, tenancy.GeneratedNamespace)
	if err != nil {
		t.Fatal(err)
	}
	if bad := Validate(r, strict); bad != nil {
		t.Fatal(bad)
	}
	o := strictRender
	o.Tenancy.ProtectedLabels = nil
	p, err := Render(r, w.Cluster, o)
	if err != nil {
		t.Fatal(err)
	}
	got := p.Spec.Groups[0].Rules[0]
	want := map[string]string{"namespace": "shop", "deployment": "web", "team": "shop", "cluster": "eu-1"}
	if got.Expr.StrVal != r.Spec.Expr || !maps.Equal(got.Labels, want) {
		t.Errorf("it is %+v", got)
	}
}

func TestValidateTenants(t *testing.T) {
	const spec, expr = v1alpha1.ReasonInvalidSpec, v1alpha1.ReasonInvalidExpr
	type edit = func(*v1alpha1.AlertRule)
	note := func(text string) edit {
		return func(r *v1alpha1.AlertRule) { r.Spec.Annotations = texts{"a": v1alpha1.LabelText(text)} }
	}
	query := func(e string) edit { return func(r *v1alpha1.AlertRule) { r.Spec.Expr = e } }
	over := func(o v1alpha1.Override) edit {
		return func(r *v1alpha1.AlertRule) {
			o.ClusterSelection = everyCluster()
			r.Spec.Overrides = []v1alpha1.Override{o}
		}
	}
	for name, c := range map[string]struct {
		edit                  edit
		reason, field, expect string
	}{
		"a short interval":        {func(r *v1alpha1.AlertRule) { r.Spec.Interval = "4s999ms" }, spec, "spec.interval", "4s999ms is too short for an AlertRule outside of namespace rulefleet-system; use at least 5s"},
		"a protected label":       {func(r *v1alpha1.AlertRule) { r.Spec.Labels = texts{"team": "shop"} }, spec, "spec.labels[team]", "label team is protected"},
		"in an override":          {over(v1alpha1.Override{Labels: texts{"tier": "1"}}), spec, "spec.overrides[0].labels[tier]", "label tier is protected"},
		"a query":                 {note(`{{ with query "up" }}{{ . | first | value }}{{ end }}`), spec, "spec.annotations[a]", "the function query is not available"},
		"a query in a label":      {func(r *v1alpha1.AlertRule) { r.Spec.Labels = texts{"a": `{{ range query "up" }}x{{ end }}`} }, spec, "spec.labels[a]", "the function query is not available"},
		"a query as an argument":  {note(`{{ printf "%v" (query "up") }}`), spec, "spec.annotations[a]", "the function query is not available"},
		"a query in a definition": {note(`{{ define "x" }}{{ range $q := query "up" }}x{{ end }}{{ end }}`), spec, "spec.annotations[a]", "the function query is not available"},
		"a query in an else":      {note(`{{ if false }}{{ else }}{{ $q := "up" | query }}{{ end }}`), spec, "spec.annotations[a]", "the function query is not available"},
		"a query in an override":  {over(v1alpha1.Override{Annotations: texts{"a": `{{ (query "up" | first).Value }}`}}), spec, "spec.overrides[0].annotations[a]", "the function query is not available"},
		"another namespace":       {query(`up == 0 and b{namespace="payments"}`), expr, "spec.expr", `1:13: the selector asks for namespace="payments", but an AlertRule in namespace shop can only read series with namespace="shop"`},
		"in an override's expr":   {over(v1alpha1.Override{Expr: `b{namespace=~"pay.*"}`}), expr, "spec.overrides[0].expr", `asks for namespace=~"pay.*"`},
		"info":                    {query(`sum(info(up)) > 0`), expr, "spec.expr", "1:5: the function info reads the series of all namespaces"},
	} {
		t.Run(name, func(t *testing.T) {
			strict := strict
			strict.Evaluator = &Evaluator{Version: "3.14", Features: []string{"promql-experimental-functions"}} // with info
			r := newRule(c.edit)
			bad := Validate(r, strict)
			if bad == nil || bad.Reason != c.reason || bad.Field != c.field || !strings.Contains(bad.Message, c.expect) {
				t.Errorf("refused with %+v", bad)
			}
			r.Namespace = tenancy.AdminNamespace
			if bad := Validate(r, strict); bad != nil {
				t.Errorf("in the operator's namespace: %v", bad)
			}
			r = newRule(c.edit, generatedRule)
			if bad := Validate(r, strict); bad != nil {
				t.Errorf("generated: %v", bad)
			}
		})
	}
	for name, edit := range map[string]edit{
		"the shortest interval":   func(r *v1alpha1.AlertRule) { r.Spec.Interval = "5s" },
		"no interval":             func(r *v1alpha1.AlertRule) { r.Spec.Interval = "" },
		"its own namespace":       query(`up{namespace="shop"} == 0 or up{namespace!="payments"}`),
		"what a spoke determines": query(`up{namespace="$(cluster.labels.ns)"}`),
		"the word":                note(`query: {{ "query" }} {{ $labels.query }}`),
	} {
		t.Run(name, func(t *testing.T) {
			if bad := Validate(newRule(edit), strict); bad != nil {
				t.Error(bad)
			}
		})
	}
}

// Labels that the author does not decide are warned of where they are not refused.
func TestWarningsOfForcedLabels(t *testing.T) {
	labels := func(r *v1alpha1.AlertRule) {
		r.Spec.For, r.Spec.Severity, r.Spec.Labels = "1m", "warning", texts{"namespace": "payments", "team": "payments"}
	}
	own := newRule(labels)
	own.Spec.Labels = texts{"namespace": "shop"}
	template := newTemplate(func(t *v1alpha1.AlertRuleTemplate) {
		t.Spec.For, t.Spec.Severity, t.Spec.Labels = "1m", "warning", texts{"team": "x"}
	})
	const (
		forced    = "spec.labels[namespace] is overwritten with the namespace of the rule in the spokes"
		protected = "spec.labels[team] is protected, and is removed from the alert"
	)
	for name, c := range map[string]struct {
		got, want []string
	}{
		"a tenant's":   {Warnings(newRule(labels), strict), []string{forced, protected}},
		"its own":      {Warnings(own, strict), nil},
		"generated":    {Warnings(newRule(labels, generatedRule), strict), []string{forced, protected}},
		"the operator": {Warnings(newRule(labels, func(r *v1alpha1.AlertRule) { r.Namespace = strict.AdminNamespace }), strict), nil},
		"a template":   {TemplateWarnings(template, strict), []string{protected}},
	} {
		t.Run(name, func(t *testing.T) {
			if !slices.EqualFunc(c.got, c.want, strings.HasPrefix) {
				t.Errorf("warned of %q", c.got)
			}
		})
	}
}

func TestValidateProtectedLabels(t *testing.T) {
	if err := ValidateProtectedLabels([]string{"team", "_x1"}, "cluster"); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"", "a-b", "1a", "__name__", "namespace", "cluster", "severity", "deployment", "alertname"} {
		if err := ValidateProtectedLabels([]string{"team", name}, "cluster"); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestEnforceNamespace(t *testing.T) {
	for expr, want := range map[string]string{
		`up == 0`:                                           `up{namespace="shop"} == 0`,
		`up{namespace="shop",a="b"}`:                        `up{a="b",namespace="shop"}`,
		`up{namespace=~".*"}`:                               `up{namespace="shop",namespace=~".*"}`,
		`up{namespace!=""}`:                                 `up{namespace!="",namespace="shop"}`,
		`{"a.b"}`:                                           `{"a.b",namespace="shop"}`,
		`sum by (x) (rate(a[5m] offset 1m))`:                `sum by (x) (rate(a{namespace="shop"}[5m] offset 1m))`,
		`topk(scalar(secret), up)`:                          `topk(scalar(secret{namespace="shop"}), up{namespace="shop"})`,
		`quantile(scalar(secret), vector(1))`:               `quantile(scalar(secret{namespace="shop"}), vector(1))`,
		`max_over_time(a[1h:1m] @ end())`:                   `max_over_time(a{namespace="shop"}[1h:1m] @ end())`,
		`a unless on () absent(b) or (c and d)`:             `a{namespace="shop"} unless on () absent(b{namespace="shop"}) or (c{namespace="shop"} and d{namespace="shop"})`,
		`label_replace(a, "namespace", "payments", "", "")`: `label_replace(a{namespace="shop"}, "namespace", "payments", "", "")`,
		"-a # {b}\n > bool -1":                              `-a{namespace="shop"} > bool -1`,
		`predict_linear(a[5m], scalar(b))`:                  `predict_linear(a{namespace="shop"}[5m], scalar(b{namespace="shop"}))`,
		`time() > bool 1`:                                   `time() > bool 1`,
	} {
		t.Run(expr, func(t *testing.T) {
			got, f := enforceNamespace(expr, "shop")
			if f != nil {
				t.Fatal(f)
			}
			if canonical(got) != canonical(want) {
				t.Errorf("it is %s, want %s", got, want)
			}
			if again, f := enforceNamespace(got, "shop"); f != nil || again != got {
				t.Errorf("enforced again, it is %s, %v", again, f)
			}
		})
	}
}

// What a spoke's labels make of a tenant's expression is restricted as well.
func TestRenderEnforces(t *testing.T) {
	spoke := Cluster{Name: "eu-1", Labels: map[string]string{"ns": "payments"}}
	for name, c := range map[string]struct {
		edit func(*v1alpha1.AlertRule)
		want string
	}{
		"a tenant's": {func(r *v1alpha1.AlertRule) { r.Spec.Expr = `up{c="$(cluster.name)"}` }, `up{c="eu-1",namespace="shop"}`},
		"its override": {func(r *v1alpha1.AlertRule) {
			r.Spec.Overrides = []v1alpha1.Override{{ClusterSelection: everyCluster(), Expr: "b"}}
		}, `b{namespace="shop"}`},
		"the operators": {func(r *v1alpha1.AlertRule) { r.Namespace = tenancy.AdminNamespace }, "up == 0"},
		"generated":     {generatedRule, "up == 0"},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := Render(newRule(c.edit), spoke, strictRender)
			if err != nil || canonical(ExprOf(p)) != canonical(c.want) {
				t.Errorf("it is %v, %v", p, err)
			}
		})
	}
	_, err := Render(newRule(func(r *v1alpha1.AlertRule) { r.Spec.Expr = `up{namespace="$(cluster.labels.ns)"}` }), spoke, strictRender)
	if bad, ok := errors.AsType[*Invalid](err); !ok || bad.Reason != v1alpha1.ReasonInvalidExpr || !strings.Contains(bad.Message, `asks for namespace="payments"`) {
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

// FuzzEnforceNamespace: whatever an expression is, each selector of the result has the matcher.
func FuzzEnforceNamespace(f *testing.F) {
	for _, expr := range []string{
		`up`, `{"a.b", namespace=~"x|shop"}`, `topk(scalar(a), b)`, `a[5m:] @ start()`, `absent_over_time(a{b="c"}[1m])`, "a # b\n",
		`count_values("x", a)`, `info(a, {b="c"})`, `a anchored`, `a[5m] smoothed`, `limitk(1, a) or on() group_left() b`, `a{namespace="x\"y"}`, "a[step()]",
	} {
		f.Add(expr)
	}
	f.Fuzz(func(t *testing.T, expr string) {
		if len(expr) > 4096 {
			t.Skip()
		}
		got, bad := enforceNamespace(expr, "shop")
		if bad != nil {
			return
		}
		tree, err := anyPromQL.ParseExpr(got)
		if err != nil {
			t.Fatalf("%s becomes %s: %v", expr, got, err)
		}
		for _, selector := range parser.ExtractSelectors(tree) {
			if !slices.ContainsFunc(selector, func(m *labels.Matcher) bool {
				return m.Name == "namespace" && m.Type == labels.MatchEqual && m.Value == "shop"
			}) {
				t.Errorf("%s becomes %s, with the selector %v", expr, got, selector)
			}
		}
	})
}
