package metrics

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// expiring is one whose credential has a life of 900 s.
func expiring(sc v1alpha1.SpokeCluster) v1alpha1.SpokeCluster {
	sc.Status.Credential = &v1alpha1.SpokeCredential{ExpirationTime: metav1.Unix(1900, 0), RenewalTime: metav1.Unix(1600, 0)}
	sc.Status.Conditions = append(sc.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionCredentialValid, Status: "True", Reason: v1alpha1.ReasonExpiring})
	return sc
}

func spokeCluster(name string, status metav1.ConditionStatus, reason string) v1alpha1.SpokeCluster {
	sc := v1alpha1.SpokeCluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
	sc.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: status, Reason: reason}}
	return sc
}

// withWorkloads is one whose workloads are counted.
func withWorkloads(sc v1alpha1.SpokeCluster) v1alpha1.SpokeCluster {
	sc.Status.Workloads = []v1alpha1.WorkloadCount{{Kind: v1alpha1.DeploymentKind, Total: 5, Covered: 3}, {Kind: v1alpha1.CronJobKind, Total: 2}}
	return sc
}

// unasked is one whose Prometheus does not answer, and whose credential does not say when it was issued.
func unasked(sc v1alpha1.SpokeCluster) v1alpha1.SpokeCluster {
	sc.Status.Credential = &v1alpha1.SpokeCredential{ExpirationTime: metav1.Unix(1000, 0)}
	sc.Status.Conditions = append(sc.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionEvaluating, Status: "False", Reason: v1alpha1.ReasonEvaluatorUnreachable})
	return sc
}

// source is a fleet with something of everything.
func source() Source {
	return Source{
		Spokes: func() ([]v1alpha1.SpokeCluster, error) {
			return []v1alpha1.SpokeCluster{
				withWorkloads(expiring(spokeCluster("a", "True", v1alpha1.ReasonReady))), unasked(spokeCluster("b", "True", v1alpha1.ReasonReady)),
				spokeCluster("c", "False", v1alpha1.ReasonUnreachable), spokeCluster("d", "False", "FromElsewhere"), {ObjectMeta: metav1.ObjectMeta{Name: "e"}},
			}, nil
		},
		Rules: func() Rules {
			return Rules{
				Rows: map[Row]int{
					{Cluster: "a", Phase: v1alpha1.PhaseApplied}:                                             7,
					{Cluster: "b", Phase: v1alpha1.PhaseApplied}:                                             5,
					{Cluster: "a", Phase: v1alpha1.PhasePending, Reason: v1alpha1.ReasonConflict}:            2,
					{Cluster: "a", Phase: v1alpha1.PhasePending, Reason: "ByA"}:                              1,
					{Cluster: "a", Phase: v1alpha1.PhasePending, Reason: "ByB"}:                              3,
					{Cluster: "c", Phase: v1alpha1.PhaseApplied, Reason: v1alpha1.ReasonUnreachable}:         4,
					{Cluster: "unregistered", Phase: v1alpha1.PhasePending, Reason: v1alpha1.ReasonConflict}: 6,
					{Phase: v1alpha1.PhasePending, Reason: v1alpha1.ReasonConflict}:                          8,
				},
				Conditions: map[Condition]int{{Type: v1alpha1.ConditionAccepted, Status: "False", Reason: v1alpha1.ReasonInvalidExpr}: 5},
			}
		},
		Alerts: func() []Alert {
			return []Alert{
				{Cluster: "a", Kind: "AlertRule", Namespace: "shop", Name: "down", Firing: 2, Pending: 1},
				{Cluster: "a", Kind: "RulePack", Namespace: "shop", Name: "down", Firing: 7},
				{Cluster: "b", Kind: "AlertRule", Namespace: "shop", Name: "down", Pending: 3},
				{Cluster: "c", Kind: "AlertRule", Namespace: "shop", Name: "quiet"},
			}
		},
		Queues: func() []Queue {
			depths := map[string]int{"quiet": 1, "deep": 90}
			for i := range 11 {
				depths["s"+strconv.Itoa(10+i)] = 10 + i
			}
			return []Queue{{Controller: "distribute", Depths: depths, Backlog: 90 * time.Second}, {Controller: "generate"}}
		},
	}
}

const wantFleet = `
# HELP rulefleet_spoke_ready 1 if a SpokeCluster is Ready, else 0, with the reason. There is one series for each spoke.
# TYPE rulefleet_spoke_ready gauge
rulefleet_spoke_ready{cluster="a",reason="Ready"} 1
rulefleet_spoke_ready{cluster="b",reason="Ready"} 1
rulefleet_spoke_ready{cluster="c",reason="Unreachable"} 0
rulefleet_spoke_ready{cluster="d",reason="Other"} 0
rulefleet_spoke_ready{cluster="e",reason="None"} 0
# HELP rulefleet_spoke_credential_expiration_timestamp_seconds Time at which the credential in the kubeconfig of a spoke expires, in seconds since the epoch. Spokes whose credential does not expire, or does not say when, have no series.
# TYPE rulefleet_spoke_credential_expiration_timestamp_seconds gauge
rulefleet_spoke_credential_expiration_timestamp_seconds{cluster="a"} 1900
rulefleet_spoke_credential_expiration_timestamp_seconds{cluster="b"} 1000
# HELP rulefleet_spoke_credential_renewal_timestamp_seconds Time at which a third of the life of the credential in the kubeconfig of a spoke is left, in seconds since the epoch. Spokes whose credential does not say when it was issued have no series.
# TYPE rulefleet_spoke_credential_renewal_timestamp_seconds gauge
rulefleet_spoke_credential_renewal_timestamp_seconds{cluster="a"} 1600
# HELP rulefleet_rules Number of AlertRules and RulePacks placed on a spoke, by phase and reason as in their status (None: the rule has reached the furthest state that can be verified). The label cluster is the name of the spoke. With more than 1000 spokes, the first 1000 in alphabetical order have their own value. Three groups are counted as _other: registered spokes after the first 1000, spokes that a placement names but that are not registered, and spokes that have no row in a status and have not reported since a restart. Phases and reasons are fixed sets, and pairs that do not occur have no series. If a status has a reason that this version does not know, for example because a newer version wrote the status, it is counted with the reason Other.
# TYPE rulefleet_rules gauge
rulefleet_rules{cluster="_other",phase="Applied",reason="None"} 0
rulefleet_rules{cluster="_other",phase="Pending",reason="Conflict"} 14
rulefleet_rules{cluster="a",phase="Applied",reason="None"} 7
rulefleet_rules{cluster="a",phase="Pending",reason="Conflict"} 2
rulefleet_rules{cluster="a",phase="Pending",reason="Other"} 4
rulefleet_rules{cluster="b",phase="Applied",reason="None"} 5
rulefleet_rules{cluster="c",phase="Applied",reason="Unreachable"} 4
# HELP rulefleet_workloads Number of workloads in a spoke by kind, as in the status of its SpokeCluster: with an alert that is Evaluating (covered true) and without one (covered false). With more than 1000 spokes, the first 1000 in alphabetical order have their own value, and all others are counted as _other. A spoke has no series for a kind that Rulefleet can't list there.
# TYPE rulefleet_workloads gauge
rulefleet_workloads{cluster="a",covered="false",kind="CronJob"} 2
rulefleet_workloads{cluster="a",covered="false",kind="Deployment"} 2
rulefleet_workloads{cluster="a",covered="true",kind="CronJob"} 0
rulefleet_workloads{cluster="a",covered="true",kind="Deployment"} 3
# HELP rulefleet_alertrules Number of AlertRules and RulePacks by condition, status and reason.
# TYPE rulefleet_alertrules gauge
rulefleet_alertrules{condition="Accepted",reason="InvalidExpr",status="False"} 5
# HELP rulefleet_alerts Number of firing and pending alerts of an AlertRule or a RulePack (label kind) in a spoke, as its Prometheus last reported. With several Prometheus objects, it is the highest number of any of them. There is no series for 0.
# TYPE rulefleet_alerts gauge
rulefleet_alerts{alertrule="down",alertrule_namespace="shop",cluster="a",kind="AlertRule",state="firing"} 2
rulefleet_alerts{alertrule="down",alertrule_namespace="shop",cluster="a",kind="RulePack",state="firing"} 7
rulefleet_alerts{alertrule="down",alertrule_namespace="shop",cluster="a",kind="AlertRule",state="pending"} 1
rulefleet_alerts{alertrule="down",alertrule_namespace="shop",cluster="b",kind="AlertRule",state="pending"} 3
# HELP rulefleet_queue_backlog_seconds Time in seconds since the queue of a spoke was last empty, by controller. The value is that of the reachable spoke with the longest time. A single change may have waited for less time.
# TYPE rulefleet_queue_backlog_seconds gauge
rulefleet_queue_backlog_seconds{controller="distribute"} 90
rulefleet_queue_backlog_seconds{controller="generate"} 0
`

func TestFleet(t *testing.T) {
	f := &Fleet{}
	if n := testutil.CollectAndCount(f); n != 0 {
		t.Errorf("a standby has %d series of the fleet", n)
	}
	end := f.Lead(source())
	err := testutil.CollectAndCompare(f, strings.NewReader(wantFleet),
		"rulefleet_spoke_ready", "rulefleet_spoke_credential_expiration_timestamp_seconds", "rulefleet_spoke_credential_renewal_timestamp_seconds", "rulefleet_rules", "rulefleet_workloads", "rulefleet_alertrules", "rulefleet_alerts", "rulefleet_queue_backlog_seconds")
	if err != nil {
		t.Error(err)
	}
	for labels, want := range map[string]float64{
		"Ready True Ready": 2, "Ready False Unreachable": 1, "Ready False Other": 1, "Ready Unknown None": 1, "Connected Unknown None": 5,
		"Evaluating False EvaluatorUnreachable": 1, "Evaluating Unknown None": -1, "CredentialValid True Expiring": 1, "CredentialValid Unknown None": -1, "MetricsPresent Unknown None": -1,
	} {
		t.Run(labels, func(t *testing.T) {
			if got := valueOf(t, f, "rulefleet_spokes", labels); got != want {
				t.Errorf("%v spokes are %s, want %v", got, labels, want)
			}
		})
	}
	end()
	if n := testutil.CollectAndCount(f); n != 0 {
		t.Errorf("%d series are left when the replica does not lead any more", n)
	}
}

// However many spokes there are, and whatever names placements have, the number of series is bounded,
// and their sum is the number of rows.
func TestRulesSeriesAreFew(t *testing.T) {
	const registered, unregistered = namedSpokes + 200, 500
	spokes := make([]v1alpha1.SpokeCluster, registered)
	rows := map[Row]int{}
	for i := range spokes {
		spokes[i] = withWorkloads(spokeCluster(fmt.Sprintf("s%04d", i), "True", v1alpha1.ReasonReady))
		rows[Row{Cluster: spokes[i].Name, Phase: v1alpha1.PhaseApplied}] = 2
	}
	for i := range unregistered {
		rows[Row{Cluster: fmt.Sprint("gone-", i), Phase: v1alpha1.PhaseApplied}] = 3
	}
	s := source()
	s.Spokes = func() ([]v1alpha1.SpokeCluster, error) { return spokes, nil }
	s.Rules = func() Rules { return Rules{Rows: rows} }
	f := &Fleet{}
	defer f.Lead(s)()
	if n := testutil.CollectAndCount(f, "rulefleet_rules"); n != namedSpokes+1 {
		t.Errorf("there are %d series", n)
	}
	if n := testutil.CollectAndCount(f, "rulefleet_workloads"); n != 4*(namedSpokes+1) {
		t.Errorf("there are %d series of workloads", n)
	}
	if got := valueOf(t, f, "rulefleet_workloads", "_other Deployment true"); got != (registered-namedSpokes)*3 {
		t.Errorf("%v Deployments of other spokes are covered", got)
	}
	for labels, want := range map[string]float64{
		"s0000 Applied None": 2, "s0999 Applied None": 2, "s1000 Applied None": -1, "gone-0 Applied None": -1,
		"_other Applied None": (registered-namedSpokes)*2 + unregistered*3,
	} {
		t.Run(labels, func(t *testing.T) {
			if got := valueOf(t, f, "rulefleet_rules", labels); got != want {
				t.Errorf("%s: %v, want %v", labels, got, want)
			}
		})
	}
}

// The deepest queues have a name, and the number of series is bounded.
func TestQueueDepth(t *testing.T) {
	f := &Fleet{}
	defer f.Lead(source())()
	if n := testutil.CollectAndCount(f, "rulefleet_queue_depth"); n != deepest+1+1 {
		t.Errorf("there are %d series", n)
	}
	for labels, want := range map[string]float64{"deep distribute": 90, "s20 distribute": 20, "s12 distribute": 12, "_other distribute": 1 + 10 + 11, "_other generate": 0} {
		t.Run(labels, func(t *testing.T) {
			if got := valueOf(t, f, "rulefleet_queue_depth", labels); got != want {
				t.Errorf("%s: %v, want %v", labels, got, want)
			}
		})
	}
}

// valueOf returns the value of the series with these label values, in the order of the
// labels' names, or -1; where the order of a condition's is another, type, status and reason.
func valueOf(t *testing.T, c prometheus.Collector, name, labels string) float64 {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(c)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Fields(labels)
	slices.Sort(want)
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			var got []string
			for _, l := range m.GetLabel() {
				got = append(got, l.GetValue())
			}
			slices.Sort(got)
			if slices.Equal(got, want) {
				return m.GetGauge().GetValue()
			}
		}
	}
	return -1
}

// Every reason of the API can be a label.
func TestReasons(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "../../api/v1alpha1/conditions.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || !strings.HasPrefix(spec.Names[0].Name, "Reason") {
			return true
		}
		found++
		value, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if err != nil || reason(value) != value {
			t.Errorf("reason %s is not listed: %v", value, err)
		}
		return true
	})
	if found == 0 {
		t.Error("no reason was found")
	}
	if is := reason("NoReasonOfTheAPI"); is != otherReason {
		t.Errorf("an unknown reason is %s", is)
	}
}

// What is registered is what Own has, and is named as Prometheus' conventions want.
func TestOwn(t *testing.T) {
	defer TheFleet.Lead(source())()
	SetVersion("v1")
	SetWebhookCertificate(time.Unix(1, 0), time.Unix(2, 0))
	SpokeRequests.WithLabelValues("get", "200")
	ParkedKeys.WithLabelValues("distribute")
	HeldDeletions.WithLabelValues("a", "generate")
	DeletionHolds.WithLabelValues("generate")
	EvaluatorPolls.WithLabelValues("answered")
	TokenRenewals.WithLabelValues(TokenRenewed)
	EvaluatorPollDuration.WithLabelValues()
	propagated.WithLabelValues("AlertRule", "false")

	problems, err := testutil.GatherAndLint(ours{})
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	if err != nil {
		t.Fatal(err)
	}
	families, err := ours{}.Gather()
	if err != nil {
		t.Fatal(err)
	}
	served := map[string]bool{}
	for _, f := range families {
		served[f.GetName()] = true
	}
	for _, m := range own {
		if !served[m.Name] {
			t.Errorf("%s is not registered, or the test has none", m.Name)
		}
		delete(served, m.Name)
		if m.Help == "" || m.Use == "" {
			t.Errorf("nothing is said of %s", m.Name)
		}
	}
	for name := range served {
		t.Errorf("%s is not in own", name)
	}
}

// ours gathers this package's metrics alone.
type ours struct{}

func (ours) Gather() ([]*dto.MetricFamily, error) {
	all, err := metrics.Registry.Gather()
	return slices.DeleteFunc(all, func(f *dto.MetricFamily) bool { return !strings.HasPrefix(f.GetName(), "rulefleet_") }), err
}

func TestCode(t *testing.T) {
	seen := map[string]bool{}
	for code := range 10000 {
		seen[Code(code)] = true
	}
	if len(seen) > 40 {
		t.Errorf("a spoke can make %d codes", len(seen))
	}
	for code, want := range map[int]string{200: "200", 409: "409", 418: "4xx", 599: "5xx", 799: "other", 0: "other"} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			if got := Code(code); got != want {
				t.Errorf("%d is %s, want %s", code, got, want)
			}
		})
	}
}

// A scrape of a hub with many rules takes milliseconds.
func BenchmarkFleet(b *testing.B) {
	f := &Fleet{}
	s := source()
	spokes := make([]v1alpha1.SpokeCluster, 500)
	for i := range spokes {
		spokes[i] = spokeCluster("s"+strconv.Itoa(i), "True", v1alpha1.ReasonReady)
	}
	s.Spokes = func() ([]v1alpha1.SpokeCluster, error) { return spokes, nil }
	defer f.Lead(s)()
	for b.Loop() {
		testutil.CollectAndCount(f)
	}
}
