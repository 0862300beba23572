package spoke

import (
	"context"
	"fmt"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/source"
	mccontroller "sigs.k8s.io/multicluster-runtime/pkg/controller"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	mcsource "sigs.k8s.io/multicluster-runtime/pkg/source"

	"github.com/rulefleet/rulefleet/pkg/spoke/queue"
)

// Source is a source that a controller watches in spokes.
type Source = mcsource.TypedSource[client.Object, queue.Request]

// Watch makes a controller watch sources in every spoke that is engaged from now on. It replaces the
// controller's own MultiClusterWatch, which leaks a goroutine per source and engagement, and a spoke is
// engaged again at every rotation of its kubeconfig.
func Watch(mgr mcmanager.Manager, c mccontroller.TypedController[queue.Request], sources ...Source) error {
	if err := mgr.Add(&engager{watch: c.Watch, sources: sources, engaged: map[multicluster.ClusterName]*engagement{}}); err != nil {
		return fmt.Errorf("watching spokes: %w", err)
	}
	return nil
}

// engager starts a controller's sources in spokes.
type engager struct {
	watch   func(source.TypedSource[queue.Request]) error
	sources []Source

	mu      sync.Mutex
	engaged map[multicluster.ClusterName]*engagement
}

// engagement is one period in which a controller's sources run in a spoke.
type engagement struct{ end context.CancelFunc }

var _ mcmanager.Runnable = &engager{}

// Start implements manager.Runnable. There is nothing to do before a spoke is engaged.
func (e *engager) Start(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// Engage implements multicluster.Aware. It ends the sources of an earlier engagement.
func (e *engager) Engage(ctx context.Context, name multicluster.ClusterName, cl cluster.Cluster) error {
	ctx, cancel := context.WithCancel(ctx)
	e.replace(ctx, name, &engagement{end: cancel})
	for _, s := range e.sources {
		src, wanted, err := s.ForCluster(name, cl)
		if err == nil && wanted {
			err = e.watch(within(ctx, src))
		}
		if err != nil {
			cancel()
			return fmt.Errorf("watching spoke %s: %w", name, err)
		}
	}
	return nil
}

// replace ends the previous engagement, and removes this one when it ends.
func (e *engager) replace(ctx context.Context, name multicluster.ClusterName, next *engagement) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if before := e.engaged[name]; before != nil {
		before.end()
	}
	e.engaged[name] = next
	context.AfterFunc(ctx, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.engaged[name] == next {
			delete(e.engaged, name)
		}
	})
}

// within is a source that ends with a context or with its controller.
func within(ctx context.Context, src source.TypedSource[queue.Request]) source.TypedSource[queue.Request] {
	return source.TypedFunc[queue.Request](func(controller context.Context, q WorkQueue) error {
		ctx, cancel := context.WithCancel(ctx)
		stop := context.AfterFunc(controller, cancel)
		context.AfterFunc(ctx, func() { stop() })
		return src.Start(ctx, q) //nolint:wrapcheck // Engage does
	})
}
