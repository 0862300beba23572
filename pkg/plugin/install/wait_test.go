package install

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestDescribeDeployment says what a Deployment waits for.
func TestDescribeDeployment(t *testing.T) {
	pod := func(status corev1.PodStatus) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "rulefleet-x"}, Status: status}
	}
	container := func(state corev1.ContainerState) corev1.Pod {
		return pod(corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "manager", State: state}}})
	}
	const none = "Deployment ns/rulefleet: 0 of 2 new pods are ready"
	for _, tc := range []struct {
		name   string
		status appsv1.DeploymentStatus
		pods   []corev1.Pod
		want   string
	}{
		{"no pods", appsv1.DeploymentStatus{}, nil, none},
		{"old pods are ready", appsv1.DeploymentStatus{ReadyReplicas: 2, UpdatedReplicas: 1}, nil, "Deployment ns/rulefleet: 1 of 2 new pods are ready"},
		{"quota", appsv1.DeploymentStatus{Conditions: []appsv1.DeploymentCondition{
			{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue, Reason: "NewReplicaSetCreated"},
			{Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue, Reason: "FailedCreate", Message: "exceeded quota"},
		}}, nil, none + "; FailedCreate: exceeded quota"},
		{"starting", appsv1.DeploymentStatus{}, []corev1.Pod{container(corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}})}, none},
		{"running", appsv1.DeploymentStatus{}, []corev1.Pod{container(corev1.ContainerState{Running: &corev1.ContainerStateRunning{}})}, none},
		{"no image", appsv1.DeploymentStatus{}, []corev1.Pod{pod(corev1.PodStatus{}), container(corev1.ContainerState{
			Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "Back-off pulling image"},
		})}, none + "; pod rulefleet-x: ImagePullBackOff: Back-off pulling image"},
		{"crashed", appsv1.DeploymentStatus{}, []corev1.Pod{container(corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{ExitCode: 2, Reason: "Error"},
		})}, none + "; pod rulefleet-x: container manager ended with code 2: Error"},
		{"no node", appsv1.DeploymentStatus{}, []corev1.Pod{pod(corev1.PodStatus{Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/3 nodes are available"},
		}})}, none + "; pod rulefleet-x: Unschedulable: 0/3 nodes are available"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "rulefleet"}, Spec: appsv1.DeploymentSpec{Replicas: new(int32(2))}, Status: tc.status}
			if got := describeDeployment(d, tc.pods); got != tc.want {
				t.Errorf("got  %q\nwant %q", got, tc.want)
			}
		})
	}
}
