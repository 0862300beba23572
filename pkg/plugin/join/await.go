package join

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/plugin/advice"
	"github.com/rulefleet/rulefleet/pkg/plugin/exit"
	"github.com/rulefleet/rulefleet/pkg/reasons"
)

// readingTime is how long the manager may take to read a new kubeconfig, and to report about it.
const readingTime = 15 * time.Second

// await waits until the spoke is Ready, and otherwise says what is missing.
func (j *joining) await(ctx context.Context) error {
	var s *v1alpha1.SpokeCluster
	progress := j.Progress()
	begun := time.Now()
	err := wait.PollUntilContextTimeout(ctx, time.Second/2, j.timeout, true, func(ctx context.Context) (bool, error) {
		var err error
		if s, err = j.read(ctx); err != nil {
			return false, err
		}
		before := j.present
		if time.Since(begun) > readingTime {
			before = nil
		}
		done, what := progressOf(s, before)
		if !done {
			progress.Show(what)
		}
		return done, nil
	})
	progress.Done()
	if err != nil && !wait.Interrupted(err) {
		return err
	}
	if s == nil {
		return exit.New(exit.NotReady, "Check that the manager runs, and that its namespace is "+j.namespace+": kubectl get pods -A -l app.kubernetes.io/name=rulefleet",
			"the spoke is registered, but there is no SpokeCluster %s after %v", j.name, j.timeout)
	}
	if err := verdict(s); err != nil {
		return err
	}
	ready := condition(s, v1alpha1.ConditionReady)
	j.Say("Spoke %s: %s (labels: %s)", j.name, ready.Message, describeLabels(j.labels))
	for _, kind := range []string{v1alpha1.ConditionEvaluatorsFound, v1alpha1.ConditionEvaluating, v1alpha1.ConditionMetricsPresent} {
		c := condition(s, kind)
		unknown := kind == v1alpha1.ConditionEvaluating && c.Status == metav1.ConditionUnknown && c.Reason != ""
		if (unknown || c.Status == metav1.ConditionFalse) && c.Message != ready.Message {
			j.Say("Note: %s: %s", c.Reason, c.Message)
		}
	}
	return nil
}

func (j *joining) read(ctx context.Context) (*v1alpha1.SpokeCluster, error) {
	s := &v1alpha1.SpokeCluster{}
	err := j.hub.Get(ctx, client.ObjectKey{Name: j.name}, s)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading SpokeCluster %s: %w", j.name, err)
	}
	return s, nil
}

func condition(s *v1alpha1.SpokeCluster, kind string) metav1.Condition {
	if c := meta.FindStatusCondition(s.Status.Conditions, kind); c != nil {
		return *c
	}
	return metav1.Condition{Type: kind, Status: metav1.ConditionUnknown}
}

// joined reports whether the spoke is Ready, or would be if it were not suspended.
func joined(s *v1alpha1.SpokeCluster) bool {
	connected, ready := condition(s, v1alpha1.ConditionConnected), condition(s, v1alpha1.ConditionReady)
	return connected.Status == metav1.ConditionTrue && connected.Reason != v1alpha1.ReasonKubeconfigNotUsed &&
		(ready.Status == metav1.ConditionTrue || ready.Reason == v1alpha1.ReasonSuspended)
}

// progressOf reports whether waiting has an end, and what is being waited for. before is the SpokeCluster as it was before the
// join, or nil.
func progressOf(s, before *v1alpha1.SpokeCluster) (done bool, what string) {
	if s == nil {
		return false, "the manager creates the SpokeCluster"
	}
	ready := condition(s, v1alpha1.ConditionReady)
	if joined(s) || reasons.Is(ready.Reason, reasons.Final) && !ofFormerKubeconfig(ready, before) {
		return true, ""
	}
	if ready.Message == "" {
		return false, "the manager connects to the spoke"
	}
	return false, ready.Message
}

// ofFormerKubeconfig reports whether a condition Ready may still be about the kubeconfig before the join: it is the same as
// before, and another kubeconfig may remove its reason.
func ofFormerKubeconfig(ready metav1.Condition, before *v1alpha1.SpokeCluster) bool {
	if before == nil || !reasons.Is(ready.Reason, reasons.Outage) {
		return false
	}
	was := condition(before, v1alpha1.ConditionReady)
	return was.Reason == ready.Reason && was.Message == ready.Message && was.LastTransitionTime.Equal(&ready.LastTransitionTime)
}

// verdict returns nil for a spoke that has joined, and an error that says what is missing otherwise.
func verdict(s *v1alpha1.SpokeCluster) error {
	if joined(s) {
		return nil
	}
	c := condition(s, v1alpha1.ConditionReady)
	if connected := condition(s, v1alpha1.ConditionConnected); connected.Reason == v1alpha1.ReasonKubeconfigNotUsed {
		c = connected
	}
	if c.Reason == "" {
		return exit.New(exit.NotReady, "Check that the manager runs: kubectl get pods -A -l app.kubernetes.io/name=rulefleet",
			"spoke %s is registered, but the manager has not reported about it yet", s.Name)
	}
	return exit.New(exit.NotReady, advice.Remedy(advice.OfSpoke, c.Reason, s.Name), "spoke %s is registered, but not Ready: %s: %s", s.Name, c.Reason, c.Message)
}
