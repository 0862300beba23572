package rule

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// BuiltInOptions are the settings of the hub that the built-in templates depend on.
type BuiltInOptions struct {
	// KubeStateMetrics is the inside of a PromQL selector that picks the series of
	// kube-state-metrics, such as job="kube-state-metrics". Empty is no restriction.
	// It has passed ValidateSelector.
	KubeStateMetrics string
	// Enabled are the names of those that are enabled; nil is EnabledBuiltIns.
	Enabled []string
}

// EnabledBuiltIns are the names of the built-in templates that are enabled by default.
func EnabledBuiltIns() []string { return []string{"deployment-down"} }

// BuiltInNames are the names of all built-in templates.
func BuiltInNames() []string {
	var names []string
	for _, t := range BuiltIns(BuiltInOptions{}) {
		names = append(names, t.Name)
	}
	return names
}

// BuiltIns returns the templates that the operator brings along, as new objects. They can
// be edited, enabled and disabled on the hub, and carry an annotation by which
// FollowBuiltIn tells that somebody did.
func BuiltIns(o BuiltInOptions) []*v1alpha1.AlertRuleTemplate {
	m := newMetrics(o.KubeStateMetrics)
	enabled := o.Enabled
	if enabled == nil {
		enabled = EnabledBuiltIns()
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
		// All that the API defaults is set, so that the digest stays the same.
		Spec: v1alpha1.AlertRuleTemplateSpec{AlertSpec: alert, State: state, Allow: []v1alpha1.Adjustment{
			v1alpha1.AdjustAlerts, v1alpha1.AdjustDisable, v1alpha1.AdjustSeverity, v1alpha1.AdjustFor, v1alpha1.AdjustLabels,
		}},
	}
	t.Annotations = map[string]string{v1alpha1.BuiltInAnnotation: templateDigest(t.Spec), v1alpha1.BuiltInStateAnnotation: string(state)}
	return t
}

const (
	critical = "critical"
	warning  = "warning"
)

// theDeployment is how annotations name the Deployment.
const theDeployment = "Deployment $(deployment.namespace)/$(deployment.name) in cluster $(cluster.name)"

func notes(summary, description string) map[string]v1alpha1.LabelText {
	return map[string]v1alpha1.LabelText{
		"summary":     v1alpha1.LabelText(summary),
		"description": v1alpha1.LabelText(description),
	}
}

// deploymentDown fires when a Deployment that should have replicas has none
// available. Scaled to zero is not down.
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

// replicasMismatch fires when replicas are missing and no rollout explains it. One that
// is past its deadline progresses no more, nor does one that makes no new pods: pods
// that become ready and fail again put the deadline off for ever. A paused one does not
// count either, since its ReplicaSets still have to keep their replicas.
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
			"{{ $value }} of the replicas of "+theDeployment+" have not been available for 15 minutes, and no rollout is in progress."+
				" Look for pods that are pending, not ready or restarting, and for quotas or missing nodes that keep pods from being created."),
	}
}

// rolloutStuck fires when a rollout is past its deadline. While it is paused it is not
// meant to proceed, and the condition of before stays.
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
				" Look at the condition's message and at the pods of the newest ReplicaSet: they may not start, not become ready or not be created."+
				" kubectl rollout undo brings the previous version back."),
	}
}

// generationMismatch fires when the deployment controller does not see to a Deployment.
func generationMismatch(m metrics) v1alpha1.AlertSpec {
	return v1alpha1.AlertSpec{
		Alert: "DeploymentGenerationMismatch",
		Expr: m.deployment("kube_deployment_metadata_generation") + "\n!=\n" +
			m.deployment("kube_deployment_status_observed_generation"),
		For:      "15m",
		Severity: warning,
		Annotations: notes("A change of "+theDeployment+" is not acted upon.",
			"Generation {{ $value }} of "+theDeployment+" has not been observed by the deployment controller for 15 minutes, so what was changed has no effect yet."+
				" Look at the health and the logs of kube-controller-manager, and for something that changes the Deployment all the time."),
	}
}

// crashLooping fires for a container that the kubelet has restarted so often that it
// waits before the next time. Between two waits the container runs for a while, hence
// the window.
func crashLooping(m metrics) v1alpha1.AlertSpec {
	const waiting = "kube_pod_container_status_waiting_reason|kube_pod_init_container_status_waiting_reason"
	return v1alpha1.AlertSpec{
		Alert:    "DeploymentCrashLooping",
		Expr:     m.containers("max_over_time(", waiting, "[5m])", `reason="CrashLoopBackOff"`),
		For:      "15m",
		Severity: warning,
		Annotations: notes("Container {{ $labels.container }} of "+theDeployment+" is crash-looping.",
			"Container {{ $labels.container }} in pod {{ $labels.pod }} of "+theDeployment+" keeps ending and being restarted (CrashLoopBackOff)."+
				" Look at its exit code and reason (kubectl describe pod), and at the logs of the run before (kubectl logs --previous)."),
	}
}

// containerWaiting fires for a container that does not get to start, for any other
// reason. Reasons alternate, such as ErrImagePull and ImagePullBackOff, so they are
// not among the alert's labels: each change would begin the hour anew.
func containerWaiting(m metrics) v1alpha1.AlertSpec {
	return v1alpha1.AlertSpec{
		Alert:    "DeploymentContainerWaiting",
		Expr:     m.containers("", "kube_pod_container_status_waiting_reason", "", `reason!="CrashLoopBackOff"`),
		For:      "1h",
		Severity: warning,
		Annotations: notes("Container {{ $labels.container }} of "+theDeployment+" does not start.",
			"Container {{ $labels.container }} in pod {{ $labels.pod }} of "+theDeployment+" has been waiting to start for an hour."+
				" Look at the reason and the pod's events (kubectl describe pod): an image that can't be pulled, a missing ConfigMap, Secret or volume,"+
				" or an init container that does not end."),
	}
}

// hpaMaxedOut fires when the autoscaler of a Deployment can't scale it up any further.
// One whose limits are equal is always there.
func hpaMaxedOut(m metrics) v1alpha1.AlertSpec {
	const most = "kube_horizontalpodautoscaler_spec_max_replicas"
	return v1alpha1.AlertSpec{
		Alert: "DeploymentHPAMaxedOut",
		Expr: all(
			m.autoscaler("kube_horizontalpodautoscaler_status_current_replicas")+"\n>=\n"+m.autoscaler(most),
			m.autoscaler(most)+"\n>\n"+m.autoscaler("kube_horizontalpodautoscaler_spec_min_replicas"),
			m.autoscaler("kube_horizontalpodautoscaler_info", `scaletargetref_kind="Deployment"`, `scaletargetref_name="$(deployment.name)"`),
		),
		For:      "15m",
		Severity: warning,
		Annotations: notes("The HorizontalPodAutoscaler of "+theDeployment+" is at its limit.",
			"HorizontalPodAutoscaler {{ $labels.horizontalpodautoscaler }} has kept "+theDeployment+
				" at its maximum of {{ $value }} replicas for 15 minutes, so it can't add any for more load."+
				" Look at the load and at the autoscaler's metrics (kubectl describe hpa), and raise maxReplicas if the load is real."),
	}
}
