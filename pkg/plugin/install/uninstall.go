package install

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/release"
	"helm.sh/helm/v3/pkg/storage/driver"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/plugin/advice"
	"github.com/rulefleet/rulefleet/pkg/plugin/cluster"
	"github.com/rulefleet/rulefleet/pkg/plugin/env"
	"github.com/rulefleet/rulefleet/pkg/plugin/exit"
	"github.com/rulefleet/rulefleet/pkg/plugin/output"
)

// NewUninstall returns the command uninstall.
func NewUninstall(e *env.Env) *cobra.Command {
	u := &uninstallation{Env: e}
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Uninstall Rulefleet from the hub",
		Long: `Uninstall Rulefleet from the hub. The command lists the registered spokes, and asks for a confirmation. Finally, it
prints what stays on the hub. --dry-run prints what would be removed.

The CustomResourceDefinitions stay, and with them all AlertRules, RulePacks, templates and SpokeClusters, unless the
chart was installed with crds.keep=false. The rules in the spokes stay as well. To remove them, let every spoke leave
first: kubectl rulefleet unjoin NAME`,
		Example:           "  kubectl rulefleet uninstall\n  kubectl rulefleet uninstall --dry-run -o name",
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	u.addReleaseFlag(cmd)
	f := cmd.Flags()
	f.BoolVarP(&u.yes, "yes", "y", false, "do not ask for a confirmation")
	f.BoolVar(&u.wait, "wait", true, "wait until all objects of the release are gone")
	env.AddTimeout(cmd, &u.timeout, 5*time.Minute, false, "how long to wait, also for the Job that releases the SpokeClusters")
	f.BoolVar(&u.noHooks, "no-hooks", false, "skip the Job that removes the finalizers from the SpokeClusters; use it if no pod can run on the hub")
	f.BoolVar(&u.dryRun, "dry-run", false, "print the objects that would be removed, and write nothing")
	p := e.Printer(cmd, output.FormatYAML, output.FormatJSON, output.FormatName)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		u.p = p
		return u.run(cmd.Context())
	}
	return cmd
}

// uninstallation is what uninstall does.
type uninstallation struct {
	*env.Env
	options

	p            *output.Printer
	yes, noHooks bool

	target      target
	hub         client.Client
	helm        *action.Configuration
	last        *release.Release
	gone, stays []document
}

func (u *uninstallation) run(ctx context.Context) error {
	if err := u.prepare(ctx); err != nil {
		return err
	}
	if u.dryRun {
		if err := show(u.p, u.gone); err != nil {
			return err
		}
		u.Say("These objects would be removed. Nothing was written.")
		return u.describe(ctx)
	}
	u.Say("Uninstalling Rulefleet %s: release %s in namespace %s", u.last.Chart.Metadata.Version, u.releaseName, u.target.namespace)
	if err := u.describe(ctx); err != nil {
		return err
	}
	if err := u.Confirm(u.yes, fmt.Sprintf("Uninstall Rulefleet from the hub (namespace %s)?", u.target.namespace)); err != nil {
		return err
	}
	if err := u.act(ctx); err != nil {
		return err
	}
	u.Say("Rulefleet is uninstalled.")
	u.sayWhatStays()
	return nil
}

// prepare checks everything that can be checked without a write.
func (u *uninstallation) prepare(ctx context.Context) error {
	err := u.p.Check()
	if err != nil {
		return err
	}
	u.target = target{u.releaseName, u.Hub.SystemNamespace()}
	if err := u.target.check(); err != nil {
		return err
	}
	if u.hub, err = u.Hub.Connect(); err != nil {
		return err
	}
	if u.helm, err = u.Hub.Helm(u.target.namespace); err != nil {
		return err
	}
	needed := []cluster.Right{}
	for _, verb := range []string{"list", "update", "delete"} {
		needed = append(needed, cluster.Right{Verb: verb, Resource: "secrets", Namespace: u.target.namespace})
	}
	u.last, err = u.helm.Releases.Last(u.releaseName)
	switch {
	case apierrors.IsForbidden(err): // all that is known without the release
		return permit(ctx, u.hub, u.target.namespace, needed, nil, true)
	case errors.Is(err, driver.ErrReleaseNotFound):
		return missingRelease(ctx, u.hub, u.target, "Select the hub with --context, and the namespace with --namespace.")
	case err != nil:
		return fmt.Errorf("reading release %s in namespace %s: %w", u.releaseName, u.target.namespace, err)
	}
	documents, err := parse(u.last.Manifest)
	if err != nil {
		return err
	}
	for _, d := range documents {
		if kept(d) {
			u.stays = append(u.stays, d)
		} else {
			u.gone = append(u.gone, d)
		}
	}
	hooks, err := u.hooks()
	if err != nil {
		return err
	}
	rights, err := u.rights(hooks)
	if err != nil {
		return err
	}
	granted, err := grants(hooks)
	if err != nil {
		return err
	}
	return permit(ctx, u.hub, u.target.namespace, append(needed, rights...), granted, false)
}

// permit returns an error if the person lacks rights, or rights to grant others, or if the releases in a namespace could
// not be read.
func permit(ctx context.Context, hub client.Client, namespace string, needed, granted []cluster.Right, unread bool) error {
	missing, err := lacking(ctx, hub, needed, granted)
	if err != nil {
		return fmt.Errorf("on the hub: %w", err)
	}
	if err := cluster.Denied("on the hub", missing); err != nil {
		return err
	}
	if unread { // the API server contradicts itself
		return exit.New(exit.Denied, "Ask an administrator of the hub for the permission to list Secrets in namespace "+namespace+".",
			"the hub does not let you read the releases in namespace %s", namespace)
	}
	return nil
}

// hooks returns the objects that Helm creates when the release is gone, and then deletes.
func (u *uninstallation) hooks() ([]document, error) {
	if u.noHooks {
		return nil, nil
	}
	var out []document
	for _, h := range u.last.Hooks {
		if slices.Contains(h.Events, release.HookPostDelete) || slices.Contains(h.Events, release.HookPreDelete) {
			documents, err := parse(h.Manifest)
			if err != nil {
				return nil, err
			}
			out = append(out, documents...)
		}
	}
	return out, nil
}

func (u *uninstallation) rights(hooks []document) ([]cluster.Right, error) {
	out, err := rights(u.hub.RESTMapper(), u.gone, u.target.namespace, func(document) []string {
		if u.wait {
			return []string{"delete", "get"}
		}
		return []string{"delete"}
	})
	if err != nil {
		return nil, err
	}
	more, err := rights(u.hub.RESTMapper(), hooks, u.target.namespace, func(d document) []string {
		if d.GetKind() == "Job" {
			return []string{"get", "list", "watch", "create", "delete"}
		}
		return []string{"get", "create", "delete"}
	})
	return append(out, more...), err
}

// act uninstalls the release. Helm's own function does not end with the context.
func (u *uninstallation) act(ctx context.Context) error {
	un := action.NewUninstall(u.helm)
	un.Wait, un.Timeout, un.DisableHooks = u.wait, u.timeout, u.noHooks
	progress := u.Progress()
	progress.Show("the objects of the release are removed, and then a Job releases the SpokeClusters")
	done := make(chan error, 1)
	go func() {
		_, err := un.Run(u.releaseName)
		done <- err
	}()
	var err error
	select {
	case <-ctx.Done():
		err = ctx.Err()
	case err = <-done:
	}
	progress.Done()
	if err == nil {
		return nil
	}
	if _, left := u.helm.Releases.Last(u.releaseName); errors.Is(left, driver.ErrReleaseNotFound) { // Helm has forgotten it
		return exit.New(exit.NotReady, "SpokeClusters may still have a finalizer, so that they can't be deleted. To remove it, see "+advice.Docs+"docs/how-to/install.md#uninstall",
			"Rulefleet is uninstalled, but: %w", err)
	}
	code, _ := exit.Of(err)
	return exit.New(code, "Run the command again; it continues with what is left. If no pod can run on the hub, add --no-hooks.",
		"uninstalling Rulefleet: %w", err)
}

// describe says what stays, and what does not.
func (u *uninstallation) describe(ctx context.Context) error {
	var spokes v1alpha1.SpokeClusterList
	err := u.hub.List(ctx, &spokes)
	switch {
	case meta.IsNoMatchError(err), apierrors.IsForbidden(err), apierrors.IsNotFound(err): // it is only a hint
	case err != nil:
		return fmt.Errorf("listing the SpokeClusters: %w", err)
	case len(spokes.Items) > 0:
		u.Say("Registered spokes: %s. The rules stay there, and Prometheus continues to evaluate them.", spokeNames(spokes.Items))
		u.Say("To remove the rules, let the spokes leave first: kubectl rulefleet unjoin NAME --spoke-context CONTEXT")
	}
	if slices.ContainsFunc(u.gone, func(d document) bool { return d.GetKind() == kindCRD }) {
		u.Say("Warning: crds.keep is false. The CustomResourceDefinitions are deleted, and with them all AlertRules, RulePacks, templates and SpokeClusters.")
	}
	return nil
}

// spokeNames lists the first names of some spokes.
func spokeNames(spokes []v1alpha1.SpokeCluster) string {
	const most = 10
	var names []string
	for i := range spokes {
		names = append(names, spokes[i].Name)
	}
	slices.Sort(names)
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}

// sayWhatStays names what an uninstallation leaves on the hub, and how to remove it.
func (u *uninstallation) sayWhatStays() {
	if len(u.stays) > 0 {
		names := make([]string, 0, len(u.stays))
		for _, d := range u.stays {
			names = append(names, d.GetName())
		}
		slices.Sort(names)
		u.Say("These CustomResourceDefinitions stay, with all AlertRules, RulePacks, templates and SpokeClusters: %s", strings.Join(names, ", "))
	}
	u.Say("The namespace %s stays, with the kubeconfigs of the spokes and the hub's id. If you install Rulefleet again, it continues from there.", u.target.namespace)
	u.Say("To remove everything, see %sdocs/how-to/install.md#uninstall", advice.Docs)
}
