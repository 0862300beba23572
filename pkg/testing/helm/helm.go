// Package helm installs charts for tests with Helm's own library; the helm command is not needed.
package helm

import (
	"context"
	"errors"
	"fmt"
	"time"

	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/release"
	"helm.sh/helm/v3/pkg/storage/driver"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"
)

// patience is how long to wait for a release.
const patience = 3 * time.Minute

// Release is a chart in a cluster, installed or not.
type Release struct {
	// Kubeconfig is the cluster's kubeconfig file.
	Kubeconfig string
	// Namespace and Name are those of the release.
	Namespace, Name string
	// Chart is the folder of the chart.
	Chart string
	// NoPods is for a cluster without running pods: nothing is waited for, and hooks are skipped.
	NoPods bool
	// Log receives Helm's log; it may be nil.
	Log func(format string, args ...any)
}

func (r *Release) configuration() (*action.Configuration, error) {
	flags := genericclioptions.NewConfigFlags(true)
	flags.KubeConfig, flags.Namespace = &r.Kubeconfig, &r.Namespace
	// The helm command has its own limits; client-go's default of 5 requests per second takes minutes.
	flags.WrapConfigFn = func(cfg *rest.Config) *rest.Config {
		cfg.QPS = -1
		return cfg
	}
	log := r.Log
	if log == nil {
		log = func(string, ...any) {}
	}
	c := &action.Configuration{}
	if err := c.Init(flags, r.Namespace, "secret", log); err != nil {
		return nil, fmt.Errorf("setting up Helm: %w", err)
	}
	return c, nil
}

// withChart loads the chart from its folder.
func (r *Release) withChart() (*action.Configuration, *chart.Chart, error) {
	c, err := r.configuration()
	if err != nil {
		return nil, nil, err
	}
	loaded, err := loader.Load(r.Chart)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the chart: %w", err)
	}
	return c, loaded, nil
}

// Install installs the chart, as 'helm install --create-namespace --wait' does.
func (r *Release) Install(ctx context.Context, values map[string]any) (*release.Release, error) {
	c, loaded, err := r.withChart()
	if err != nil {
		return nil, err
	}
	install := action.NewInstall(c)
	install.ReleaseName, install.Namespace, install.CreateNamespace = r.Name, r.Namespace, true
	install.Wait, install.Timeout, install.DisableHooks = !r.NoPods, patience, r.NoPods
	out, err := install.RunWithContext(ctx, loaded, values)
	if err != nil {
		return nil, fmt.Errorf("installing %s: %w", r.Name, err)
	}
	return out, nil
}

// Upgrade replaces the release's values, as 'helm upgrade --wait' does.
func (r *Release) Upgrade(ctx context.Context, values map[string]any) (*release.Release, error) {
	c, loaded, err := r.withChart()
	if err != nil {
		return nil, err
	}
	upgrade := action.NewUpgrade(c)
	upgrade.Namespace, upgrade.Wait, upgrade.Timeout, upgrade.DisableHooks = r.Namespace, !r.NoPods, patience, r.NoPods
	out, err := upgrade.RunWithContext(ctx, r.Name, loaded, values)
	if err != nil {
		return nil, fmt.Errorf("upgrading %s: %w", r.Name, err)
	}
	return out, nil
}

// Deploy installs the chart or, if it is installed, replaces its values.
func (r *Release) Deploy(ctx context.Context, values map[string]any) (*release.Release, error) {
	c, err := r.configuration()
	if err != nil {
		return nil, err
	}
	_, err = c.Releases.Last(r.Name)
	switch {
	case errors.Is(err, driver.ErrReleaseNotFound):
		return r.Install(ctx, values)
	case err != nil:
		return nil, fmt.Errorf("looking for release %s: %w", r.Name, err)
	}
	return r.Upgrade(ctx, values)
}

// Status returns the last deployed release.
func (r *Release) Status() (*release.Release, error) {
	c, err := r.configuration()
	if err != nil {
		return nil, err
	}
	out, err := action.NewStatus(c).Run(r.Name)
	if err != nil {
		return nil, fmt.Errorf("looking for release %s: %w", r.Name, err)
	}
	return out, nil
}

// List returns the releases of the namespace, whatever their state, as 'helm list --all' does.
func (r *Release) List() ([]*release.Release, error) {
	c, err := r.configuration()
	if err != nil {
		return nil, err
	}
	list := action.NewList(c)
	list.All, list.StateMask = true, action.ListAll
	out, err := list.Run()
	if err != nil {
		return nil, fmt.Errorf("listing the releases: %w", err)
	}
	return out, nil
}

// Rollback goes back to an earlier revision, as 'helm rollback --wait' does.
func (r *Release) Rollback(revision int) error {
	c, err := r.configuration()
	if err != nil {
		return err
	}
	rollback := action.NewRollback(c)
	rollback.Version, rollback.Wait, rollback.Timeout, rollback.DisableHooks = revision, !r.NoPods, patience, r.NoPods
	if err := rollback.Run(r.Name); err != nil {
		return fmt.Errorf("rolling %s back to revision %d: %w", r.Name, revision, err)
	}
	return nil
}

// Uninstall removes the release, as 'helm uninstall --wait' does.
func (r *Release) Uninstall() error {
	c, err := r.configuration()
	if err != nil {
		return err
	}
	uninstall := action.NewUninstall(c)
	uninstall.Wait, uninstall.Timeout, uninstall.DisableHooks = !r.NoPods, patience, r.NoPods
	if _, err := uninstall.Run(r.Name); err != nil {
		return fmt.Errorf("uninstalling %s: %w", r.Name, err)
	}
	return nil
}
