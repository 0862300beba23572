package fleet

import (
	"context"
	"errors"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
)

// Snapshot returns a cluster whose cache has the member's present objects of some kinds and never changes. Its
// client reads the cache and writes to the member. index adds indexes; it may be nil.
func (m *Member) Snapshot(ctx context.Context, index func(context.Context, client.FieldIndexer) error, kinds ...client.Object) (cluster.Cluster, error) {
	cl, err := cluster.New(m.RESTConfig(), func(o *cluster.Options) { o.Scheme = Scheme })
	if err != nil {
		return nil, fmt.Errorf("creating a client for %s: %w", m.Name(), err)
	}
	if index != nil {
		if err := index(ctx, cl.GetFieldIndexer()); err != nil {
			return nil, err
		}
	}
	for _, kind := range kinds {
		if _, err := cl.GetCache().GetInformer(ctx, kind); err != nil {
			return nil, fmt.Errorf("caching %T of %s: %w", kind, m.Name(), err)
		}
	}
	run, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- cl.Start(run) }()
	synced := cl.GetCache().WaitForCacheSync(ctx)
	stop()
	if err := <-ended; err != nil {
		return nil, fmt.Errorf("running a cache of %s: %w", m.Name(), err)
	}
	if !synced {
		return nil, errors.New("a cache of " + m.Name() + " has not synced")
	}
	return cl, nil
}
