package builtin

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule/templating"
)

// Options are the settings of the hub that the built-in templates depend on.
type Options struct {
	// KubeStateMetrics contains the matchers of a PromQL selector for the series of kube-state-metrics,
	// such as job="kube-state-metrics". Empty means no restriction. ValidateSelector has accepted it.
	KubeStateMetrics string
	// Enabled are the names of the enabled templates. nil means Enabled.
	Enabled []string
}

// Enabled returns the names of the built-in templates that are enabled by default.
func Enabled() []string { return []string{"deployment-down"} }

// Names returns the names of all built-in templates.
func Names() []string {
	var names []string
	for _, t := range Templates(Options{}) {
		names = append(names, t.Name)
	}
	return names
}

// Templates returns the operator's built-in templates, as new objects. They can be edited, enabled and
// disabled on the hub. Follow detects edits by an annotation on them.
func Templates(o Options) []*v1alpha1.AlertRuleTemplate {
	enabled := o.Enabled
	if enabled == nil {
		enabled = Enabled()
	}
	var all []*v1alpha1.AlertRuleTemplate
	for _, t := range templates {
		state := v1alpha1.Disabled
		if slices.Contains(enabled, t.name) {
			state = v1alpha1.Enabled
		}
		all = append(all, builtIn(t.name, t.kind, state, t.alert(newMetrics(o.KubeStateMetrics, t.kind))))
	}
	return all
}

// templates are the built-in templates. The first one is enabled by default.
var templates = []struct {
	name  string
	kind  v1alpha1.WorkloadKind
	alert func(metrics) v1alpha1.AlertSpec
}{
	{"deployment-down", v1alpha1.DeploymentKind, deploymentDown},
	{"replicas-mismatch", v1alpha1.DeploymentKind, replicasMismatch},
	{"rollout-stuck", v1alpha1.DeploymentKind, rolloutStuck},
	{"generation-mismatch", v1alpha1.DeploymentKind, generationMismatch},
	{"crash-looping", v1alpha1.DeploymentKind, crashLooping},
	{"container-waiting", v1alpha1.DeploymentKind, containerWaiting},
	{"hpa-maxed-out", v1alpha1.DeploymentKind, hpaMaxedOut},
	{"statefulset-down", v1alpha1.StatefulSetKind, statefulSetDown},
	{"statefulset-replicas-mismatch", v1alpha1.StatefulSetKind, statefulSetReplicasMismatch},
	{"statefulset-rollout-stuck", v1alpha1.StatefulSetKind, statefulSetRolloutStuck},
	{"statefulset-crash-looping", v1alpha1.StatefulSetKind, crashLooping},
	{"statefulset-container-waiting", v1alpha1.StatefulSetKind, containerWaiting},
	{"daemonset-down", v1alpha1.DaemonSetKind, daemonSetDown},
	{"daemonset-not-ready", v1alpha1.DaemonSetKind, daemonSetNotReady},
	{"daemonset-rollout-stuck", v1alpha1.DaemonSetKind, daemonSetRolloutStuck},
	{"daemonset-not-scheduled", v1alpha1.DaemonSetKind, daemonSetNotScheduled},
	{"daemonset-misscheduled", v1alpha1.DaemonSetKind, daemonSetMisscheduled},
	{"daemonset-crash-looping", v1alpha1.DaemonSetKind, crashLooping},
	{"daemonset-container-waiting", v1alpha1.DaemonSetKind, containerWaiting},
	{"cronjob-failing", v1alpha1.CronJobKind, cronJobFailing},
	{"cronjob-missed", v1alpha1.CronJobKind, cronJobMissed},
}

func builtIn(name string, kind v1alpha1.WorkloadKind, state v1alpha1.State, alert v1alpha1.AlertSpec) *v1alpha1.AlertRuleTemplate {
	t := &v1alpha1.AlertRuleTemplate{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "AlertRuleTemplate"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		// All fields with a default in the API are set, as the API server does.
		Spec: v1alpha1.AlertRuleTemplateSpec{AlertSpec: alert, State: state, Allow: slices.Clone(templating.DefaultAllow)},
	}
	if kind != v1alpha1.DeploymentKind {
		t.Spec.Workloads = &v1alpha1.WorkloadSelection{Kinds: []v1alpha1.WorkloadKind{kind}}
	}
	t.Annotations = map[string]string{v1alpha1.BuiltInAnnotation: fieldsOf(t.Spec).record(), v1alpha1.BuiltInStateAnnotation: string(state)}
	return t
}

const (
	critical = "critical"
	warning  = "warning"
)

// theWorkload refers to the workload in annotations.
const theWorkload = "$(workload.kind) $(workload.namespace)/$(workload.name) in cluster $(cluster.name)"

func notes(summary, description string) map[string]v1alpha1.LabelText {
	return map[string]v1alpha1.LabelText{
		"summary":     v1alpha1.LabelText(summary),
		"description": v1alpha1.LabelText(description),
	}
}
