// Package plugin is kubectl rulefleet. Every concern has a package of its own; this one puts them together.
package plugin

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/rulefleet/rulefleet/pkg/plugin/ask"
	"github.com/rulefleet/rulefleet/pkg/plugin/env"
	"github.com/rulefleet/rulefleet/pkg/plugin/exit"
	"github.com/rulefleet/rulefleet/pkg/plugin/install"
	"github.com/rulefleet/rulefleet/pkg/plugin/join"
	"github.com/rulefleet/rulefleet/pkg/plugin/output"
	"github.com/rulefleet/rulefleet/pkg/plugin/why"
)

// New returns the command and its subcommands.
func New(e *env.Env) *cobra.Command {
	root := &cobra.Command{
		Use:   "kubectl-rulefleet",
		Short: "Manage Rulefleet: the alert rules of a fleet of clusters",
		Long: `kubectl rulefleet manages Rulefleet: the Prometheus alert rules of a fleet of Kubernetes clusters.

The current context, or --context, is the hub. The plugin only has your own permissions there.

Exit codes: 0 done, 1 failed, 2 invalid command line or kubeconfig, 3 permission denied, 4 not found,
5 done, but the result is not ready.`,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl rulefleet"},
		Version:       e.Version,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetIn(e.In)
	root.SetOut(e.Out)
	root.SetErr(e.ErrOut)
	e.Hub.Flags.AddFlags(root.PersistentFlags())
	_ = root.RegisterFlagCompletionFunc("context", e.CompleteContexts)
	root.AddCommand(install.New(e), install.NewUpgrade(e), install.NewUninstall(e), install.NewExport(e), join.New(e), join.NewUnjoin(e),
		ask.NewSpokes(e), ask.NewStatus(e), ask.NewFiring(e), ask.NewCoverage(e), ask.NewAck(e), ask.NewReset(e), why.New(e))
	return root
}

// Run runs the plugin, and returns its exit code.
func Run(ctx context.Context, e *env.Env, args []string) int {
	root := New(e)
	ran := false
	root.PersistentPreRun = func(*cobra.Command, []string) { ran = true }
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exit.OK
	}
	code, next := exit.Of(err)
	if !ran { // cobra's own errors are about the command line
		code, next = exit.Usage, "To see the commands: "+cmd.CommandPath()+" --help"
		if !cmd.HasSubCommands() {
			next = "Usage: " + cmd.UseLine() + "\nTo see the flags: " + cmd.CommandPath() + " --help"
		}
	}
	_, _ = fmt.Fprintln(e.ErrOut, output.Paint(output.Cell{Text: "error:", Tone: output.Bad}, e.ErrColor), output.Clean(err.Error()))
	if next != "" {
		_, _ = fmt.Fprintln(e.ErrOut, output.CleanLines(next))
	}
	return code
}
