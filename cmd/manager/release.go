package main

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/controller/membership"
)

// releaseSpokes removes the finalizer from every SpokeCluster when no manager is left to do it: the
// chart runs it after an uninstallation. If the hub does not have the kind, there is nothing to do. It
// changes nothing else, so that a manager that is installed again continues with the same state.
func releaseSpokes(ctx context.Context, o *options) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	log, err := o.logger()
	if err != nil {
		return err
	}
	cfg, err := hubConfig(o, "release")
	if err != nil {
		return err
	}
	c, err := client.New(cfg, client.Options{Scheme: newScheme()})
	if err != nil {
		return fmt.Errorf("connecting to the hub: %w", err)
	}
	var spokes v1alpha1.SpokeClusterList
	if err := c.List(ctx, &spokes); meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		log.Info("no SpokeCluster found on the hub")
		return nil
	} else if err != nil {
		return fmt.Errorf("listing the SpokeClusters: %w", err)
	}
	var errs []error
	released := 0
	for i := range spokes.Items {
		if !controllerutil.ContainsFinalizer(&spokes.Items[i], v1alpha1.LeaveFinalizer) {
			continue
		}
		if err := membership.Free(ctx, c, &spokes.Items[i]); err != nil {
			errs = append(errs, err)
			continue
		}
		released++
	}
	log.Info("removed the finalizers of the SpokeClusters; the rules in the spokes stay", "released", released, "failed", len(errs))
	return errors.Join(errs...)
}
