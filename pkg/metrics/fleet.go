package metrics

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// deepest is the number of spokes of a controller that rulefleet_queue_depth names.
const deepest = 10

// namedSpokes is how many spokes rulefleet_rules and rulefleet_workloads name: the first by name, so that the choice
// does not change with the spokes' states.
const namedSpokes = 1000

const (
	// noReason replaces an empty reason, and otherReason one that is not a constant of the API.
	noReason    = "None"
	otherReason = "Other"
	// otherSpokes replaces the names of all spokes that a metric does not name. No spoke has this name.
	otherSpokes = "_other"
)

var (
	spokesDesc = atScrape(metric{
		Name: "rulefleet_spokes", Labels: []string{"condition", "status", "reason"},
		Help: "Number of SpokeClusters by condition, status and reason (None: the spoke has not been checked yet). EvaluatorsFound, Evaluating, MetricsPresent and CredentialValid are counted only if the condition exists.",
		Use:  "`condition=\"Ready\",status=\"False\"` counts the spokes that are not Ready, for the reason in the label `reason`, and `condition=\"Evaluating\",status=\"False\"` those whose Prometheus does not answer. [Reasons](reasons.md#spokecluster) explains each reason.",
	})
	readyDesc = atScrape(metric{
		Name: "rulefleet_spoke_ready", Labels: []string{"cluster", "reason"},
		Help: "1 if a SpokeCluster is Ready, else 0, with the reason. There is one series for each spoke.",
		Use:  "A spoke that stays at 0 needs attention (alert `RulefleetSpokeNotReady`), unless the reason is intended: Suspended or Leaving. Contested and DeletionsHeld have their own alerts (`RulefleetContested`, `RulefleetDeletionsHeld`). A spoke at 1 with another reason than Ready is managed, but has a problem: EvaluatorUnreachable, TooLarge, KubeStateMetricsMissing, Ambiguous or RulesFailing (alerts `RulefleetEvaluatorUnreachable`, `RulefleetKubeStateMetricsMissing`, `RulefleetRulesNotEvaluated`, `RulefleetRulesFailing`). `kubectl describe spoke NAME` says what to do.",
	})
	credentialExpirationDesc = atScrape(metric{
		Name: "rulefleet_spoke_credential_expiration_timestamp_seconds", Labels: []string{"cluster"},
		Help: "Time at which the credential in the kubeconfig of a spoke expires, in seconds since the epoch. Spokes whose credential does not expire, or does not say when, have no series.",
		Use:  "The spoke can't be managed from that time on (reason AuthFailed), unless the credential is renewed before. [Renew tokens](../how-to/register.md#renew-tokens) says how.",
	})
	credentialRenewalDesc = atScrape(metric{
		Name: "rulefleet_spoke_credential_renewal_timestamp_seconds", Labels: []string{"cluster"},
		Help: "Time at which a third of the life of the credential in the kubeconfig of a spoke is left, in seconds since the epoch. Spokes whose credential does not say when it was issued have no series.",
		Use:  "Once it has passed, renew the credential (alert `RulefleetSpokeCredentialExpiring`).",
	})
	rulesDesc = atScrape(metric{
		Name: "rulefleet_rules", Labels: []string{"cluster", "phase", "reason"},
		Help: "Number of AlertRules and RulePacks placed on a spoke, by phase and reason as in their status (None: the rule has reached the furthest state that can be verified). The label cluster is the name of the spoke. With more than 1000 spokes, the first 1000 in alphabetical order have their own value. Three groups are counted as _other: registered spokes after the first 1000, spokes that a placement names but that are not registered, and spokes that have no row in a status and have not reported since a restart. Phases and reasons are fixed sets, and pairs that do not occur have no series. If a status has a reason that this version does not know, for example because a newer version wrote the status, it is counted with the reason Other.",
		Use:  "A rule that stays at `Pending` with a reason is missing or outdated in a spoke (alerts `RulefleetRulesFailing`, `RulefleetRulesWaiting`). A rule that stays at `Applied` or `Selected` with a reason is usually not evaluated there (alert `RulefleetRulesNotEvaluated`). The exceptions are Predicted, Confirmed, NoEvaluator and EvaluatorsUnknown: they only explain why Rulefleet can't verify the next phase. The alert also leaves out Suspended, Loading, EvaluatorUnreachable and the reasons of an outage, such as Unreachable. [Reasons](reasons.md#alertrule) explains each reason. For the whole fleet: `sum by (phase, reason) (rulefleet_rules)`.",
	})
	workloadsDesc = atScrape(metric{
		Name: "rulefleet_workloads", Labels: []string{"cluster", "kind", "covered"},
		Help: "Number of workloads in a spoke by kind, as in the status of its SpokeCluster: with an alert that is Evaluating (covered true) and without one (covered false). With more than 1000 spokes, the first 1000 in alphabetical order have their own value, and all others are counted as _other. A spoke has no series for a kind that Rulefleet can't list there.",
		Use:  "`sum by (cluster) (rulefleet_workloads{covered=\"true\"}) / sum by (cluster) (rulefleet_workloads)` is the part of the workloads that has an alert. The alert `RulefleetCoverageFell` tells when it falls. `kubectl rulefleet coverage` lists workloads without an alert, and why.",
	})
	alertRulesDesc = atScrape(metric{
		Name: "rulefleet_alertrules", Labels: []string{"condition", "status", "reason"},
		Help: "Number of AlertRules and RulePacks by condition, status and reason.",
		Use:  "`condition=\"Accepted\",status=\"False\"` counts those that are not accepted, because the spec is not valid or the namespace has too many rules (alert `RulefleetAlertRulesNotAccepted`). `kubectl get alertrules,rulepacks -A` lists them.",
	})
	alertsDesc = atScrape(metric{
		Name: "rulefleet_alerts", Labels: []string{"cluster", "kind", "alertrule_namespace", "alertrule", "state"},
		Help: "Number of firing and pending alerts of an AlertRule or a RulePack (label kind) in a spoke, as its Prometheus last reported. With several Prometheus objects, it is the highest number of any of them. There is no series for 0.",
		Use:  "`sum by (cluster) (rulefleet_alerts{state=\"firing\"})` shows the firing alerts of the whole fleet. It gives an overview; the Alertmanagers of the spokes send the notifications. If a spoke's Prometheus can't be queried, its alerts are not known: see `condition=\"Evaluating\"` of `rulefleet_spokes`.",
	})
	depthDesc = atScrape(metric{
		Name: "rulefleet_queue_depth", Labels: []string{"controller", "cluster"},
		Help: "Number of objects of a spoke that are being processed or wait to be processed, by controller, for the 10 spokes with the most objects, and for all others together (_other). Objects that wait for a retry are not counted.",
		Use:  "Shows for which spokes changes are waiting. The depth decreases by itself once the spoke answers. The faster the spoke answers, the more requests Rulefleet sends at a time.",
	})
	backlogDesc = atScrape(metric{
		Name: "rulefleet_queue_backlog_seconds", Labels: []string{"controller"},
		Help: "Time in seconds since the queue of a spoke was last empty, by controller. The value is that of the reachable spoke with the longest time. A single change may have waited for less time.",
		Use:  "Minutes are normal after Rulefleet has connected to a spoke. If it only grows (alert `RulefleetQueueNotDrained`), a spoke is too slow for its changes, or something changes objects all the time.",
	})
)

// Row is the state of a rule in a spoke, as in the row of a status.
type Row struct {
	// Cluster is the spoke, or "" where it is not known which one it is.
	Cluster string

	Phase  v1alpha1.Phase
	Reason string
}

// Condition is the status and reason of a condition.
type Condition struct {
	Type   string
	Status metav1.ConditionStatus
	Reason string
}

// Rules counts AlertRules and RulePacks, and their rows over all spokes.
type Rules struct {
	Rows       map[Row]int
	Conditions map[Condition]int
}

// Alert counts the alerts of a source in a spoke.
type Alert struct {
	Cluster, Kind, Namespace, Name string
	Firing, Pending                int32
}

// Queue is the content of a controller's queue.
type Queue struct {
	Controller string
	// Depths is the number of keys by spoke.
	Depths map[string]int
	// Backlog is the time for which the queue of the slowest spoke has not been empty.
	Backlog time.Duration
}

// Source is the leader's knowledge of the fleet. Its functions are called at every scrape, from any
// goroutine, and must not wait for a spoke.
type Source struct {
	Spokes func() ([]v1alpha1.SpokeCluster, error)
	Rules  func() Rules
	Alerts func() []Alert
	Queues func() []Queue
}

// Fleet counts the fleet when it is scraped. Only the leader has series of it, so that the sum over
// all replicas is correct.
type Fleet struct{ source atomic.Pointer[Source] }

// TheFleet is the Fleet that is served.
var TheFleet = &Fleet{}

var _ prometheus.Collector = &Fleet{}

// Lead makes the Fleet count a source until the returned function is called.
func (f *Fleet) Lead(s Source) (end func()) {
	f.source.Store(&s)
	return func() { f.source.CompareAndSwap(&s, nil) }
}

// Describe implements prometheus.Collector.
func (f *Fleet) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{spokesDesc, readyDesc, credentialExpirationDesc, credentialRenewalDesc, rulesDesc, workloadsDesc, alertRulesDesc, alertsDesc, depthDesc, backlogDesc} {
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
	names := named(spokes)
	collectWorkloads(ch, spokes, names)
	collectRules(ch, s.Rules(), names)
	collectAlerts(ch, s.Alerts())
	for _, q := range s.Queues() {
		collectQueue(ch, q)
	}
}

// optionalConditions are the conditions that a spoke does not always have.
var optionalConditions = []string{
	v1alpha1.ConditionEvaluatorsFound, v1alpha1.ConditionEvaluating, v1alpha1.ConditionMetricsPresent, v1alpha1.ConditionCredentialValid, v1alpha1.ConditionWorkloadsReadable,
}

// spokeConditions are all conditions that are counted.
var spokeConditions = append([]string{v1alpha1.ConditionConnected, v1alpha1.ConditionPrometheusRuleServed, v1alpha1.ConditionReady}, optionalConditions...)

func collectSpokes(ch chan<- prometheus.Metric, spokes []v1alpha1.SpokeCluster) {
	counts := map[Condition]int{}
	for i := range spokes {
		sc := &spokes[i]
		if c := sc.Status.Credential; c != nil {
			sendTime(ch, credentialExpirationDesc, c.ExpirationTime, sc.Name)
			sendTime(ch, credentialRenewalDesc, c.RenewalTime, sc.Name)
		}
		for _, kind := range spokeConditions {
			c := Condition{Type: kind, Status: metav1.ConditionUnknown}
			is := apimeta.FindStatusCondition(sc.Status.Conditions, kind)
			switch {
			case is != nil:
				c.Status, c.Reason = is.Status, is.Reason
			case slices.Contains(optionalConditions, kind):
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

func collectWorkloads(ch chan<- prometheus.Metric, spokes []v1alpha1.SpokeCluster, named map[string]bool) {
	type of struct {
		cluster string
		kind    v1alpha1.WorkloadKind
	}
	covered, uncovered := map[of]int32{}, map[of]int32{}
	for i := range spokes {
		sc := &spokes[i]
		for _, n := range sc.Status.Workloads {
			key := of{sc.Name, n.Kind}
			if !named[sc.Name] {
				key.cluster = otherSpokes
			}
			covered[key] += n.Covered
			uncovered[key] += n.Total - n.Covered
		}
	}
	for key, n := range covered {
		send(ch, workloadsDesc, float64(n), key.cluster, string(key.kind), "true")
		send(ch, workloadsDesc, float64(uncovered[key]), key.cluster, string(key.kind), "false")
	}
}

// named returns the names of the spokes that rulefleet_rules and rulefleet_workloads name. Names in a placement are not
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
				send(ch, alertsDesc, float64(n), a.Cluster, a.Kind, a.Namespace, a.Name, state)
			}
		}
	}
}

func collectQueue(ch chan<- prometheus.Metric, q Queue) {
	send(ch, backlogDesc, q.Backlog.Seconds(), q.Controller)
	spokes := slices.SortedFunc(maps.Keys(q.Depths), func(a, b string) int {
		return cmp.Or(q.Depths[b]-q.Depths[a], strings.Compare(a, b))
	})
	others := 0
	for i, spoke := range spokes {
		if i < deepest {
			send(ch, depthDesc, float64(q.Depths[spoke]), q.Controller, spoke)
			continue
		}
		others += q.Depths[spoke]
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

// sendTime sends a time, unless it is zero.
func sendTime(ch chan<- prometheus.Metric, desc *prometheus.Desc, t metav1.Time, labels ...string) {
	if !t.IsZero() {
		send(ch, desc, float64(t.Unix()), labels...)
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
