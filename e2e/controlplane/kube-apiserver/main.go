// Kube-apiserver is Kubernetes' API server, which ends with the process that started it, and can leave out its OpenAPI
// documents.
package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/component-base/cli"
	"k8s.io/component-base/compatibility"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	rbac "k8s.io/kubernetes/pkg/registry/rbac/rest"

	"github.com/rulefleet/rulefleet/e2e/controlplane/lifeline"
)

// openAPIEnv names the environment variable whose value "none" says that the API server does not publish its OpenAPI
// documents. It then needs a third less CPU time to start, and less for each CustomResourceDefinition. Only clients read
// these documents, such as kubectl and helm, which check with them what they send.
const openAPIEnv = "RULEFLEET_OPENAPI"

// rolesEnv names the environment variable whose value "present" says that the cluster has the default roles and their
// bindings. An API server without OpenAPI documents does not look for each of these, which takes more than 100 requests.
const rolesEnv = "RULEFLEET_ROLES"

func main() {
	lifeline.Follow()
	c := apiserver.NewAPIServerCommand
	if os.Getenv(openAPIEnv) == "none" {
		c = newCommandWithoutOpenAPI
	}
	os.Exit(cli.Run(c()))
}

// newCommandWithoutOpenAPI returns the command of an API server that does not publish its OpenAPI documents.
func newCommandWithoutOpenAPI() *cobra.Command {
	o := options.NewServerRunOptions()
	components := o.GenericServerRunOptions.ComponentGlobalsRegistry
	c := &cobra.Command{
		Use:          "kube-apiserver",
		SilenceUsage: true,
		Args:         cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := components.Set(); err != nil {
				return err
			}
			if err := logsapi.ValidateAndApply(o.Logs, components.FeatureGateFor(compatibility.DefaultKubeComponent)); err != nil {
				return err
			}
			ctx := genericapiserver.SetupSignalContext()
			completed, err := o.Complete(ctx)
			if err != nil {
				return err
			}
			if errs := completed.Validate(); len(errs) > 0 {
				return utilerrors.NewAggregate(errs)
			}
			return runWithoutOpenAPI(ctx, completed)
		},
	}
	for _, flags := range o.Flags().FlagSets {
		c.Flags().AddFlagSet(flags)
	}
	return c
}

// runWithoutOpenAPI does the same as apiserver.Run, but does not install the handlers of the documents, nor create roles that
// are present.
func runWithoutOpenAPI(ctx context.Context, o options.CompletedOptions) error {
	config, err := apiserver.NewConfig(o)
	if err != nil {
		return err
	}
	config.KubeAPIs.ControlPlane.Generic.SkipOpenAPIInstallation = true
	config.ApiExtensions.GenericConfig.SkipOpenAPIInstallation = true
	if os.Getenv(rolesEnv) == "present" {
		config.KubeAPIs.ControlPlane.Generic.DisabledPostStartHooks.Insert(rbac.PostStartHookName)
	}
	completed, err := config.Complete()
	if err != nil {
		return err
	}
	server, err := apiserver.CreateServerChain(completed)
	if err != nil {
		return err
	}
	prepared, err := server.PrepareRun()
	if err != nil {
		return err
	}
	return prepared.Run(ctx)
}
