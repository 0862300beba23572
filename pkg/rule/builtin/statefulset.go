package builtin

import "github.com/rulefleet/rulefleet/api/v1alpha1"

// kube-state-metrics exports neither the update strategy of a StatefulSet nor its partition. The templates rely
// on how the controller behaves instead: while all replicas are available, a rolling update goes on at once. A
// StatefulSet with two revisions, all replicas available and no progress therefore waits for a person: for a
// lower partition or, with OnDelete, for the deletion of a pod. Nothing is wrong then.

const (
	statefulSetReplicas  = "kube_statefulset_replicas"
	statefulSetPods      = "kube_statefulset_status_replicas"
	statefulSetReady     = "kube_statefulset_status_replicas_ready"
	statefulSetAvailable = "kube_statefulset_status_replicas_available"
	statefulSetUpdated   = "kube_statefulset_status_replicas_updated"
	statefulSetCurrent   = "kube_statefulset_status_replicas_current"
)

// statefulSetDown fires when no replica of a StatefulSet is ready, unless it is scaled to zero. An update stops a
// pod before it starts the new one, so a single replica is down for a while in each update. With minReadySeconds,
// a replica already serves before it counts as available.
func statefulSetDown(m metrics) v1alpha1.AlertSpec {
	return v1alpha1.AlertSpec{
		Alert: "StatefulSetDown",
		Expr: all(
			m.workload(statefulSetReady)+" == 0",
			m.workload(statefulSetReplicas)+" > 0",
		),
		For:      "5m",
		Severity: critical,
		Annotations: notes(theWorkload+" is down.",
			"No replica of "+theWorkload+" is ready, though it is not scaled to zero."+
				" Look at the state of its pods, at their last logs and at their volumes, and at the events of the StatefulSet for pods that could not be created."),
	}
}

// statefulSetReplicasMismatch fires when replicas are missing, and neither a rollout that makes progress nor the
// creation of pods in order explains it. New pods are created one after the other, each when the previous one is
// ready: there are more than before, and fewer than wanted.
func statefulSetReplicasMismatch(m metrics) v1alpha1.AlertSpec {
	return v1alpha1.AlertSpec{
		Alert: "StatefulSetReplicasMismatch",
		Expr: m.workload(statefulSetReplicas) + "\n-\n" + m.workload(statefulSetAvailable) + " > 0\n" +
			"unless (\n" + indent(m.moved(statefulSetUpdated, "[10m]")+"\nand on () (\n"+indent(m.twoRevisions())+"\n)") + "\n)\n" +
			"unless (\n" + indent(all(
			m.workload(statefulSetPods)+"\n<\n"+m.workload(statefulSetReplicas),
			m.workload(statefulSetPods)+"\n>\n"+m.before(statefulSetPods, "10m"),
		)) + "\n)",
		For:      "15m",
		Severity: warning,
		Annotations: notes(theWorkload+" has fewer replicas available than it should.",
			"{{ $value }} of the replicas of "+theWorkload+" are not available, and no rollout makes progress."+
				" Look for pods that are pending, not ready or restarting, and for volumes, quotas or missing nodes that keep pods from running."+
				" A pod that is not ready also keeps the StatefulSet from creating or updating others, even after its template is corrected: then delete this pod."),
	}
}

// statefulSetRolloutStuck fires when a rollout has begun, a replica is not ready, and no pod has been updated for
// a while. The two revisions differ until a rollout is complete; with OnDelete, they differ forever. So if all pods
// are updated, it also needs a pod that was replaced in the last 6 hours. Two cases look the same in the metrics: while a
// partition or OnDelete holds a rollout that has begun, a replica of the former revision that fails is taken for one that
// blocks it. A rollout that cannot begin, because a replica was not ready before, is left to
// statefulSetReplicasMismatch.
func statefulSetRolloutStuck(m metrics) v1alpha1.AlertSpec {
	return v1alpha1.AlertSpec{
		Alert: "StatefulSetRolloutStuck",
		Expr: m.workload(statefulSetReplicas) + "\n-\n" + m.workload(statefulSetReady) + " > 0\n" +
			"and on () (\n" + indent(m.twoRevisions()) + "\n)\n" +
			"and " + m.workload(statefulSetUpdated) + " > 0\n" +
			"and " + eitherOf(
			m.workload(statefulSetUpdated)+"\n<\n"+m.workload(statefulSetPods),
			m.highest(statefulSetCurrent, "[6h]")+" > 0",
		) + "\n" +
			"unless (\n" + indent(m.moved(statefulSetUpdated, "[10m]")) + "\n)",
		For:      "5m",
		Severity: warning,
		Annotations: notes("The rollout of "+theWorkload+" is stuck.",
			"The rollout of "+theWorkload+" makes no progress: {{ $value }} of its replicas are not ready, and no pod was updated in the last 10 minutes."+
				" Look at the pods that are not ready, at their events and at their logs."+
				" kubectl rollout undo brings the previous version back; then delete the pod that is not ready, because the StatefulSet waits for it."),
	}
}

// twoRevisions has a result while the revision that the StatefulSet is updated to is not the current one.
func (m metrics) twoRevisions() string {
	revision := func(metric string) string { return enclose("max by (revision) ", m.series("", metric, "", m.named())) }
	return revision("kube_statefulset_status_update_revision") + "\nunless on (revision)\n" + revision("kube_statefulset_status_current_revision")
}
