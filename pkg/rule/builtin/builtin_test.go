package builtin

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	prometheus "github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/delivery"
	"github.com/rulefleet/rulefleet/pkg/rule/internal/ruletest"
	"github.com/rulefleet/rulefleet/pkg/rule/promql"
	"github.com/rulefleet/rulefleet/pkg/rule/templating"
	"github.com/rulefleet/rulefleet/pkg/rule/validation"
)

// now is when expressions are evaluated, and the time of all samples.
var now = time.Unix(1000, 0)

// sample is a number at the time now.
type sample struct {
	chunks.Sample
	value float64
}

func (s sample) T() int64                 { return now.UnixMilli() }
func (s sample) ST() int64                { return 0 }
func (s sample) F() float64               { return s.value }
func (s sample) Type() chunkenc.ValueType { return chunkenc.ValFloat }

// seriesSet is what a query selects.
type seriesSet struct {
	series []storage.Series
	next   int
}

func (s *seriesSet) Next() bool                        { s.next++; return s.next <= len(s.series) }
func (s *seriesSet) At() storage.Series                { return s.series[s.next-1] }
func (s *seriesSet) Err() error                        { return nil }
func (s *seriesSet) Warnings() annotations.Annotations { return nil }

var engine = prometheus.NewEngine(prometheus.EngineOpts{MaxSamples: 1000, Timeout: time.Minute, Parser: promql.Stable})

// query evaluates an expression with Prometheus' engine over series of one sample.
func query(t *testing.T, expr string, series map[string]float64) prometheus.Vector {
	t.Helper()
	selectSeries := func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
		set := &seriesSet{}
		for text, value := range series {
			metric, err := promql.Stable.ParseMetric(text)
			if err != nil {
				t.Fatal(err)
			}
			matches := true
			for _, m := range matchers {
				matches = matches && m.Matches(metric.Get(m.Name))
			}
			if matches {
				set.series = append(set.series, storage.NewListSeries(metric, []chunks.Sample{sample{value: value}}))
			}
		}
		return set
	}
	queryable := &storage.MockQueryable{MockQuerier: &storage.MockQuerier{SelectMockFunction: selectSeries}}
	q, err := engine.NewInstantQuery(t.Context(), queryable, nil, expr, now)
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	defer q.Close()
	vector, err := q.Exec(t.Context()).Vector()
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	return vector
}

func TestDeploymentDown(t *testing.T) {
	const (
		available = `kube_deployment_status_replicas_available{job="ksm",instance="a",namespace="shop",deployment="web"}`
		wanted    = `kube_deployment_spec_replicas{job="ksm",instance="a",namespace="shop",deployment="web"}`

		otherAvailable = `kube_deployment_status_replicas_available{job="ksm",instance="a",namespace="other",deployment="web"}`
		otherWanted    = `kube_deployment_spec_replicas{job="ksm",instance="a",namespace="other",deployment="web"}`

		nextAvailable = `kube_deployment_status_replicas_available{job="ksm",instance="a",namespace="shop",deployment="web-2"}`
		nextWanted    = `kube_deployment_spec_replicas{job="ksm",instance="a",namespace="shop",deployment="web-2"}`

		againWanted = `kube_deployment_spec_replicas{job="ksm",instance="b",namespace="shop",deployment="web"}`
	)
	w := newWorkload()
	r, err := templating.Rule(Templates(Options{})[0], w, "generated")
	if err != nil {
		t.Fatal(err)
	}
	p, err := delivery.Render(r, w.Cluster, options)
	if err != nil {
		t.Fatal(err)
	}
	alert := p.Spec.Groups[0].Rules[0]
	for name, c := range map[string]struct {
		series map[string]float64
		fires  bool
	}{
		"none of 3":                        {map[string]float64{available: 0, wanted: 3}, true},
		"1 of 3":                           {map[string]float64{available: 1, wanted: 3}, false},
		"3 of 3":                           {map[string]float64{available: 3, wanted: 3}, false},
		"scaled to zero":                   {map[string]float64{available: 0, wanted: 0}, false},
		"scaled to zero, namesake is not":  {map[string]float64{available: 0, wanted: 0, otherAvailable: 0, otherWanted: 3}, false},
		"healthy, namesake is down":        {map[string]float64{available: 3, wanted: 3, otherAvailable: 0, otherWanted: 3}, false},
		"down, namesake is scaled to zero": {map[string]float64{available: 0, wanted: 3, otherAvailable: 0, otherWanted: 0}, true},
		"down, namesake is healthy":        {map[string]float64{available: 0, wanted: 3, otherAvailable: 3, otherWanted: 3}, true},
		"healthy, a longer name is down":   {map[string]float64{available: 3, wanted: 3, nextAvailable: 0, nextWanted: 3}, false},
		"scaled to zero, longer name not":  {map[string]float64{available: 0, wanted: 0, nextAvailable: 0, nextWanted: 3}, false},
		"gone":                             {map[string]float64{otherAvailable: 0, otherWanted: 3}, false},
		"kube-state-metrics in two copies": {map[string]float64{available: 0, wanted: 3, againWanted: 3}, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := query(t, alert.Expr.StrVal, c.series); (len(got) == 1) != c.fires || len(got) > 1 {
				t.Errorf("%s: got %v, want it to fire: %v", name, got, c.fires)
			}
		})
	}
	if alert.Alert != "DeploymentDown" || alert.Labels["severity"] != "critical" || *alert.For != "1m" ||
		alert.Labels["namespace"] != "shop" || alert.Labels["deployment"] != "web" || alert.Labels["cluster"] != "eu-1" {
		t.Errorf("got %+v", alert)
	}
}

// TestBuiltIns states what routes and people rely on.
func TestBuiltIns(t *testing.T) {
	want := []string{
		"deployment-down DeploymentDown critical 1m Enabled",
		"replicas-mismatch DeploymentReplicasMismatch warning 15m Disabled",
		"rollout-stuck DeploymentRolloutStuck warning 5m Disabled",
		"generation-mismatch DeploymentGenerationMismatch warning 15m Disabled",
		"crash-looping DeploymentCrashLooping warning 15m Disabled",
		"container-waiting DeploymentContainerWaiting warning 1h Disabled",
		"hpa-maxed-out DeploymentHPAMaxedOut warning 15m Disabled",
		"statefulset-down StatefulSetDown critical 5m Disabled",
		"statefulset-replicas-mismatch StatefulSetReplicasMismatch warning 15m Disabled",
		"statefulset-rollout-stuck StatefulSetRolloutStuck warning 5m Disabled",
		"statefulset-crash-looping StatefulSetCrashLooping warning 15m Disabled",
		"statefulset-container-waiting StatefulSetContainerWaiting warning 1h Disabled",
		"daemonset-down DaemonSetDown critical 5m Disabled",
		"daemonset-not-ready DaemonSetNotReady warning 15m Disabled",
		"daemonset-rollout-stuck DaemonSetRolloutStuck warning 5m Disabled",
		"daemonset-not-scheduled DaemonSetNotScheduled warning 15m Disabled",
		"daemonset-misscheduled DaemonSetMisscheduled warning 15m Disabled",
		"daemonset-crash-looping DaemonSetCrashLooping warning 15m Disabled",
		"daemonset-container-waiting DaemonSetContainerWaiting warning 1h Disabled",
		"cronjob-failing CronJobFailing warning 1m Disabled",
		"cronjob-missed CronJobMissed warning 5m Disabled",
	}
	var got []string
	for _, selector := range []string{`job=~"kube-(state|$(x))-metrics",namespace!="",`, ""} {
		got = nil
		for _, template := range Templates(Options{KubeStateMetrics: selector}) {
			spec := template.Spec
			got = append(got, fmt.Sprint(template.Name, " ", spec.Alert, " ", spec.Severity, " ", spec.For, " ", spec.State))
			if bad := validation.Template(template, validation.Options{}); bad != nil {
				t.Errorf("%s with %s: %v", template.Name, selector, bad)
			}
			for _, key := range []string{"summary", "description"} {
				if spec.Annotations[key] == "" {
					t.Errorf("%s has no %s", template.Name, key)
				}
			}
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s", strings.Join(got, "\n"))
	}
	for _, template := range Templates(Options{}) {
		ruletest.Golden(t, "builtins/"+template.Name, template)
	}
	Templates(Options{})[0].Spec.State = v1alpha1.Disabled
	if Templates(Options{})[0].Spec.State != v1alpha1.Enabled {
		t.Error("callers share the built-in templates")
	}
}

// Every selector of an expression has the matchers that the hub's operator gave, as
// they were given, whatever they look like.
func TestBuiltInsSelector(t *testing.T) {
	const selector = "job=~\"a|$(x)\", path='\\\\', "
	for _, template := range Templates(Options{KubeStateMetrics: selector}) {
		w := workloadOf(template)
		r, err := templating.Rule(template, w, "generated")
		if err != nil {
			t.Fatal(err)
		}
		p, err := delivery.Render(r, w.Cluster, options)
		if err != nil {
			t.Fatal(err)
		}
		tree, err := promql.Stable.ParseExpr(p.Spec.Groups[0].Rules[0].Expr.StrVal)
		if err != nil {
			t.Fatal(err)
		}
		for _, matchers := range parser.ExtractSelectors(tree) {
			got := map[string]string{}
			for _, m := range matchers {
				got[m.Name] += m.Type.String() + m.Value
			}
			if got["job"] != "=~a|$(x)" || got["path"] != `=\` {
				t.Errorf("%s: %v", template.Name, matchers)
			}
		}
	}
}

func TestValidateSelector(t *testing.T) {
	for _, good := range []string{
		"", " ", `job="a"`, `job="a",`, ` job=~"a|b" , namespace!="x" `, `job!="a"`, "job=`a`", `cluster=""`, `job="x"`,
	} {
		t.Run(good, func(t *testing.T) {
			if err := ValidateSelector(good); err != nil {
				t.Errorf("%s: %v", good, err)
			}
		})
	}
	for bad, expect := range map[string]string{
		`job`:                                 "is not valid",
		`{job="a"}`:                           "is not valid",
		`job="a"} or up{job="b"`:              "without braces",
		"job=\"a\"} offset 5m #":              "without braces",
		"job=\"a\"}[5m:1m] #":                 "without braces",
		`job=~"("`:                            "missing closing )",
		`job="a" or job="b"`:                  "is not valid",
		`up`:                                  "is not valid",
		`__name__="a"`:                        "must not be set twice",
		`__name__=~"a"`:                       "__name__",
		`a="` + ruletest.Long("a", 512) + `"`: "longer than 512 bytes",
	} {
		t.Run(bad, func(t *testing.T) {
			if err := ValidateSelector(bad); err == nil || !strings.Contains(err.Error(), expect) {
				t.Errorf("%s: got %v, want %s", bad, err, expect)
			}
		})
	}
}

// TestGeneratedForDeployments keeps the AlertRules of Deployments as they are: a changed rule starts its for anew in
// every spoke.
func TestGeneratedForDeployments(t *testing.T) {
	for _, template := range Templates(Options{}) {
		if !slices.Equal(rule.KindsOf(template), []v1alpha1.WorkloadKind{v1alpha1.DeploymentKind}) {
			continue
		}
		t.Run(template.Name, func(t *testing.T) {
			r, err := templating.Rule(template, newWorkload(), "generated")
			if err != nil {
				t.Fatal(err)
			}
			ruletest.Golden(t, "generated/"+template.Name, r)
		})
	}
}
