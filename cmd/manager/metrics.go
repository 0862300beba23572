package main

import (
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/controller/evaluate"
	"github.com/rulefleet/rulefleet/pkg/controller/status"
	"github.com/rulefleet/rulefleet/pkg/metrics"
	"github.com/rulefleet/rulefleet/pkg/spoke"
)

// scrapeTimeout limits the time for reading the hub's cache for a scrape. The cache has synced by
// then.
const scrapeTimeout = time.Second

// countSelf sets the metrics of this replica, whether it is the leader or not. Call it before the first request.
func countSelf(cfg *rest.Config) {
	metrics.SetVersion(version)
	if hub, _, err := rest.DefaultServerUrlFor(cfg); err == nil { // otherwise creating a client fails as well
		metrics.OnlyHub(hub.Host)
	}
}

// countFleet makes the metrics count the fleet while this replica is the leader.
func countFleet(mgr manager.Manager, provider *spoke.Provider, rules *status.Reconciler, poller *evaluate.Poller) error {
	source := metrics.Source{
		Spokes: func() ([]v1alpha1.SpokeCluster, error) {
			ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
			defer cancel()
			var list v1alpha1.SpokeClusterList
			if err := mgr.GetCache().List(ctx, &list); err != nil {
				return nil, fmt.Errorf("listing SpokeClusters: %w", err)
			}
			return list.Items, nil
		},
		Rules:  rules.Rules,
		Alerts: poller.Alerts,
		Queues: provider.Queues,
	}
	err := mgr.Add(manager.RunnableFunc(func(ctx context.Context) error { // only on the leader
		defer metrics.TheFleet.Lead(source)()
		<-ctx.Done()
		return nil
	}))
	if err != nil {
		return fmt.Errorf("setting up the metrics of the fleet: %w", err)
	}
	return nil
}
