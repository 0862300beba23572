package builtin

import "github.com/rulefleet/rulefleet/api/v1alpha1"

// kube-state-metrics exports neither the update strategy of a DaemonSet nor maxUnavailable. The templates rely on
// the counts of nodes in its status: those that should run a pod, those that do, and those whose pod is ready or of
// the latest version. A DaemonSet that matches no node counts as scaled to zero.

const (
	daemonSetDesired   = "kube_daemonset_status_desired_number_scheduled"
	daemonSetScheduled = "kube_daemonset_status_current_number_scheduled"
	daemonSetReady     = "kube_daemonset_status_number_ready"
	daemonSetAvailable = "kube_daemonset_status_number_available"
	daemonSetUpdated   = "kube_daemonset_status_updated_number_scheduled"
)

// daemonSetDown fires when no pod of a DaemonSet is ready, unless it matches no node. With a single node, or a
// maxUnavailable of 100 %, this is so for a while in each update.
func daemonSetDown(m metrics) v1alpha1.AlertSpec {
	return v1alpha1.AlertSpec{
		Alert: "DaemonSetDown",
		Expr: all(
			m.workload(daemonSetReady)+" == 0",
			m.workload(daemonSetDesired)+" > 0",
		),
		For:      "5m",
		Severity: critical,
		Annotations: notes(theWorkload+" is down.",
			"No pod of "+theWorkload+" is ready, though there are nodes that should run it."+
				" Look at the state of its pods and at their last logs, and at the events of the DaemonSet for pods that could not be created."),
	}
}

// daemonSetNotReady fires when nodes have no available pod, and no rollout explains it. A rollout takes away as
// many pods as maxUnavailable allows, as long as it makes progress. The last pods have the time of the alert.
func daemonSetNotReady(m metrics) v1alpha1.AlertSpec {
	return v1alpha1.AlertSpec{
		Alert: "DaemonSetNotReady",
		Expr: m.workload(daemonSetDesired) + "\n-\n" + m.workload(daemonSetAvailable) + " > 0\n" +
			"unless (\n" + indent(all(
			m.workload(daemonSetUpdated)+"\n<\n"+m.workload(daemonSetDesired),
			m.moved(daemonSetUpdated),
		)) + "\n)",
		For:      "15m",
		Severity: warning,
		Annotations: notes(theWorkload+" has no available pod on some nodes.",
			"{{ $value }} of the nodes that should run a pod of "+theWorkload+" have none that is available, and no rollout makes progress."+
				" Look for pods that are pending, not ready or restarting (kubectl get pods -o wide), and for nodes that are not ready."),
	}
}

// daemonSetRolloutStuck fires when a rollout has begun, pods are not ready, and none has been updated for a while.
// If all pods are ready, nothing keeps a rolling update from going on: with OnDelete, the pods wait for their
// deletion by a person. A rolling update replaces pods that are not ready first, so if no pod is updated, it is
// OnDelete, too. Two cases look the same in the metrics: after some of the pods were deleted with OnDelete, another one
// that fails is taken for one that blocks the rollout. When all pods are updated, daemonSetNotReady remains.
func daemonSetRolloutStuck(m metrics) v1alpha1.AlertSpec {
	return v1alpha1.AlertSpec{
		Alert: "DaemonSetRolloutStuck",
		Expr: m.workload(daemonSetDesired) + "\n-\n" + m.workload(daemonSetUpdated) + " > 0\n" +
			"and " + m.workload(daemonSetUpdated) + " > 0\n" +
			"and (\n" + indent(m.workload(daemonSetReady)+"\n<\n"+m.workload(daemonSetDesired)) + "\n)\n" +
			"unless (\n" + indent(m.moved(daemonSetUpdated)) + "\n)",
		For:      "5m",
		Severity: warning,
		Annotations: notes("The rollout of "+theWorkload+" is stuck.",
			"The rollout of "+theWorkload+" makes no progress: {{ $value }} of its pods have an earlier version, and no pod was updated in the last 10 minutes."+
				" Look at the pods that are not ready, at their events and at their logs. kubectl rollout undo brings the previous version back."),
	}
}

// daemonSetNotScheduled fires when nodes should run a pod, and the pod cannot be created, or has no place on its
// node. The controller counts a pod for its node before it is scheduled.
func daemonSetNotScheduled(m metrics) v1alpha1.AlertSpec {
	return v1alpha1.AlertSpec{
		Alert: "DaemonSetNotScheduled",
		Expr: m.workload(daemonSetDesired) + "\n-\n" + m.workload(daemonSetScheduled) + " > 0\nor\n" +
			enclose("count", enclose("max by (pod) ", relabel("pod", "exported_pod", m.series("", "kube_pod_status_scheduled", "", `condition="false"`)))+
				" > 0\nand on (pod) (\n"+indent(m.pods())+"\n)"),
		For:      "15m",
		Severity: warning,
		Annotations: notes(theWorkload+" does not run on some nodes.",
			"At least {{ $value }} pods of "+theWorkload+" are not created or not scheduled."+
				" Look at the events of pods that are pending: their nodes may lack CPU, memory or a port. Give the DaemonSet a priority class if its pods are more important than others."+
				" Look at the events of the DaemonSet for a quota or a policy that keeps pods from being created."),
	}
}

// daemonSetMisscheduled fires when pods run on nodes that should not run them.
func daemonSetMisscheduled(m metrics) v1alpha1.AlertSpec {
	return v1alpha1.AlertSpec{
		Alert:    "DaemonSetMisscheduled",
		Expr:     m.workload("kube_daemonset_status_number_misscheduled") + " > 0",
		For:      "15m",
		Severity: warning,
		Annotations: notes(theWorkload+" runs on nodes that should not run it.",
			"{{ $value }} nodes run a pod of "+theWorkload+", though its node selector, affinity or tolerations exclude them."+
				" Pods stay on a node that later got a taint with the effect NoSchedule: delete them, or tolerate the taint. In all other cases, Kubernetes deletes the pods. If it does not, check whether their nodes are ready."),
	}
}
