package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/plugin/exit"
	"github.com/rulefleet/rulefleet/pkg/plugin/why"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
)

// askWhy returns what kubectl rulefleet why says about a rule in a spoke: all steps, and the first that is not ok, or nil.
func askWhy(t *testing.T, hub *fleet.Member, key client.ObjectKey, spoke string) (steps []why.Link, broken *why.Link, err error) {
	t.Helper()
	code, out, failure := pluginFor(t, hub).run(t, "why", "alertrule/"+key.Name, "-n", key.Namespace, "--cluster", spoke, "-o", "json")
	var answer struct {
		Links []why.Link `json:"links"`
	}
	if err := json.Unmarshal([]byte(out), &answer); err != nil {
		return nil, nil, fmt.Errorf("exit code %d, %s: %w", code, failure, err)
	}
	broken = why.Broken(answer.Links)
	if want := map[bool]int{true: exit.OK, false: exit.NotReady}[broken == nil]; code != want {
		t.Errorf("the exit code is %d, want %d", code, want)
	}
	return answer.Links, broken, nil
}

// explained waits until why names a step of a rule in the first spoke as the first that is not ok, or else as unknown, with
// all parts in what it says about it, and with what fixes it.
func (e *evaluating) explained(t *testing.T, key client.ObjectKey, state why.State, step string, parts ...string) {
	t.Helper()
	within(t, linkLimit, fmt.Sprintf("why says that the step %q of %s is %s", step, key.Name, state), func(context.Context) error {
		steps, link, err := askWhy(t, e.Hub, key, spokeA)
		if err != nil {
			return err
		}
		if i := slices.IndexFunc(steps, func(l why.Link) bool { return l.Name == step }); link == nil && i >= 0 {
			link = &steps[i]
		}
		if link == nil || link.Name != step || link.State != state || link.Fix == "" {
			return fmt.Errorf("it says %+v", link)
		}
		for _, part := range parts {
			if !strings.Contains(link.Evidence+"\n"+link.Fix, part) {
				return fmt.Errorf("it does not say %q: %+v", part, link)
			}
		}
		return nil
	})
}

// works waits until a rule is evaluated in the first spoke, and why finds no fault.
func (e *evaluating) works(t *testing.T, key client.ObjectKey) {
	t.Helper()
	e.evaluates(t, key, spokeA)
	within(t, linkLimit, "why finds no fault of "+key.Name, func(context.Context) error {
		steps, broken, err := askWhy(t, e.Hub, key, spokeA)
		if err != nil {
			return err
		}
		if broken != nil || slices.ContainsFunc(steps, func(l why.Link) bool { return l.State != why.OK }) {
			return fmt.Errorf("it says %+v", steps)
		}
		return nil
	})
}

// stepsOf has the steps that can have a reason of a SpokeCluster's condition Ready.
var stepsOf = map[string][]string{
	v1alpha1.ReasonUnreachable:     {"connection"},
	v1alpha1.ReasonThrottled:       {"connection"},
	v1alpha1.ReasonAuthFailed:      {"connection"},
	v1alpha1.ReasonIdentityChanged: {"connection"},
	v1alpha1.ReasonCRDMissing:      {"kinds and permissions"},
	v1alpha1.ReasonForbidden:       {"connection", "kinds and permissions"},
}

// explained asks the plugin why rules do not work in the spoke. It has to name the step that the fault breaks, and the
// reason that is shown.
func (r *fault) explained(status metav1.ConditionStatus, reason string) {
	r.t.Helper()
	within(r.t, shownWithin, "why explains "+reason, func(ctx context.Context) error {
		key, steps := client.ObjectKey{Namespace: fleet.Namespace, Name: r.name + "-rule-1"}, stepsOf[reason]
		if status == metav1.ConditionTrue {
			if key, reason = r.failing(ctx); reason == "" {
				return fmt.Errorf("no AlertRule fails in %s", r.name)
			}
			steps = []string{"written"}
		}
		_, broken, err := askWhy(r.t, r.Hub, key, r.name)
		if err != nil {
			return err
		}
		if broken == nil || !slices.Contains(steps, broken.Name) || !strings.Contains(broken.Evidence, reason) || broken.Fix == "" {
			return fmt.Errorf("it says %+v, want one of the steps %q", broken, steps)
		}
		r.t.Logf("%s: why says: %s", r.title, broken.Fix)
		return nil
	})
}

// failing returns an AlertRule that is not written to the spoke, and the reason.
func (r *fault) failing(ctx context.Context) (client.ObjectKey, string) {
	var list v1alpha1.AlertRuleList
	if err := r.Hub.Client.List(ctx, &list); err != nil {
		return client.ObjectKey{}, ""
	}
	for i := range list.Items {
		ar := &list.Items[i]
		if at := row(ar, r.name); at != nil && at.Phase == v1alpha1.PhasePending && at.Reason != v1alpha1.ReasonWaiting && at.ObservedGeneration == ar.Generation {
			return client.ObjectKeyFromObject(ar), at.Reason
		}
	}
	return client.ObjectKey{}, ""
}
