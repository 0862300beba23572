package why

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// sound returns a chain in which everything works, and nothing fires.
func sound() *Input {
	in := &Input{
		Namespace: "rulefleet-system", Cluster: "eu-1",
		Rule: &v1alpha1.AlertRule{
			ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "high", Generation: 2},
			Spec:       v1alpha1.AlertRuleSpec{Placement: v1alpha1.ClusterSelection{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"env": "prod"}}}},
			Status: v1alpha1.AlertRuleStatus{
				ObservedGeneration: 2,
				Clusters:           []v1alpha1.ClusterStatus{{Name: "eu-1", Phase: v1alpha1.PhaseEvaluating, ObservedGeneration: 2, Rule: "team/high-1"}},
			},
		},
		Spoke:        &v1alpha1.SpokeCluster{ObjectMeta: metav1.ObjectMeta{Name: "eu-1", Labels: map[string]string{"env": "prod"}}},
		Registration: Registration{Readable: true, Exists: true, Labeled: true, HasKubeconfig: true},
	}
	for _, kind := range []string{v1alpha1.ConditionConnected, v1alpha1.ConditionPrometheusRuleServed, v1alpha1.ConditionReady, v1alpha1.ConditionEvaluatorsFound, v1alpha1.ConditionEvaluating} {
		in.say(kind, metav1.ConditionTrue, "Fine", "fine")
	}
	in.accept(metav1.ConditionTrue, v1alpha1.ReasonAccepted, "the spec is valid")
	return in
}

func (in *Input) say(kind string, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&in.Spoke.Status.Conditions, metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message})
}

func (in *Input) accept(status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&in.Rule.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionAccepted, Status: status, Reason: reason, Message: message})
}

// away sets what the manager reports about a spoke that is not connected.
func (in *Input) away(reason, message string) {
	in.say(v1alpha1.ConditionConnected, metav1.ConditionFalse, reason, message)
	in.say(v1alpha1.ConditionPrometheusRuleServed, metav1.ConditionUnknown, reason, message)
	in.say(v1alpha1.ConditionReady, metav1.ConditionFalse, reason, message)
}

func (in *Input) row(phase v1alpha1.Phase, reason, message string) {
	r := &in.Rule.Status.Clusters[0]
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
	const join = "kubectl rulefleet join eu-1 --spoke-context CONTEXT"
	for _, tc := range []struct {
		name   string
		change func(*Input)
		// want has a character for each link: registration, spoke, connection, kinds and permissions, rule
		// accepted, placement, written, selected, evaluated, metrics, firing.
		want string
		// fix is part of the remedy for the first broken link.
		fix string
	}{
		{"sound", func(*Input) {}, "+++++++++++", ""},
		{"fires", func(in *Input) { in.Rule.Status.Clusters[0].Firing = 3 }, "+++++++++++", ""},

		{"no Secret", func(in *Input) {
			in.Registration = Registration{Readable: true}
			in.away(v1alpha1.ReasonKubeconfigMissing, "Secret not found")
		}, "-+-?++?????", join},
		{"no label", func(in *Input) {
			in.Registration.Labeled = false
			in.away(v1alpha1.ReasonKubeconfigMissing, "Secret not found")
		}, "-+-?++?????", "kubectl -n rulefleet-system label secret eu-1 sigs.k8s.io/multicluster-runtime-kubeconfig=true"},
		{"no key", func(in *Input) { in.Registration.HasKubeconfig = false }, "-++++++++++", join},
		{"nothing registered", func(in *Input) { in.Registration, in.Spoke = Registration{Readable: true}, nil }, "--??+??????", join},
		{"no SpokeCluster", func(in *Input) { in.Spoke = nil }, "+-??+??????", "kubectl -n rulefleet-system get pods"},
		{"leaving", func(in *Input) { in.Spoke.DeletionTimestamp = new(metav1.Now()) }, "+-+++++++++", "Wait until it is gone"},
		{"suspended spoke", func(in *Input) {
			in.Spoke.Spec.Suspend = new(true)
			in.say(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonSuspended, "suspended")
			in.row(v1alpha1.PhaseApplied, v1alpha1.ReasonSuspended, "an earlier version")
		}, "+-++++-????", `kubectl patch spoke eu-1 --type=merge -p '{"spec":{"suspend":false}}'`},
		{"unreachable", func(in *Input) { in.away(v1alpha1.ReasonUnreachable, "no route to host") }, "++-?++?????", "check the network"},
		{"expired", func(in *Input) { in.away(v1alpha1.ReasonAuthFailed, "401") }, "++-?++?????", join},
		{"rights to read", func(in *Input) { in.away(v1alpha1.ReasonForbidden, "list deployments.apps") }, "++-?++?????", join},
		{"another cluster", func(in *Input) {
			in.away(v1alpha1.ReasonIdentityChanged, "confirm it: kubectl annotate --overwrite spoke eu-1 rulefleet.io/accept-identity=x")
		}, "++-?++?????", "kubectl annotate --overwrite spoke eu-1 rulefleet.io/accept-identity=x"},
		{"connecting", func(in *Input) {
			in.say(v1alpha1.ConditionConnected, metav1.ConditionUnknown, v1alpha1.ReasonConnecting, "reading")
		}, "++??++?????", ""},
		{"no CRDs", func(in *Input) {
			in.say(v1alpha1.ConditionPrometheusRuleServed, metav1.ConditionFalse, v1alpha1.ReasonCRDMissing, "not served")
			in.row(v1alpha1.PhasePending, v1alpha1.ReasonCRDMissing, "not served")
		}, "+++-++-????", "Install the CustomResourceDefinitions of prometheus-operator"},
		{"rights to write", func(in *Input) {
			in.say(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonForbidden, "create prometheusrules")
			in.row(v1alpha1.PhasePending, v1alpha1.ReasonForbidden, "create prometheusrules")
		}, "+++-++-????", join},

		{"not processed", func(in *Input) { in.Rule.Generation = 3 }, "++++?+?????", ""},
		{"not valid", func(in *Input) {
			in.accept(metav1.ConditionFalse, v1alpha1.ReasonInvalidExpr, "spec.expr: 1:6: unexpected end of input")
		}, "++++-++++++", "kubectl -n team edit alertrule high"},
		{"suspended rule", func(in *Input) { in.Rule.Spec.Suspend = new(true) }, "++++-++++++", `kubectl -n team patch alertrule high --type=merge -p '{"spec":{"suspend":false}}'`},
		{"not placed by label", func(in *Input) { in.Spoke.Labels = nil; in.Rule.Status.Clusters = nil }, "+++++-?????", "kubectl -n rulefleet-system label secret eu-1 env=prod --overwrite"},
		{"not placed by name", func(in *Input) {
			in.Rule.Spec.Placement = v1alpha1.ClusterSelection{Names: []v1alpha1.ClusterName{"us-1"}}
			in.Rule.Status.Clusters = nil
		}, "+++++-?????", "Add the spoke to spec.placement.names"},
		{"disabled", func(in *Input) { in.Rule.Spec.State = v1alpha1.Disabled; in.Rule.Status.Clusters = nil }, "+++++-?????", `{"spec":{"state":"Enabled"}}`},
		{"disabled here", func(in *Input) {
			in.Rule.Spec.Overrides = []v1alpha1.Override{{ClusterSelection: v1alpha1.ClusterSelection{Names: []v1alpha1.ClusterName{"eu-1"}}, State: v1alpha1.Disabled}}
			in.Rule.Status.Clusters = nil
		}, "+++++-?????", "Remove state: Disabled from the entry of spec.overrides"},

		{"waiting", func(in *Input) { in.row(v1alpha1.PhasePending, v1alpha1.ReasonWaiting, "") }, "++++++?????", ""},
		{"no namespace", func(in *Input) { in.row(v1alpha1.PhasePending, v1alpha1.ReasonNamespaceMissing, "") }, "++++++-????", "kubectl --context SPOKE create namespace team"},
		{"conflict", func(in *Input) { in.row(v1alpha1.PhasePending, v1alpha1.ReasonConflict, "") }, "++++++-????", "kubectl --context SPOKE -n team delete prometheusrule high-1"},
		{"rejected", func(in *Input) { in.row(v1alpha1.PhasePending, v1alpha1.ReasonRejected, "by policy") }, "++++++-????", "Follow the message"},
		{"mutated", func(in *Input) { in.row(v1alpha1.PhasePending, v1alpha1.ReasonMutated, "") }, "++++++-????", "delete the PrometheusRule"},
		{"contested", func(in *Input) { in.row(v1alpha1.PhasePending, v1alpha1.ReasonContested, "") }, "++++++-????", "Contested objects"},
		{"quota", func(in *Input) { in.row(v1alpha1.PhasePending, v1alpha1.ReasonQuotaExceeded, "") }, "++++++-????", "Raise `count/prometheusrules"},
		{"unsupported", func(in *Input) { in.row(v1alpha1.PhasePending, v1alpha1.ReasonUnsupported, "") }, "++++++-????", "update Prometheus"},
		{"an earlier version", func(in *Input) { in.Rule.Status.Clusters[0].ObservedGeneration = 1 }, "++++++?????", ""},

		{"not selected", func(in *Input) { in.row(v1alpha1.PhaseApplied, v1alpha1.ReasonNotSelected, "requires team=a") }, "+++++++-???", "Follow the message"},
		{"ambiguous", func(in *Input) {
			in.row(v1alpha1.PhaseApplied, v1alpha1.ReasonAmbiguous, "see EvaluatorsFound")
			in.say(v1alpha1.ConditionEvaluatorsFound, metav1.ConditionFalse, v1alpha1.ReasonAmbiguous, "several: kubectl patch spokecluster eu-1 --type merge -p '{}'")
		}, "+++++++-???", "kubectl patch spokecluster eu-1 --type merge -p '{}'"},
		{"no Prometheus", func(in *Input) { in.row(v1alpha1.PhaseApplied, v1alpha1.ReasonNoEvaluator, "") }, "+++++++????", ""},
		{"not granted", func(in *Input) { in.row(v1alpha1.PhaseSelected, v1alpha1.ReasonPredicted, "") }, "++++++++???", ""},
		{"loading", func(in *Input) { in.row(v1alpha1.PhaseSelected, v1alpha1.ReasonLoading, "") }, "++++++++???", ""},
		{"not loaded", func(in *Input) { in.row(v1alpha1.PhaseSelected, v1alpha1.ReasonNotLoaded, "") }, "++++++++-??", ""},
		{"enforced", func(in *Input) { in.row(v1alpha1.PhaseSelected, v1alpha1.ReasonNamespaceEnforced, "") }, "++++++++-??", "excludedFromEnforcement"},
		{"evaluation fails", func(in *Input) { in.row(v1alpha1.PhaseSelected, v1alpha1.ReasonEvaluationFailed, "many-to-many") }, "++++++++-??", ""},
		{"Prometheus is away", func(in *Input) {
			in.row(v1alpha1.PhaseSelected, v1alpha1.ReasonEvaluatorUnreachable, "")
			in.say(v1alpha1.ConditionEvaluating, metav1.ConditionFalse, v1alpha1.ReasonEvaluatorUnreachable, "no answer")
		}, "++++++++-??", "check the pods of the Prometheus"},
		{"no metric", func(in *Input) { in.Rule.Status.Clusters[0].MissingMetrics = []string{"http_requests_total"} }, "+++++++++-+", "Check that these metrics are scraped"},
		{"no kube-state-metrics", func(in *Input) {
			in.Rule.Status.Clusters[0].MissingMetrics = []string{"kube_pod_info"}
			in.say(v1alpha1.ConditionMetricsPresent, metav1.ConditionFalse, v1alpha1.ReasonKubeStateMetricsMissing, "none")
		}, "+++++++++-+", "kube-state-metrics"},

		{"a tenant", func(in *Input) { in.Spoke, in.SpokeUnreadable, in.Registration = nil, true, Registration{} }, "????+?+++++", ""},
		{"a tenant, and the spoke is away", func(in *Input) {
			in.Spoke, in.SpokeUnreadable, in.Registration = nil, true, Registration{}
			in.row(v1alpha1.PhaseEvaluating, v1alpha1.ReasonUnreachable, "see Connected")
		}, "??-?+??????", "Ask an administrator"},
		{"Secrets are not readable", func(in *Input) { in.Registration = Registration{} }, "+++++++++++", ""},
		{"one of many spokes", func(in *Input) {
			in.Rule.Status.Clusters = nil
			in.Rule.Status.Summary = &v1alpha1.RuleSummary{Desired: 200}
		}, "+++++++++??", ""},
		{"one of many spokes, some not ready", func(in *Input) {
			in.Rule.Status.Clusters, in.Rule.Status.UnlistedClusters = nil, 4
			in.Rule.Status.Summary = &v1alpha1.RuleSummary{Desired: 200}
		}, "++++++?????", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := sound()
			tc.change(in)
			links := Chain(*in)
			if got := states(links); got != tc.want {
				t.Errorf("the states are %s, want %s\n%+v", got, tc.want, links)
			}
			broken := Broken(links)
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
			}
		})
	}
}
