package why

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/reasons"
	"github.com/rulefleet/rulefleet/pkg/rule"
)

// byStage takes the AlertRules of namespaces with a label.
var byStage = &v1alpha1.TenantSelection{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"stage": "prod"}}}

// sound returns a chain in which everything works, and nothing fires.
func sound() *input {
	in := &input{
		Namespace: "rulefleet-system", Cluster: "eu-1",
		Rule: &v1alpha1.AlertRule{
			ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "high", Generation: 2},
			Spec:       v1alpha1.AlertRuleSpec{Placement: v1alpha1.ClusterSelection{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"env": "prod"}}}},
			Status: v1alpha1.RuleStatus{
				ObservedGeneration: 2,
				Clusters:           []v1alpha1.ClusterStatus{{Name: "eu-1", Phase: v1alpha1.PhaseEvaluating, ObservedGeneration: 2, Rule: "team/high-1"}},
			},
		},
		Spoke:        &v1alpha1.SpokeCluster{ObjectMeta: metav1.ObjectMeta{Name: "eu-1", Labels: map[string]string{"env": "prod"}}},
		Registration: registration{Readable: true, Exists: true, Labeled: true, HasKubeconfig: true},
		Generated:    "rulefleet-generated",
	}
	for _, kind := range []string{v1alpha1.ConditionConnected, v1alpha1.ConditionPrometheusRuleServed, v1alpha1.ConditionReady, v1alpha1.ConditionEvaluatorsFound, v1alpha1.ConditionEvaluating} {
		in.say(kind, metav1.ConditionTrue, "Fine", "fine")
	}
	in.accept(metav1.ConditionTrue, v1alpha1.ReasonAccepted, "the spec is valid")
	return in
}

func (in *input) say(kind string, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&in.Spoke.Status.Conditions, metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message})
}

func (in *input) accept(status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&ruleOf(in).Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionAccepted, Status: status, Reason: reason, Message: message})
}

// away sets what the manager reports about a spoke that is not connected.
func (in *input) away(reason, message string) {
	in.say(v1alpha1.ConditionConnected, metav1.ConditionFalse, reason, message)
	in.say(v1alpha1.ConditionPrometheusRuleServed, metav1.ConditionUnknown, reason, message)
	in.say(v1alpha1.ConditionReady, metav1.ConditionFalse, reason, message)
}

func (in *input) row(phase v1alpha1.Phase, reason, message string) {
	r := &ruleOf(in).Status.Clusters[0]
	r.Phase, r.Reason, r.Message = phase, reason, message
}

// states are the states of all links: + is ok, - is not ok, ? is unknown.
func states(links []Link) string {
	var b strings.Builder
	for _, l := range links {
		b.WriteString(map[State]string{OK: "+", NotOK: "-", Unknown: "?"}[l.State])
	}
	return b.String()
}

// TestChain breaks every link.
func TestChain(t *testing.T) {
	const (
		join    = "is to be registered: kubectl rulefleet join eu-1 --spoke-context CONTEXT (if it was registered before, with the same options"
		again   = "with the same options"
		restore = "To restore it with a new token: kubectl rulefleet join eu-1 --spoke-context CONTEXT (if it was registered before"
		tenants = "ask the administrator of the hub"
	)
	for _, tc := range []struct {
		name   string
		change func(*input)
		// want has a character for each link: registration, spoke, connection, kinds and permissions, rule
		// accepted, placement, written, selected, evaluated, metrics, firing.
		want string
		// fix is part of the remedy for the first broken link, or else for the first unknown one.
		fix string
	}{
		{"sound", func(*input) {}, "+++++++++++", ""},
		{"fires", func(in *input) { ruleOf(in).Status.Clusters[0].Firing = 3 }, "+++++++++++", ""},

		{"no Secret", func(in *input) {
			in.Registration = registration{Readable: true}
			in.away(v1alpha1.ReasonKubeconfigMissing, "Secret not found")
		}, "-+-?++?????", restore},
		{"no label", func(in *input) {
			in.Registration.Labeled = false
			in.away(v1alpha1.ReasonKubeconfigMissing, "Secret not found")
		}, "-+-?++?????", "To register the spoke: kubectl -n rulefleet-system label --overwrite secret eu-1 sigs.k8s.io/multicluster-runtime-kubeconfig=true"},
		{"no key", func(in *input) { in.Registration.HasKubeconfig = false }, "-++++++++++", restore},
		{"nothing registered", func(in *input) { in.Registration, in.Spoke = registration{Readable: true}, nil }, "--??+??????", join},
		{"no SpokeCluster", func(in *input) { in.Spoke = nil }, "+-??+??????", "kubectl -n rulefleet-system get pods"},
		{"leaving", func(in *input) { in.Spoke.DeletionTimestamp = new(metav1.Now()) }, "+-+++++++++", "Wait until it is gone"},
		{"suspended spoke", func(in *input) {
			in.Spoke.Spec.Suspend = new(true)
			in.say(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonSuspended, "suspended")
			in.row(v1alpha1.PhaseApplied, v1alpha1.ReasonSuspended, "an earlier version")
		}, "+-++++-????", `check the deletions in status.pendingDeletions. To resume: kubectl patch spoke eu-1 --type=merge -p '{"spec":{"suspend":false}}'`},
		{"unreachable", func(in *input) { in.away(v1alpha1.ReasonUnreachable, "no route to host") }, "++-?++?????", "check the network, the address in the kubeconfig and the API server of the spoke. When the API server answers again at this address, nothing has to be done on the hub. If it has another address now, correct the kubeconfig. If no other tool writes the Secret, you can have a new kubeconfig written: kubectl rulefleet join eu-1 --spoke-context CONTEXT --force-conflicts"},
		{"expired", func(in *input) { in.away(v1alpha1.ReasonAuthFailed, "401") }, "++-?++?????", again},
		{"rights to read", func(in *input) { in.away(v1alpha1.ReasonForbidden, "list deployments.apps") }, "++-?++?????", again},
		{"another cluster", func(in *input) {
			in.away(v1alpha1.ReasonIdentityChanged, "confirm it: kubectl annotate --overwrite spoke eu-1 rulefleet.io/accept-identity=x")
		}, "++-?++?????", "If this is a mistake, restore the former kubeconfig. If no other tool writes the Secret, you can have a new kubeconfig written: kubectl rulefleet join eu-1 --spoke-context CONTEXT --force-conflicts, with the right address, and with the options that you used the last time. If the cluster was replaced, confirm the new one with the command in the message"},
		{"the same cluster twice", func(in *input) { in.away(v1alpha1.ReasonDuplicateCluster, "the same as eu-2") }, "++-?++?????", "To give up the name eu-1, begin with: kubectl -n rulefleet-system delete secret eu-1"},
		{"a refused kubeconfig", func(in *input) { in.away(v1alpha1.ReasonInvalidKubeconfig, "user.exec") }, "++-?++?????", "Change that field. If no other tool writes the Secret, you can have a new kubeconfig written: kubectl rulefleet join eu-1 --spoke-context CONTEXT --force-conflicts"},
		{"connecting", func(in *input) {
			in.say(v1alpha1.ConditionConnected, metav1.ConditionUnknown, v1alpha1.ReasonConnecting, "reading")
		}, "++??++?????", ""},
		{"no CRDs", func(in *input) {
			in.say(v1alpha1.ConditionPrometheusRuleServed, metav1.ConditionFalse, v1alpha1.ReasonCRDMissing, "not served")
			in.row(v1alpha1.PhasePending, v1alpha1.ReasonCRDMissing, "not served")
		}, "+++-++-????", "kubectl --context CONTEXT apply --server-side -f https://raw.githubusercontent.com/prometheus-operator/"},
		{"rights to write", func(in *input) {
			in.say(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonForbidden, "create prometheusrules")
			in.row(v1alpha1.PhasePending, v1alpha1.ReasonForbidden, "create prometheusrules")
		}, "+++-++-????", again},

		{"not processed", func(in *input) { ruleOf(in).Generation = 3 }, "++++?+?????", ""},
		{"not valid", func(in *input) {
			in.accept(metav1.ConditionFalse, v1alpha1.ReasonInvalidExpr, "spec.expr: 1:6: unexpected end of input")
		}, "++++-++++++", "Correct the expression or, for a row, the labels of the SpokeCluster. To edit the AlertRule: kubectl -n team edit alertrule high"},
		{"generated, and not valid", func(in *input) {
			ruleOf(in).Labels = map[string]string{v1alpha1.TemplateLabel: "deployment-down"}
			in.accept(metav1.ConditionFalse, v1alpha1.ReasonInvalidExpr, "spec.expr: 1:6: unexpected end of input")
		}, "++++-++++++", "The AlertRule is generated: change AlertRuleTemplate deployment-down (kubectl edit alertruletemplate deployment-down)"},
		{"too many", func(in *input) {
			in.accept(metav1.ConditionFalse, v1alpha1.ReasonLimitExceeded, "namespace team has the maximum")
		}, "++++-++++++", "Delete AlertRules or RulePacks of the namespace that you don't need"},
		{"suspended rule", func(in *input) { ruleOf(in).Spec.Suspend = new(true) }, "++++-++++++", `To resume, set spec.suspend of the AlertRule to false: kubectl -n team patch alertrule high --type=merge -p '{"spec":{"suspend":false}}'`},
		{"not placed by label", func(in *input) { in.Spoke.Labels = nil; ruleOf(in).Status.Clusters = nil }, "+++++-?????", "change the selector. To edit the AlertRule: kubectl -n team edit alertrule high"},
		{"not placed by name", func(in *input) {
			ruleOf(in).Spec.Placement = v1alpha1.ClusterSelection{Names: []v1alpha1.ClusterName{"us-1"}}
			ruleOf(in).Status.Clusters = nil
		}, "+++++-?????", "add the spoke to names, or change the selector"},
		{"excluded by name", func(in *input) {
			ruleOf(in).Spec.Placement.Exclude = &v1alpha1.ClusterExclusion{Names: []v1alpha1.ClusterName{"eu-1"}}
			ruleOf(in).Status.Clusters = nil
		}, "+++++-?????", "change spec.placement.exclude of the AlertRule"},
		{"excluded, and not selected", func(in *input) {
			ruleOf(in).Spec.Placement = v1alpha1.ClusterSelection{Names: []v1alpha1.ClusterName{"us-1"}, Exclude: &v1alpha1.ClusterExclusion{Names: []v1alpha1.ClusterName{"eu-1"}}}
			ruleOf(in).Status.Clusters = nil
		}, "+++++-?????", "add the spoke to names, or change the selector"},
		{"generated for another spoke", func(in *input) {
			ruleOf(in).Spec.Placement = v1alpha1.ClusterSelection{Names: []v1alpha1.ClusterName{"us-1"}}
			ruleOf(in).Spec.WorkloadRef = &v1alpha1.WorkloadReference{Cluster: "us-1"}
			ruleOf(in).Status.Clusters = nil
		}, "+++++-?????", "only for the spoke of spec.workloadRef (us-1)"},
		{"taken by name", func(in *input) {
			in.Tenant, in.Spoke.Spec.Tenants = &rule.Tenant{Name: "team"}, &v1alpha1.TenantSelection{Names: []v1alpha1.NamespaceName{"team"}}
		}, "+++++++++++", ""},
		{"taken by label", func(in *input) {
			in.Tenant, in.Spoke.Spec.Tenants = &rule.Tenant{Name: "team", Labels: map[string]string{"stage": "prod"}}, byStage
		}, "+++++++++++", ""},
		{"not taken", func(in *input) {
			in.Tenant, in.Spoke.Spec.Tenants = &rule.Tenant{Name: "team"}, &v1alpha1.TenantSelection{Names: []v1alpha1.NamespaceName{"shop"}}
			ruleOf(in).Status.Clusters = nil
		}, "+++++-?????", tenants},
		{"not taken by label", func(in *input) {
			in.Tenant, in.Spoke.Spec.Tenants = &rule.Tenant{Name: "team"}, byStage
			ruleOf(in).Status.Clusters = nil
		}, "+++++-?????", tenants},
		{"a platform namespace is not taken", func(in *input) {
			ruleOf(in).Namespace, in.Tenant = "kube-system", &rule.Tenant{Name: "kube-system"}
			ruleOf(in).Status.Clusters = nil
		}, "+++++-?????", tenants},
		{"the labels of the namespace are not readable", func(in *input) {
			in.Tenant, in.TenantUnreadable, in.Spoke.Spec.Tenants = &rule.Tenant{Name: "team"}, true, byStage
		}, "+++++?+++++", ""},
		{"an invalid selector of tenants", func(in *input) {
			in.Tenant, in.Spoke.Spec.Tenants = &rule.Tenant{Name: "team"}, &v1alpha1.TenantSelection{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"-": ""}}}
		}, "+++++-?????", "spec.tenants.selector"},
		{"disabled", func(in *input) { ruleOf(in).Spec.State = v1alpha1.Disabled; ruleOf(in).Status.Clusters = nil }, "+++++-?????", `set spec.state of the AlertRule to Enabled: kubectl -n team patch alertrule high --type=merge -p '{"spec":{"state":"Enabled"}}'`},
		{"disabled here", func(in *input) {
			ruleOf(in).Spec.Overrides = []v1alpha1.Override{{ClusterSelection: v1alpha1.ClusterSelection{Names: []v1alpha1.ClusterName{"eu-1"}}, State: v1alpha1.Disabled}}
			ruleOf(in).Status.Clusters = nil
		}, "+++++-?????", "remove state: Disabled from the entry of spec.overrides"},

		{"suspended before it was written", func(in *input) { in.row(v1alpha1.PhasePending, v1alpha1.ReasonSuspended, "suspended") }, "++++++-????", "set spec.suspend of the object that the message names to false"},
		{"waiting", func(in *input) { in.row(v1alpha1.PhasePending, v1alpha1.ReasonWaiting, "") }, "++++++?????", ""},
		{"no namespace", func(in *input) { in.row(v1alpha1.PhasePending, v1alpha1.ReasonNamespaceMissing, "") }, "++++++-????", "To create the namespace: kubectl --context CONTEXT create namespace team"},
		{"conflict", func(in *input) { in.row(v1alpha1.PhasePending, v1alpha1.ReasonConflict, "") }, "++++++-????", "To delete the PrometheusRule: kubectl --context CONTEXT -n team delete prometheusrule high-1"},
		{"rejected", func(in *input) { in.row(v1alpha1.PhasePending, v1alpha1.ReasonRejected, "by policy") }, "++++++-????", "change the webhook or policy in the spoke"},
		{"mutated", func(in *input) { in.row(v1alpha1.PhasePending, v1alpha1.ReasonMutated, "") }, "++++++-????", "delete the PrometheusRule"},
		{"contested", func(in *input) { in.row(v1alpha1.PhasePending, v1alpha1.ReasonContested, "") }, "++++++-????", "Contested objects"},
		{"quota", func(in *input) { in.row(v1alpha1.PhasePending, v1alpha1.ReasonQuotaExceeded, "") }, "++++++-????", "To edit the ResourceQuotas: kubectl --context CONTEXT -n team edit resourcequotas"},
		{"unsupported", func(in *input) { in.row(v1alpha1.PhasePending, v1alpha1.ReasonUnsupported, "") }, "++++++-????", "update Prometheus"},
		{"an earlier version", func(in *input) { ruleOf(in).Status.Clusters[0].ObservedGeneration = 1 }, "++++++?????", ""},

		{"not selected", func(in *input) { in.row(v1alpha1.PhaseApplied, v1alpha1.ReasonNotSelected, "requires team=a") }, "+++++++-???", "Follow the message"},
		{"ambiguous", func(in *input) {
			in.row(v1alpha1.PhaseApplied, v1alpha1.ReasonAmbiguous, "see EvaluatorsFound")
			in.say(v1alpha1.ConditionEvaluatorsFound, metav1.ConditionFalse, v1alpha1.ReasonAmbiguous, "several: kubectl patch spokecluster eu-1 --type merge -p '{}'")
		}, "+++++++-???", "SpokeCluster eu-1: EvaluatorsFound=False Ambiguous: several: kubectl patch spokecluster eu-1 --type merge -p '{}'. Name the one that evaluates the rules"},
		{"no Prometheus", func(in *input) { in.row(v1alpha1.PhaseApplied, v1alpha1.ReasonNoEvaluator, "") }, "+++++++????", ""},
		{"not granted", func(in *input) { in.row(v1alpha1.PhaseSelected, v1alpha1.ReasonPredicted, "") }, "++++++++???", ""},
		{"not granted, and not intended", func(in *input) {
			in.row(v1alpha1.PhaseSelected, v1alpha1.ReasonConfirmed, "see the condition Evaluating")
			in.say(v1alpha1.ConditionEvaluating, metav1.ConditionUnknown, v1alpha1.ReasonNotGranted, "needs get on services/proxy")
		}, "++++++++???", "needs get on services/proxy. If this is intended, do nothing. Otherwise run kubectl rulefleet join eu-1 --spoke-context CONTEXT again with the same options, and without --no-evaluate"},
		{"rejected by prometheus-operator", func(in *input) {
			in.row(v1alpha1.PhaseApplied, v1alpha1.ReasonRejected, "invalid rule")
		}, "+++++++-???", "To edit the AlertRule: kubectl -n team edit alertrule high"},
		{"loading", func(in *input) { in.row(v1alpha1.PhaseSelected, v1alpha1.ReasonLoading, "") }, "++++++++???", ""},
		{"not loaded", func(in *input) { in.row(v1alpha1.PhaseSelected, v1alpha1.ReasonNotLoaded, "") }, "++++++++-??", ""},
		{"enforced", func(in *input) { in.row(v1alpha1.PhaseSelected, v1alpha1.ReasonNamespaceEnforced, "") }, "++++++++-??", "excludedFromEnforcement"},
		{"evaluation fails", func(in *input) { in.row(v1alpha1.PhaseSelected, v1alpha1.ReasonEvaluationFailed, "many-to-many") }, "++++++++-??", "To edit the AlertRule: kubectl -n team edit alertrule high"},
		{"Prometheus is away", func(in *input) {
			in.row(v1alpha1.PhaseSelected, v1alpha1.ReasonEvaluatorUnreachable, "")
			in.say(v1alpha1.ConditionEvaluating, metav1.ConditionFalse, v1alpha1.ReasonEvaluatorUnreachable, "no answer")
		}, "++++++++-??", "check the pods of the Prometheus"},
		{"Prometheus answers too much", func(in *input) {
			in.row(v1alpha1.PhaseSelected, v1alpha1.ReasonEvaluatorUnreachable, "")
			in.say(v1alpha1.ConditionEvaluating, metav1.ConditionFalse, v1alpha1.ReasonTooLarge, "the limit is 8 MiB")
		}, "++++++++-??", "SpokeCluster eu-1: Evaluating=False TooLarge: the limit is 8 MiB. If the spoke really is that large, raise the chart value in the message"},
		{"a cache that is too large", func(in *input) { in.away(v1alpha1.ReasonTooLarge, "the limit is 48 MiB") }, "++-?++?????", "raise the chart value in the message"},
		{"no answer about metrics", func(in *input) {
			in.say(v1alpha1.ConditionMetricsPresent, metav1.ConditionUnknown, v1alpha1.ReasonEvaluatorUnreachable, "no answer")
		}, "+++++++++?+", "check the pods of the Prometheus"},
		{"no metric", func(in *input) { ruleOf(in).Status.Clusters[0].MissingMetrics = []string{"http_requests_total"} }, "+++++++++-+", "Check that these metrics are scraped in the spoke, and that their names and labels in the expression are right. To edit the AlertRule"},
		{"no kube-state-metrics", func(in *input) {
			ruleOf(in).Spec.Expr = "1 - sum by (pod) (kube_pod_info)"
			in.say(v1alpha1.ConditionMetricsPresent, metav1.ConditionFalse, v1alpha1.ReasonKubeStateMetricsMissing, "none")
		}, "+++++++++-+", "Install kube-state-metrics"},
		{"no kube-state-metrics, and no need for it", func(in *input) {
			ruleOf(in).Spec.Expr = "mykube_requests > 0"
			in.say(v1alpha1.ConditionMetricsPresent, metav1.ConditionFalse, v1alpha1.ReasonKubeStateMetricsMissing, "none")
		}, "+++++++++++", ""},

		{"a tenant", func(in *input) { in.Spoke, in.SpokeUnreadable, in.Registration = nil, true, registration{} }, "????+?+++++", ""},
		{"a tenant, and the spoke is away", func(in *input) {
			in.Spoke, in.SpokeUnreadable, in.Registration = nil, true, registration{}
			in.row(v1alpha1.PhaseEvaluating, v1alpha1.ReasonUnreachable, "see Connected")
		}, "??-?+??????", "Ask an administrator"},
		{"Secrets are not readable", func(in *input) { in.Registration = registration{} }, "+++++++++++", ""},
		{"one of many spokes", func(in *input) {
			ruleOf(in).Status.Clusters = nil
			ruleOf(in).Status.Groups = []v1alpha1.ClusterGroup{{Phase: v1alpha1.PhaseEvaluating, ObservedGeneration: ruleOf(in).Status.ObservedGeneration, Count: 200}}
		}, "+++++++++??", ""},
		{"one of many spokes, some not ready", func(in *input) {
			ruleOf(in).Status.Clusters = nil
			ruleOf(in).Status.Groups = []v1alpha1.ClusterGroup{{Phase: v1alpha1.PhasePending, Reason: v1alpha1.ReasonConflict, Count: 4}, {Phase: v1alpha1.PhaseEvaluating, ObservedGeneration: ruleOf(in).Status.ObservedGeneration, Count: 196}}
		}, "++++++?????", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := sound()
			tc.change(in)
			links := chainOf(*in)
			if got := states(links); got != tc.want {
				t.Errorf("the states are %s, want %s\n%+v", got, tc.want, links)
			}
			broken := Broken(links)
			if at := strings.Index(tc.want, "?"); broken == nil && tc.fix != "" && at >= 0 {
				broken = &links[at] // what would have to be verified first
			}
			switch {
			case broken == nil:
				if strings.Contains(tc.want, "-") {
					t.Error("no link is broken")
				}
			case broken.Fix == "" || !strings.Contains(broken.Fix, tc.fix):
				t.Errorf("the fix is %q, want %q", broken.Fix, tc.fix)
			}
			for _, l := range links {
				if l.Evidence == "" {
					t.Errorf("%s has no evidence", l.Name)
				}
				if strings.Contains(l.Evidence, "has an earlier version") && ruleOf(in).Status.Clusters[0].Phase == v1alpha1.PhasePending {
					t.Errorf("%s: %q, and it is not known whether the spoke has any version", l.Name, l.Evidence)
				}
				if strings.Contains(l.Evidence, "step is not ok") && Broken(links) == nil {
					t.Errorf("%s: %q, and every step is ok or unknown", l.Name, l.Evidence)
				}
			}
		})
	}
}

// TestUnusedKubeconfig has a kubeconfig that does not work while the former one does: nothing is broken yet, and why says
// what to do.
func TestUnusedKubeconfig(t *testing.T) {
	in := sound()
	in.say(v1alpha1.ConditionConnected, metav1.ConditionTrue, v1alpha1.ReasonKubeconfigNotUsed, "it is not valid YAML")
	links := chainOf(*in)
	if got := states(links); got != "+++++++++++" {
		t.Errorf("the states are %s", got)
	}
	if l := links[2]; !strings.Contains(l.Evidence, "it is not valid YAML") || !strings.Contains(l.Fix, "correct the Secret") {
		t.Errorf("got %+v", l)
	}
}

// TestNoDecisionIsACommand gives each reason a message that ends with a command: the command is often one of
// several choices, and is never the remedy without the rest of the message.
func TestNoDecisionIsACommand(t *testing.T) {
	const message = "choose: the one, or the other: kubectl annotate spoke eu-1 a=b"
	check := func(t *testing.T, in *input) {
		t.Helper()
		broken := false
		for _, l := range chainOf(*in) {
			if strings.HasPrefix(l.Fix, "kubectl") {
				t.Errorf("%s: the fix is only a command: %q", l.Name, l.Fix)
			}
			if shown := l.Evidence + l.Fix; strings.Contains(shown, "a=b") && !strings.Contains(shown, message) {
				t.Errorf("%s: the message is cut: %q", l.Name, shown)
			}
			broken = broken || strings.Contains(l.Evidence, message) && l.Fix != ""
		}
		if !broken {
			t.Error("no link shows the message and a fix")
		}
	}
	for _, table := range reasons.Tables() {
		for _, r := range table.Reasons {
			for _, on := range r.On {
				in := sound()
				switch {
				case table.Heading == "SpokeCluster" && (on == v1alpha1.ConditionConnected || on == v1alpha1.ConditionPrometheusRuleServed):
					in.say(on, metav1.ConditionFalse, r.Name, message)
				case table.Heading == "AlertRule" && on == v1alpha1.ConditionAccepted:
					in.accept(metav1.ConditionFalse, r.Name, message)
				case table.Heading == "AlertRule" && on == "row" && !reasons.Is(r.Name, reasons.Outage): // which the condition shows
					in.row(v1alpha1.PhasePending, r.Name, message)
				default:
					continue
				}
				t.Run(table.Heading+"/"+on+"/"+r.Name, func(t *testing.T) { check(t, in) })
			}
		}
	}
}

// ruleOf returns the AlertRule of an input.
func ruleOf(in *input) *v1alpha1.AlertRule { return in.Rule.(*v1alpha1.AlertRule) }
