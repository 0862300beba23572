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

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// dashboard is what these tests read of dashboard.json. The module e2e/integrations holds the file
// against Grafana's schema.
type dashboard struct {
	Title, UID string
	Templating struct {
		List []struct {
			Name, Definition string
			Query            json.RawMessage
		}
	}
	Panels []panel
}

type panel struct {
	ID                       uint32
	Type, Title, Description string
	GridPos                  position
	Datasource               datasource
	Targets                  []struct {
		Datasource         datasource
		Expr, LegendFormat string
	}
}

type position struct{ X, Y, W, H uint32 }

type datasource struct{ UID string }

// isRow tells whether it is a heading, without a query.
func (p *panel) isRow() bool { return p.Type == "row" }

func parsed(t *testing.T) *dashboard {
	t.Helper()
	data, err := os.ReadFile(files + "dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var d dashboard
	if err := json.Unmarshal(data, &d); err != nil {
		t.Fatal(err)
	}
	return &d
}

// Nothing in the dashboard is at the same place as another, or without a description.
func TestDashboard(t *testing.T) {
	d := parsed(t)
	if d.Title != "Rulefleet / Fleet overview" || len(d.UID) < 8 || len(d.UID) > 40 {
		t.Errorf("it is %s, %s", d.Title, d.UID)
	}
	var variables []string
	for _, v := range d.Templating.List {
		variables = append(variables, v.Name)
	}
	if !slices.Equal(variables, []string{"datasource", "namespace", "job", "cluster"}) {
		t.Errorf("its variables are %v", variables)
	}
	for _, v := range d.Templating.List[1:] {
		query := regexp.MustCompile(`^label_values\((.*), (\w+)\)$`).FindStringSubmatch(v.Definition)
		var asked struct{ Query string }
		if err := json.Unmarshal(v.Query, &asked); err != nil {
			t.Errorf("variable %s: %v", v.Name, err)
		}
		if len(query) != 3 || query[2] != v.Name || asked.Query != v.Definition {
			t.Errorf("variable %s is of %s", v.Name, v.Definition)
			continue
		}
		for _, s := range selectors(t, v.Name, variablesIn.Replace(query[1])) {
			checkSelector(t, v.Name, s)
		}
	}
	ids, cells := map[uint32]bool{}, map[string]string{}
	take := func(id uint32, title string, at position) {
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
		take(p.ID, p.Title, p.GridPos)
		if p.isRow() {
			continue
		}
		if p.Description == "" || p.Datasource.UID != "${datasource}" || len(p.Targets) == 0 {
			t.Errorf("panel %s has no description, no query, or a datasource of its own", p.Title)
		}
	}
}

// variablesIn stand in expressions where Grafana puts something that PromQL knows.
var variablesIn = strings.NewReplacer("$__rate_interval", "5m", "$namespace", "rulefleet-system", "$job", "rulefleet", "$cluster", "eu-1")

// expressions are all of the dashboard, by its panels' titles.
func expressions(t *testing.T) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	for _, p := range parsed(t).Panels {
		for _, target := range p.Targets {
			if target.Datasource.UID != "${datasource}" {
				t.Errorf("a query of panel %s has a datasource of its own", p.Title)
			}
			out[p.Title] = append(out[p.Title], target.Expr)
		}
	}
	return out
}

// Every expression of the dashboard is PromQL, of metrics and labels that there are, and is
// about what the variables pick. A metric with a label cluster is limited to the chosen clusters.
func TestDashboardExpressions(t *testing.T) {
	used := map[string]bool{}
	for panel, list := range expressions(t) {
		for _, expr := range list {
			for _, s := range selectors(t, panel, variablesIn.Replace(expr)) {
				used[metricOf(s.Name)] = true
				checkSelector(t, panel, s)
				limits := []string{"namespace", "job"}
				if i := slices.IndexFunc(own, func(m metric) bool { return m.Name == metricOf(s.Name) }); i >= 0 && slices.Contains(own[i].Labels, "cluster") {
					limits = append(limits, "cluster")
				}
				for _, name := range limits {
					if !slices.ContainsFunc(s.LabelMatchers, func(m *labels.Matcher) bool { return m.Name == name }) {
						t.Errorf("panel %s: %s is not limited to a %s", panel, s.Name, name)
					}
				}
			}
		}
	}
	for _, m := range own {
		// What is shown in more detail, by another metric.
		if !used[m.Name] && m.Name != "rulefleet_parked_keys" {
			t.Errorf("the dashboard does not show %s", m.Name)
		}
	}
	for _, m := range others {
		if !used[m.Name] {
			t.Errorf("nothing uses %s", m.Name)
		}
	}
}

// The legends have labels that are left by the expressions.
func TestDashboardLegends(t *testing.T) {
	legend := regexp.MustCompile(`\{\{(\w+)\}\}`)
	for _, p := range parsed(t).Panels {
		for _, target := range p.Targets {
			for _, l := range legend.FindAllStringSubmatch(target.LegendFormat, -1) {
				if by := grouping(t, variablesIn.Replace(target.Expr)); by != nil && !slices.Contains(by, l[1]) {
					t.Errorf("panel %s: its legend has %s, its expression is by %v", p.Title, l[1], by)
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
	all := slices.Concat(own, others)
	i := slices.IndexFunc(all, func(m metric) bool {
		return m.Name == s.Name || (m.Type == typeHistogram && m.Name == metricOf(s.Name) && m.Name != s.Name)
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

// docs/reference/metrics.md is what the code says: make generate writes it.
func TestMarkdown(t *testing.T) {
	data, err := os.ReadFile("../../docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(data, []byte(Markdown())) {
		t.Error("docs/reference/metrics.md is stale: run make generate")
	}
	for _, m := range slices.Concat(own, others) {
		if m.Help == "" || m.Use == "" || !strings.HasSuffix(m.Help, ".") || !strings.Contains(string(data), "| `"+m.Name+"` |") {
			t.Errorf("docs/reference/metrics.md tells nothing of %s", m.Name)
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
