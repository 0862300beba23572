package metrics

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	grafana "github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// parsed returns the dashboard, held against Grafana's schema.
func parsed(t *testing.T) *dashboard.Dashboard {
	t.Helper()
	data, err := os.ReadFile(files + "dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	plugins.RegisterDefaultPlugins()
	var d dashboard.Dashboard
	if err := d.UnmarshalJSONStrict(data); err != nil {
		t.Fatalf("it does not fit Grafana's schema: %v", err)
	}
	if err := d.Validate(); err != nil {
		t.Fatalf("it is not valid: %v", err)
	}
	return &d
}

// The dashboard fits Grafana's schema, and nothing in it is at the same place as another, or
// without a description.
func TestDashboard(t *testing.T) {
	d := parsed(t)
	if *d.Title != "Rulefleet / Fleet overview" || len(*d.Uid) < 8 || len(*d.Uid) > 40 {
		t.Errorf("it is %s, %s", *d.Title, *d.Uid)
	}
	var variables []string
	for _, v := range d.Templating.List {
		variables = append(variables, v.Name)
	}
	if !slices.Equal(variables, []string{"datasource", "namespace", "job"}) {
		t.Errorf("its variables are %v", variables)
	}
	for _, v := range d.Templating.List[1:] {
		query := regexp.MustCompile(`^label_values\((.*), (\w+)\)$`).FindStringSubmatch(*v.Definition)
		if len(query) != 3 || query[2] != v.Name || v.Query.Map["query"] != *v.Definition {
			t.Errorf("variable %s is of %s", v.Name, *v.Definition)
			continue
		}
		for _, s := range selectors(t, v.Name, variablesIn.Replace(query[1])) {
			checkSelector(t, v.Name, s)
		}
	}
	ids, cells := map[uint32]bool{}, map[string]string{}
	take := func(id uint32, title string, at dashboard.GridPos) {
		if ids[id] || at.X+at.W > 24 {
			t.Errorf("panel %s has the id of another, or is too wide", title)
		}
		ids[id] = true
		for x := at.X; x < at.X+at.W; x++ {
			for y := at.Y; y < at.Y+at.H; y++ {
				cell := fmt.Sprint(x, " ", y)
				if other, taken := cells[cell]; taken {
					t.Fatalf("panel %s lies over %s", title, other)
				}
				cells[cell] = title
			}
		}
	}
	for _, p := range d.Panels {
		if p.RowPanel != nil {
			take(p.RowPanel.Id, *p.RowPanel.Title, *p.RowPanel.GridPos)
			continue
		}
		take(*p.Panel.Id, *p.Panel.Title, *p.Panel.GridPos)
		if _, known := cog.ConfigForPanelcfgVariant(p.Panel.Type); !known {
			t.Errorf("panel %s is of kind %s, whose options nobody has checked", *p.Panel.Title, p.Panel.Type)
		}
		if p.Panel.Description == nil || *p.Panel.Description == "" || *p.Panel.Datasource.Uid != "${datasource}" || len(p.Panel.Targets) == 0 {
			t.Errorf("panel %s has no description, no query, or a datasource of its own", *p.Panel.Title)
		}
	}
}

// variablesIn stand in expressions where Grafana puts something that PromQL knows.
var variablesIn = strings.NewReplacer("$__rate_interval", "5m", "$namespace", "rulefleet-system", "$job", "rulefleet")

// expressions are all of the dashboard, by its panels' titles.
func expressions(t *testing.T) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	for _, p := range parsed(t).Panels {
		if p.Panel == nil {
			continue
		}
		for _, target := range p.Panel.Targets {
			q, ok := target.(*grafana.Dataquery)
			if !ok {
				t.Fatalf("panel %s has a %T", *p.Panel.Title, target)
			}
			if q.Datasource == nil || *q.Datasource.Uid != "${datasource}" {
				t.Errorf("a query of panel %s has a datasource of its own", *p.Panel.Title)
			}
			out[*p.Panel.Title] = append(out[*p.Panel.Title], q.Expr)
		}
	}
	return out
}

// Every expression of the dashboard is PromQL, of metrics and labels that there are, and is
// about what the variables pick.
func TestDashboardExpressions(t *testing.T) {
	used := map[string]bool{}
	for panel, list := range expressions(t) {
		for _, expr := range list {
			for _, s := range selectors(t, panel, variablesIn.Replace(expr)) {
				used[metricOf(s.Name)] = true
				checkSelector(t, panel, s)
				for _, name := range []string{"namespace", "job"} {
					if !slices.ContainsFunc(s.LabelMatchers, func(m *labels.Matcher) bool { return m.Name == name }) {
						t.Errorf("panel %s: %s is not limited to a %s", panel, s.Name, name)
					}
				}
			}
		}
	}
	for _, m := range Own() {
		// What is shown in more detail, by another metric.
		if !used[m.Name] && m.Name != "rulefleet_parked_keys" {
			t.Errorf("the dashboard does not show %s", m.Name)
		}
	}
	for _, m := range Others() {
		if !used[m.Name] {
			t.Errorf("nothing uses %s", m.Name)
		}
	}
}

// The legends have labels that are left by the expressions.
func TestDashboardLegends(t *testing.T) {
	legend := regexp.MustCompile(`\{\{(\w+)\}\}`)
	for _, p := range parsed(t).Panels {
		if p.Panel == nil {
			continue
		}
		for _, target := range p.Panel.Targets {
			q := target.(*grafana.Dataquery)
			if q.LegendFormat == nil {
				continue
			}
			for _, l := range legend.FindAllStringSubmatch(*q.LegendFormat, -1) {
				if by := grouping(t, variablesIn.Replace(q.Expr)); by != nil && !slices.Contains(by, l[1]) {
					t.Errorf("panel %s: its legend has %s, its expression is by %v", *p.Panel.Title, l[1], by)
				}
			}
		}
	}
}

// The alerts are about metrics and labels that there are.
func TestAlertExpressions(t *testing.T) {
	for name, r := range alertsByName(t) {
		for _, s := range selectors(t, name, r.Expr.String()) {
			checkSelector(t, name, s)
		}
	}
}

// grouping returns the labels of the outermost aggregation, or nil without one.
func grouping(t *testing.T, expr string) (by []string) {
	t.Helper()
	parser.Inspect(parse(t, expr), func(n parser.Node, _ []parser.Node) error {
		if a, ok := n.(*parser.AggregateExpr); ok && by == nil {
			by = append([]string{}, a.Grouping...)
		}
		return nil
	})
	return by
}

func parse(t *testing.T, expr string) parser.Expr {
	t.Helper()
	e, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
	if err != nil {
		t.Fatalf("%s is no PromQL: %v", expr, err)
	}
	return e
}

func selectors(t *testing.T, where, expr string) []*parser.VectorSelector {
	t.Helper()
	var out []*parser.VectorSelector
	parser.Inspect(parse(t, expr), func(n parser.Node, _ []parser.Node) error {
		if s, ok := n.(*parser.VectorSelector); ok {
			out = append(out, s)
		}
		return nil
	})
	if len(out) == 0 {
		t.Errorf("%s: %s is about no metric", where, expr)
	}
	return out
}

// checkSelector holds a selector against what there is.
func checkSelector(t *testing.T, where string, s *parser.VectorSelector) {
	t.Helper()
	all := append(Own(), Others()...)
	i := slices.IndexFunc(all, func(m Metric) bool {
		return m.Name == s.Name || (m.Type == Histogram && m.Name == metricOf(s.Name) && m.Name != s.Name)
	})
	if i < 0 {
		t.Errorf("%s: there is no metric %s", where, s.Name)
		return
	}
	for _, m := range s.LabelMatchers {
		if !slices.Contains(append([]string{model.MetricNameLabel, "namespace", "job"}, all[i].Labels...), m.Name) {
			t.Errorf("%s: %s has no label %s", where, s.Name, m.Name)
		}
	}
}

// metricOf returns the histogram that a series is of, or the series' own name.
func metricOf(series string) string {
	for _, suffix := range []string{"_bucket", "_count", "_sum"} {
		if name, ok := strings.CutSuffix(series, suffix); ok {
			return name
		}
	}
	return series
}

// docs/metrics.md is what the code says: make generate writes it.
func TestMarkdown(t *testing.T) {
	data, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(data, []byte(Markdown())) {
		t.Error("docs/metrics.md is stale: run make generate")
	}
	for _, m := range append(Own(), Others()...) {
		if m.Help == "" || m.Use == "" || !strings.HasSuffix(m.Help, ".") || !strings.Contains(string(data), "| `"+m.Name+"` |") {
			t.Errorf("docs/metrics.md tells nothing of %s", m.Name)
		}
	}
	for _, name := range regexp.MustCompile("alerts? `(Rulefleet\\w+)`").FindAllStringSubmatch(string(data), -1) {
		if _, ok := alertsByName(t)[name[1]]; !ok {
			t.Errorf("there is no alert %s", name[1])
		}
	}
}

// What somebody exports from Grafana has things of their own in it.
func TestDashboardIsNobodysOwn(t *testing.T) {
	data, err := os.ReadFile(files + "dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var d map[string]any
	if err := json.Unmarshal(data, &d); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"id", "__inputs", "__requires", "iteration"} {
		if _, ok := d[key]; ok {
			t.Errorf("it has %s, which is of one Grafana", key)
		}
	}
}
