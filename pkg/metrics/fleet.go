package metrics

import (
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// deepest is how many spokes of a controller rulefleet_queue_depth names.
const deepest = 10

// namedSpokes is how many spokes rulefleet_rules names: the first by name, so that the choice
// does not change with the spokes' states.
const namedSpokes = 1000

const (
	// noReason stands for an empty reason, and otherReason for one that no constant of the
	// API has.
	noReason    = "None"
	otherReason = "Other"
	// otherSpokes stands for all spokes that a metric does not name. No spoke can have this name.
	otherSpokes = "_other"
)

var (
	spokesDesc = atScrape(Metric{
		Name: "rulefleet_spokes", Labels: []string{"condition", "status", "reason"},
		Help: "SpokeClusters by condition, its status and its reason (None: it was not looked at yet). EvaluatorsFound, Evaluating and MetricsPresent are counted where there is something to tell.",
		Use:  "`condition=\"Ready\",status=\"False\"` are those that are not served, `condition=\"Evaluating\",status=\"False\"` those whose Prometheus does not answer. What each reason means is in [operations.md](operations.md#conditions-of-a-spokecluster).",
	})
	readyDesc = atScrape(Metric{
		Name: "rulefleet_spoke_ready", Labels: []string{"cluster", "reason"},
		Help: "Whether a SpokeCluster is Ready (1) or not (0), with the reason: one series for each spoke.",
		Use:  "0 for long is for a person (alert `RulefleetSpokeNotReady`), but where the reason is somebody's will: Suspended, Leaving. Contested has an alert of its own (`RulefleetContested`). 1 with another reason than Ready is a spoke that is served, with something to put right (alerts `RulefleetEvaluatorUnreachable`, `RulefleetKubeStateMetricsMissing`). `kubectl describe spoke NAME` says what to do.",
	})
	rulesDesc = atScrape(Metric{
		Name: "rulefleet_rules", Labels: []string{"cluster", "phase", "reason"},
		Help: "Number of AlertRules placed on a spoke, by phase and reason as in AlertRule.status (None: the rule reached the furthest phase that can be verified). The label cluster is the name of a registered SpokeCluster: of the first 1000 by name. Spokes that are not registered, further spokes, and spokes whose state is not known again after a restart are counted together (_other). Phases and reasons are fixed sets, and pairs that do not occur have no series.",
		Use:  "`Pending` with a reason that lasts is a rule that is missing in a spoke (alerts `RulefleetRulesFailing`, `RulefleetRulesWaiting`), and `Applied` or `Selected` with one may be a rule that nothing evaluates there (alert `RulefleetRulesNotEvaluated`). Predicted, Confirmed, NoEvaluator and EvaluatorsUnknown only say why no more can be proven. What each reason means is in [operations.md](operations.md#conditions-of-an-alertrule). For the whole fleet: `sum by (phase, reason) (rulefleet_rules)`.",
	})
	alertRulesDesc = atScrape(Metric{
		Name: "rulefleet_alertrules", Labels: []string{"condition", "status", "reason"},
		Help: "AlertRules by condition, its status and its reason.",
		Use:  "`condition=\"Accepted\",status=\"False\"` are mistakes in a spec (alert `RulefleetAlertRulesNotAccepted`): `kubectl get alertrules -A` shows them.",
	})
	alertsDesc = atScrape(Metric{
		Name: "rulefleet_alerts", Labels: []string{"cluster", "alertrule_namespace", "alertrule", "state"},
		Help: "Alerts of an AlertRule in a spoke that fire, or are pending (not for long enough yet), as its Prometheus last said: of several, the one that has most. What is 0 has no series.",
		Use:  "What fires where, over the whole fleet: `sum by (cluster) (rulefleet_alerts{state=\"firing\"})`. It is for a look at the fleet; the spokes' own Alertmanagers are who tells people. Where no Prometheus may be asked, nothing is known: see `condition=\"Evaluating\"` of `rulefleet_spokes`.",
	})
	depthDesc = atScrape(Metric{
		Name: "rulefleet_queue_depth", Labels: []string{"controller", "cluster"},
		Help: "Keys of a spoke that are worked on, or wait for their turn: of the 10 spokes of a controller with the most, and of all others together (_other). What waits for its next try is not counted.",
		Use:  "Tells whose work is behind. It falls by itself once the spoke answers, at the speed of the spoke: the faster it answers, the more requests it gets at a time.",
	})
	backlogDesc = atScrape(Metric{
		Name: "rulefleet_queue_backlog_seconds", Labels: []string{"controller"},
		Help: "For how long the keys of a spoke that answers have been waiting for their turn without an end: of the spoke where that is longest.",
		Use:  "Minutes are normal after a spoke was engaged. When it only grows (alert `RulefleetQueueNotDrained`), a spoke is too slow for its changes, or something changes all the time.",
	})
)

// Row is how far a rule got in a spoke, as the row of a status has it.
type Row struct {
	// Cluster is the spoke, or "" where it is not known which one it is.
	Cluster string

	Phase  v1alpha1.Phase
	Reason string
}

// Condition is a condition's outcome.
type Condition struct {
	Type   string
	Status metav1.ConditionStatus
	Reason string
}

// Rules counts AlertRules, and their rows over all spokes.
type Rules struct {
	Rows       map[Row]int
	Conditions map[Condition]int
}

// Alert counts the alerts of an AlertRule in a spoke.
type Alert struct {
	Cluster, Namespace, Name string
	Firing, Pending          int32
}

// Queue is what waits in a controller's queue.
type Queue struct {
	Controller string
	// Depths is the number of keys by spoke.
	Depths map[string]int
	// Backlog is for how long the keys of the spoke that is longest behind wait.
	Backlog time.Duration
}

// Source is what the leader knows of the fleet. Its functions are called at every scrape,
// from any goroutine; none may wait for a spoke.
type Source struct {
	Spokes func() ([]v1alpha1.SpokeCluster, error)
	Rules  func() Rules
	Alerts func() []Alert
	Queues func() []Queue
}

// Fleet counts the fleet when it is scraped. Only the replica that leads knows it, so that
// a sum over all replicas is right; the others have no series of it.
type Fleet struct{ source atomic.Pointer[Source] }

// TheFleet is the Fleet that is served.
var TheFleet = &Fleet{}

var _ prometheus.Collector = &Fleet{}

// Lead has the Fleet count what a source knows, until the function that it returns is called.
func (f *Fleet) Lead(s Source) (end func()) {
	f.source.Store(&s)
	return func() { f.source.CompareAndSwap(&s, nil) }
}

// Describe implements prometheus.Collector.
func (f *Fleet) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{spokesDesc, readyDesc, rulesDesc, alertRulesDesc, alertsDesc, depthDesc, backlogDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (f *Fleet) Collect(ch chan<- prometheus.Metric) {
	s := f.source.Load()
	if s == nil {
		return
	}
	// An error is the end of the process. An invalid metric would fail the whole scrape.
	spokes, err := s.Spokes()
	if err == nil {
		collectSpokes(ch, spokes)
	}
	collectRules(ch, s.Rules(), named(spokes))
	collectAlerts(ch, s.Alerts())
	for _, q := range s.Queues() {
		collectQueue(ch, q)
	}
}

// evaluatorConditions are those that a spoke has when there is something to tell.
var evaluatorConditions = []string{v1alpha1.ConditionEvaluatorsFound, v1alpha1.ConditionEvaluating, v1alpha1.ConditionMetricsPresent}

// spokeConditions are all that are counted.
var spokeConditions = append([]string{v1alpha1.ConditionConnected, v1alpha1.ConditionPrometheusRuleServed, v1alpha1.ConditionReady}, evaluatorConditions...)

func collectSpokes(ch chan<- prometheus.Metric, spokes []v1alpha1.SpokeCluster) {
	counts := map[Condition]int{}
	for i := range spokes {
		sc := &spokes[i]
		for _, kind := range spokeConditions {
			c := Condition{Type: kind, Status: metav1.ConditionUnknown}
			is := apimeta.FindStatusCondition(sc.Status.Conditions, kind)
			switch {
			case is != nil:
				c.Status, c.Reason = is.Status, is.Reason
			case slices.Contains(evaluatorConditions, kind):
				continue // there may never be one
			}
			c.Reason = reason(c.Reason)
			counts[c]++
			if kind == v1alpha1.ConditionReady {
				send(ch, readyDesc, truth(c.Status == metav1.ConditionTrue), sc.Name, c.Reason)
			}
		}
	}
	sendConditions(ch, spokesDesc, counts)
}

// named returns the names of the spokes that rulefleet_rules names. Names in a placement are not
// enough: anyone may write any number of them.
func named(spokes []v1alpha1.SpokeCluster) map[string]bool {
	names := make([]string, 0, len(spokes))
	for i := range spokes {
		names = append(names, spokes[i].Name)
	}
	slices.Sort(names)
	out := map[string]bool{}
	for _, name := range names[:min(len(names), namedSpokes)] {
		out[name] = true
	}
	return out
}

func collectRules(ch chan<- prometheus.Metric, rules Rules, named map[string]bool) {
	rows := map[Row]int{{Cluster: otherSpokes, Phase: v1alpha1.PhaseApplied, Reason: noReason}: 0} // so that a sum is never empty
	for r, n := range rules.Rows {
		r.Reason = reason(r.Reason)
		if !named[r.Cluster] {
			r.Cluster = otherSpokes
		}
		rows[r] += n
	}
	for r, n := range rows {
		send(ch, rulesDesc, float64(n), r.Cluster, string(r.Phase), r.Reason)
	}
	counts := map[Condition]int{}
	for c, n := range rules.Conditions {
		c.Reason = reason(c.Reason)
		counts[c] += n
	}
	sendConditions(ch, alertRulesDesc, counts)
}

func collectAlerts(ch chan<- prometheus.Metric, alerts []Alert) {
	for _, a := range alerts {
		for state, n := range map[string]int32{"firing": a.Firing, "pending": a.Pending} {
			if n > 0 {
				send(ch, alertsDesc, float64(n), a.Cluster, a.Namespace, a.Name, state)
			}
		}
	}
}

func collectQueue(ch chan<- prometheus.Metric, q Queue) {
	send(ch, backlogDesc, q.Backlog.Seconds(), q.Controller)
	type depth struct {
		spoke string
		keys  int
	}
	depths := make([]depth, 0, len(q.Depths))
	for spoke, keys := range q.Depths {
		depths = append(depths, depth{spoke, keys})
	}
	slices.SortFunc(depths, func(a, b depth) int {
		if a.keys != b.keys {
			return b.keys - a.keys
		}
		return strings.Compare(a.spoke, b.spoke)
	})
	others := 0
	for i, d := range depths {
		if i < deepest {
			send(ch, depthDesc, float64(d.keys), q.Controller, d.spoke)
			continue
		}
		others += d.keys
	}
	send(ch, depthDesc, float64(others), q.Controller, otherSpokes)
}

func sendConditions(ch chan<- prometheus.Metric, desc *prometheus.Desc, counts map[Condition]int) {
	for c, n := range counts {
		send(ch, desc, float64(n), c.Type, string(c.Status), c.Reason)
	}
}

func send(ch chan<- prometheus.Metric, desc *prometheus.Desc, value float64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
