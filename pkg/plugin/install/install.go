package install

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/cli/values"
	"helm.sh/helm/v3/pkg/release"
	"helm.sh/helm/v3/pkg/storage/driver"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/pkg/plugin/env"
	"github.com/rulefleet/rulefleet/pkg/plugin/exit"
	"github.com/rulefleet/rulefleet/pkg/plugin/output"
)

const (
	// defaultRelease is the name of the release in the documentation.
	defaultRelease = "rulefleet"
	// maxHistory is the number of revisions that the helm command keeps by default.
	maxHistory = 10
)

// options are the flags of the commands.
type options struct {
	values                       values.Options
	releaseName                  string
	timeout                      time.Duration
	createNamespace, resetValues bool
	wait, dryRun, allowDowngrade bool
}

func (o *options) addReleaseFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.releaseName, "release-name", defaultRelease, "the `name` of the Helm release")
}

func (o *options) addValueFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringSliceVarP(&o.values.ValueFiles, "values", "f", nil, "a `file` or URL with values of the chart, or - for the standard input; can be repeated")
	f.StringArrayVar(&o.values.Values, "set", nil, "a value of the chart, such as replicas=1; can be repeated")
	f.StringArrayVar(&o.values.StringValues, "set-string", nil, "a value of the chart that is a string, such as image.tag=1.0; can be repeated")
	_ = cmd.MarkFlagFilename("values", "yaml", "yml")
	o.addReleaseFlag(cmd)
}

// addFlags adds the flags of install and upgrade.
func (o *options) addFlags(cmd *cobra.Command) {
	o.addValueFlags(cmd)
	f := cmd.Flags()
	f.BoolVar(&o.wait, "wait", true, "wait until the manager is ready")
	env.AddTimeout(cmd, &o.timeout, 5*time.Minute, false, "how long to wait")
	f.BoolVar(&o.dryRun, "dry-run", false, "check everything, print the objects, and write nothing")
	f.BoolVar(&o.allowDowngrade, "allow-downgrade", false, "replace CustomResourceDefinitions and releases of a newer version")
}

// New returns the command install.
func New(e *env.Env) *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Install Rulefleet on the hub",
		Long: `Install Rulefleet on the hub, with the Helm chart that the plugin contains. Helm is not needed. The helm command
sees the same release: helm list -n rulefleet-system.

The command checks your permissions, the version of the API server, and what is installed already, before it
writes anything. --namespace selects another namespace than rulefleet-system.`,
		Example: `  kubectl rulefleet install
  kubectl rulefleet install --values values.yaml --set replicas=1
  kubectl rulefleet install --dry-run -o name`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	o.addFlags(cmd)
	cmd.Flags().BoolVar(&o.createNamespace, "create-namespace", true, "create the namespace if it does not exist")
	p := e.Printer(cmd, output.FormatYAML, output.FormatJSON, output.FormatName)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return (&operation{Env: e, options: o, p: p}).run(cmd.Context())
	}
	return cmd
}

// NewUpgrade returns the command upgrade.
func NewUpgrade(e *env.Env) *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:   "upgrade",
		Short: "Upgrade Rulefleet on the hub, or change its values",
		Long: `Upgrade Rulefleet on the hub to the version of the plugin, or change its values. It also repairs an installation
or upgrade that failed.

The values that you set earlier stay, unless the command line has others. This includes image.tag: set the tag of the
new image. --reset-values drops the earlier values. The CustomResourceDefinitions are upgraded, too.`,
		Example: `  kubectl rulefleet upgrade --set-string image.tag=0.2.0
  kubectl rulefleet upgrade --reset-values --values values.yaml`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	o.addFlags(cmd)
	cmd.Flags().BoolVar(&o.resetValues, "reset-values", false, "drop the values that were set earlier")
	p := e.Printer(cmd, output.FormatYAML, output.FormatJSON, output.FormatName)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return (&operation{Env: e, options: o, p: p, upgrade: true}).run(cmd.Context())
	}
	return cmd
}

// operation is an installation or an upgrade.
type operation struct {
	*env.Env
	*options

	p       *output.Printer
	upgrade bool

	target    target
	hub       client.Client
	helm      *action.Configuration
	chart     *chart.Chart
	vals      map[string]any
	last      *release.Release // the last revision of the release, or nil
	current   *release.Release // the last revision that worked, or else the last one
	unread    bool             // the person may not read the releases
	missing   bool             // the namespace does not exist
	documents []document
}

func (o *operation) run(ctx context.Context) error {
	if err := o.prepare(ctx); err != nil {
		return err
	}
	if o.dryRun {
		return o.preview(ctx)
	}
	what, done := "Installing Rulefleet "+o.version(), fmt.Sprintf("Rulefleet %s is installed", o.version())
	if o.upgrade {
		what, done = fmt.Sprintf("Upgrading Rulefleet from %s to %s", o.current.Chart.Metadata.Version, o.version()), "Rulefleet is upgraded to "+o.version()
	}
	o.Say("%s: release %s in namespace %s, on Kubernetes %s", what, o.releaseName, o.target.namespace, o.helm.Capabilities.KubeVersion.Version)
	progress := o.Progress()
	o.helm.KubeClient = waitFor(ctx, o.helm.KubeClient, o.hub, o.target, progress.Show)
	rel, err := o.act(ctx)
	progress.Done()
	if err != nil {
		return o.describeFailure(err)
	}
	if !o.wait {
		o.Say("%s (revision %d). Its pods may not be ready yet: kubectl -n %s get pods", done, rel.Version, o.target.namespace)
		return nil
	}
	o.Say("%s and ready (revision %d).", done, rel.Version)
	if !o.upgrade {
		o.Say("Next, register a spoke: kubectl rulefleet join NAME --spoke-context CONTEXT")
	}
	return nil
}

func (o *operation) version() string { return o.chart.Metadata.Version }

// prepare checks everything that can be checked without a write.
func (o *operation) prepare(ctx context.Context) error {
	err := o.p.Check()
	if err != nil {
		return err
	}
	o.target = target{o.releaseName, o.Hub.SystemNamespace()}
	if err := o.target.check(); err != nil {
		return err
	}
	if o.chart, err = load(o.Release); err != nil {
		return err
	}
	given, err := merge(&o.values)
	if err != nil {
		return err
	}
	if o.hub, err = o.Hub.Connect(); err != nil {
		return err
	}
	if o.helm, err = o.Hub.Helm(o.target.namespace); err != nil {
		return err
	}
	if err := checkServer(o.chart, o.helm.Capabilities.KubeVersion.Version); err != nil {
		return err
	}
	if err := o.readReleases(); err != nil {
		return err
	}
	o.vals = given
	if o.current != nil && !o.resetValues {
		o.vals = chartutil.CoalesceTables(given, o.current.Config)
	}
	rel, err := render(o.chart, o.target, o.vals, o.helm.Capabilities, o.upgrade)
	if err != nil {
		return err
	}
	if o.documents, err = parse(rel.Manifest); err != nil {
		return err
	}
	return o.preflight(ctx)
}

// readReleases reads the last revision, and that with the values in use, which are different if an upgrade failed.
func (o *operation) readReleases() error {
	last, err := o.helm.Releases.Last(o.releaseName)
	switch {
	case apierrors.IsForbidden(err):
		o.unread = true // the preflight names this permission, along with others
		return nil
	case errors.Is(err, driver.ErrReleaseNotFound):
		return nil
	case err != nil:
		return fmt.Errorf("reading release %s in namespace %s: %w", o.releaseName, o.target.namespace, err)
	}
	o.last = last
	if !o.upgrade {
		return nil
	}
	o.current, err = o.helm.Releases.Deployed(o.releaseName)
	if errors.Is(err, driver.ErrNoDeployedReleases) {
		o.current, err = last, nil
	}
	if err != nil {
		return fmt.Errorf("reading release %s in namespace %s: %w", o.releaseName, o.target.namespace, err)
	}
	return nil
}

func (o *operation) act(ctx context.Context) (*release.Release, error) {
	if o.upgrade {
		up := action.NewUpgrade(o.helm)
		up.Namespace, up.MaxHistory = o.target.namespace, maxHistory
		up.Wait, up.Timeout, up.DryRun = o.wait, o.timeout, o.dryRun
		up.ResetValues = true // o.vals have the earlier ones
		return up.RunWithContext(ctx, o.releaseName, o.chart, o.vals)
	}
	in := action.NewInstall(o.helm)
	in.ReleaseName, in.Namespace, in.CreateNamespace = o.releaseName, o.target.namespace, o.missing
	in.Wait, in.Timeout, in.DryRun = o.wait, o.timeout, o.dryRun
	in.Replace = o.last != nil // helm uninstall --keep-history leaves one
	return in.RunWithContext(ctx, o.chart, o.vals)
}

// preview prints what would be applied.
func (o *operation) preview(ctx context.Context) error {
	// Helm has checks of its own, such as that of the API server's schema.
	if _, err := o.act(ctx); err != nil {
		return fmt.Errorf("checking the release: %w", err)
	}
	if o.missing {
		o.documents = append([]document{newNamespace(o.target.namespace)}, o.documents...)
	}
	if err := show(o.p, o.documents); err != nil {
		return err
	}
	what := "Installing"
	if o.upgrade {
		what = fmt.Sprintf("Upgrading from version %s (revision %d)", o.current.Chart.Metadata.Version, o.current.Version)
	}
	o.Say("%s would apply these objects of Rulefleet %s. Nothing was written.", what, o.version())
	return nil
}

// describeFailure says how to go on after a failure.
func (o *operation) describeFailure(err error) error {
	if _, ok := errors.AsType[*exit.Error](err); ok {
		return err
	}
	code, _ := exit.Of(err)
	verb, next := "installing", fmt.Sprintf("When the cause is removed, run %s with the same values.", o.target.command("upgrade"))
	if o.upgrade {
		verb, next = "upgrading", "When the cause is removed, run the command again."
	}
	return exit.New(code, next, "%s Rulefleet: %w", verb, err)
}
