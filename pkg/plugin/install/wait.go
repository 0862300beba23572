package install

import (
	"context"
	"errors"
	"fmt"
	"time"

	"helm.sh/helm/v3/pkg/kube"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/cli-runtime/pkg/resource"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/pkg/plugin/exit"
)

// waiter is Helm's client, and shows what it waits for. It waits for the same as Helm's does.
type waiter struct {
	*kube.Client

	ctx  context.Context // Helm does not pass its context on
	hub  client.Client
	of   target
	show func(text string)
}

// waitFor returns Helm's client with a wait that shows its progress, and ends with ctx.
func waitFor(ctx context.Context, c kube.Interface, hub client.Client, of target, show func(string)) kube.Interface {
	if k, ok := c.(*kube.Client); ok {
		return &waiter{k, ctx, hub, of, show}
	}
	return c
}

// Wait implements kube.Interface.
func (w *waiter) Wait(resources kube.ResourceList, timeout time.Duration) error {
	clients, err := w.Factory.KubernetesClientSet()
	if err != nil {
		return fmt.Errorf("connecting to the hub: %w", err)
	}
	checker := kube.NewReadyChecker(clients, w.Log, kube.PausedAsReady(true))
	var waiting string
	err = wait.PollUntilContextTimeout(w.ctx, time.Second, timeout, true, func(ctx context.Context) (bool, error) {
		for i, info := range resources {
			ready, err := checker.IsReady(ctx, info)
			if err == nil && ready {
				continue
			}
			waiting = w.describe(ctx, info, err)
			w.show(fmt.Sprintf("%d of %d objects are ready; %s", i, len(resources), waiting))
			return false, nil // an API server that is away for a moment ends nothing
		}
		return true, nil
	})
	if w.ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return exit.New(exit.NotReady, fmt.Sprintf("When the cause is removed, run %s; it repairs the release.", w.of.command("upgrade")),
			"Rulefleet is applied, but was not ready within %v: %s", timeout, waiting)
	}
	return err
}

// describe says what is being waited for.
func (w *waiter) describe(ctx context.Context, info *resource.Info, err error) string {
	name := info.Mapping.GroupVersionKind.Kind + " " + info.Name
	var d appsv1.Deployment
	switch {
	case err != nil:
		return fmt.Sprintf("%s: %v", name, err)
	case info.Mapping.GroupVersionKind.Kind != "Deployment", w.hub.Get(ctx, client.ObjectKey{Namespace: info.Namespace, Name: info.Name}, &d) != nil:
		return name + " is not ready"
	}
	var pods corev1.PodList
	if s, err := metav1.LabelSelectorAsSelector(d.Spec.Selector); err == nil {
		_ = w.hub.List(ctx, &pods, client.InNamespace(d.Namespace), client.MatchingLabelsSelector{Selector: s}) // without this permission, it says less
	}
	return describeDeployment(&d, pods.Items)
}

// describeDeployment says how many pods of a Deployment are ready, and why one is not.
func describeDeployment(d *appsv1.Deployment, pods []corev1.Pod) string {
	out := fmt.Sprintf("Deployment %s/%s: %d of %d new pods are ready", d.Namespace, d.Name, min(d.Status.ReadyReplicas, d.Status.UpdatedReplicas), ptr.Deref(d.Spec.Replicas, 1))
	for _, c := range d.Status.Conditions {
		if c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue {
			return out + "; " + c.Reason + ": " + c.Message
		}
	}
	for i := range pods {
		if why := trouble(&pods[i]); why != "" {
			return fmt.Sprintf("%s; pod %s: %s", out, pods[i].Name, why)
		}
	}
	return out
}

// trouble says why a pod does not become ready, or nothing if it may only need time.
func trouble(p *corev1.Pod) string {
	for _, s := range p.Status.ContainerStatuses {
		switch {
		case s.State.Waiting != nil && s.State.Waiting.Reason != "ContainerCreating" && s.State.Waiting.Reason != "":
			return s.State.Waiting.Reason + ": " + s.State.Waiting.Message
		case s.State.Terminated != nil:
			return fmt.Sprintf("container %s ended with code %d: %s", s.Name, s.State.Terminated.ExitCode, s.State.Terminated.Reason)
		}
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return c.Reason + ": " + c.Message
		}
	}
	return ""
}
