package install

import (
	"github.com/spf13/cobra"
	"helm.sh/helm/v3/pkg/chartutil"

	"github.com/rulefleet/rulefleet/pkg/plugin/env"
	"github.com/rulefleet/rulefleet/pkg/plugin/output"
)

// oldest is what the oldest API server serves that the chart supports. What is exported works there, and everywhere
// else.
func oldest() *chartutil.Capabilities {
	return &chartutil.Capabilities{
		KubeVersion: chartutil.KubeVersion{Version: "v1.30.0", Major: "1", Minor: "30"},
		APIVersions: chartutil.VersionSet{"admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy"},
	}
}

// NewExport returns the command export and its subcommand.
func NewExport(e *env.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Print manifests that other tools can apply",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newManifests(e))
	return cmd
}

func newManifests(e *env.Env) *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:   "manifests",
		Short: "Print the manifests of Rulefleet, for GitOps",
		Long: `Print the manifests that an installation applies, with the CustomResourceDefinitions. The same values always
give the same output, in the same order. The command does not connect to the hub.

Helm's hooks are left out: their Job removes the finalizers from the SpokeClusters, and must only run after an
uninstallation.
If you remove the manifests later, let the spokes leave first (kubectl rulefleet unjoin).`,
		Example:           "  kubectl rulefleet export manifests --values values.yaml >rulefleet.yaml",
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	o.addValueFlags(cmd)
	cmd.Flags().BoolVar(&o.createNamespace, "create-namespace", true, "include the Namespace")
	p := e.Printer(cmd, output.FormatYAML, output.FormatJSON, output.FormatName)
	cmd.RunE = func(*cobra.Command, []string) error {
		if err := p.Check(); err != nil {
			return err
		}
		t := target{o.releaseName, e.Hub.SystemNamespace()}
		if err := t.check(); err != nil {
			return err
		}
		c, err := load(e.Release)
		if err != nil {
			return err
		}
		vals, err := merge(&o.values)
		if err != nil {
			return err
		}
		rel, err := render(c, t, vals, oldest(), false)
		if err != nil {
			return err
		}
		documents, err := parse(rel.Manifest)
		if err != nil {
			return err
		}
		if o.createNamespace {
			documents = append([]document{newNamespace(t.namespace)}, documents...)
		}
		return show(p, documents)
	}
	return cmd
}
