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
)

// releaseSpokes takes the finalizer off every SpokeCluster, for when no manager is left to
// do it: the chart runs it after an uninstallation. A hub without the kind has none to
// release. Nothing else is changed, so a manager that is installed again finds all as it was.
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
		log.Info("the hub has no SpokeClusters any more")
		return nil
	} else if err != nil {
		return fmt.Errorf("listing the SpokeClusters: %w", err)
	}
	var errs []error
	released := 0
	for i := range spokes.Items {
		changed, err := releaseSpoke(ctx, c, &spokes.Items[i])
		if err != nil {
			errs = append(errs, fmt.Errorf("taking the finalizer off SpokeCluster %s: %w", spokes.Items[i].Name, err))
		}
		if changed {
			released++
		}
	}
	log.Info("released the SpokeClusters; what is in the spokes stays", "released", released, "failed", len(errs))
	return errors.Join(errs...)
}

// releaseSpoke tells whether the finalizer was there.
func releaseSpoke(ctx context.Context, c client.Client, sc *v1alpha1.SpokeCluster) (released bool, err error) {
	if !controllerutil.ContainsFinalizer(sc, v1alpha1.LeaveFinalizer) {
		return false, nil
	}
	// A patch of the list as it was read: another finalizer that came since would be lost.
	next := sc.DeepCopy()
	controllerutil.RemoveFinalizer(next, v1alpha1.LeaveFinalizer)
	err = c.Patch(ctx, next, client.MergeFromWithOptions(sc, client.MergeFromWithOptimisticLock{}))
	return err == nil, client.IgnoreNotFound(err) //nolint:wrapcheck // the caller says what was done
}
