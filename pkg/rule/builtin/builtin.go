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
	m := newMetrics(o.KubeStateMetrics)
	enabled := o.Enabled
	if enabled == nil {
		enabled = Enabled()
	}
	var all []*v1alpha1.AlertRuleTemplate
	add := func(name string, alert v1alpha1.AlertSpec) {
		state := v1alpha1.Disabled
		if slices.Contains(enabled, name) {
			state = v1alpha1.Enabled
		}
		all = append(all, builtIn(name, state, alert))
	}
	add("deployment-down", deploymentDown(m))
	add("replicas-mismatch", replicasMismatch(m))
	add("rollout-stuck", rolloutStuck(m))
	add("generation-mismatch", generationMismatch(m))
	add("crash-looping", crashLooping(m))
	add("container-waiting", containerWaiting(m))
	add("hpa-maxed-out", hpaMaxedOut(m))
	return all
}

func builtIn(name string, state v1alpha1.State, alert v1alpha1.AlertSpec) *v1alpha1.AlertRuleTemplate {
	t := &v1alpha1.AlertRuleTemplate{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "AlertRuleTemplate"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		// All fields with a default in the API are set, so that the digest stays the same.
		Spec: v1alpha1.AlertRuleTemplateSpec{AlertSpec: alert, State: state, Allow: slices.Clone(templating.DefaultAllow)},
	}
	t.Annotations = map[string]string{v1alpha1.BuiltInAnnotation: templateDigest(t.Spec), v1alpha1.BuiltInStateAnnotation: string(state)}
	return t
}

const (
	critical = "critical"
	warning  = "warning"
)

// theDeployment refers to the Deployment in annotations.
const theDeployment = "Deployment $(workload.namespace)/$(workload.name) in cluster $(cluster.name)"

func notes(summary, description string) map[string]v1alpha1.LabelText {
	return map[string]v1alpha1.LabelText{
		"summary":     v1alpha1.LabelText(summary),
		"description": v1alpha1.LabelText(description),
	}
}

// deploymentDown fires when no replica of a Deployment is available, unless it is scaled to zero.
func deploymentDown(m metrics) v1alpha1.AlertSpec {
	return v1alpha1.AlertSpec{
		Alert: "DeploymentDown",
		Expr: all(
			m.deployment("kube_deployment_status_replicas_available")+" == 0",
			m.deployment("kube_deployment_spec_replicas")+" > 0",
		),
		For:      "1m",
		Severity: critical,
		Annotations: notes(theDeployment+" is down.",
			"No replica of "+theDeployment+" is available, though it is not scaled to zero."+
				" Look at the state of its pods and at their last logs, and at the events of its ReplicaSets for pods that could not be created."),
	}
}

// replicasMismatch fires when replicas are missing and no rollout explains it. A rollout past its
// deadline does not explain it, and neither does a rollout that creates no new pods: pods that
// repeatedly become ready and fail postpone the deadline forever. A paused rollout does not explain it
// either, because its ReplicaSets still have to keep their replicas.
func replicasMismatch(m metrics) v1alpha1.AlertSpec {
	return v1alpha1.AlertSpec{
		Alert: "DeploymentReplicasMismatch",
		Expr: m.deployment("kube_deployment_spec_replicas") + "\n-\n" +
			m.deployment("kube_deployment_status_replicas_available") + " > 0\n" +
			"unless (\n" + indent(all(
			// A complete rollout stays Progressing, with the reason NewReplicaSetAvailable.
			m.deployment("kube_deployment_status_condition", `condition="Progressing"`, `status="true"`,
				`reason=~"NewReplicaSetCreated|FoundNewReplicaSet|ReplicaSetUpdated"`)+" > 0",
			m.deploymentMoved("kube_deployment_status_replicas_updated", "[10m]"),
		)) + "\n)",
		For:      "15m",
		Severity: warning,
		Annotations: notes(theDeployment+" has fewer replicas available than it should.",
			"{{ $value }} of the replicas of "+theDeployment+" are not available, and no rollout makes progress."+
				" Look for pods that are pending, not ready or restarting, and for quotas or missing nodes that keep pods from being created."),
	}
}

// rolloutStuck fires when a rollout is past its deadline. Paused Deployments are left out: their
// rollout is not meant to proceed, and they keep their last condition.
func rolloutStuck(m metrics) v1alpha1.AlertSpec {
	return v1alpha1.AlertSpec{
		Alert: "DeploymentRolloutStuck",
		Expr: m.deployment("kube_deployment_status_condition", `condition="Progressing"`, `status="false"`) + " > 0\n" +
			"unless\n" +
			m.deployment("kube_deployment_spec_paused") + " > 0",
		For:      "5m",
		Severity: warning,
		Annotations: notes("The rollout of "+theDeployment+" is stuck.",
			"The rollout of "+theDeployment+" makes no progress: its condition Progressing is False."+
				" Look at the condition's message and at the pods of the newest ReplicaSet: pods may fail to start, to become ready or to be created."+
				" kubectl rollout undo brings the previous version back."),
	}
}

// generationMismatch fires when the deployment controller does not process a change of a Deployment.
func generationMismatch(m metrics) v1alpha1.AlertSpec {
	return v1alpha1.AlertSpec{
		Alert: "DeploymentGenerationMismatch",
		Expr: m.deployment("kube_deployment_metadata_generation") + "\n!=\n" +
			m.deployment("kube_deployment_status_observed_generation"),
		For:      "15m",
		Severity: warning,
		Annotations: notes("The deployment controller has not processed a change of "+theDeployment+".",
			"The deployment controller has not processed generation {{ $value }} of "+theDeployment+". The latest change has no effect yet."+
				" Look at the health and the logs of kube-controller-manager, and for a client that changes the Deployment continuously."),
	}
}

// crashLooping fires for a container that the kubelet has restarted so often that it waits before the
// next restart. The container runs for a while between two waits, so the expression uses a time
// window.
func crashLooping(m metrics) v1alpha1.AlertSpec {
	const waiting = "kube_pod_container_status_waiting_reason|kube_pod_init_container_status_waiting_reason"
	return v1alpha1.AlertSpec{
		Alert:    "DeploymentCrashLooping",
		Expr:     m.containers("max_over_time(", waiting, "[5m])", `reason="CrashLoopBackOff"`),
		For:      "15m",
		Severity: warning,
		Annotations: notes("Container {{ $labels.container }} of "+theDeployment+" is crash-looping.",
			"Container {{ $labels.container }} in pod {{ $labels.pod }} of "+theDeployment+" exits and is restarted repeatedly (CrashLoopBackOff)."+
				" Look at its exit code and reason (kubectl describe pod), and at the logs of the previous run (kubectl logs --previous)."),
	}
}

// containerWaiting fires for a container that does not start, for any other reason. Reasons alternate,
// for example between ErrImagePull and ImagePullBackOff, so they are not labels of the alert: each
// change would restart the hour.
func containerWaiting(m metrics) v1alpha1.AlertSpec {
	return v1alpha1.AlertSpec{
		Alert:    "DeploymentContainerWaiting",
		Expr:     m.containers("", "kube_pod_container_status_waiting_reason", "", `reason!="CrashLoopBackOff"`),
		For:      "1h",
		Severity: warning,
		Annotations: notes("Container {{ $labels.container }} of "+theDeployment+" does not start.",
			"Container {{ $labels.container }} in pod {{ $labels.pod }} of "+theDeployment+" is still waiting to start."+
				" Look at the reason and the pod's events (kubectl describe pod): an image that can't be pulled, a missing ConfigMap, Secret or volume,"+
				" or an init container that does not end."),
	}
}

// hpaMaxedOut fires when the autoscaler of a Deployment can't scale it up any further. Autoscalers
// whose limits are equal are left out.
func hpaMaxedOut(m metrics) v1alpha1.AlertSpec {
	const most = "kube_horizontalpodautoscaler_spec_max_replicas"
	return v1alpha1.AlertSpec{
		Alert: "DeploymentHPAMaxedOut",
		Expr: all(
			m.autoscaler("kube_horizontalpodautoscaler_status_current_replicas")+"\n>=\n"+m.autoscaler(most),
			m.autoscaler(most)+"\n>\n"+m.autoscaler("kube_horizontalpodautoscaler_spec_min_replicas"),
			m.autoscaler("kube_horizontalpodautoscaler_info", `scaletargetref_kind="Deployment"`, `scaletargetref_name="$(workload.name)"`),
		),
		For:      "15m",
		Severity: warning,
		Annotations: notes("The HorizontalPodAutoscaler of "+theDeployment+" is at its limit.",
			"HorizontalPodAutoscaler {{ $labels.horizontalpodautoscaler }} runs "+theDeployment+
				" at its maximum of {{ $value }} replicas. It can't add replicas if the load increases."+
				" Look at the load and at the autoscaler's metrics (kubectl describe hpa), and raise maxReplicas if the load is real."),
	}
}
