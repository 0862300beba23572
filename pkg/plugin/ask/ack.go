package ask

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/plugin/env"
	"github.com/rulefleet/rulefleet/pkg/plugin/exit"
)

// acknowledged is the value of the annotation, which can be anything but "".
const acknowledged = "true"

// NewAck returns the command ack.
func NewAck(e *env.Env) *cobra.Command {
	var yes bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "ack SPOKE",
		Short: "Release the held deletions of a spoke",
		Long: `Release the held deletions of a spoke. The command lists at most 50 of them, says how many it would release,
and asks for a confirmation.

Deletions are held if they may be a mistake. All that have a time limit are released, also those that are not
listed. Of those that wait without a time limit, only the listed ones are released. If the SpokeCluster changes
after you have seen the list, nothing is released.`,
		Example:           "  kubectl rulefleet ack eu-prod-1",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: e.CompleteSpokeArg,
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask for a confirmation")
	env.AddTimeout(cmd, &timeout, 30*time.Second, true, "how long to wait until the manager has released the deletions; 0 does not wait")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := e.Hub.Connect()
		if err != nil {
			return err
		}
		return ack(cmd.Context(), e, c, args[0], yes, timeout)
	}
	return cmd
}

func ack(ctx context.Context, e *env.Env, c client.Client, name string, yes bool, timeout time.Duration) error {
	var s v1alpha1.SpokeCluster
	if err := c.Get(ctx, client.ObjectKey{Name: name}, &s); err != nil {
		return fmt.Errorf("reading SpokeCluster %s: %w", name, err)
	}
	d := s.Status.PendingDeletions
	if d == nil || d.Held == 0 {
		e.Say("No deletion of spoke %s is held. Nothing was changed.", name)
		return nil
	}
	e.Say("%s", describePending(d))
	for _, rule := range d.Names {
		e.Say("  %s", rule)
	}
	if err := e.Confirm(yes, whatAckReleases(name, d)); err != nil {
		return err
	}
	// The annotation releases what the status names at that time, so it is only set on what was shown.
	before := s.DeepCopy()
	metav1.SetMetaDataAnnotation(&s.ObjectMeta, v1alpha1.AcknowledgeDeletionsAnnotation, acknowledged)
	err := c.Patch(ctx, &s, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if apierrors.IsConflict(err) {
		return exit.New(exit.Failed, "Run the command again, and look at the new list.", "SpokeCluster %s changed in the meantime; nothing was released", name)
	}
	if err != nil {
		return fmt.Errorf("annotating SpokeCluster %s: %w", name, err)
	}
	if timeout == 0 {
		e.Say("Acknowledged. The manager releases the held deletions of spoke %s.", name)
		return nil
	}
	return awaitAck(ctx, e, c, name, timeout)
}

// awaitAck waits until the manager has removed the annotation, which it does when it has acted on it.
func awaitAck(ctx context.Context, e *env.Env, c client.Client, name string, timeout time.Duration) error {
	var s v1alpha1.SpokeCluster
	err := wait.PollUntilContextTimeout(ctx, time.Second/5, timeout, true, func(ctx context.Context) (bool, error) {
		if err := c.Get(ctx, client.ObjectKey{Name: name}, &s); err != nil {
			return false, fmt.Errorf("reading SpokeCluster %s: %w", name, err)
		}
		return s.Annotations[v1alpha1.AcknowledgeDeletionsAnnotation] == "", nil
	})
	if wait.Interrupted(err) {
		return exit.New(exit.NotReady, fmt.Sprintf("Check that the manager runs in Rulefleet's namespace on the hub. The acknowledgement stays set: when the manager acts on it, it also releases deletions that are held by then and that you have not seen. To withdraw it: kubectl annotate spoke %s %s-", name, v1alpha1.AcknowledgeDeletionsAnnotation),
			"the acknowledgement is set on SpokeCluster %s, but the manager has not acted on it within %v", name, timeout)
	}
	if err != nil {
		return err
	}
	e.Say("The held deletions of spoke %s continue.", name)
	if d := s.Status.PendingDeletions; d != nil && d.Suspect > 0 {
		e.Say("According to the status, %d deletions still wait for an acknowledgement. Review them, and then run the command again.", d.Suspect)
	}
	return nil
}

// whatAckReleases says what an acknowledgement releases: everything that has a time limit, and what is listed of the
// rest.
func whatAckReleases(name string, d *v1alpha1.PendingDeletions) string {
	listed := int32(len(d.Names))
	released := d.Held - d.Suspect + min(d.Suspect, listed)
	out := fmt.Sprintf("This releases %d deletions for spoke %s, of rules in the spoke and of generated AlertRules on the hub", released, name)
	if more := released - listed; more > 0 {
		out += fmt.Sprintf(" (%d of them are not listed)", more)
	}
	return out + ". Continue?"
}

// describePending says in words what a spoke still has to delete.
func describePending(d *v1alpha1.PendingDeletions) string {
	parts := []string{fmt.Sprintf("%d rules have to be removed from the spoke and are still there.", d.Count)}
	if d.Held > 0 {
		parts = append(parts, fmt.Sprintf("%d of these deletions are held.", d.Held))
	}
	if d.Suspect > 0 {
		parts = append(parts, fmt.Sprintf("%d of them have no time limit, and wait for an acknowledgement.", d.Suspect))
	}
	if int(d.Count) > len(d.Names) && len(d.Names) > 0 {
		parts = append(parts, fmt.Sprintf("The status lists %d of the %d rules.", len(d.Names), d.Count))
	}
	return strings.Join(parts, " ")
}
