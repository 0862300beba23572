package builtin

import "github.com/rulefleet/rulefleet/api/v1alpha1"

// deploymentDown fires when no replica of a Deployment is available, unless it is scaled to zero.
func deploymentDown(m metrics) v1alpha1.AlertSpec {
	return v1alpha1.AlertSpec{
		Alert: "DeploymentDown",
		Expr: all(
			m.workload("kube_deployment_status_replicas_available")+" == 0",
			m.workload("kube_deployment_spec_replicas")+" > 0",
		),
		For:      "1m",
		Severity: critical,
		Annotations: notes(theWorkload+" is down.",
			"No replica of "+theWorkload+" is available, though it is not scaled to zero."+
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
		Expr: m.workload("kube_deployment_spec_replicas") + "\n-\n" +
			m.workload("kube_deployment_status_replicas_available") + " > 0\n" +
			"unless (\n" + indent(all(
			// A complete rollout stays Progressing, with the reason NewReplicaSetAvailable.
			m.workload("kube_deployment_status_condition", `condition="Progressing"`, `status="true"`,
				`reason=~"NewReplicaSetCreated|FoundNewReplicaSet|ReplicaSetUpdated"`)+" > 0",
			m.moved("kube_deployment_status_replicas_updated"),
		)) + "\n)",
		For:      "15m",
		Severity: warning,
		Annotations: notes(theWorkload+" has fewer replicas available than it should.",
			"{{ $value }} of the replicas of "+theWorkload+" are not available, and no rollout makes progress."+
				" Look for pods that are pending, not ready or restarting, and for quotas or missing nodes that keep pods from being created."),
	}
}

// rolloutStuck fires when a rollout is past its deadline. Paused Deployments are left out: their
// rollout is not meant to proceed, and they keep their last condition.
func rolloutStuck(m metrics) v1alpha1.AlertSpec {
	return v1alpha1.AlertSpec{
		Alert: "DeploymentRolloutStuck",
		Expr: m.workload("kube_deployment_status_condition", `condition="Progressing"`, `status="false"`) + " > 0\n" +
			"unless\n" +
			m.workload("kube_deployment_spec_paused") + " > 0",
		For:      "5m",
		Severity: warning,
		Annotations: notes("The rollout of "+theWorkload+" is stuck.",
			"The rollout of "+theWorkload+" makes no progress: its condition Progressing is False."+
				" Look at the condition's message and at the pods of the newest ReplicaSet: pods may fail to start, to become ready or to be created."+
				" kubectl rollout undo brings the previous version back."),
	}
}

// generationMismatch fires when the deployment controller does not process a change of a Deployment.
func generationMismatch(m metrics) v1alpha1.AlertSpec {
	return v1alpha1.AlertSpec{
		Alert: "DeploymentGenerationMismatch",
		Expr: m.workload("kube_deployment_metadata_generation") + "\n!=\n" +
			m.workload("kube_deployment_status_observed_generation"),
		For:      "15m",
		Severity: warning,
		Annotations: notes("The deployment controller has not processed a change of "+theWorkload+".",
			"The deployment controller has not processed generation {{ $value }} of "+theWorkload+". The latest change has no effect yet."+
				" Check the health and the logs of kube-controller-manager, and look for a client that changes the Deployment all the time."),
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
		Annotations: notes("The HorizontalPodAutoscaler of "+theWorkload+" is at its limit.",
			"HorizontalPodAutoscaler {{ $labels.horizontalpodautoscaler }} runs "+theWorkload+
				" at its maximum of {{ $value }} replicas. It can't add replicas if the load increases."+
				" Look at the load and at the autoscaler's metrics (kubectl describe hpa), and raise maxReplicas if the load is real."),
	}
}
