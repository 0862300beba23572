package builtin

import "github.com/rulefleet/rulefleet/api/v1alpha1"

// crashLooping fires for a container that the kubelet has restarted so often that it waits before the
// next restart. The container runs for a while between two waits, so the expression uses a time
// window.
func crashLooping(m metrics) v1alpha1.AlertSpec {
	const waiting = "kube_pod_container_status_waiting_reason|kube_pod_init_container_status_waiting_reason"
	return v1alpha1.AlertSpec{
		Alert:    string(m.kind) + "CrashLooping",
		Expr:     m.containers("max_over_time(", waiting, "[5m])", `reason="CrashLoopBackOff"`),
		For:      "15m",
		Severity: warning,
		Annotations: notes("Container {{ $labels.container }} of "+theWorkload+" is crash-looping.",
			"Container {{ $labels.container }} in pod {{ $labels.pod }} of "+theWorkload+" exits and is restarted repeatedly (CrashLoopBackOff)."+
				" Look at its exit code and reason (kubectl describe pod), and at the logs of the previous run (kubectl logs --previous)."),
	}
}

// containerWaiting fires for a container that does not start, for any other reason. Reasons alternate,
// for example between ErrImagePull and ImagePullBackOff, so they are not labels of the alert: each
// change would restart the hour.
func containerWaiting(m metrics) v1alpha1.AlertSpec {
	return v1alpha1.AlertSpec{
		Alert:    string(m.kind) + "ContainerWaiting",
		Expr:     m.containers("", "kube_pod_container_status_waiting_reason", "", `reason!="CrashLoopBackOff"`),
		For:      "1h",
		Severity: warning,
		Annotations: notes("Container {{ $labels.container }} of "+theWorkload+" does not start.",
			"Container {{ $labels.container }} in pod {{ $labels.pod }} of "+theWorkload+" is still waiting to start."+
				" Look at the reason and the pod's events (kubectl describe pod): an image that can't be pulled, a missing ConfigMap, Secret or volume,"+
				" or an init container that does not end."),
	}
}
