package promtool

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql/parser"
	"sigs.k8s.io/yaml"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/builtin"
	"github.com/rulefleet/rulefleet/pkg/rule/templating"
)

const (
	builtInTests = "../../rule/builtin/testdata/builtins"
	job          = "kube-state-metrics"
)

// A scrape is a way in which kube-state-metrics' series come to Prometheus: it makes of
// a series' labels those that Prometheus has.
type scrape func(b *labels.Builder)

var scrapes = map[string]scrape{
	"with honorLabels": func(*labels.Builder) {},
	"without honorLabels": func(b *labels.Builder) {
		export(b, "namespace", "monitoring")
		export(b, "pod", "kube-state-metrics-0")
		export(b, "container", "kube-state-metrics")
	},
	// Every series has the namespace that the rules are about.
	"without honorLabels, in the workload's namespace": func(b *labels.Builder) {
		export(b, "namespace", "shop")
		export(b, "pod", "web-5d4f-abcde")
		export(b, "container", "app")
	},
	"without honorLabels, from a target that has a namespace alone": func(b *labels.Builder) {
		export(b, "namespace", "shop")
	},
}

// export does what Prometheus does when a series has a label of its target.
func export(b *labels.Builder, name, target string) {
	if own := b.Get(name); own != "" {
		b.Set("exported_"+name, own)
	}
	b.Set(name, target)
}

// copies are the ways in which a series comes more than once: each is its values by
// the instance that gives them.
var copies = map[string]func([]string) map[string][]string{
	"one instance": func(v []string) map[string][]string { return map[string][]string{"a": v} },
	"two instances": func(v []string) map[string][]string {
		return map[string][]string{"a": v, "b": v}
	},
	"an instance that is replaced every two scrapes": func(v []string) map[string][]string {
		out := map[string][]string{}
		for i := range v {
			now, other := "a", "b"
			if i/2%2 == 1 {
				now, other = other, now
			}
			left := "_"
			if i%2 == 0 && i > 0 {
				left = "stale"
			}
			out[now], out[other] = append(out[now], v[i]), append(out[other], left)
		}
		return out
	},
}

// TestBuiltIns runs the test file of each built-in template, under every way to scrape
// kube-state-metrics.
func TestBuiltIns(t *testing.T) {
	suites := map[string][]*v1alpha1.AlertRuleTemplate{}
	for _, template := range builtin.Templates(builtin.Options{KubeStateMetrics: `job="` + job + `"`}) {
		if rule.KindsOf(template)[0] == v1alpha1.DeploymentKind { // one kind is enough
			suites["selector"] = append(suites["selector"], template)
		}
	}
	for _, template := range builtin.Templates(builtin.Options{}) {
		suites[template.Name] = []*v1alpha1.AlertRuleTemplate{template}
	}
	found, err := filepath.Glob(filepath.Join(builtInTests, "*.test.yaml"))
	if err != nil || len(found) != len(suites) {
		t.Errorf("%d files are there for %d suites of tests: %v", len(found), len(suites), err)
	}
	for name, templates := range suites {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data, err := os.ReadFile(filepath.Join(builtInTests, name+".test.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			if err := Test(t.Context(), rendered(t, templates), everyWay(t, data)); err != nil {
				t.Error(err)
			}
		})
	}
}

// rendered are the groups of templates, as a Prometheus in cluster eu-1 gets them for
// workload shop/web.
func rendered(t *testing.T, templates []*v1alpha1.AlertRuleTemplate) []monitoringv1.RuleGroup {
	t.Helper()
	var out []monitoringv1.RuleGroup
	for _, template := range templates {
		w := templating.Workload{Kind: rule.KindsOf(template)[0], Cluster: rule.Cluster{Name: "eu-1"}, Namespace: "shop", Name: "web"}
		groups, err := Groups(template, w)
		if err != nil {
			t.Fatal(err)
		}
		if err := Check(t.Context(), groups); err != nil {
			t.Errorf("%s: %v", template.Name, err)
		}
		out = append(out, groups...)
	}
	return out
}

// everyWay repeats each test of a file for every way to scrape kube-state-metrics. In short mode, it is repeated once for
// each way and each kind of copies, and not for each pair of them.
func everyWay(t *testing.T, file []byte) []byte {
	t.Helper()
	var content map[string]any
	if err := yaml.UnmarshalStrict(file, &content); err != nil {
		t.Fatal(err)
	}
	ways, kinds := slices.Sorted(maps.Keys(scrapes)), slices.Sorted(maps.Keys(copies))
	var tests []any
	for _, test := range content["tests"].([]any) {
		test := test.(map[string]any)
		for i, scraped := range ways {
			for k, copied := range kinds {
				if testing.Short() && k != i%len(kinds) {
					continue
				}
				variant := maps.Clone(test)
				variant["name"] = fmt.Sprintf("%s (%s; %s)", test["name"], scraped, copied)
				variant["input_series"] = series(t, test["input_series"].([]any), scrapes[scraped], copies[copied])
				tests = append(tests, variant)
			}
		}
	}
	content["tests"] = tests
	data, err := yaml.Marshal(content)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// series makes of the series of kube-state-metrics those that Prometheus has.
func series(t *testing.T, in []any, scrape scrape, copies func([]string) map[string][]string) []any {
	t.Helper()
	var out []any
	for _, s := range in {
		s := s.(map[string]any)
		given, values, err := parser.NewParser(parser.Options{}).ParseSeriesDesc(fmt.Sprint(s["series"], " ", s["values"]))
		if err != nil {
			t.Fatalf("%v: %v", s, err)
		}
		var texts []string
		for _, v := range values {
			text := v.String()
			if value.IsStaleNaN(v.Value) {
				text = "stale"
			}
			texts = append(texts, text)
		}
		b := labels.NewBuilder(given)
		scrape(b)
		if b.Get("job") == "" {
			b.Set("job", job)
		}
		byInstance := copies(texts)
		if own := b.Get("instance"); own != "" { // the test is about instances
			byInstance = map[string][]string{own: texts}
		}
		for _, instance := range slices.Sorted(maps.Keys(byInstance)) {
			b.Set("instance", instance)
			out = append(out, map[string]any{"series": b.Labels().String(), "values": strings.Join(byInstance[instance], " ")})
		}
	}
	return out
}
