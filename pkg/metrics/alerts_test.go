package metrics

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"sigs.k8s.io/yaml"

	"github.com/rulefleet/rulefleet/pkg/testing/promtool"
)

const files = "../../charts/rulefleet/files/"

// situation is what Prometheus has, a sample a minute, and what comes of it.
type situation struct {
	name string
	// series are in promtool's notation, less the labels of a target.
	series map[string]string
	// fires are the labels of the alert that fires after so many minutes, less its name, its
	// severity and the target's; nil for none.
	minutes int
	fires   map[string]string
}

var (
	once    = map[string]string{}
	healthy = "0x200"
)

// ramp is a counter that goes up by so much a minute.
func ramp(by int) string { return fmt.Sprintf("0+%dx200", by) }

// buckets are of changes that took no longer than the bound of a bucket.
func buckets(interrupted, bound string) map[string]string {
	out := map[string]string{}
	for _, le := range []string{"0.1", "1", "10", "60", "+Inf"} {
		name := fmt.Sprintf(`rulefleet_propagation_duration_seconds_bucket{from="AlertRule",interrupted=%q,le=%q}`, interrupted, le)
		out[name] = healthy
		if slices.Index([]string{"0.1", "1", "10", "60", "+Inf"}, le) >= slices.Index([]string{"0.1", "1", "10", "60", "+Inf"}, bound) {
			out[name] = ramp(10)
		}
	}
	return out
}

// certificate is one of 90 days of which so many days are left after 20 minutes.
func certificate(left int) map[string]string {
	const day = 24 * 3600
	return map[string]string{
		"rulefleet_webhook_certificate_expiry_timestamp_seconds": fmt.Sprintf("%dx200", 20*60+left*day),
		"rulefleet_webhook_certificate_begin_timestamp_seconds":  fmt.Sprintf("%dx200", 20*60+(left-90)*day),
	}
}

var situations = map[string][]situation{
	"RulefleetAbsent": {
		{"no manager", map[string]string{"up": "1x200"}, 6, map[string]string{"-target": ""}},
		{"no manager for a moment", map[string]string{"rulefleet_build_info": "1x10 _x3 1x50"}, 20, nil},
		{"one manager", map[string]string{"rulefleet_build_info": "1x200"}, 20, nil},
	},
	"RulefleetNoLeader": {
		{"none leads", map[string]string{leads("a"): "1x5 0x200", leads("b"): "0x200"}, 12, once},
		{"a change of leader", map[string]string{leads("a"): "1x5 0x200", leads("b"): "0x7 1x200"}, 12, nil},
		{"another operator's", map[string]string{`leader_election_master_status{name="x"}`: "0x200"}, 12, nil},
		{"without leader election", map[string]string{"rulefleet_build_info": "1x200"}, 12, nil},
	},
	"RulefleetSpokeNotReady": {
		{"unreachable", map[string]string{ready("a", "Unreachable"): "0x200", ready("b", "Ready"): "1x200"}, 11, map[string]string{"cluster": "a"}},
		{"one reason after the other", map[string]string{ready("a", "Unreachable"): "0x6 _x200", ready("a", "AuthFailed"): "_x7 0x200"}, 12, map[string]string{"cluster": "a"}},
		{"soon back", map[string]string{ready("a", "Unreachable"): "0x8 _x200", ready("a", "Ready"): "_x8 1x200"}, 12, nil},
		{"suspended", map[string]string{ready("a", "Suspended"): "0x200"}, 30, nil},
		{"deletions are held", map[string]string{ready("a", "DeletionsHeld"): "0x200"}, 30, nil},
		{"leaving", map[string]string{ready("a", "Leaving"): "0x200"}, 30, nil},
		{"contested", map[string]string{ready("a", "Contested"): "0x200"}, 30, nil},
		{"served, with a Prometheus that does not answer", map[string]string{ready("a", "EvaluatorUnreachable"): "1x200"}, 30, nil},
	},
	"RulefleetContested": {
		{"somebody undoes it", map[string]string{ready("a", "Contested"): "0x200", ready("b", "Ready"): "1x200"}, 11, map[string]string{"cluster": "a"}},
		{"for a while", map[string]string{ready("a", "Contested"): "0x8 stale", ready("a", "Ready"): "_x8 1x200"}, 12, nil},
		{"the spoke is away", map[string]string{ready("a", "Unreachable"): "0x200"}, 30, nil},
	},
	"RulefleetRulesFailing": {
		{"rejected", map[string]string{rows("Pending", "Rejected"): "3x200"}, 16, map[string]string{"reason": "Rejected"}},
		{"rejected in one spoke after the other", map[string]string{rowsIn("a", "Pending", "Rejected"): "3x9 _x200", rowsIn("b", "Pending", "Rejected"): "_x9 3x200"}, 16, map[string]string{"reason": "Rejected"}},
		{"without a namespace", map[string]string{rows("Pending", "NamespaceMissing"): "3x200"}, 16, map[string]string{"reason": "NamespaceMissing"}},
		{"an outage", map[string]string{rows("Pending", "Unreachable"): "3x200", rows("Applied", "Unreachable"): "3x200"}, 30, nil},
		{"suspended, and on their way", map[string]string{rows("Pending", "Suspended"): "3x200", rows("Pending", "Waiting"): "3x200"}, 30, nil},
		{"put right", map[string]string{rows("Pending", "Rejected"): "3x10 0x200"}, 30, nil},
		{"all is well", map[string]string{rows("Applied", "None"): "3x200"}, 30, nil},
	},
	"RulefleetRulesNotEvaluated": {
		{"not selected", map[string]string{rows("Applied", "NotSelected"): "3x200"}, 16, map[string]string{"reason": "NotSelected"}},
		{"not selected in one spoke after the other", map[string]string{rowsIn("a", "Applied", "NotSelected"): "3x9 _x200", rowsIn("b", "Applied", "NotSelected"): "_x9 3x200"}, 16, map[string]string{"reason": "NotSelected"}},
		{"not loaded", map[string]string{rows("Selected", "NotLoaded"): "3x200"}, 16, map[string]string{"reason": "NotLoaded"}},
		{"failing", map[string]string{rows("Selected", "EvaluationFailed"): "3x200"}, 16, map[string]string{"reason": "EvaluationFailed"}},
		{"refused by prometheus-operator", map[string]string{rows("Applied", "Rejected"): "3x200"}, 16, map[string]string{"reason": "Rejected"}},
		{"about to be loaded", map[string]string{rows("Selected", "Loading"): "3x200"}, 30, nil},
		{"nobody can tell", map[string]string{rows("Applied", "NoEvaluator"): "3x200", rows("Selected", "Predicted"): "3x200", rows("Selected", "Confirmed"): "3x200"}, 30, nil},
		{"an outage of Prometheus", map[string]string{rows("Selected", "EvaluatorUnreachable"): "3x200"}, 30, nil},
		{"all is well", map[string]string{rows("Evaluating", "None"): "3x200"}, 30, nil},
		{"refused by the spoke", map[string]string{rows("Pending", "Rejected"): "3x200"}, 30, nil},
	},
	"RulefleetCoverageFell": {
		{"half have none any more", covered("8x70 4x200", "2x70 6x200"), 90, map[string]string{"cluster": "a", "kind": "Deployment"}},
		{"new workloads without one", covered("8x200", "2x70 9x200"), 90, map[string]string{"cluster": "a", "kind": "Deployment"}},
		{"for a moment", covered("8x70 4x10 8x200", "2x70 6x10 2x200"), 90, nil},
		{"a few", covered("98x70 95x200", "2x70 5x200"), 90, nil},
		{"a new spoke", covered("_x70 4x200", "_x70 6x200"), 120, nil},
		{"low for long", covered("4x200", "6x200"), 120, nil},
		{"no workloads", covered("0x200", "0x200"), 120, nil},
		{"an outage of Prometheus", with(covered("8x70 0x200", "2x70 10x200"), ready("a", "EvaluatorUnreachable"), "_x70 1x200"), 90, nil},
	},
	"RulefleetEvaluatorUnreachable": {
		{"no answer", map[string]string{ready("a", "EvaluatorUnreachable"): "1x200", ready("b", "Ready"): "1x200"}, 11, map[string]string{"cluster": "a"}},
		{"answers that are too large", map[string]string{ready("a", "TooLarge"): "1x200"}, 11, map[string]string{"cluster": "a"}},
		{"answers of the spoke that are too large", map[string]string{ready("a", "TooLarge"): "0x200"}, 30, nil},
		{"soon back", map[string]string{ready("a", "EvaluatorUnreachable"): "1x8 stale", ready("a", "Ready"): "_x8 1x200"}, 12, nil},
		{"the spoke is away", map[string]string{ready("a", "Unreachable"): "0x200"}, 30, nil},
	},
	"RulefleetKubeStateMetricsMissing": {
		{"none", map[string]string{ready("a", "KubeStateMetricsMissing"): "1x200"}, 16, map[string]string{"cluster": "a"}},
		{"being installed", map[string]string{ready("a", "KubeStateMetricsMissing"): "1x10 _x200", ready("a", "Ready"): "_x10 1x200"}, 20, nil},
	},
	"RulefleetRulesWaiting": {
		{"never tried", map[string]string{rows("Pending", "Waiting"): "3x200"}, 31, once},
		{"never tried on one spoke after the other", map[string]string{rowsIn("a", "Pending", "Waiting"): "3x19 _x200", rowsIn("b", "Pending", "Waiting"): "_x19 3x200"}, 31, once},
		{"soon tried", map[string]string{rows("Pending", "Waiting"): "3x20 0x200"}, 40, nil},
	},
	"RulefleetAlertRulesNotAccepted": {
		{"no PromQL", map[string]string{`rulefleet_alertrules{condition="Accepted",status="False",reason="InvalidExpr"}`: "1x200"}, 16, map[string]string{"reason": "InvalidExpr"}},
		{"not ready", map[string]string{`rulefleet_alertrules{condition="Ready",status="False",reason="Progressing"}`: "1x200"}, 30, nil},
	},
	"RulefleetDeletionsHeld": {
		{"of one hop", map[string]string{held("a", "generate"): "30x200", held("b", "generate"): healthy}, 2, map[string]string{"cluster": "a"}},
		{"none any more", map[string]string{held("a", "generate"): "30x1 0x200"}, 4, nil},
	},
	"RulefleetPropagationSlow": {
		{"a minute", buckets("false", "60"), 30, once},
		{"seconds", buckets("false", "10"), 30, nil},
		{"an outage", buckets("true", "60"), 30, nil},
		{"nothing changes", map[string]string{`rulefleet_propagation_duration_seconds_bucket{interrupted="false",le="+Inf"}`: "7x200"}, 30, nil},
	},
	"RulefleetSpokeRequestErrors": {
		{"one in ten", map[string]string{requests("create", "500"): ramp(10), requests("create", "201"): ramp(90)}, 30, once},
		{"no answers", map[string]string{requests("update", "error"): ramp(10), requests("get", "200"): ramp(90)}, 30, once},
		{"one in a hundred", map[string]string{requests("create", "500"): ramp(10), requests("create", "201"): ramp(990)}, 30, nil},
		{"refusals", map[string]string{requests("create", "403"): ramp(90), requests("create", "409"): ramp(90)}, 30, nil},
		{"a few, in a quiet fleet", map[string]string{requests("watch", "error"): ramp(1)}, 30, nil},
		{"spokes that are away, and a few errors", map[string]string{requests("probe", "error"): ramp(100), requests("create", "500"): ramp(10), requests("create", "201"): ramp(990)}, 30, nil},
		{"a Prometheus that is down", map[string]string{requests("ask", "503"): ramp(90), requests("probe", "200"): ramp(10)}, 30, nil},
		{"Prometheus that are down, and a few errors", map[string]string{requests("ask", "503"): ramp(100), requests("create", "500"): ramp(10), requests("create", "201"): ramp(990)}, 30, nil},
		{"a spoke that is away", map[string]string{requests("probe", "error"): ramp(12), requests("probe", "200"): ramp(24), requests("watch", "200"): ramp(1)}, 30, nil},
	},
	"RulefleetQueueNotDrained": {
		{"behind", map[string]string{backlog: "0+60x200"}, 37, map[string]string{"controller": "distribute"}},
		{"a large spoke was engaged", map[string]string{backlog: "0+60x20 0x200"}, 60, nil},
	},
	"RulefleetSpokeCredentialExpiring": {
		{"not renewed", map[string]string{renewal("a"): "600x200", renewal("b"): "999999x200"}, 26, map[string]string{"cluster": "a"}},
		{"to be renewed soon", map[string]string{renewal("a"): "1800x200"}, 30, nil},
		{"renewed late", map[string]string{renewal("a"): "600x20 999999x200"}, 30, nil},
		{"without an expiration", map[string]string{ready("a", "Ready"): "1x200"}, 30, nil},
	},
	"RulefleetWebhookCertificateExpiring": {
		{"days are left", certificate(10), 20, once},
		{"about to be replaced", certificate(28), 20, nil},
		{"no webhook", map[string]string{"rulefleet_build_info": "1x200"}, 20, nil},
	},
}

const backlog = `rulefleet_queue_backlog_seconds{controller="distribute"}`

func leads(pod string) string {
	return fmt.Sprintf(`leader_election_master_status{name="rulefleet-manager",pod=%q}`, pod)
}
func renewal(cluster string) string {
	return fmt.Sprintf("rulefleet_spoke_credential_renewal_timestamp_seconds{cluster=%q}", cluster)
}

// covered are the Deployments of a spoke with and without an alert.
func covered(with, without string) map[string]string {
	return map[string]string{
		`rulefleet_workloads{cluster="a",kind="Deployment",covered="true"}`:  with,
		`rulefleet_workloads{cluster="a",kind="Deployment",covered="false"}`: without,
	}
}

// with adds a series.
func with(all map[string]string, series, values string) map[string]string {
	all[series] = values
	return all
}

func ready(cluster, reason string) string {
	return fmt.Sprintf("rulefleet_spoke_ready{cluster=%q,reason=%q}", cluster, reason)
}
func rows(phase, reason string) string { return rowsIn("a", phase, reason) }
func rowsIn(cluster, phase, reason string) string {
	return fmt.Sprintf("rulefleet_rules{cluster=%q,phase=%q,reason=%q}", cluster, phase, reason)
}
func held(cluster, hop string) string {
	return fmt.Sprintf("rulefleet_held_deletions{cluster=%q,hop=%q}", cluster, hop)
}
func requests(verb, code string) string {
	return fmt.Sprintf("rulefleet_spoke_requests_total{verb=%q,code=%q}", verb, code)
}

func alerts(t *testing.T) []monitoringv1.RuleGroup {
	t.Helper()
	data, err := os.ReadFile(files + "alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var spec monitoringv1.PrometheusRuleSpec
	if err := yaml.UnmarshalStrict(data, &spec); err != nil {
		t.Fatal(err)
	}
	return spec.Groups
}

func alertsByName(t *testing.T) map[string]monitoringv1.Rule {
	t.Helper()
	out := map[string]monitoringv1.Rule{}
	for _, g := range alerts(t) {
		for _, r := range g.Rules {
			out[r.Alert] = r
		}
	}
	return out
}

// Each alert fires when it should, and not when it should not, by the real promtool.
func TestAlerts(t *testing.T) {
	if err := promtool.Check(t.Context(), alerts(t)); err != nil {
		t.Fatal(err)
	}
	all := alertsByName(t)
	for name := range all {
		fires := func(s situation) bool { return s.fires != nil }
		quiet := func(s situation) bool { return s.fires == nil }
		if !slices.ContainsFunc(situations[name], fires) || !slices.ContainsFunc(situations[name], quiet) {
			t.Errorf("%s is not tested both ways", name)
		}
	}
	var tests []any
	for name, list := range situations {
		for _, s := range list {
			tests = append(tests, s.test(name, all[name].Labels["severity"]))
		}
	}
	file, err := yaml.Marshal(map[string]any{"rule_files": []string{promtool.RulesName}, "evaluation_interval": "1m", "tests": tests})
	if err != nil {
		t.Fatal(err)
	}
	if err := promtool.Test(t.Context(), alerts(t), file); err != nil {
		t.Error(err)
	}
}

// test returns a situation as promtool has it.
func (s situation) test(alert, severity string) map[string]any {
	var series []any
	for name, values := range s.series {
		series = append(series, map[string]any{"series": withTarget(name), "values": values})
	}
	expected := []any{}
	if s.fires != nil {
		labels := fmt.Sprintf(`{alertname=%q,alertstate="firing",severity=%q}`, alert, severity)
		for name, value := range s.fires {
			if name != "-target" {
				labels = strings.TrimSuffix(labels, "}") + fmt.Sprintf(",%s=%q}", name, value)
			}
		}
		if _, without := s.fires["-target"]; !without {
			labels = strings.TrimSuffix(labels, "}") + `,namespace="rulefleet-system",job="rulefleet"}`
		}
		expected = append(expected, map[string]any{"labels": labels, "value": 1})
	}
	return map[string]any{
		"name": alert + ": " + s.name, "interval": "1m", "input_series": series,
		"promql_expr_test": []any{map[string]any{
			"expr":      fmt.Sprintf(`sum without (pod, instance) (ALERTS{alertname=%q,alertstate="firing"})`, alert),
			"eval_time": fmt.Sprintf("%dm", s.minutes), "exp_samples": expected,
		}},
	}
}

// withTarget gives a series the labels of its target.
func withTarget(series string) string {
	target := `namespace="rulefleet-system",job="rulefleet"`
	if name, ok := strings.CutSuffix(series, "}"); ok {
		return name + "," + target + "}"
	}
	return series + "{" + target + "}"
}

// What an alert says is about what it has, and leads to what to do.
func TestAlertsTellWhatToDo(t *testing.T) {
	runbooks, err := os.ReadFile("../../docs/how-to/runbooks.md")
	if err != nil {
		t.Fatal(err)
	}
	label := regexp.MustCompile(`\$labels\.(\w+)`)
	for name, r := range alertsByName(t) {
		if !strings.HasPrefix(name, "Rulefleet") || r.For == nil || !slices.Contains([]string{"critical", "warning"}, r.Labels["severity"]) {
			t.Errorf("%s lacks a name of ours, a duration or a severity", name)
		}
		for _, key := range []string{"summary", "description", "runbook_url"} {
			if r.Annotations[key] == "" {
				t.Errorf("%s has no %s", name, key)
			}
			for _, l := range label.FindAllStringSubmatch(r.Annotations[key], -1) {
				for _, s := range situations[name] {
					if _, ok := s.fires[l[1]]; s.fires != nil && !ok {
						t.Errorf("%s has no label %s, which its %s tells", name, l[1], key)
					}
				}
			}
		}
		if r.Annotations["runbook_url"] != "https://github.com/rulefleet/rulefleet/blob/main/docs/how-to/runbooks.md#"+strings.ToLower(name) || !strings.Contains(string(runbooks), "\n## "+name+"\n") {
			t.Errorf("%s leads to %s, which is no section", name, r.Annotations["runbook_url"])
		}
	}
}

// The reasons that alerts pick are reasons.
func TestAlertsPickReasons(t *testing.T) {
	for name, r := range alertsByName(t) {
		for _, m := range regexp.MustCompile(`reason(=|=~|!=|!~)"([^"]*)"`).FindAllStringSubmatch(r.Expr.String(), -1) {
			for is := range strings.SplitSeq(m[2], "|") {
				if is != otherReason && is != noReason && reason(is) != is {
					t.Errorf("%s picks reason %s, which there is not", name, is)
				}
			}
		}
	}
}
