package pipeline

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// kubelet simulates the nodes and the scheduler: it sets the pods of all namespaces to running and ready, and those
// of Jobs to succeeded, except those of workloads that are to be broken. It assigns no node, so that a deleted pod
// disappears without it.
type kubelet struct {
	client client.Client
	// address is the IP of every pod, as with the host's network.
	address string

	mu     sync.Mutex
	broken map[types.NamespacedName]bool // workloads
}

func (k *kubelet) setBroken(workload types.NamespacedName, broken bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.broken[workload] = broken
}

func (k *kubelet) isBroken(workload types.NamespacedName) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.broken[workload]
}

// sync writes the status of each pod that differs.
func (k *kubelet) sync(ctx context.Context) error {
	pods := &corev1.PodList{}
	if err := k.client.List(ctx, pods); err != nil {
		return fmt.Errorf("listing pods: %w", err)
	}
	var errs []error
	for i := range pods.Items {
		pod := &pods.Items[i]
		kind, workload := workloadOf(pod)
		works := !k.isBroken(workload)
		switch {
		case pod.DeletionTimestamp != nil:
			continue
		case kind == "Job":
			if pod.Status.Phase != corev1.PodPending {
				continue // it has ended
			}
			pod.Status = k.status(pod, false)
			end(pod, works)
		case isAs(pod, works):
			continue
		default:
			pod.Status = k.status(pod, works)
		}
		err := k.client.Status().Update(ctx, pod)
		// It was changed or deleted since it was listed.
		if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("writing the status of pod %s/%s: %w", pod.Namespace, pod.Name, err))
		}
	}
	return errors.Join(errs...)
}

// isAs reports whether a pod has that status.
func isAs(pod *corev1.Pod, ready bool) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return (c.Status == corev1.ConditionTrue) == ready
		}
	}
	return false
}

// status is the status of a running pod. If it is not ready, its containers crash.
func (k *kubelet) status(pod *corev1.Pod, ready bool) corev1.PodStatus {
	now := metav1.Now()
	s := corev1.PodStatus{
		Phase: corev1.PodRunning, StartTime: &now,
		PodIP: k.address, PodIPs: []corev1.PodIP{{IP: k.address}},
	}
	for _, c := range []corev1.PodConditionType{corev1.PodScheduled, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		condition := corev1.PodCondition{Type: c, Status: corev1.ConditionTrue, LastTransitionTime: now}
		if !ready && (c == corev1.ContainersReady || c == corev1.PodReady) {
			condition.Status, condition.Reason = corev1.ConditionFalse, "ContainersNotReady"
		}
		s.Conditions = append(s.Conditions, condition)
	}
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		status := corev1.ContainerStatus{Name: c.Name, Image: c.Image, Ready: ready, Started: &ready}
		if ready {
			status.State.Running = &corev1.ContainerStateRunning{StartedAt: now}
		} else {
			status.RestartCount = restarts(pod, c.Name) + 1
			status.State.Waiting = &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}
		}
		s.ContainerStatuses = append(s.ContainerStatuses, status)
	}
	return s
}

func restarts(pod *corev1.Pod, container string) int32 {
	for i := range pod.Status.ContainerStatuses {
		if s := &pod.Status.ContainerStatuses[i]; s.Name == container {
			return s.RestartCount
		}
	}
	return 0
}

// end makes the containers of a pod exit.
func end(pod *corev1.Pod, succeeded bool) {
	exit := corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error", FinishedAt: metav1.Now()}
	pod.Status.Phase = corev1.PodFailed
	if succeeded {
		exit.ExitCode, exit.Reason, pod.Status.Phase = 0, "Completed", corev1.PodSucceeded
	}
	for i := range pod.Status.ContainerStatuses {
		pod.Status.ContainerStatuses[i].State = corev1.ContainerState{Terminated: &exit}
	}
}

// workloadOf returns the kind and the name of the Deployment, StatefulSet, DaemonSet or Job of a pod. That of the
// Deployment is in the name of its ReplicaSet, which ends with the hash of the pod template.
func workloadOf(pod *corev1.Pod) (kind string, name types.NamespacedName) {
	owner := metav1.GetControllerOf(pod)
	if owner == nil {
		return "", types.NamespacedName{}
	}
	return owner.Kind, types.NamespacedName{
		Namespace: pod.Namespace, Name: strings.TrimSuffix(owner.Name, "-"+pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey]),
	}
}
