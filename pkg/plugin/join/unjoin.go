package join

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/plugin/cluster"
	"github.com/rulefleet/rulefleet/pkg/plugin/env"
	"github.com/rulefleet/rulefleet/pkg/plugin/exit"
)

// unjoinOptions are the flags of unjoin.
type unjoinOptions struct {
	name, context       string
	orphan, yes, dryRun bool
	timeout             time.Duration
}

// NewUnjoin returns the command unjoin.
func NewUnjoin(e *env.Env) *cobra.Command {
	o := &unjoinOptions{}
	cmd := &cobra.Command{
		Use:   "unjoin NAME",
		Short: "Let a spoke leave: remove its rules, its registration and, with --spoke-context, its account",
		Long: `Let a spoke leave. The command shows what will be removed, with the number of rules, asks for a confirmation,
and deletes the SpokeCluster and the Secret on the hub. With --spoke-context, it also deletes the account in the
spoke, which revokes all of its tokens, unless another hub has rules there. The namespace of the account stays.

All rules of this hub are removed from the spoke at once, unless you set --orphan, the deletionPolicy of the
SpokeCluster is Orphan, or the spoke is suspended.`,
		Example: `  kubectl rulefleet unjoin eu-prod-1 --spoke-context eu-prod-1
  kubectl rulefleet unjoin eu-prod-1 --orphan --yes`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: e.CompleteSpokeArg,
	}
	f := cmd.Flags()
	f.StringVar(&o.context, "spoke-context", "", "the `context` of the spoke in your kubeconfig; without it, the account in the spoke stays")
	f.BoolVar(&o.orphan, "orphan", false, "leave the rules in the spoke")
	f.BoolVarP(&o.yes, "yes", "y", false, "do not ask for a confirmation")
	f.BoolVar(&o.dryRun, "dry-run", false, "only show what would be removed")
	env.AddTimeout(cmd, &o.timeout, 3*time.Minute, false, "how long to wait until the rules are removed; it should be longer than the chart value leaveTimeout, which is 2m by default")
	_ = cmd.RegisterFlagCompletionFunc("spoke-context", e.CompleteContexts)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o.name = args[0]
		u := &unjoining{Env: e, unjoinOptions: o, namespace: e.Hub.SystemNamespace()}
		return u.run(cmd.Context())
	}
	return cmd
}

type unjoining struct {
	*env.Env
	*unjoinOptions

	namespace string
	hub       client.Client
	spoke     *cluster.Spoke
	present   *v1alpha1.SpokeCluster // nil if it is gone already
	hubID     string
}

func (u *unjoining) run(ctx context.Context) error {
	if err := u.look(ctx); err != nil {
		return err
	}
	u.describe()
	if u.dryRun {
		return nil
	}
	if err := u.Confirm(u.yes, fmt.Sprintf("Let spoke %s leave?", u.name)); err != nil {
		return err
	}
	if err := u.leave(ctx); err != nil {
		return err
	}
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: u.namespace, Name: u.name}}
	if err := client.IgnoreNotFound(u.hub.Delete(ctx, s)); err != nil {
		return fmt.Errorf("deleting Secret %s/%s on the hub: %w", u.namespace, u.name, err)
	}
	u.Say("Spoke %s has left the hub.", u.name)
	if u.spoke == nil {
		u.Say("The account stays in the spoke. To revoke it, if no other hub uses it: kubectl --context SPOKE -n %s delete serviceaccount %s", cluster.DefaultNamespace, account)
		return nil
	}
	return u.revoke(ctx)
}

// look reads what is there, and checks that nothing else would be removed.
func (u *unjoining) look(ctx context.Context) (err error) {
	if u.hub, err = u.Hub.Connect(); err != nil {
		return err
	}
	if err := permit(ctx, u.hub, onHub, u.hubRights()); err != nil {
		return err
	}
	present := &v1alpha1.SpokeCluster{}
	err = u.hub.Get(ctx, client.ObjectKey{Name: u.name}, present)
	switch {
	case err == nil:
		u.present = present
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("reading SpokeCluster %s: %w", u.name, err)
	}
	if err := u.checkSecret(ctx); err != nil {
		return err
	}
	if u.context == "" {
		return nil
	}
	if u.spoke, err = u.Hub.Spoke(u.context); err != nil {
		return err
	}
	objects, err := accountObjects(u.spoke.Client)
	if err != nil {
		return err
	}
	if err := permit(ctx, u.spoke.Client, "in the spoke", revocationRights(objects)); err != nil {
		return err
	}
	uid, err := identity(ctx, u.spoke.Client)
	if err != nil {
		return err
	}
	if u.present != nil && u.present.Status.Identity != "" && u.present.Status.Identity != uid {
		return exit.New(exit.Usage, "Select the context of the spoke with --spoke-context.", "context %s is not the cluster of spoke %s", u.context, u.name)
	}
	var id corev1.ConfigMap
	if err := u.hub.Get(ctx, client.ObjectKey{Namespace: u.namespace, Name: hubConfigMap}, &id); err != nil {
		return fmt.Errorf("reading the id of the hub, to find out whether another hub uses the account in the spoke: %w", err)
	}
	u.hubID = id.Data["id"]
	return nil
}

// hubConfigMap has the id of the hub, which tells its rules in a spoke from those of other hubs.
const hubConfigMap = "rulefleet-hub"

// hubRights returns the rights that the person needs on the hub.
func (u *unjoining) hubRights() []cluster.Right {
	out := []cluster.Right{
		{Verb: "get", Group: v1alpha1.Group, Resource: "spokeclusters", Name: u.name},
		{Verb: "delete", Group: v1alpha1.Group, Resource: "spokeclusters", Name: u.name},
		{Verb: "get", Resource: "secrets", Namespace: u.namespace, Name: u.name},
		{Verb: "delete", Resource: "secrets", Namespace: u.namespace, Name: u.name},
	}
	if u.orphan {
		out = append(out, cluster.Right{Verb: "patch", Group: v1alpha1.Group, Resource: "spokeclusters", Name: u.name})
	}
	if u.context != "" {
		out = append(out, cluster.Right{Verb: "get", Resource: "configmaps", Namespace: u.namespace, Name: hubConfigMap})
	}
	return out
}

// checkSecret refuses a name that belongs to neither a spoke nor a registration.
func (u *unjoining) checkSecret(ctx context.Context) error {
	var s corev1.Secret
	err := u.hub.Get(ctx, client.ObjectKey{Namespace: u.namespace, Name: u.name}, &s)
	if apierrors.IsNotFound(err) {
		if u.present == nil && u.context == "" {
			return exit.NoSpoke(u.name)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading Secret %s/%s on the hub: %w", u.namespace, u.name, err)
	}
	if !isRegistration(&s) {
		return exit.New(exit.Failed, "List the spokes: kubectl rulefleet spokes", "Secret %s/%s on the hub is not the registration of a spoke", u.namespace, u.name)
	}
	return nil
}

// describe says what will be removed.
func (u *unjoining) describe() {
	if u.present == nil {
		u.Say("There is no SpokeCluster %s on the hub.", u.name)
		return
	}
	rules := ""
	if n := u.present.Status.Rules; n != nil {
		rules = fmt.Sprintf(" (%d when last counted)", *n)
	}
	switch {
	case u.orphan || u.present.Spec.DeletionPolicy == v1alpha1.DeletionPolicyOrphan:
		u.Say("The rules in spoke %s%s stay there, and Rulefleet no longer manages them.", u.name, rules)
	case u.present.Spec.Suspend != nil && *u.present.Spec.Suspend:
		u.Say("Spoke %s is suspended: its rules%s stay there, and Rulefleet no longer manages them.", u.name, rules)
	default:
		u.Say("All rules of this hub in spoke %s%s will be removed at once.", u.name, rules)
	}
	u.Say("On the hub: SpokeCluster %s, the AlertRules that were generated for its workloads, and Secret %s/%s will be deleted.", u.name, u.namespace, u.name)
	if u.spoke != nil {
		u.Say("In the spoke (context %s): ServiceAccount %s/%s, its roles, its policy, their bindings and the Secret of its tokens will be deleted.", u.context, cluster.DefaultNamespace, account)
	}
}

// leave deletes the SpokeCluster that was shown, and waits until the manager has released it.
func (u *unjoining) leave(ctx context.Context) error {
	if u.present == nil {
		return nil
	}
	if u.orphan && u.present.Spec.DeletionPolicy != v1alpha1.DeletionPolicyOrphan {
		changed := u.present.DeepCopy()
		changed.Spec.DeletionPolicy = v1alpha1.DeletionPolicyOrphan
		if err := u.hub.Patch(ctx, changed, client.MergeFrom(u.present)); err != nil {
			return fmt.Errorf("setting the deletionPolicy of SpokeCluster %s: %w", u.name, err)
		}
	}
	uid := u.present.UID
	if err := client.IgnoreNotFound(u.hub.Delete(ctx, u.present, client.Preconditions{UID: &uid})); err != nil {
		return fmt.Errorf("deleting SpokeCluster %s: %w", u.name, err)
	}
	progress := u.Progress()
	err := wait.PollUntilContextTimeout(ctx, time.Second/2, u.timeout, true, func(ctx context.Context) (bool, error) {
		var s v1alpha1.SpokeCluster
		err := u.hub.Get(ctx, client.ObjectKey{Name: u.name}, &s)
		if apierrors.IsNotFound(err) || err == nil && s.UID != uid {
			return true, nil
		}
		if err != nil {
			return false, fmt.Errorf("reading SpokeCluster %s: %w", u.name, err)
		}
		progress.Show(cmp.Or(condition(&s, v1alpha1.ConditionReady).Message, "the manager lets the spoke leave"))
		return false, nil
	})
	progress.Done()
	if wait.Interrupted(err) {
		return exit.New(exit.NotReady, "Check that the manager runs, and run the command again. The Secret on the hub and the account in the spoke are still there.",
			"SpokeCluster %s is not gone after %v", u.name, u.timeout)
	}
	if err != nil {
		return err
	}
	u.leftBehind(ctx, string(uid))
	return nil
}

// leftBehind repeats the Event about rules that are still in the spoke. Events expire, and it is only a hint.
func (u *unjoining) leftBehind(ctx context.Context, uid string) {
	var events corev1.EventList
	if err := u.hub.List(ctx, &events, client.InNamespace(metav1.NamespaceDefault), client.MatchingFields{"involvedObject.uid": uid, "reason": "LeftBehind"}); err != nil {
		return
	}
	for i := range events.Items {
		u.Say("%s", events.Items[i].Message)
	}
}

// revoke deletes the account in the spoke, unless another hub may use it. The namespace stays, because it may
// have other objects.
func (u *unjoining) revoke(ctx context.Context) error {
	others, err := u.otherHubs(ctx)
	if err != nil {
		return err
	}
	if len(others) > 0 {
		return exit.New(exit.Failed, "If that hub no longer uses the account: kubectl --context "+u.context+" -n "+cluster.DefaultNamespace+" delete serviceaccount "+account,
			"the account in the spoke stays, because another hub has rules there (id %s) and may use it", strings.Join(others, ", "))
	}
	// When the Secret that they are bound to is gone, the tokens are dead, whatever happens next.
	if err := u.spoke.Client.Delete(ctx, boundTo()); client.IgnoreNotFound(err) != nil && !apierrors.IsForbidden(err) {
		return fmt.Errorf("deleting Secret %s/%s in the spoke: %w", cluster.DefaultNamespace, boundSecret, err)
	}
	objects, err := accountObjects(u.spoke.Client)
	if err != nil {
		return err
	}
	for _, o := range slices.Backward(objects) {
		if err := client.IgnoreNotFound(u.spoke.Client.Delete(ctx, o)); err != nil {
			return fmt.Errorf("deleting %s %s in the spoke: %w", o.GetKind(), o.GetName(), err)
		}
	}
	if err := u.spoke.Client.Delete(ctx, staticToken()); client.IgnoreNotFound(err) != nil && !apierrors.IsForbidden(err) {
		return fmt.Errorf("deleting the token in the spoke: %w", err)
	}
	u.Say("The account in the spoke is deleted, and its tokens are revoked. Namespace %s stays there.", cluster.DefaultNamespace)
	return nil
}

// accountObjects returns the objects of the account in a spoke and of its policy, without the namespace.
func accountObjects(spoke client.Client) ([]*unstructured.Unstructured, error) {
	objects, _, err := accessObjects()
	if err != nil {
		return nil, err
	}
	objects = slices.DeleteFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetKind() == kindNamespace })
	served, err := servesPolicies(spoke)
	if err != nil || !served {
		return objects, err
	}
	policy, err := policyObjects()
	return append(objects, policy...), err
}

// otherHubs returns the ids of other hubs that have rules in the spoke.
func (u *unjoining) otherHubs(ctx context.Context) ([]string, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: monitoringGroup, Version: "v1", Kind: "PrometheusRuleList"})
	err := u.spoke.Client.List(ctx, list, client.MatchingLabels{v1alpha1.ManagedByLabel: v1alpha1.ManagedByValue})
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing the rules of other hubs in the spoke: %w", err)
	}
	var out []string
	for i := range list.Items {
		if id := list.Items[i].Labels[v1alpha1.HubLabel]; id != "" && id != u.hubID && !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	slices.Sort(out)
	return out, nil
}
